//! `kfd-trace timeline`: the dispatches of an AMD_LOG_LEVEL log on the clock of a recording, and a timeline of what happens
//! now.

use anyhow::{Context, Result, ensure};
use kfd_trace_tests::harness::pftrace::{Slice, slices};
use kfd_trace_tests::harness::tracer::{NO_MQD, program, run};
use kfd_trace_tests::harness::wait::ATTACH;
use kfd_trace_tests::harness::{JsonProcess, Steered};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// From `hsa_queue_t` to `write_dispatch_id`.
const WRITE_DISPATCH_ID: u64 = 0x38;

const KERNELS: u64 = 20;

pub(crate) fn ns(clock: ClockId) -> Result<u64> {
    let now = clock_gettime(clock)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}

pub(crate) fn mono_us() -> Result<u64> {
    Ok(ns(ClockId::CLOCK_MONOTONIC)? / 1000)
}

pub(crate) fn address(line: &Value, field: &str) -> Result<u64> {
    let text = line[field].as_str().with_context(|| format!("no {field}: {line}"))?;
    Ok(u64::from_str_radix(text.trim_start_matches("0x"), 16)?)
}

/// What was put into the log, by CLOCK_MONOTONIC.
struct Kernel {
    submitted_us: u64,
    begin_ns: u64,
    end_ns: u64,
}

/// Writes what ROCm 7.2 does under a profiler for kernels on this queue, in real time, and a barrier after each.
fn log(pid: u32, created: &Value) -> Result<(String, Vec<Kernel>)> {
    let (hwq, swq) = (address(created, "ring")?, address(created, "wptr")? - WRITE_DISPATCH_ID);
    let (mut text, mut ledger) = (String::new(), Vec::new());
    let mut line = |us: u64, what: String| {
        text += &format!(":4:rocvirtual.cpp:1177: {us:010} us: [pid:{pid} tid: 0x1a2b3] {what}\n");
    };
    let queue = format!("SWq={swq:#x}, HWq={hwq:#x}, id=1");
    for number in 0..KERNELS {
        let submitted_us = mono_us()?;
        line(submitted_us, format!("ShaderName : kernel_{number}"));
        line(
            submitted_us,
            format!(
                "{queue}, Dispatch Header = 0xb02 (type=2, barrier=1, acquire=1, release=1), setup=3, grid=[256, 1, 1], \
                 workgroup=[256, 1, 1], private_seg_size=0, group_seg_size=0, kernel_obj=0x7f00, kernarg_address=0x7f00, \
                 completion_signal={:#x}, correlation_id=0, rptr={number}, wptr={number}",
                0x1000 + number
            ),
        );
        let begin_ns = ns(ClockId::CLOCK_MONOTONIC)?;
        let boot_ns = ns(ClockId::CLOCK_BOOTTIME)? - begin_ns;
        sleep(Duration::from_millis(1));
        let end_ns = ns(ClockId::CLOCK_MONOTONIC)?;
        line(
            mono_us()?,
            format!(
                "Signal = ({:#x}), Translated start/end = {} / {}, Elapsed = {} ns, ticks start/end = 1 / 2, Ticks elapsed = 1",
                0x1000 + number,
                begin_ns + boot_ns,
                end_ns + boot_ns,
                end_ns - begin_ns
            ),
        );
        line(
            mono_us()?,
            format!(
                "{queue}, BarrierAND Header = 0x1503 (type=3, barrier=1, acquire=2, release=2), dep_signal=[0x0, 0x0, 0x0, 0x0, \
                 0x0], completion_signal=0x0, rptr=0, wptr=0"
            ),
        );
        ledger.push(Kernel { submitted_us, begin_ns, end_ns });
    }
    Ok((text, ledger))
}

/// Those on tracks below one of this name, or on it.
fn on<'a>(all: &'a [Slice], pid: u32, track: &'a str) -> impl Iterator<Item = &'a Slice> {
    let of = move |slice: &&Slice| slice.pid.and_then(|own| u32::try_from(own).ok()) == Some(pid);
    all.iter().filter(of).filter(move |slice| slice.path.iter().any(|name| name == track))
}

