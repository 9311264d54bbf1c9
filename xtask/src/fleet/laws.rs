//! How the values of a template change from scrape to scrape and with what runs on a node. In: a line, and a moment. Out:
//! its value. Pure.

use super::shape::hash;
use super::template::{Line, Scope};

/// Of the template, whose values are divided by them.
const TEMPLATE_CREATED: u64 = 2;

/// Ioctls that a process at work keeps calling; the others belong to its start.
const BUSY: [&str; 5] = [
    "WAIT_EVENTS",
    "ALLOC_MEMORY_OF_GPU",
    "FREE_MEMORY_OF_GPU",
    "MAP_MEMORY_TO_GPU",
    "UNMAP_MEMORY_FROM_GPU",
];
const CALLS: u64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Law {
    Fixed,
    /// A count of what there is now, in a template of one live process.
    Live(u64),
    /// A counter of what each process does once, at its start or its end.
    Created(u64),
    Deaths(u64),
    /// A counter that grows by some of these a second for each live process.
    Rate(u64),
    /// The same in nanoseconds, shown in seconds.
    Nanoseconds(u64),
    /// A counter that grows, whatever runs here: in so many seconds by one.
    Every(u64),
    /// Below this.
    Noise(u64),
    /// In microseconds, shown in seconds.
    NoiseMicroseconds(u64),
}

/// What a value depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Moment {
    /// Of the process, or since the tracer began.
    pub(super) age_ms: u64,
    /// Live processes: on the node or the GPU; 1 for a line of a process.
    pub(super) live: u64,
    pub(super) created: u64,
    pub(super) deaths: u64,
    /// The same for lines that must not drift apart.
    pub(super) seed: u64,
}

pub(super) fn law(scope: Scope, line: &Line) -> Law {
    let busy = line.label("ioctl").is_some_and(|name| BUSY.contains(&name));
    let number = line.number().unwrap_or(0);
    match line.name.as_str() {
        "kfd_processes" | "kfd_queues" | "kfd_gpu_queue_slots_used" | "kfd_ioctls_in_flight"
            if number > 0 =>
        {
            Law::Live(number)
        }
        "kfd_processes_created_total"
        | "kfd_queues_created_total"
        | "kfd_opens_total"
        | "kfd_mqd_writes_total" => Law::Created(number / TEMPLATE_CREATED),
        "kfd_processes_ended_total" | "kfd_queues_destroyed_total" | "kfd_closes_total" => {
            Law::Deaths(number)
        }
        "kfd_ioctls_total" | "kfd_process_ioctls_total" if busy => Law::Rate(CALLS),
        "kfd_ioctl_duration_seconds_bucket" | "kfd_ioctl_duration_seconds_count" if busy && number > 0 => {
            Law::Rate(CALLS)
        }
        "kfd_ioctl_duration_seconds_sum" if busy => Law::Nanoseconds(CALLS * 3_000),
        "kfd_event_wait_duration_seconds_bucket" | "kfd_event_wait_duration_seconds_count" if number > 0 => {
            Law::Rate(CALLS)
        }
        "kfd_event_wait_duration_seconds_sum" => Law::Nanoseconds(CALLS * 3_000),
        "kfd_process_packets_submitted_total" | "kfd_process_packets_retired_total" => Law::Rate(900),
        "kfd_process_sdma_ring_bytes_submitted_total" | "kfd_process_sdma_ring_bytes_retired_total" => {
            Law::Rate(4_096)
        }
        "kfd_process_packets_backlog" | "kfd_process_sdma_ring_bytes_backlog" => Law::Noise(16),
        "kfd_process_idle_seconds" if scope == Scope::Live => Law::NoiseMicroseconds(900_000),
        "kfd_trace_probe_hits_total" if line.label("probe").is_some_and(|probe| probe.contains("ioctl")) => {
            Law::Rate(CALLS * BUSY.len() as u64)
        }
        "kfd_trace_samples_total" => Law::Rate(4),
        "kfd_trace_sample_cpu_seconds_total" => Law::Nanoseconds(50_000),
        "kfd_trace_comparisons_total" => Law::Every(10),
        "kfd_trace_scrape_duration_seconds" | "kfd_trace_collector_duration_seconds" => {
            Law::NoiseMicroseconds(4_000)
        }
        "kfd_trace_sample_age_seconds" => Law::NoiseMicroseconds(1_000_000),
        _ => Law::Fixed,
    }
}

impl Law {
    /// The number, and of how many digits after the point it is; `None` for one that stays as it is written.
    pub(super) fn value(self, moment: &Moment) -> Option<(u64, usize)> {
        let Moment { age_ms, live, created, deaths, seed } = *moment;
        let seconds = age_ms / 1000;
        let now = hash(seed ^ hash(seconds));
        // It never falls: what is added for the second that runs is less than the second's own.
        let grown = |rate: u64| if rate == 0 { 0 } else { rate * seconds + now % rate };
        Some(match self {
            Law::Fixed => return None,
            Law::Live(each) => (each * live, 0),
            Law::Created(each) => (each * created, 0),
            Law::Deaths(each) => (each * deaths, 0),
            Law::Rate(rate) => (grown(rate * live), 0),
            Law::Nanoseconds(rate) => (grown(rate * live), 9),
            Law::Every(period) => (seconds / period, 0),
            Law::Noise(below) => (now % below, 0),
            Law::NoiseMicroseconds(below) => (now % below, 6),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::template::parse_line;

    fn of(scope: Scope, line: &str) -> Law {
        law(scope, &parse_line(line).expect("a line"))
    }

    #[test]
    fn what_is_counted_follows_what_runs() {
        assert_eq!(of(Scope::Gpu, r#"kfd_queues{gpu_id="1",queue_type="sdma"} 3"#), Law::Live(3));
        assert_eq!(of(Scope::Gpu, r#"kfd_queues{gpu_id="1",queue_type="sdma"} 0"#), Law::Fixed);
        assert_eq!(of(Scope::Gpu, r#"kfd_queues_created_total{gpu_id="1"} 8"#), Law::Created(4));
        assert_eq!(of(Scope::Node, r#"kfd_ioctls_total{ioctl="GET_VERSION"} 8"#), Law::Fixed);
        assert_eq!(of(Scope::Node, r#"kfd_ioctls_total{ioctl="WAIT_EVENTS"} 8"#), Law::Rate(20));
        assert_eq!(of(Scope::Node, "kfd_event_wait_duration_seconds_count 8"), Law::Rate(20));
        assert_eq!(of(Scope::Ended, r#"kfd_process_idle_seconds{pid="1"} 8"#), Law::Fixed);
        let moment = Moment { live: 5, created: 7, deaths: 2, ..Moment::default() };
        assert_eq!(Law::Live(3).value(&moment), Some((15, 0)));
        assert_eq!(Law::Created(4).value(&moment), Some((28, 0)));
        assert_eq!(Law::Deaths(4).value(&moment), Some((8, 0)));
        assert_eq!(Law::Fixed.value(&moment), None);
    }

    #[test]
    fn a_counter_never_falls_and_one_without_processes_stays() {
        let at = |live, age_ms| Law::Rate(900).value(&Moment { age_ms, live, seed: 9, ..Moment::default() });
        let values: Vec<_> = (0..600).map(|step| at(3, step * 500)).collect();
        assert!(values.is_sorted());
        let last = values[599].expect("a value").0;
        assert!((299 * 2_700..300 * 2_700).contains(&last), "{last}");
        assert_eq!(at(0, 300_000), Some((0, 0)));
    }
}
