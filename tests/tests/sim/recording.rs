//! `kfd-trace record` and `replay`: a file that is the stream again, and the table of `ps` at any time of it.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::{NO_MQD, program, run, run_as, run_json};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{Daemon, JsonProcess, Steered, Stream, Workload, shared, until};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

const FILE: &str = "/tmp/kfd-trace.rec";

/// PID, GPU, id and type of each queue of a table.
fn queues(args: &[&str]) -> Result<BTreeSet<String>> {
    let table = run_json(args)?.pop().context("one object")?;
    let rows = table["queues"].as_array().context("queues")?.iter();
    Ok(rows
        .map(|row| format!("{} {} {} {}", row["pid"], row["gpu_id"], row["queue_id"], row["queue_type"]))
        .collect())
}

#[test]
fn a_recording_is_the_stream_again_and_the_table_of_any_time() -> Result<()> {
    let existing = Steered::having(&["create aql"])?;
    let mut stream = Stream::tracing(&[&["--record", FILE], &NO_MQD[..]].concat())?;
    let mut workload = Steered::having(&["create aql", "create sdma", "version"])?;
    let born = |line: &Value| line["event"] == "queue_create" && line["queue_type"] == "sdma";
    let last = stream.wait_line("its queues", SOON, born)?;
    let (then, at) = (queues(&["ps", "--json"])?, last["ts"].as_str().context("a time")?.to_owned());
    assert_eq!(then.len(), 3, "{then:?}");
    workload.must("destroy 1")?;
    workload.must("update 0 50 priority=11")?;
    // At least one sample of its pointers, and one comparison with the driver's lists.
    sleep(Duration::from_millis(1_500));
    workload.kill()?;
    existing.kill()?;
    stream.wait_lines("both ends", SOON, |lines| {
        (lines.iter().filter(|line| line["event"] == "process_release").count() == 2).then_some(())
    })?;
    let summary = stream.finish()?;

    let live = stream.lines();
    let again = run_json(&["replay", FILE, "--json"])?;
    let different = live.iter().zip(&again).find(|(live, again)| live != again);
    assert_eq!(different, None);
    assert_eq!((live.len(), again.last()), (again.len(), Some(&summary)));
    assert_eq!(queues(&["replay", FILE, "--json", "--at", &at])?, then);
    let early = run(&["replay", FILE, "--json", "--at", "+0s"])?;
    let why = String::from_utf8(early.stderr)?;
    assert!(early.status.code() == Some(1) && why.contains("nothing was traced then"), "{why}");

    let chosen =
        run_json(&["replay", FILE, "--json", "--event", "queue_destroy", "--event", "queue_update"])?;
    let kinds: BTreeSet<_> = chosen.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(kinds.len(), 3, "and the summary: {kinds:?}");
    let trace = "/tmp/kfd-trace.pftrace";
    let made = run(&["timeline", FILE, "-o", trace])?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(fs::metadata(trace)?.len() > 4_000, "each event has a packet");
    let late = run(&["replay", FILE, "--at", "2001-01-01T00:00:00Z"])?;
    let why = String::from_utf8(late.stderr)?;
    assert!(late.status.code() == Some(1) && why.contains("it begins later"), "{why}");
    Ok(())
}

#[test]
fn a_recording_is_its_owners_and_any_user_can_read_a_copy() -> Result<()> {
    let mut traced = JsonProcess::spawn(&program(), &[&["record", "-o", FILE], &NO_MQD[..]].concat())?;
    traced.wait_stderr("kfd-trace: tracing", ATTACH)?;
    Steered::having(&["create aql"])?.kill()?;
    traced.signal(Signal::SIGINT)?;
    traced.wait_success(ATTACH)?;
    assert!(traced.lines().is_empty(), "only the summary is printed");
    assert!(traced.other_lines().iter().any(|line| line.contains("queues: 0 existing, 1 created")));

    let denied = run_as(1000, &["replay", FILE])?;
    let why = String::from_utf8(denied.stderr)?;
    assert!(denied.status.code() == Some(1) && why.contains("ermission denied"), "{why}");
    let copy = "/tmp/copy.rec";
    fs::write(copy, fs::read(FILE)?).context("a copy")?;
    let text = String::from_utf8(run_as(1000, &["replay", copy])?.stdout)?;
    let printed = traced.other_lines().join("\n");
    assert!(text.contains(" CREATE_QUEUE ") && text.ends_with(&format!("{printed}\n")), "{text}\n{printed}");
    Ok(())
}

