//! Queue activity.

use super::*;
use crate::model::pointers::samples::sdma;
use crate::model::pointers::{Counts, Unmeasured};
use crate::state::{Reading, WaitingReaders};

const S: u64 = 1_000_000_000;
const OWN: &str = r#"{pid="4321",kfd_process="1",comm="train",gpu_id="58270"}"#;

fn counts(submitted: u64, retired: u64) -> Reading {
    Ok(Counts { submitted, retired })
}

/// Queues 3 and 4 are AQL, 5 is SDMA.
fn world() -> World {
    let mut world = World::new(traced());
    world.state.apply(&event(30_000, 1, PID, create(4)));
    world.state.apply(&event(40_000, 1, PID, Body::QueueCreate(sdma(5))));
    world
}

fn own(world: &World, names: &[&str]) -> Vec<Option<f64>> {
    names.iter().map(|name| world.value(&format!("kfd_process_{name}{OWN}"))).collect()
}

#[test]
fn packets_and_bytes_are_distinguished_by_process_and_gpu() {
    let mut world = world();
    let packets = ["packets_submitted_total", "packets_retired_total", "packets_backlog"];
    let bytes =
        ["sdma_ring_bytes_submitted_total", "sdma_ring_bytes_retired_total", "sdma_ring_bytes_backlog"];
    assert_eq!(own(&world, &packets), [Some(0.0); 3], "its counters exist from 0");
    sampled(&mut world.state, 3, counts(100, 90), S);
    sampled(&mut world.state, 4, counts(7, 7), S);
    sampled(&mut world.state, 5, counts(4096, 1024), S);
    assert_eq!(own(&world, &packets), [Some(107.0), Some(97.0), Some(10.0)]);
    assert_eq!(own(&world, &bytes), [Some(4096.0), Some(1024.0), Some(3072.0)]);
    world.state.apply(&event(2 * S, 1, PID, destroy(3)));
    assert_eq!(own(&world, &packets), [Some(107.0), Some(97.0), Some(0.0)], "counters never go down");
    assert_eq!(own(&world, &["queues_incomplete_total"]), [Some(1.0)]);
    world.state.apply(&event(2 * S, 1, PID, Body::ProcessRelease));
    let left = [Some(107.0), Some(97.0), None];
    assert_eq!(own(&world, &packets), left, "gauges go with the process");
}

#[test]
fn who_stalls_and_who_is_idle() {
    let mut world = world();
    let names = ["queues_stalled", "idle_seconds", "queues_not_measured"];
    assert_eq!(own(&world, &names), [Some(0.0), None, Some(0.0)], "nothing was read yet");
    for queue_id in [3, 4, 5] {
        sampled(&mut world.state, queue_id, counts(5, 5), S);
        sampled(&mut world.state, queue_id, counts(5, 5), 31 * S);
    }
    assert_eq!(own(&world, &names), [Some(0.0), Some(30.0), Some(0.0)]);
    sampled(&mut world.state, 4, counts(8, 5), 32 * S);
    assert_eq!(own(&world, &names), [Some(0.0), Some(0.0), Some(0.0)], "one of them works");
    sampled(&mut world.state, 4, counts(8, 5), 42 * S);
    assert_eq!(own(&world, &names), [Some(1.0), Some(0.0), Some(0.0)]);
    for at_ns in [42 * S, 53 * S] {
        sampled(&mut world.state, 5, counts(64, 5), at_ns);
    }
    assert_eq!(own(&world, &names[..1]), [Some(2.0)], "each of them");
    sampled(&mut world.state, 5, counts(64, 64), 54 * S);
    sampled(&mut world.state, 3, Err(Unmeasured::Foreign), 55 * S);
    assert_eq!(own(&world, &names), [Some(1.0), None, Some(1.0)], "it may be working");
}

#[test]
fn what_cannot_be_read_is_not_zero() {
    let mut world = world();
    let packets = ["packets_submitted_total", "packets_retired_total", "packets_backlog"];
    for queue_id in [3, 4] {
        sampled(&mut world.state, queue_id, Err(Unmeasured::Denied), S);
    }
    assert_eq!(own(&world, &packets), [None; 3]);
    assert_eq!(own(&world, &["queues_not_measured"]), [Some(2.0)]);
    assert_eq!(own(&world, &["sdma_ring_bytes_backlog"]), [Some(0.0)], "queue 5 may yet be read");
    world.state.apply(&event(2 * S, 1, PID, destroy(4)));
    assert_eq!(own(&world, &packets), [None; 3], "nothing is known of what has ended, either");
    sampled(&mut world.state, 3, counts(0, 0), 3 * S);
    assert_eq!(own(&world, &packets), [Some(0.0); 3]);
}

