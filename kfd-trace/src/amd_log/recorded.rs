//! Reads queues that KFD had, from `kfd-trace --json` and `kfd-trace ps --json` (docs/events.md).

use super::limits::RECORDED;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What KFD knows of a queue, as reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct KfdQueue {
    /// In the initial PID namespace.
    pub pid: Option<u32>,
    /// In its own PID namespace, as in the log.
    pub ns_pid: Option<u32>,
    pub comm: Option<String>,
    /// As displayed.
    pub gpu: Option<String>,
    pub gpu_id: Option<u32>,
    pub queue_id: Option<u32>,
    pub queue_type: Option<String>,
}

/// One queue of KFD, with its join keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    pub kfd: KfdQueue,
    pub ring: Option<u64>,
    pub write_pointer: Option<u64>,
    /// Microseconds of CLOCK_MONOTONIC; `None`: not seen.
    pub created_us: Option<u64>,
    pub ended_us: Option<u64>,
    /// It exists now, or did when `ps` ran.
    pub live: bool,
}

/// Fields used, of all lines and of the queues of `ps`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RecordedFields {
    event: Option<String>,
    mono_ns: Option<u64>,
    pid: Option<u32>,
    ns_pid: Option<u32>,
    comm: Option<String>,
    kfd_process: Option<String>,
    gpu: Option<String>,
    gpu_id: Option<u32>,
    queue_id: Option<u32>,
    queue_type: Option<String>,
    ring_address: Option<String>,
    write_pointer_address: Option<String>,
    origin: Option<String>,
    /// Only in `ps`.
    queues: Option<Vec<RecordedFields>>,
}

/// A process (its `kfd_process`, or its PID) and a queue of it.
type LiveFields = (Option<String>, Option<u32>, Option<u32>);

/// Reads a stream, or output of `ps`, line by line.
#[derive(Debug, Default)]
pub struct Recorder {
    queues: Vec<Recorded>,
    live: HashMap<LiveFields, usize>,
    ns_pids: HashMap<Option<String>, u32>,
    unreadable: u64,
    left_out: u64,
}

impl Recorder {
    /// Reads one line. Lines that are not JSON are counted.
    pub fn line(&mut self, line: &[u8]) {
        if line.trim_ascii().is_empty() {
            return;
        }
        let Ok(mut fields) = serde_json::from_slice::<RecordedFields>(line) else {
            self.unreadable += 1;
            return;
        };
        for queue in fields.queues.take().unwrap_or_default() {
            self.keep(Recorded { live: true, ..recorded(queue) });
        }
        let key = (fields.kfd_process.clone(), fields.pid, fields.queue_id);
        match fields.event.as_deref() {
            Some("process_seen") => {
                if let Some(ns_pid) = fields.ns_pid
                    && self.ns_pids.len() < RECORDED
                {
                    self.ns_pids.insert(fields.kfd_process, ns_pid);
                }
            }
            Some("queue_create") => {
                let seen = fields.origin.as_deref() != Some("standing");
                let created_us = fields.mono_ns.filter(|_| seen).map(|ns| ns / 1000);
                let ns_pid = self.ns_pids.get(&fields.kfd_process).copied();
                let queue = recorded(RecordedFields { ns_pid, ..fields });
                if let Some(index) = self.keep(Recorded { created_us, ..queue }) {
                    self.live.insert(key, index);
                }
            }
            Some("queue_destroy") => {
                let ended = self.live.remove(&key).and_then(|index| self.queues.get_mut(index));
                if let Some(queue) = ended {
                    queue.ended_us = fields.mono_ns.map(|ns| ns / 1000);
                }
            }
            _ => {}
        }
    }

    fn keep(&mut self, queue: Recorded) -> Option<usize> {
        if queue.ring.is_none() && queue.write_pointer.is_none() {
            return None;
        }
        if self.queues.len() >= RECORDED {
            self.left_out += 1;
            return None;
        }
        self.queues.push(queue);
        Some(self.queues.len() - 1)
    }

    /// Returns queues with addresses, in their order; lines that are not JSON; queues for which there was no
    /// room.
    #[must_use]
    pub fn finish(self) -> (Vec<Recorded>, u64, u64) {
        (self.queues, self.unreadable, self.left_out)
    }
}

fn recorded(fields: RecordedFields) -> Recorded {
    let kfd = KfdQueue {
        pid: fields.pid,
        ns_pid: fields.ns_pid,
        comm: fields.comm,
        gpu: fields.gpu,
        gpu_id: fields.gpu_id,
        queue_id: fields.queue_id,
        queue_type: fields.queue_type,
    };
    Recorded {
        kfd,
        ring: fields.ring_address.as_deref().and_then(hex),
        write_pointer: fields.write_pointer_address.as_deref().and_then(hex),
        ..Recorded::default()
    }
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_a_stream_have_their_begin_and_end() {
        let mut recorder = Recorder::default();
        let lines = r#"
{"event":"process_seen","pid":40,"kfd_process":"3","ns_pid":7,"comm":"python3"}
{"event":"queue_create","mono_ns":5000,"pid":40,"comm":"python3","kfd_process":"3","gpu_id":9,"queue_id":1,"ring_address":"0x20","write_pointer_address":"0x48","origin":"ioctl"}
{"event":"queue_create","mono_ns":6000,"pid":40,"kfd_process":"3","queue_id":2,"ring_address":"0x30","origin":"standing"}
{"event":"queue_create","mono_ns":6000,"pid":41,"kfd_process":"4","queue_id":1,"ring_address":null}
{"event":"queue_destroy","mono_ns":9000,"pid":40,"kfd_process":"3","queue_id":1}
{"event":"queue_destroy","mono_ns":9000,"pid":40,"kfd_process":"3","queue_id":77}
no json
"#;
        lines.lines().for_each(|line| recorder.line(line.as_bytes()));
        let (queues, unreadable, left_out) = recorder.finish();
        let kfd = KfdQueue {
            pid: Some(40),
            ns_pid: Some(7),
            comm: Some("python3".to_owned()),
            gpu_id: Some(9),
            queue_id: Some(1),
            ..KfdQueue::default()
        };
        let first = Recorded {
            kfd,
            ring: Some(0x20),
            write_pointer: Some(0x48),
            created_us: Some(5),
            ended_us: Some(9),
            ..Recorded::default()
        };
        assert_eq!(queues[0], first);
        assert_eq!((queues.len(), queues[1].created_us, queues[1].ended_us), (2, None, None));
        assert_eq!((unreadable, left_out), (1, 0));
    }

    #[test]
    fn queues_of_ps_stand() {
        let mut recorder = Recorder::default();
        recorder.line(br#"{"schema":1,"queues":[{"pid":40,"queue_id":1,"ring_address":"0x20","gpu":"gpu 0"},{"pid":41}]}"#);
        let (queues, ..) = recorder.finish();
        assert_eq!(queues.len(), 1, "one without addresses cannot be joined");
        assert!(queues[0].live && queues[0].kfd.gpu.as_deref() == Some("gpu 0"));
    }
}