#[test]
fn what_a_killed_recorder_leaves_is_read_to_its_last_whole_block() -> Result<()> {
    let mut traced = JsonProcess::spawn(&program(), &[&["record", "-o", FILE], &NO_MQD[..]].concat())?;
    traced.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let workload = Steered::having(&["create aql"])?;
    // A line waits a second at most, and is looked at four times in it.
    sleep(Duration::from_secs(2));
    traced.signal(Signal::SIGKILL)?;
    traced.wait_exit(SOON)?;
    workload.kill()?;
    let whole = fs::read(FILE)?;
    for (bytes, why) in [(whole.len(), "it has no end"), (whole.len() - 1, "it ends within a block")] {
        fs::write(FILE, &whole[..bytes])?;
        let replayed = run(&["replay", FILE])?;
        let (text, said) = (String::from_utf8(replayed.stdout)?, String::from_utf8(replayed.stderr)?);
        assert!(replayed.status.code() == Some(1) && said.contains(why), "{said}");
        let made = run(&["timeline", FILE])?;
        let said = String::from_utf8(made.stderr)?;
        assert!(made.status.code() == Some(1) && said.contains(why), "{said}");
        ensure!(bytes < whole.len() || text.contains(" CREATE_QUEUE "), "{text}");
    }
    Ok(())
}

#[test]
fn a_full_disk_ends_a_recording_with_what_had_room() -> Result<()> {
    // The shared stream would have to report each ioctl.
    shared::end_stream()?;
    let place = Path::new("/tmp/small");
    fs::create_dir_all(place)?;
    mount(Some("small"), place, Some("tmpfs"), MsFlags::empty(), Some("size=64k"))?;
    let file = "/tmp/small/full.rec";
    let mut traced = JsonProcess::spawn(&program(), &[&["record", "-o", file], &NO_MQD[..]].concat())?;
    traced.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let mut burst = Workload::spawn(&["burst", "--threads=1", "--count=20000"])?;
    let code = traced.wait_exit(ATTACH)?.code();
    burst.finish_within(Duration::from_secs(150))?;
    let why = traced.stderr();
    assert!(
        code == Some(1) && why.contains("the recording cannot be written further: No space left"),
        "{why}"
    );
    let replayed = run(&["replay", file, "--json", "--event", "ioctl"])?;
    assert_eq!(replayed.status.code(), Some(1), "it is not whole");
    let calls = String::from_utf8(replayed.stdout)?.lines().count();
    assert!((100..20_000).contains(&calls), "{calls}");
    umount(place).context("unmount it")
}

const FOLDER: &str = "/tmp/recordings";
const MOST: u64 = 96 << 10;

/// The files of the folder, oldest first.
fn files() -> Result<Vec<PathBuf>> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(FOLDER)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    all.sort();
    Ok(all)
}

/// Of all of them.
fn bytes() -> Result<u64> {
    Ok(files()?.iter().filter_map(|file| Some(fs::metadata(file).ok()?.len())).sum())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap_or_default()
}

/// What must not depend on where a recording begins. Its birth: nanoseconds of its age, apart since clocks are read twice.
fn facts(document: &Value) -> Result<BTreeMap<String, Option<u64>>> {
    let names =
        ["pid", "gpu_id", "queue_id", "queue_type", "kfd_process", "ring_address", "sources", "priority"];
    let rows = document["queues"].as_array().context("queues")?.iter();
    let fact = |row: &Value| names.map(|name| format!("{name}={}", row[name])).join(" ");
    Ok(rows.map(|row| (fact(row), row["age_ns"].as_u64())).collect())
}

fn assert_same(replayed: &[Value], then: &Value) -> Result<()> {
    let (replayed, then) = (facts(replayed.first().context("one object")?)?, facts(then)?);
    assert_eq!(replayed.keys().collect::<Vec<_>>(), then.keys().collect::<Vec<_>>());
    for (queue, age) in then {
        let again = replayed[&queue];
        let apart = age.zip(again).map(|(one, other)| one.abs_diff(other));
        assert!(
            age.is_some() == again.is_some() && apart.unwrap_or(0) < 1_000_000,
            "{queue}: {age:?}, {again:?}"
        );
    }
    Ok(())
}

