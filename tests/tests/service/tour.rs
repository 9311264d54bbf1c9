//! The incident of docs/tour.md, from its alert to its end: each picture shows what the document says of it.
//!
//! Two Slurm jobs share GPU 0. One trains. The other one makes a queue for each trial and destroys it, and its kernels
//! are slow to leave the GPU: each time kfdsim's command processor answers late. GPU 1 has no part in it.

use super::alerts::Again;
use anyhow::{Context as _, Result, ensure};
use kfd_trace_tests::harness::prometheus::{Prometheus, RULES};
use kfd_trace_tests::harness::service::{ADDRESS, Changed, tracing};
use kfd_trace_tests::harness::setting::{Hang, PREEMPTION_TIMEOUT, Setting};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::workload::program;
use kfd_trace_tests::harness::{Steered, TerminalProcess, http, until};
use kfd_trace_tests::kfd::topology::gpu_id;
use kfd_trace_tests::tour::{
    ALERT, Actor, CULPRIT, FIRES, NODE, PROCESS, REPLAY, RUNLIST, Step, TOP, VICTIM,
};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

const DROP_IN: &str = include_str!("../../../deploy/systemd/record.conf");
const FOLDER: &str = "/var/lib/kfd-trace-recordings";

/// Columns and lines of the terminal: all columns of `top`, and the longest line of the replay.
const SIZE: (u16, u16) = (120, 30);
const WIDE: (u16, u16) = (140, 30);

/// A line with the command, then what it shows. A hidden cursor marks the end: then all of it is on the screen.
const SHELL: &str =
    "printf '\\033[1m# %s\\033[m\\n' \"$0\"; eval \"$0\"; done=$?; printf '\\033[?25l'; exit $done";

/// Moves itself to a cgroup, and becomes another program.
const INTO: &str = "echo 0 > \"$0/cgroup.procs\" && exec \"$1\" script";

/// How long the GPU takes to be preempted, and rests until the next time.
const SLOW: Duration = Duration::from_millis(400);
const REST: Duration = Duration::from_millis(900);

/// Packets that `train` submits at each turn, and that the GPU retires if it runs.
const TURN: Duration = Duration::from_millis(200);
const SUBMITTED: u64 = 24;
const RETIRED: u64 = 30;

/// How long it does so alone.
const ALONE: Duration = Duration::from_secs(10);

const CTRL_C: &str = "\u{3}";

/// What is shown at a step: a page, or a picture of a terminal.
type Shown<'a> = &'a dyn Fn(Step, &str);

/// A process in a job, by its name and its PID, with a queue.
fn cast(actor: Actor, folder: &Path) -> Result<Steered> {
    let job = format!("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0", actor.job);
    fs::create_dir_all(&job).with_context(|| format!("make {job}"))?;
    let path = folder.join(actor.comm);
    symlink(program(), &path).context("give it its name")?;
    let start = || Steered::start_by(Command::new("/bin/sh").args(["-c", INTO, &job]).arg(&path));
    let started = Steered::started_with_pid(actor.pid, start)?;
    let mut process = started.with_context(|| format!("PID {} is in use", actor.pid))?;
    process.must("create aql")?;
    Ok(process)
}

/// Trains until it is dropped; while the GPU is preempted it retires nothing.
fn train(mut process: Steered, preempted: &Arc<AtomicBool>) -> Again {
    let (preempted, mut backlog) = (Arc::clone(preempted), 0);
    Again::and_again(TURN, move || {
        process.must(&format!("submit 0 {SUBMITTED}"))?;
        backlog += SUBMITTED;
        if preempted.load(Ordering::Relaxed) {
            return Ok(());
        }
        let retired = RETIRED.min(backlog);
        backlog -= retired;
        process.must(&format!("retire 0 {retired}"))
    })
}

/// Makes one change of its queues, for which the GPU is preempted slowly.
fn slowly(process: &mut Steered, change: &str, preempted: &AtomicBool) -> Result<serde_json::Value> {
    let hang = Hang::begin()?;
    preempted.store(true, Ordering::Relaxed);
    let begun = process.begin(change)?;
    sleep(SLOW);
    drop(hang);
    preempted.store(false, Ordering::Relaxed);
    process.answer(&begun)
}

/// One queue for each trial, until it is dropped.
fn sweep(mut process: Steered, preempted: &Arc<AtomicBool>) -> Again {
    let preempted = Arc::clone(preempted);
    Again::and_again(REST, move || {
        let made = slowly(&mut process, "create aql", &preempted)?;
        let id = made["queue_id"].as_u64().with_context(|| format!("a queue: {made}"))?;
        sleep(REST);
        let destroyed = slowly(&mut process, &format!("destroy id={id}"), &preempted)?;
        ensure!(destroyed["errno"].is_null(), "{destroyed}");
        Ok(())
    })
}

