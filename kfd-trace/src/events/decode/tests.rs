use super::*;
use crate::model::runlist::Reason;

/// Bytes of a record as the BPF side would send it.
fn bytes<T: Record>(kind: Kind, fill: impl FnOnce(&mut T)) -> Vec<u8> {
    let mut record = T::new_zeroed();
    fill(&mut record);
    let mut bytes = record.as_bytes().to_vec();
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &u32::try_from(size_of::<T>()).unwrap().to_le_bytes());
    put(4, &(kind as u16).to_le_bytes());
    put(6, &record::VERSION.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    super::event(bytes, &Maker::default())
}

#[test]
fn what_cannot_be_decoded_shows_the_probe_that_sent_it() {
    let sent_by = |probe, cut: usize| {
        let mut record = bytes(Kind::Open, |r: &mut record::Open| r.header.probe = probe);
        record.truncate(record.len() - cut);
        record
    };
    let probe = |bytes: &[u8]| super::decode(bytes, &Maker::default()).map_err(|record| record.probe);
    assert!(probe(&sent_by(ProbeId::Open as u32, 0)).is_ok());
    assert_eq!(probe(&sent_by(ProbeId::Open as u32, 1)).err(), Some(Some(ProbeId::Open)));
    assert_eq!(probe(&sent_by(9999, 1)).err(), Some(None), "no probe has this number");
    assert_eq!(probe(&sent_by(9999, 0)).err(), None, "all else is there");
    assert_eq!(probe(&[0; 20]).err(), Some(None), "no header");
    let mut other = sent_by(ProbeId::Open as u32, 0);
    other[6] = 99;
    assert_eq!(probe(&other).err(), Some(None), "of another version, whose header is not known");
}

#[test]
fn the_end_of_a_queue_shows_what_stood_at_its_pointers() {
    let last = |pointers| {
        let record = bytes(Kind::QueueDestroy, |r: &mut record::QueueDestroy| {
            (r.queue_id, r.gpu_id, r.pointers) = (3, 58270, pointers);
            (r.memory[0], r.memory[8]) = (7, 6);
        });
        decode(&record).map(|event| event.body)
    };
    let of = |last| Ok(Body::QueueDestroy { queue_id: 3, gpu_id: Some(58270), last });
    assert_eq!(last(record::pointers::NOT_READ), of(None));
    assert_eq!(last(record::pointers::WORDS), of(Some(Memory::Words { write: 7, read: 6 })));
    assert_eq!(last(9), Err(DecodeError::Pointers(9)));
}

#[test]
fn a_process_shows_only_what_was_readable() {
    let seen = bytes(Kind::ProcessSeen, |r: &mut record::ProcessSeen| {
        r.header.process = 7;
        r.uid = u32::MAX;
        r.comm[..4].copy_from_slice(b"gemm");
    });
    let event = decode(&seen).unwrap();
    assert_eq!(event.process, Some(ProcessId(7)));
    let Body::ProcessSeen(seen) = event.body else { panic!("{event:?}") };
    assert_eq!((seen.comm.as_deref(), seen.uid, seen.ns_tgid), (Some("gemm"), None, None));
    assert!(!seen.standing && seen.cgroup_leaf.is_none());
}

