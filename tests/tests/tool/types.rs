//! Types of the driver that are not the kernel's: right ones show what the kernel's show, wrong ones are noticed
//! before anything that rests on them is shown.

use super::listing::{QUEUES, Rows, rows, wrong};
use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::btf_file::BtfFile;
use kfd_trace_tests::harness::other_sysfs::{flag, without_btf};
use kfd_trace_tests::harness::shipped_table::TABLE;
use kfd_trace_tests::harness::tracer::{run, run_json};
use kfd_trace_tests::harness::wait::{ATTACH, SOON, until};
use kfd_trace_tests::harness::{Daemon, JsonProcess, Steered, tracer};
use kfd_trace_tests::kfd::topology::gpu_id as gpu;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A tracer whose only source of types is a file.
struct Elsewhere {
    sysfs: TempDir,
    folder: TempDir,
    types: BtfFile,
}

impl Elsewhere {
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().tempdir_in("/run")?;
        Ok(Elsewhere { sysfs: without_btf()?, folder, types: BtfFile::of_driver()? })
    }

    /// The flags of a command that takes types from these bytes.
    fn flags(&self, bytes: &[u8]) -> Result<[String; 2]> {
        let file = self.folder.path().join("types.btf");
        fs::write(&file, bytes)?;
        Ok([flag(&self.sysfs), format!("--driver-btf={}", file.display())])
    }

    /// The rows of one process in `ps --json`, by queue, and what `ps` prints on standard error.
    fn ps(&self, bytes: &[u8], pid: u32) -> Result<(Rows, String)> {
        let [sysfs, file] = self.flags(bytes)?;
        let output = run(&["ps", "--json", &sysfs, &file])?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{stderr}");
        Ok((rows(&serde_json::from_slice(&output.stdout)?, pid)?, stderr))
    }
}

#[test]
fn a_file_shows_what_the_kernels_types_show() -> Result<()> {
    let elsewhere = Elsewhere::new()?;
    let mut workload = Steered::having(&QUEUES)?;
    let truth = rows(&run_json(&["ps", "--json"])?[0], workload.pid())?;
    ensure!(truth.len() == 3 && truth[&0]["ring_address"].is_string(), "{truth:?}");
    let (shown, stderr) = elsewhere.ps(elsewhere.types.bytes(), workload.pid())?;
    ensure!(wrong(&shown, &truth).is_empty() && stderr.is_empty(), "{:?} {stderr}", wrong(&shown, &truth));
    ensure!(
        shown[&0]["ring_address"] == truth[&0]["ring_address"] && shown[&1]["queue_type"] == "sdma",
        "{shown:?}"
    );
    let [sysfs, file] = elsewhere.flags(elsewhere.types.bytes())?;
    let status = String::from_utf8(run(&["status", &sysfs, &file])?.stdout)?;
    let line = status.lines().find(|line| line.starts_with("types of the driver")).context("no line")?;
    ensure!(line.contains("file ") && line.ends_with("agrees with the driver"), "{line}");
    workload.finish().map(drop)
}

#[test]
fn a_member_that_is_8_bytes_off_is_noticed_and_nothing_wrong_is_shown() -> Result<()> {
    let elsewhere = Elsewhere::new()?;
    let mut workload = Steered::having(&QUEUES)?;
    let truth = rows(&run_json(&["ps", "--json"])?[0], workload.pid())?;
    ensure!(truth.len() == 3, "{truth:?}");
    // The members that something rests on are those of the shipped table.
    let table: Value = serde_json::from_str(TABLE)?;
    let newest = table.as_array().context("entries")?.last().context("an entry")?;
    let (mut noticed, mut failures) = (0, Vec::new());
    for (structure, about) in newest["structures"].as_object().context("structures")? {
        let members = about["members"].as_array().context("members")?;
        for member in members.iter().filter_map(|member| member[0].as_str()) {
            let Some(bytes) = elsewhere.types.moved(structure, member, 8) else { continue };
            let (shown, stderr) = elsewhere.ps(&bytes, workload.pid())?;
            let wrong = wrong(&shown, &truth);
            let is_noticed = stderr.contains("contradict") || stderr.contains("cannot use");
            println!("{structure}.{member}: {}", stderr.trim());
            if is_noticed && wrong.is_empty() {
                noticed += 1;
            } else {
                failures.push(format!("{structure}.{member}: {wrong:?} {stderr}"));
            }
        }
    }
    println!("{noticed} of {} members noticed", noticed + failures.len());
    ensure!(noticed > 30 && failures.is_empty(), "{noticed}, not: {failures:#?}");
    workload.finish().map(drop)
}

/// What `runlist` counted on the first GPU after the last of three updates, by this file.
fn counted(elsewhere: &Elsewhere, bytes: &[u8], workload: &mut Steered) -> Result<[Value; 4]> {
    let [sysfs, file] = elsewhere.flags(bytes)?;
    let words = ["runlist", "--json", "--interval=500ms", &sysfs, &file];
    let mut table = JsonProcess::spawn(&tracer::program(), &words)?;
    table.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let first = gpu(0)?;
    for percent in ["30", "20", "100"] {
        workload.must(&format!("update 0 {percent}"))?;
    }
    table.wait_line("the preemptions", SOON, |line| {
        line["preemptions"].as_array().into_iter().flatten().any(|row| row["gpu_id"] == first)
    })?;
    table.signal(Signal::SIGINT)?;
    table.wait_success(ATTACH)?;
    let lines = table.lines();
    let gpus = lines.last().and_then(|line| line["gpus"].as_array()).context("GPUs")?;
    let row = gpus.iter().find(|row| row["gpu_id"] == first).context("the GPU")?;
    Ok(["processes", "queues", "cp_queues", "oversubscribed"].map(|name| row[name].clone()))
}

