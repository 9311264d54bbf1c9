//! `kfd-trace record` and `replay`: a file that is the stream again, and the table of `ps` at any time of it.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::tracer::{NO_MQD, program, run, run_as, run_json};
use kfd_trace_tests::harness::wait::{ATTACH, SOON};
use kfd_trace_tests::harness::{JsonProcess, Steered, Stream, Workload, shared};
use nix::mount::{MsFlags, mount, umount};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
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
    assert_eq!(queues(&["replay", FILE, "--json", "--at", "+0s"])?, BTreeSet::new(), "nothing was read yet");

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
    assert!(denied.status.code() == Some(2) && why.contains("ermission denied"), "{why}");
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