/// A command on a terminal, once it has ended.
fn ended(step: Step) -> Result<TerminalProcess> {
    let mut terminal = TerminalProcess::spawn("/bin/sh", &["-c", SHELL, step.shown_by], WIDE)?;
    let status = terminal.wait_exit(ATTACH)?;
    until("all of its output", SOON, || Ok((!terminal.is_restored()?).then_some(())))?;
    ensure!(status.success(), "{}: {status}\n{}", step.shown_by, terminal.text());
    Ok(terminal)
}

/// A command on a terminal that goes on.
fn live(step: Step) -> Result<TerminalProcess> {
    TerminalProcess::spawn("/bin/sh", &["-c", &format!("exec {}", step.shown_by)], SIZE)
}

/// A page of the daemon.
fn page(step: Step) -> Result<String> {
    let path = step.shown_by.strip_prefix(&format!("http://{ADDRESS}")).context("the daemon's page")?;
    Ok(http::get(ADDRESS, path)?.body)
}

/// Fails where a text lacks one of these.
fn has(step: Step, text: &str, wanted: &[&str]) -> Result<()> {
    let missing: Vec<_> = wanted.iter().filter(|words| !text.contains(**words)).collect();
    ensure!(missing.is_empty(), "{}: no {missing:?} in\n{text}", step.picture);
    Ok(())
}

/// The words of the first line that begins with this, after it.
fn line(text: &str, begin: &str) -> Result<Vec<String>> {
    let found = text.lines().find_map(|line| line.trim_start().strip_prefix(begin));
    let words = found.with_context(|| format!("no line {begin} in\n{text}"))?;
    Ok(words.split_whitespace().map(str::to_owned).collect())
}

/// The text of a page's rows, one per line, cells apart.
fn rows(html: &str) -> String {
    let rows = html.split("<tr").skip(1).filter_map(|row| row.split("</tr>").next());
    rows.map(|row| {
        let parts = row.split('<').map(|part| part.split_once('>').map_or("", |(_, text)| text.trim()));
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ") + "\n"
    })
    .collect()
}

/// One step after the other, while the incident lasts.
struct Tour<'a> {
    show: Shown<'a>,
    /// gpu_id of each GPU: the first is that of the incident.
    gpus: [String; 2],
}

impl Tour<'_> {
    fn the_alert_names_gpu_and_culprit(&self) -> Result<()> {
        let terminal = ended(FIRES)?;
        // Folded.
        let text = terminal.text().split_whitespace().collect::<Vec<_>>().join(" ");
        let [gpu, other] = &self.gpus;
        let blamed = format!("On behalf of: {} (PID {})", CULPRIT.comm, CULPRIT.pid);
        let named = format!("GPU {gpu} is gpu 0 (0000:00:02.0, gfx900)");
        has(FIRES, &text, &[ALERT, "\"firing\"", &named, &blamed])?;
        ensure!(!text.contains(other) && !text.contains(VICTIM.comm), "more than these:\n{text}");
        (self.show)(FIRES, &terminal.svg(FIRES.shown_by));
        Ok(())
    }

    fn the_page_shows_who_is_on_which_gpu(&self) -> Result<()> {
        let html = page(NODE)?;
        let text = rows(&html);
        let of_gpu = |number| line(&text, &format!("gpu {number} (0000:00:0{}.0, gfx900)", number + 2));
        // gpu_id, State, Processes
        let [first, second] = [of_gpu(0)?, of_gpu(1)?];
        ensure!(first[0] == self.gpus[0] && first[2] == "2" && second[2] == "0", "{text}");
        let job = |actor: Actor| format!("{} {} slurm {}.0", actor.pid, actor.comm, actor.job);
        has(NODE, &text, &[&job(CULPRIT), &job(VICTIM), "queue_create", "queue_destroy"])?;
        (self.show)(NODE, &html);
        Ok(())
    }

    fn top_shows_who_falls_behind(&self) -> Result<()> {
        let mut top = live(TOP)?;
        let [culprit, victim] = [CULPRIT, VICTIM].map(|actor| actor.pid.to_string());
        let text = top.wait("rates, and the culprit's queues", ATTACH, |screen| {
            let event =
                |name: &str| screen.lines().any(|line| line.contains(name) && line.contains(&culprit));
            let row = line(screen, &victim).ok()?;
            let measured =
                row.iter().any(|word| word == "busy") && row.iter().any(|word| word.ends_with("/s"));
            // Not what was there when it began.
            let since = !screen.contains("origin standing");
            (measured && since && event("queue_create") && event("queue_destroy")).then(|| screen.to_owned())
        })?;
        let [behind, ahead] = [&victim, &culprit].map(|pid| line(&text, pid));
        // COMM, OWNER (two words), GPUS, QUEUES, RATE, SDMA, BACKLOG
        let backlog = |row: &[String]| row.iter().rev().nth(3).and_then(|word| word.parse::<u64>().ok());
        let (behind, ahead) = (behind?, ahead?);
        has(TOP, &behind.join(" "), &[&format!("{} slurm {}.0 0", VICTIM.comm, VICTIM.job)])?;
        has(TOP, &ahead.join(" "), &[&format!("{} slurm {}.0 0", CULPRIT.comm, CULPRIT.job)])?;
        ensure!(backlog(&behind).is_some_and(|packets| packets > SUBMITTED * 4), "no backlog:\n{text}");
        (self.show)(TOP, &top.svg(TOP.shown_by));
        top.press("q")?;
        top.wait_restored(ATTACH)
    }

    fn the_runlist_shows_who_lets_whom_wait(&self) -> Result<()> {
        let mut runlist = live(RUNLIST)?;
        let row = |text: &str, actor: Actor| line(text, &format!("{}  {}", actor.pid, actor.comm));
        runlist.wait("an interval", ATTACH, |screen| row(screen, CULPRIT).ok())?;
        // The rest of its table.
        sleep(Duration::from_secs(1));
        let text = runlist.text();
        let [causes, waits] = [row(&text, CULPRIT)?, row(&text, VICTIM)?];
        // GPU_ID, PREEMPTS, TOOK, WAITED FOR, WAITED
        let here = |row: &[String]| row[0] == self.gpus[0];
        ensure!(here(&causes) && causes[1].parse::<u32>()? > 3 && causes[3] == "0", "{text}");
        ensure!(here(&waits) && waits[1] == "0" && causes[1..3] == waits[3..5], "{text}");
        (self.show)(RUNLIST, &runlist.svg(RUNLIST.shown_by));
        runlist.press(CTRL_C)?;
        runlist.wait_restored(ATTACH)
    }

    fn the_culprits_page_shows_what_it_does(&self) -> Result<()> {
        let html = page(PROCESS)?;
        let (pid, job) = (format!("PID {}", CULPRIT.pid), format!("slurmstepd.scope/job_{}/", CULPRIT.job));
        has(PROCESS, &html, &[&pid, CULPRIT.comm, &job, "Uses KFD for"])?;
        let own = |event| format!("{event} gpu 0 {} {}", CULPRIT.pid, CULPRIT.comm);
        has(PROCESS, &rows(&html), &[&own("queue_create"), &own("queue_destroy")])?;
        (self.show)(PROCESS, &html);
        Ok(())
    }

    fn the_recording_has_all_of_it_and_its_end(&self) -> Result<()> {
        let terminal = ended(REPLAY)?;
        let (text, pid) = (terminal.text(), CULPRIT.pid.to_string());
        let waits = format!("pid {} waits", VICTIM.pid);
        has(REPLAY, &text, &[CULPRIT.comm, "gpu 0", "reason=create <40", "reason=destroy <40", &waits])?;
        let last = text.lines().next_back().unwrap_or_default();
        ensure!(
            last.contains(&pid) && last.contains("PROCESS_GONE"),
            "its end is not the last line:\n{text}"
        );
        (self.show)(REPLAY, &terminal.svg(REPLAY.shown_by));
        Ok(())
    }
}

