//! What an ioctl did to a queue, derived from its arguments and its result alone: for kernels in which the
//! field offsets of the driver's own structures are unknown.

use crate::model::event::{Body, Event, IoctlCall, Origin, Outcome, QueueFacts, QueueType};
use crate::model::incident::QueueUpdate;
use crate::model::ioctl::nr;
use kfd_trace_common::rules;

/// The event that follows from a call; `None` if the call failed or concerns something else.
#[must_use]
pub fn derived(event: &Event) -> Option<Event> {
    let Body::Ioctl(call) = &event.body else { return None };
    let Outcome::Returned { .. } = call.outcome else { return None };
    let body = body(call)?;
    Some(Event { in_ioctl: Some(call.cmd), body, ..event.clone() })
}

/// Arguments: include/uapi/linux/kfd_ioctl.h, only the parts that are the same in all versions.
fn body(call: &IoctlCall) -> Option<Body> {
    let errno = call.outcome.errno()?;
    let failed = errno != 0;
    let short = |offset| short(&call.args, offset);
    match u32::from(nr(call.cmd)) {
        rules::CREATE_QUEUE if !failed => Some(Body::QueueCreate(created(&call.args)?)),
        rules::DESTROY_QUEUE if !failed || rules::destroyed_anyway(errno.unsigned_abs()) => {
            Some(Body::QueueDestroy { queue_id: short(0)?, gpu_id: None, last: None })
        }
        rules::UPDATE_QUEUE if !failed => {
            let now = QueueFacts {
                queue_id: Some(short(8)?),
                ring_address: long(&call.args, 0),
                ring_size: short(12).map(u64::from),
                percent: short(16).map(|percent| percent & 0xff),
                priority: short(20),
                ..QueueFacts::unknown(Origin::Ioctl)
            };
            Some(Body::QueueUpdate(QueueUpdate {
                now,
                cu_mask: None,
                mask_unread: false,
                errno: Some(errno),
            }))
        }
        // The mask itself is in the caller's memory.
        rules::SET_CU_MASK if !failed => {
            let now = QueueFacts { queue_id: Some(short(0)?), ..QueueFacts::unknown(Origin::Ioctl) };
            Some(Body::QueueUpdate(QueueUpdate {
                now,
                cu_mask: None,
                mask_unread: false,
                errno: Some(errno),
            }))
        }
        _ => None,
    }
}

/// `struct kfd_ioctl_create_queue_args`
fn created(args: &[u8]) -> Option<QueueFacts> {
    let short = |offset| short(args, offset);
    let long = |offset| long(args, offset);
    Some(QueueFacts {
        queue_id: Some(short(52)?),
        gpu_id: short(36),
        queue_type: short(40).map(queue_type),
        ring_address: long(0),
        ring_size: short(32).map(u64::from),
        write_pointer_address: long(8),
        read_pointer_address: long(16),
        // The top bits of percent select the XCC of a PM4 queue (6.12).
        percent: short(44).map(|percent| percent & 0xff),
        priority: short(48),
        ..QueueFacts::unknown(Origin::Ioctl)
    })
}

/// `KFD_IOC_QUEUE_TYPE_*`: user space's numbers, which are not those of the driver's own enum.
fn queue_type(raw: u32) -> QueueType {
    match raw {
        0 => QueueType::Compute,
        1 => QueueType::Sdma,
        2 => QueueType::ComputeAql,
        3 => QueueType::SdmaXgmi,
        4 => QueueType::SdmaByEngId,
        other => QueueType::Unknown(other),
    }
}

fn short(args: &[u8], offset: usize) -> Option<u32> {
    args.get(offset..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn long(args: &[u8], offset: usize) -> Option<u64> {
    args.get(offset..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(cmd: u32, result: i32, words: &[u32]) -> IoctlCall {
        let args = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        IoctlCall { cmd, entered_ns: 1, outcome: Outcome::Returned { result, latency_ns: 1 }, args }
    }

    const CREATE: u32 = 0xc058_4b02;

    #[test]
    fn a_creation_shows_the_queue() {
        let mut words = [0; 22];
        words[..6].copy_from_slice(&[0x66c0_0000, 0x7fad, 0x38, 0x1, 0x80, 0x1]);
        words[8..14].copy_from_slice(&[1 << 20, 58270, 2, 100, 7, 5]);
        let Some(Body::QueueCreate(queue)) = body(&call(CREATE, 0, &words)) else { panic!("no creation") };
        assert_eq!((queue.queue_id, queue.gpu_id), (Some(5), Some(58270)));
        assert_eq!(queue.queue_type, Some(QueueType::ComputeAql));
        assert_eq!((queue.ring_address, queue.ring_size), (Some(0x7fad_66c0_0000), Some(1 << 20)));
        assert_eq!(queue.write_pointer_address, Some(0x1_0000_0038));
        assert_eq!((queue.percent, queue.priority, queue.doorbell_offset), (Some(100), Some(7), None));
        assert_eq!(body(&call(CREATE, -22, &words)), None);
        assert_eq!(body(&call(CREATE, 0, &words[..13])), None, "cut short");
    }

    #[test]
    fn a_destroy_that_timed_out_has_destroyed_all_the_same() {
        let destroy = |result| body(&call(0xc008_4b03, result, &[5, 0]));
        let gone = Some(Body::QueueDestroy { queue_id: 5, gpu_id: None, last: None });
        assert_eq!((destroy(0), destroy(-62)), (gone.clone(), gone));
        assert_eq!(destroy(-22), None);
    }

    #[test]
    fn an_update_shows_what_it_sets_and_no_more() {
        let words = [0x1000, 0x7f, 5, 4096, 0x0300 | 50, 3];
        let Some(Body::QueueUpdate(update)) = body(&call(0x4018_4b07, 0, &words)) else {
            panic!("no update")
        };
        let now = update.now;
        assert_eq!((now.queue_id, now.ring_size, now.percent), (Some(5), Some(4096), Some(50)));
        assert_eq!((now.priority, now.gpu_id, now.read_pointer_address), (Some(3), None, None));
    }
}