#[test]
fn who_works_in_queues_that_end_is_not_idle() {
    let mut world = world();
    for queue_id in [3, 5] {
        sampled(&mut world.state, queue_id, counts(5, 5), S);
    }
    sampled(&mut world.state, 4, counts(9, 9), 31 * S);
    world.state.apply(&event(32 * S, 1, PID, destroy(4)));
    for queue_id in [3, 5] {
        sampled(&mut world.state, queue_id, counts(5, 5), 41 * S);
    }
    assert_eq!(own(&world, &["idle_seconds"]), [Some(10.0)]);
}

#[test]
fn whatever_a_process_wrote_there_is_summed() {
    let mut world = world();
    sampled(&mut world.state, 3, counts(u64::MAX, 0), S);
    sampled(&mut world.state, 4, counts(2, 0), S);
    let most = Some(18_446_744_073_709_551_615.0);
    assert_eq!(own(&world, &["packets_submitted_total", "packets_backlog"]), [most; 2]);
}

#[test]
fn a_queue_that_is_not_measured_keeps_its_counters_alone() {
    let mut world = world();
    world.detail.queues = Some(10);
    let value = |world: &World, name: &str, queue_id: u32| {
        let labels = OWN.replace('}', &format!(r#",queue_id="{queue_id}"}}"#));
        world.value(&format!("kfd_queue_{name}{labels}"))
    };
    let names =
        ["packets_submitted_total", "packets_retired_total", "packets_backlog", "stalled", "idle_seconds"];
    let all = |world: &World, queue_id| names.map(|name| value(world, name, queue_id));
    assert_eq!(all(&world, 3), [None; 5], "0 would mean that nothing happened");
    sampled(&mut world.state, 3, counts(100, 90), S);
    assert_eq!(all(&world, 3), [Some(100.0), Some(90.0), Some(10.0), Some(0.0), Some(0.0)]);
    sampled(&mut world.state, 3, Err(Unmeasured::Unreadable), 2 * S);
    assert_eq!(all(&world, 3), [Some(100.0), Some(90.0), None, None, None]);
    sampled(&mut world.state, 5, counts(64, 0), S);
    assert_eq!(all(&world, 5), [None, None, None, Some(0.0), Some(0.0)]);
    assert_eq!(value(&world, "sdma_ring_bytes_backlog", 5), Some(64.0));
}

#[test]
fn without_sampling_there_are_no_series() {
    let mut world = world();
    sampled(&mut world.state, 3, counts(100, 90), S);
    world.samples = SampleTotals::default();
    assert_eq!(world.value("kfd_trace_sample_interval_seconds"), Some(0.0));
    assert_eq!(world.value("kfd_trace_sample_age_seconds"), None);
    assert!(!world.text().contains("packets"), "{}", world.text());
    let waiting = WaitingReaders::default();
    (0..2).for_each(|_| waiting.begins());
    world.samples = SampleTotals {
        interval_ns: 2_500_000_000,
        successes: 12,
        errors: [(Unmeasured::Denied, 3)].into(),
        cpu_ns: 1_000_000,
        waiting,
        last_ns: Some(2 * S),
    };
    for (series, value) in [
        ("kfd_trace_sample_interval_seconds", 2.5),
        ("kfd_trace_samples_total", 12.0),
        (r#"kfd_trace_sample_errors_total{reason="denied"}"#, 3.0),
        (r#"kfd_trace_sample_errors_total{reason="foreign"}"#, 0.0),
        (r#"kfd_trace_sample_errors_total{reason="late"}"#, 0.0),
        ("kfd_trace_sample_readers_waiting", 2.0),
        ("kfd_trace_sample_cpu_seconds_total", 0.001),
        ("kfd_trace_sample_age_seconds", 1.0),
    ] {
        assert_eq!(world.value(series), Some(value), "{series}");
    }
}