fn play(show: Shown<'_>) -> Result<()> {
    let tour = Tour { show, gpus: [gpu_id(0)?.to_string(), gpu_id(1)?.to_string()] };
    let (_, settings) = DROP_IN.split_once("[Service]\n").context("settings")?;
    tracing()?;
    let changed = Changed::with("tour", &settings.replace("$KFD_TRACE_OPTS", "--runlists"))?;
    tracing()?;
    let _patient = Setting::of(PREEMPTION_TIMEOUT, "9000")?;
    let server = Prometheus::scraping(ADDRESS, RULES)?;
    let (folder, preempted) = (tempfile::tempdir()?, Arc::new(AtomicBool::new(false)));
    let trains = train(cast(VICTIM, folder.path())?, &preempted);
    // What it does when nobody disturbs it.
    sleep(ALONE);
    let sweeps = sweep(cast(CULPRIT, folder.path())?, &preempted);

    server.until(ALERT, |firing| {
        ensure!(firing.iter().all(|name| name == ALERT), "{firing:?}");
        Ok(!firing.is_empty())
    })?;
    tour.the_alert_names_gpu_and_culprit()?;
    tour.the_page_shows_who_is_on_which_gpu()?;
    tour.top_shows_who_falls_behind()?;
    tour.the_runlist_shows_who_lets_whom_wait()?;
    tour.the_culprits_page_shows_what_it_does()?;
    drop(sweeps);
    server.until("no alert", |firing| Ok(firing.is_empty()))?;
    tour.the_recording_has_all_of_it_and_its_end()?;

    drop(trains);
    changed.undo()?;
    fs::remove_dir_all(fs::canonicalize(FOLDER)?).context("remove the recordings")
}

#[test]
fn an_incident_leads_from_its_alert_to_its_culprit() -> Result<()> {
    play(&|_, _| ())
}

/// For `cargo xtask picture` (xtask/src/vm/picture.rs).
#[test]
#[ignore = "prints the pictures of docs/tour.md, and pages to make pictures of"]
fn pictures() -> Result<()> {
    play(&|step, shown| {
        // As high as what matters of the page.
        let window = if step == PROCESS { "1440x1156" } else { "1440x650" };
        println!("PICTURE BEGINS docs/tour/{} {window}\n{shown}\nPICTURE ENDS", step.picture);
    })
}