#[test]
fn a_daemons_files_are_bounded_and_each_has_all_that_existed_before_it() -> Result<()> {
    shared::end()?;
    let _ = fs::remove_dir_all(FOLDER);
    let found = Steered::having(&["create aql", "create sdma"])?;
    let bound = format!("--record.max-size={MOST}");
    let options = [&["--record", FOLDER, "--record.file-size=16KiB", &bound], &NO_MQD[..]].concat();
    let mut daemon = Daemon::quick(&options)?;
    let born = Steered::having(&["create aql"])?;
    let turns: Vec<&str> = ["create aql", "destroy 0"].into_iter().cycle().take(400).collect();
    let words: Vec<&str> = ["script"].into_iter().chain(turns).collect();
    let (mut largest, mut latest) = (0, None);
    // Until the first files were removed.
    for turn in 0..60 {
        let before = bytes()?;
        Workload::spawn(&words)?.finish_within(Duration::from_secs(60))?;
        // What several of them do in a second would be one block, too large for a file.
        until("the turn to be written", SOON, || Ok((bytes()? != before).then_some(())))?;
        largest = largest.max(bytes()?);
        if !text(&files()?[0]).contains("-00000001-") && turn % 3 == 2 {
            break;
        }
    }
    // What is written once a second.
    sleep(Duration::from_millis(1_500));
    for _ in 0..2 {
        let then = daemon.json("/api/v1/queues")?;
        let rows = then["queues"].as_array().context("queues")?.len();
        assert_eq!(rows, 3, "{then}");
        latest = Some(then);
        sleep(Duration::from_millis(1_500));
    }
    let then = latest.context("an answer")?;
    let at = then["ts"].as_str().context("a time")?;
    let metrics = daemon.scrape()?;
    let sum = |name: &str| metrics.sum(&format!("kfd_trace_recording_{name}"), &[]);
    assert_eq!((sum("up"), sum("lost_changes_total")), (Some(1.0), Some(0.0)));
    daemon.stop()?;

    let all = files()?;
    assert!(all.len() >= 3 && !text(&all[0]).contains("-00000001-"), "{all:?}");
    assert!(largest <= MOST && largest > MOST / 3, "{largest}");
    for (index, file) in all.iter().enumerate() {
        let about = fs::metadata(file)?;
        assert_eq!(about.permissions().mode() & 0o777, 0o600, "{}", file.display());
        let alone = run_json(&["replay", text(file), "--json", "--at", "+0s"])?;
        let queues = facts(alone.first().context("one object")?)?;
        let of = |pid: u32| queues.keys().filter(|queue| queue.starts_with(&format!("pid={pid} "))).count();
        assert_eq!((of(found.pid()), of(born.pid())), (2, 1), "file {index}: {queues:?}");
        let lines = run_json(&["replay", text(file), "--json"])?;
        assert!(lines.len() > 4 && lines.iter().all(|line| line["event"] != "recording_gap"), "file {index}");
    }
    assert_same(&run_json(&["replay", FOLDER, "--json", "--at", at])?, &then)?;
    assert_same(&run_json(&["replay", text(all.last().context("files")?), "--json", "--at", at])?, &then)?;
    // One recording: a queue that is created and destroyed is reported once, whichever file has it.
    let lines = run_json(&["replay", FOLDER, "--json"])?;
    let of = |event: &str| lines.iter().filter(|line| line["event"] == event).count();
    assert!(
        of("queue_create").abs_diff(of("queue_destroy")) <= 4,
        "{} {}",
        of("queue_create"),
        of("queue_destroy")
    );
    assert_eq!(of("process_seen") - of("process_release"), 2, "those that live");
    let made = run(&["timeline", FOLDER, "-o", "/tmp/folder.pftrace"])?;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    found.kill()?;
    born.kill()
}

#[test]
fn a_daemon_that_is_killed_or_has_no_room_leaves_what_was_written_and_shows_the_gap() -> Result<()> {
    shared::end()?;
    let _ = fs::remove_dir_all(FOLDER);
    fs::create_dir_all(FOLDER)?;
    mount(Some("small"), FOLDER, Some("tmpfs"), MsFlags::empty(), Some("size=128k"))?;
    let options = [&["--record", FOLDER], &NO_MQD[..]].concat();
    let mut daemon = Daemon::quick(&options)?;
    let workload = Steered::having(&["create aql"])?;
    sleep(Duration::from_secs(3));
    daemon.signal(Signal::SIGKILL)?;
    daemon.wait_exit(SOON)?;
    let whole = run(&["replay", FOLDER])?;
    let (text, why) = (String::from_utf8(whole.stdout)?, String::from_utf8(whole.stderr)?);
    assert!(whole.status.code() == Some(1) && why.contains("it has no end"), "{why}");
    assert!(text.contains(" CREATE_QUEUE "), "{text}");

    // A full disk: what is traced goes on, and so does the recording once there is room.
    let mut daemon = Daemon::quick(&options)?;
    fs::write(format!("{FOLDER}/filler"), vec![0; 256 << 10]).expect_err("it is full");
    let other = Steered::having(&["create sdma"])?;
    let lost = daemon.scrape_until("what is lost", |metrics| {
        metrics.sum("kfd_trace_recording_lost_changes_total", &[]).filter(|lost| *lost > 0.0)
    })?;
    assert_eq!(daemon.scrape()?.sum("kfd_trace_recording_up", &[]), Some(0.0));
    assert_eq!(daemon.json("/api/v1/queues")?["queues"].as_array().map(Vec::len), Some(2), "it is traced");
    fs::remove_file(format!("{FOLDER}/filler"))?;
    daemon.scrape_until("the recording to go on", |metrics| {
        metrics.sum("kfd_trace_recording_up", &[]).filter(|up| *up > 0.0)
    })?;
    daemon.stop()?;
    let lines = run_json(&["replay", FOLDER, "--json"])?;
    let gaps: Vec<_> = lines.iter().filter(|line| line["event"] == "recording_gap").collect();
    assert_eq!(gaps.len(), 2, "{gaps:?}");
    assert_eq!(gaps[0]["lost_changes"], Value::Null, "one was killed");
    assert!(gaps[1]["lost_changes"].as_f64() >= Some(lost), "{gaps:?}");
    assert!(
        daemon.stderr().matches("cannot be recorded to: No space left").count() == 1,
        "{}",
        daemon.stderr()
    );
    workload.kill()?;
    other.kill()?;
    umount(FOLDER).context("unmount it")
}