#[test]
fn an_update_shows_what_was_not_seen_of_it() {
    let update = |result, bits| {
        let record = bytes(Kind::QueueUpdate, |r: &mut record::QueueUpdate| {
            (r.result, r.cu_mask_bits, r.cu_mask[0]) = (result, bits, 1);
        });
        match decode(&record).map(|event| event.body) {
            Ok(Body::QueueUpdate(update)) => (update.errno, update.cu_mask.is_some(), update.mask_unread),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(update(-22, 32), (Some(22), true, false));
    assert_eq!(update(0, 0), (Some(0), false, false));
    assert_eq!(update(RESULT_NOT_SEEN, MASK_NOT_READ), (None, false, true));
}

#[test]
fn an_ioctl_keeps_what_was_not_measured_apart_from_success() {
    let call = |outcome, result| {
        let record = bytes(Kind::Ioctl, |r: &mut record::Ioctl| (r.outcome, r.result) = (outcome, result));
        match decode(&record)?.body {
            Body::Ioctl(call) => Ok(call.outcome.errno()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(call(outcome::RETURNED, 0), Ok(Some(0)));
    assert_eq!(call(outcome::RETURNED, -22), Ok(Some(22)));
    assert_eq!(call(outcome::REFUSED, -25), Ok(Some(25)));
    assert_eq!(call(outcome::NOT_MEASURED, 0), Ok(None));
    assert_eq!(call(9, 0), Err(DecodeError::Outcome(9)));
}

#[test]
fn a_call_that_maps_has_its_gpus_behind_its_arguments() {
    let args_of = |listed, args_len| {
        let record = bytes(Kind::Ioctl, |r: &mut record::MapIoctl| {
            (r.call.outcome, r.call.args_len, r.listed) = (outcome::RETURNED, args_len, listed);
            r.gpus[..2].copy_from_slice(&[7, 256]);
        });
        match decode(&record).map(|event| event.body) {
            Ok(Body::Ioctl(call)) => call.args,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(args_of(2, 24)[24..], [7, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!([args_of(0, 24).len(), args_of(65, 24).len(), args_of(2, 0).len()], [24, 24, 0]);
}

#[test]
fn what_mes_did_has_the_reason_of_its_caller() {
    let change = |op, result| {
        let record = bytes(Kind::MesQueue, |r: &mut record::MesQueue| {
            (r.caller, r.latency_ns, r.queue_id, r.gpu_id) = (0x110, 7, 3, 0);
            (r.op, r.result) = (op, result);
        });
        let callers = Callers::new([(0x100, 0x200, "evict_process_queues_cpsch")].into_iter());
        match super::decode(&record, &Maker { callers, ..Maker::default() }) {
            Ok(Event { body: Body::MesQueue(change), .. }) => Ok(change),
            Ok(other) => panic!("{other:?}"),
            Err(refused) => Err(refused.error),
        }
    };
    let added = MesQueue {
        queue_id: 3,
        gpu_id: None,
        op: MesOp::Add,
        reason: Some(Reason::Evict),
        latency_ns: 7,
        errno: 0,
    };
    assert_eq!(change(record::mes::ADD, 0), Ok(added));
    assert_eq!(change(record::mes::REMOVE, -110), Ok(MesQueue { op: MesOp::Remove, errno: 110, ..added }));
    assert_eq!(change(2, 0), Err(DecodeError::MesOp(2)));
}

#[test]
fn any_bytes_give_an_event_or_an_error() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()[0]
    };
    let mut decoded = 0_usize;
    for kind in 0..=u16::try_from(Kind::ALL.len()).unwrap() {
        for size in 0..500_usize {
            let mut bytes: Vec<u8> = (0..size).map(|_| random()).collect();
            if let Some(head) = bytes.get_mut(4..8) {
                head[..2].copy_from_slice(&kind.to_le_bytes());
                head[2..].copy_from_slice(&record::VERSION.to_le_bytes());
            }
            decoded += usize::from(decode(&bytes).is_ok());
        }
    }
    assert!(decoded >= Kind::ALL.len() - 4, "only {decoded} of the sizes fitted a kind");
}

#[test]
fn every_reason_is_listed() {
    let size = DecodeError::Size { kind: Kind::Open, got: 0, want: 0 };
    let errors = [DecodeError::NoHeader(0), DecodeError::Version(0), DecodeError::Kind(0), size];
    let others =
        [DecodeError::Outcome(0), DecodeError::MqdOp(0), DecodeError::Pointers(9), DecodeError::MesOp(0)];
    let reasons = errors.iter().chain(&others).map(DecodeError::reason);
    assert_eq!(reasons.collect::<Vec<_>>(), DecodeError::REASONS);
}

#[test]
fn another_version_or_size_is_named() {
    let mut bare = bytes(Kind::Close, |_: &mut record::Bare| ());
    assert!(decode(&bare).is_ok());
    assert_eq!(decode(&bare[..10]), Err(DecodeError::NoHeader(10)));
    bare.push(0);
    assert_eq!(decode(&bare), Err(DecodeError::Size { kind: Kind::Close, got: 49, want: 48 }));
    bare[6] = 9;
    assert_eq!(decode(&bare), Err(DecodeError::Version(9)));
}

/// A suspend of these queues, as the driver left them, that returned `result`.
fn suspend(words: &[u32], named: u32, result: i32) -> Suspension {
    let record = bytes(Kind::QueuesSuspended, |r: &mut record::Suspension| {
        (r.result, r.grace_period, r.named) = (result, 4, named);
        r.listed = u32::try_from(words.len()).unwrap();
        r.comm[..3].copy_from_slice(b"gdb");
        r.queues[..words.len()].copy_from_slice(words);
    });
    match decode(&record).unwrap().body {
        Body::QueuesSuspended(call) => call,
        other => panic!("{other:?}"),
    }
}

fn results(call: &Suspension) -> (Vec<(u32, Option<&'static str>)>, u32) {
    let Queues::Named { listed, more } = &call.queues else { panic!("{call:?}") };
    (listed.iter().map(|one| (one.queue_id, one.result.map(QueueResult::name))).collect(), *more)
}

#[test]
fn each_named_queue_has_the_result_that_the_driver_returned() {
    let call = suspend(&[3, 4 | 1 << 31, 5 | 1 << 30, 6 | 3 << 30], 4, 1);
    let expected = vec![(3, Some("ok")), (4, Some("invalid")), (5, Some("error")), (6, Some("invalid"))];
    assert_eq!(results(&call), (expected, 0));
    assert_eq!((call.count, call.grace_period, call.by_comm.as_deref()), (Some(1), Some(4), Some("gdb")));
}

#[test]
fn results_that_do_not_fit_what_the_driver_counted_are_not_known() {
    assert_eq!(results(&suspend(&[3, 4], 2, 1)), (vec![(3, None), (4, None)], 0), "the array is as before");
    let failed = suspend(&[3], 1, -14);
    assert_eq!((results(&failed), failed.errno, failed.count), ((vec![(3, None)], 0), 14, None));
    assert_eq!(results(&suspend(&[3, 4], 70, 69)), (vec![(3, Some("ok")), (4, Some("ok"))], 68));
    assert_eq!(results(&suspend(&[], 2, 2)), (vec![], 2), "unreadable");
}