#[test]
fn a_logs_dispatches_are_within_the_life_of_their_queue_and_on_its_clock() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_str().map(str::to_owned).context("a path of text");
    let (file, logged, trace) = (path("a.rec")?, path("app.log")?, path("a.pftrace")?);
    let mut traced = JsonProcess::spawn(&program(), &[&["record", "-o", &file], &NO_MQD[..]].concat())?;
    traced.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let mut workload = Steered::having(&["create sdma"])?;
    let pid = workload.pid();
    let created = workload.act("create aql")?;
    let id = created["queue_id"].as_u64().context("an id")?;
    let (text, ledger) = log(pid, &created)?;
    fs::write(&logged, &text)?;
    workload.must(&format!("destroy id={id}"))?;
    workload.finish()?;
    traced.signal(Signal::SIGINT)?;
    traced.wait_success(ATTACH)?;

    let made = run(&["timeline", &file, "--amd-log", &logged, "-o", &trace])?;
    let said = String::from_utf8(made.stderr)?;
    ensure!(made.status.success() && said.contains("lie within the life of 1 queue"), "{said}");
    let all = slices(Path::new(&trace))?;
    let queue = format!("queue {id}");
    let life = on(&all, pid, &queue).find(|slice| slice.path.last() == Some(&queue)).context("its life")?;
    let ended_ns = life.end_ns.context("its end")?;
    let runs: Vec<&Slice> = on(&all, pid, &queue).filter(|slice| slice.name.starts_with("kernel_")).collect();
    assert_eq!(runs.len(), ledger.len(), "{runs:?}");
    for (number, (run, kernel)) in runs.iter().zip(&ledger).enumerate() {
        let end_ns = run.end_ns.context("its end")?;
        assert_eq!(run.name, format!("kernel_{number}"));
        assert!(life.begin_ns <= run.begin_ns && end_ns <= ended_ns, "{run:?} in {life:?}");
        // The offset of the clocks is read in two steps, here and by the tracer.
        let wrong_ns = run.begin_ns.abs_diff(kernel.begin_ns).max(end_ns.abs_diff(kernel.end_ns));
        assert!(wrong_ns < 100_000, "{wrong_ns}: {run:?}");
        assert!(run.begin_ns >= kernel.submitted_us * 1000, "{run:?}");
    }
    let barriers: Vec<u64> = on(&all, pid, "AMD log: submitted").map(|slice| slice.begin_ns / 1000).collect();
    let time =
        |line: &str| line.split(": ").nth(1).and_then(|text| text.trim_end_matches(" us").parse().ok());
    let expected: Vec<u64> =
        text.lines().filter(|line| line.contains("BarrierAND")).filter_map(time).collect();
    assert_eq!((barriers.as_slice(), barriers.len()), (expected.as_slice(), ledger.len()));

    let of_other = text.replace(&format!("pid:{pid} "), "pid:1 ");
    fs::write(&logged, of_other)?;
    let refused = run(&["timeline", &file, "--amd-log", &logged, "-o", &trace])?;
    let said = String::from_utf8(refused.stderr)?;
    assert!(refused.status.code() == Some(1) && said.contains("is of another PID"), "{said}");
    Ok(())
}

#[test]
fn a_timeline_of_now_has_what_happened_until_its_end_and_leaves_no_recording() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("now.pftrace");
    let name = trace.to_str().context("a path of text")?;
    let existing = Steered::having(&["create aql"])?;
    let options = [&["timeline", "--duration", "10m", "--event", "queue_create", "-o", name], &NO_MQD[..]];
    let mut traced = JsonProcess::spawn(&program(), &options.concat())?;
    traced.wait_stderr("kfd-trace: tracing", ATTACH)?;
    let mut workload = Steered::having(&["create aql"])?;
    let pid = workload.pid();
    let created = workload.act("create sdma")?;
    let queue = format!("queue {}", created["queue_id"]);
    workload.must(&format!("destroy id={}", created["queue_id"]))?;
    workload.kill()?;
    let before_ns = ns(ClockId::CLOCK_MONOTONIC)?;
    traced.signal(Signal::SIGINT)?;
    traced.wait_success(ATTACH)?;
    assert!(traced.lines().is_empty(), "nothing is printed on standard output");

    let all = slices(&trace)?;
    let life: Vec<&Slice> = on(&all, pid, &queue).collect();
    let [life] = life[..] else { anyhow::bail!("{life:?}") };
    assert!(life.end_ns.is_some_and(|end| life.begin_ns < end && end < before_ns), "{life:?}");
    let queue = format!("queue {}", existing.queue_id(0)?);
    let open = on(&all, existing.pid(), &queue).all(|slice| slice.end_ns.is_none());
    assert!(open && on(&all, existing.pid(), &queue).count() == 1, "{all:?}");
    assert!(all.iter().all(|slice| !slice.path.iter().any(|name| name.starts_with("ioctls"))), "{all:?}");
    let left: Vec<_> = fs::read_dir(folder.path())?.collect::<Result<_, _>>()?;
    assert_eq!(left.len(), 1, "{left:?}");
    existing.kill()
}
