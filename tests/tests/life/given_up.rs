//! Preemptions that are confirmed although a queue stayed on the GPU: the firmware gave it up. If the driver cannot
//! reset that queue alone, the scheduler hangs as after a time-out, and is reported as often: once.

use super::trouble::{all_is_well_again, kill, resets, witness};
use anyhow::{Result, ensure};
use kfd_trace_tests::harness::events::{self, all, gpu_id, mono_ns};
use kfd_trace_tests::harness::workload::kfdsim_at;
use kfd_trace_tests::harness::{Calls, Daemon, JsonLines, Steered, Stream, VmKernel};
use kfd_trace_tests::kfd::topology::gpu_id as gpu;
use serde_json::{Value, json};

/// What the firmware gives up, as kfdsim's control `give_up` has it.
const QUEUE: u32 = 1;
const RESETTABLE: u32 = 2;
const SDMA: u32 = 3;

/// Which of those that it cannot reset this driver looks for after a preemption. That of 5.10 looks for none.
fn known() -> Result<Vec<u32>> {
    let kernel = VmKernel::from_env()?;
    let since = [("6.1", QUEUE), ("7.2", SDMA)];
    Ok(since.into_iter().filter(|(series, _)| kernel.driver_is_from(series)).map(|(_, what)| what).collect())
}

/// The only hang so far: of the second GPU, with those that have queues there.
fn only_hang(lines: &[Value], hit: &[u32]) -> Result<Value> {
    let hangs = all(lines, "hws_hang");
    let [hang] = &*hangs else { anyhow::bail!("one hang: {hangs:?} of {lines:?}") };
    ensure!(gpu_id(hang) == gpu(1)?, "{hang}");
    let mut hit = hit.to_vec();
    hit.sort_unstable();
    ensure!(hang["hit_pids"] == json!(hit), "{hit:?}: {hang}");
    ensure!(hang["pid"].is_null(), "not attributed: {hang}");
    Ok(hang.clone())
}

/// An update of a queue on the second GPU, which hangs, until the reset that follows is over.
fn hangs(stream: &JsonLines, witness: &Calls, workload: &mut Steered, hit: &[u32]) -> Result<()> {
    let reply = workload.act("update 0 50")?;
    // EACCES where the driver has marked the process's queues for the reset by then, before 6.12 ETIME
    assert!(reply["errno"].is_string(), "{reply}");
    let resets = resets(stream, witness, gpu(1)?)?;
    let hang = only_hang(&events::so_far(stream, workload)?, hit)?;
    let [[begin, _]] = &*resets else { anyhow::bail!("one reset: {resets:?}") };
    ensure!(mono_ns(&hang) < mono_ns(begin), "{hang} {begin}");
    Ok(())
}

#[test]
fn a_queue_that_cannot_be_taken_off_is_one_hang() -> Result<()> {
    for what in known()? {
        let stream = Stream::shared()?;
        let mut workload = Steered::having(&["create aql gpu=1"])?;
        let mut other = Steered::having(&["create aql gpu=1"])?;
        let mut elsewhere = Steered::having(&["create aql"])?;
        let witness = witness()?;
        kfdsim_at("give_up", 1, what)?;
        let hit = [workload.pid(), other.pid()];
        hangs(&stream, &witness, &mut workload, &hit)?;
        drop(witness);
        for process in [&mut workload, &mut other, &mut elsewhere] {
            kill(&stream, process)?;
        }
        all_is_well_again(&stream)?;
        stream.end()?;
    }
    Ok(())
}

/// The compiler may inline the functions that report a hang, each at any place (`reset_queues_on_hws_hang` in ROCm's
/// 6.12.12): what changes the GPU's list of queues then shows which one hangs.
#[test]
fn it_is_one_hang_whatever_is_inlined() -> Result<()> {
    let inlined = ["--without-probe=hung_queues", "--without-probe=hws_hang"];
    // Up to 6.12 a hang is a work of its own, which no compiler inlines.
    let of = if VmKernel::from_env()?.driver_is_from("7.2") { 0..3 } else { 0..1 };
    let what = known()?.into_iter().map(|what| ("give_up", what)).chain([("hang", 1)]);
    for (control, value) in what {
        for options in [&inlined[..1], &inlined[1..], &inlined[..]].get(of.clone()).into_iter().flatten() {
            let mut stream = Stream::tracing(options)?;
            let mut workload = Steered::having(&["create aql gpu=1"])?;
            let witness = witness()?;
            kfdsim_at(control, 1, value)?;
            let hit = [workload.pid()];
            hangs(&stream, &witness, &mut workload, &hit)?;
            drop(witness);
            kill(&stream, &mut workload)?;
            all_is_well_again(&stream)?;
            stream.interrupt()?;
        }
    }
    Ok(())
}

#[test]
fn it_counts_as_one_hang() -> Result<()> {
    if known()?.is_empty() {
        return Ok(());
    }
    let daemon = Daemon::shared()?;
    let mut workload = Steered::having(&["create aql gpu=1"])?;
    kfdsim_at("give_up", 1, QUEUE)?;
    let reply = workload.act("update 0 50")?;
    assert!(reply["errno"].is_string(), "{reply}");
    daemon.scrape_until("the end of the reset", |metrics| {
        (metrics.sum("kfd_gpu_reset_seconds_total", &[])? > 0.0).then_some(())
    })?;
    let (metrics, number) = (daemon.scrape()?, gpu(1)?.to_string());
    assert_eq!(metrics.sum("kfd_hws_hangs_total", &[("gpu_id", &number)]), Some(1.0));
    assert_eq!(metrics.sum("kfd_hws_hangs_total", &[]), Some(1.0), "none of the other GPU");
    workload.kill()?;
    daemon.end()
}

#[test]
fn a_time_out_is_one_hang() -> Result<()> {
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql gpu=1"])?;
    let witness = witness()?;
    kfdsim_at("hang", 1, 1)?;
    let hit = [workload.pid()];
    hangs(&stream, &witness, &mut workload, &hit)?;
    kill(&stream, &mut workload)?;
    all_is_well_again(&stream)?;
    stream.end()
}

/// The driver resets the queue and goes on. The same thread's next hang, a time-out, is not taken for that of the
/// queue as well.
#[test]
fn a_queue_that_is_reset_alone_is_no_hang() -> Result<()> {
    if VmKernel::from_env()?.before_6_12() {
        // it resets no queue
        return Ok(());
    }
    let stream = Stream::shared()?;
    let mut workload = Steered::having(&["create aql gpu=1"])?;
    let mut given_up = Steered::having(&["create aql gpu=1"])?;
    {
        let queue_resets = Calls::of(&["kfd_signal_reset_event", "kgd2kfd_pre_reset"])?;
        kfdsim_at("give_up", 1, RESETTABLE)?;
        workload.must("update 0 60")?;
        let lines = events::so_far(&stream, &mut workload)?;
        let called: Vec<String> = queue_resets.seen()?.into_iter().map(|call| call.function).collect();
        assert_eq!(
            called,
            ["kfd_signal_reset_event"],
            "the driver's own report of a queue that it has reset"
        );
        for event in ["hws_hang", "gpu_reset_begin"] {
            assert_eq!(all(&lines, event), Vec::<Value>::new());
        }
    }
    let witness = witness()?;
    kfdsim_at("hang", 1, 1)?;
    let hit = [workload.pid(), given_up.pid()];
    hangs(&stream, &witness, &mut workload, &hit)?;
    for process in [&mut workload, &mut given_up] {
        kill(&stream, process)?;
    }
    all_is_well_again(&stream)?;
    stream.end()
}