/// A file of another build of the driver may agree in all else.
#[test]
fn counts_of_a_scheduler_are_shown_only_where_they_are_its_counts() -> Result<()> {
    let elsewhere = Elsewhere::new()?;
    let mut workload = Steered::having(&["create aql", "create aql", "create sdma"])?;
    let right = counted(&elsewhere, elsewhere.types.bytes(), &mut workload)?;
    ensure!(right == [json!(1), json!(3), json!(2), json!(false)], "{right:?}");
    let [processes, queues, compute] = ["processes_count", "active_queue_count", "active_cp_queue_count"];
    for (one, other) in
        [(processes, queues), (processes, compute), (queues, compute), (compute, "gws_queue_count")]
    {
        let bytes = elsewhere.types.exchanged("device_queue_manager", one, other).context(one)?;
        let shown = counted(&elsewhere, &bytes, &mut workload)?;
        ensure!(shown.iter().all(Value::is_null), "{one} and {other}: {shown:?}");
    }
    workload.finish().map(drop)
}

#[test]
fn the_daemon_drops_wrong_types_within_the_first_queue() -> Result<()> {
    let elsewhere = Elsewhere::new()?;
    // Nothing to compare with before the first queue exists.
    let bytes = elsewhere.types.exchanged("queue_properties", "queue_address", "queue_size");
    let bytes = bytes.context("two members")?;
    let [sysfs, file] = elsewhere.flags(&bytes)?;
    let daemon = Daemon::quick(&[&sysfs, &file])?;
    let before = daemon.scrape()?;
    let pending = [("source", "file"), ("checked", "pending")];
    ensure!(
        before.sum("kfd_trace_driver_types_info", &pending) == Some(1.0),
        "{:?}",
        before.series("kfd_trace_driver_types_info").collect::<Vec<_>>()
    );
    let mut workload = Steered::having(&QUEUES)?;
    let pid = workload.pid();
    daemon.scrape_until("the file to be refuted", |metrics| {
        (metrics.sum("kfd_trace_driver_types_refuted_total", &[("source", "file")]) == Some(1.0))
            .then_some(())
    })?;
    // What is shown now rests on ioctls and sysfs.
    let shown = until("the queues", SOON, || {
        // 503 while the probes are put on anew.
        let Ok(queues) = daemon.json("/api/v1/queues") else { return Ok(None) };
        let rows = rows(&queues, pid)?;
        Ok((rows.len() == QUEUES.len()).then_some(rows))
    })?;
    let truth = rows(&run_json(&["ps", "--json"])?[0], pid)?;
    for (id, row) in &shown {
        for name in ["ring_address", "ring_size", "queue_type", "gpu_id"] {
            let (shown, right) = (&row[name], &truth[id][name]);
            ensure!(
                shown.is_null() || shown == right || (shown == "compute" && right == "compute_aql"),
                "{row}"
            );
        }
    }
    let status = daemon.json("/api/v1/status")?;
    let types = &status["driver_types"];
    ensure!(types["source"] == "none" && types["refuted"][0]["reason"].is_string(), "{types}");
    ensure!(status["queues_by_ioctl"] == true, "{status}");
    ensure!(daemon.stderr().contains("contradict"), "{}", daemon.stderr());
    // A queue that comes now is followed by its ioctl.
    workload.must("create aql")?;
    let ring = workload.queues().last().context("a queue")?["ring"].clone();
    until("the new queue", SOON, || {
        let rows = rows(&daemon.json("/api/v1/queues")?, pid)?;
        Ok(rows.values().any(|row| row["ring_address"] == ring).then_some(()))
    })?;
    workload.finish().map(drop)
}

#[test]
fn a_file_that_cannot_be_used_is_one_line() -> Result<()> {
    let elsewhere = Elsewhere::new()?;
    let sysfs = flag(&elsewhere.sysfs);
    let nowhere = elsewhere.folder.path().join("nothing.btf");
    let vmlinux = Path::new("/sys/kernel/btf/vmlinux");
    let damaged = elsewhere.folder.path().join("damaged.btf");
    fs::write(&damaged, &elsewhere.types.bytes()[..1000])?;
    for (file, why) in [
        (&*nowhere, "No such file"),
        (vmlinux, "no struct kfd_process"),
        (&*damaged, ""),
        (Path::new("/run"), "not a file"),
    ] {
        let status = run(&["status", &sysfs, &format!("--driver-btf={}", file.display())])?;
        let text = String::from_utf8(status.stdout)?;
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("cannot use")).collect();
        ensure!(lines.len() == 1, "{text}");
        ensure!(lines[0].contains(&file.display().to_string()) && lines[0].contains(why), "{}", lines[0]);
        ensure!(text.contains("only ioctls are traced"), "{text}");
    }
    Ok(())
}
