use crate::model::event::{Body, Event, Outcome, QueueFacts};
use crate::model::ioctl::Mismatch;
use crate::output::event::context::Context;
use crate::output::event::detail;
use crate::output::event::stream::Stream;
use crate::output::samples::{CREATE, DESTROY, PID, WAIT, clock, ioctl_event, shown, topology};
use crate::state::samples::{create, destroy, event, facts, seen};

pub(super) fn line(event: &Event) -> String {
    shown(event, |event, context| {
        let mut out = Vec::new();
        Stream { colour: false }.event(&mut out, event, context).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    })
}

#[test]
fn columns_are_aligned_under_their_names() {
    let mut heading = Vec::new();
    Stream { colour: false }.heading(&mut heading).expect("memory");
    let heading = String::from_utf8(heading).expect("UTF-8");
    assert_eq!(heading, "TIME                PID COMM            EVENT          DETAIL\n");
    let text = line(&event(1_500_000, 1, PID, create(9)));
    assert_eq!(
        text,
        "14:13:20.001500    4321 train           CREATE_QUEUE   gpu 0 (0000:c1:00.0, gfx942) id=9 type=compute_aql \
         ring=0x7fad66c00000 1.0 MiB wptr=0x7faf945b8038 rptr=0x7faf945b8080 prio=7 (normal) percent=100\n"
    );
    assert_eq!(heading.find("DETAIL"), text.find("gpu 0"));
}

#[test]
fn the_end_of_a_queue_shows_cause_lifetime_and_who_did_it() {
    let worker = Event { task_tgid: 77, tid: 77, ..event(120_000, 1, PID, destroy(3)) };
    assert!(line(&worker).ends_with(
        "DESTROY_QUEUE  gpu 0 (0000:c1:00.0, gfx942) id=3 type=compute_aql cause=process_death lived=100.0us by=tid 77\n"
    ));
    let ioctl = Event { in_ioctl: Some(DESTROY), ..event(120_000, 1, PID, destroy(3)) };
    assert!(line(&ioctl).ends_with("cause=ioctl lived=100.0us\n"));
    assert!(line(&event(1, 1, PID, destroy(8))).ends_with("id=8 not known before\n"));
    let failed = Body::QueueDestroyFailed { queue_id: 3, gpu_id: Some(1), errno: 62 };
    assert!(line(&event(1, 1, PID, failed)).ends_with("gpu_id=1 id=3 = -ETIME, the queue still exists\n"));
}

#[test]
fn an_ioctl_looks_as_in_strace_and_what_was_not_measured_is_no_zero() {
    let returned = |result| Outcome::Returned { result, latency_ns: 12_340 };
    let destroy = line(&ioctl_event(DESTROY, returned(-22), &[9, 0, 0, 0, 0, 0, 0, 0]));
    assert!(destroy.ends_with("IOC            DESTROY_QUEUE(queue_id=9) = -EINVAL <12.3us>\n"), "{destroy}");
    let fine = line(&ioctl_event(DESTROY, returned(0), &[9, 0, 0, 0]));
    assert!(fine.ends_with("DESTROY_QUEUE(queue_id=9) = 0 <12.3us>\n"), "{fine}");
    let create = line(&ioctl_event(CREATE, returned(0), &0x7fad_66c0_0000_u64.to_le_bytes()));
    assert!(create.contains("CREATE_QUEUE(ring_base_address=0x7fad66c00000) = 0"), "{create}");
    let unknown = line(&ioctl_event(0x4028_4bfe, Outcome::Refused { errno: 25 }, &[]));
    assert!(unknown.ends_with("0xfe(...) = -ENOTTY (refused before its handler)\n"), "{unknown}");
    let child = Event { task_tgid: 5, tid: 6, ..ioctl_event(DESTROY, Outcome::Refused { errno: 9 }, &[]) };
    assert!(line(&child).ends_with("= -EBADF (refused before its handler) by=tid 6\n"), "{}", line(&child));
    let wait = line(&ioctl_event(WAIT, Outcome::NotMeasured, &[]));
    assert!(wait.ends_with("WAIT_EVENTS(...) = ? (not measured)\n"), "{wait}");
    let lost = line(&ioctl_event(DESTROY, Outcome::NoReturnSeen, &[]));
    assert!(lost.ends_with("= ? (no return seen)\n"), "{lost}");
}

#[test]
fn two_abis_are_reported() {
    let (clock, topology) = (clock(), topology());
    let mismatch = Some(Mismatch { user_size: 88, kernel_size: 96 });
    let context = Context {
        named: crate::model::ioctl::Named::default(),
        clock: &clock,
        process: None,
        ended: &[],
        lasted_ns: None,
        priority_before: None,
        hit: &[],
        mismatch,
        topology: &topology,
    };
    let event = ioctl_event(0xc058_4b02, Outcome::Returned { result: 0, latency_ns: 1 }, &[]);
    assert!(detail(&event, &context).ends_with(" = 0 <1ns> [88 bytes, kernel has 96]"));
}

#[test]
fn a_process_shows_who_it_is() {
    let text = line(&event(5, 1, PID, seen(true)));
    assert!(
        text.ends_with(
            "existed before the trace uid=1000 pid_inside=7 cgroup=/slurm/job.scope cmdline=python train.py\n"
        ),
        "{text}"
    );
    let refused =
        Event { process: None, ..event(5, 1, 99, Body::Open { errno: 22, comm: "sh\x1b[31m".into() }) };
    let text = line(&refused);
    assert!(text.contains("     99 sh\\u{1b}[31m"), "{text}");
    assert!(text.ends_with("OPEN           /dev/kfd = -EINVAL\n"), "{text}");
}

#[test]
fn colours_only_when_asked_for_and_nothing_reported_is_no_zero() {
    let nothing = QueueFacts {
        queue_id: None,
        gpu_id: None,
        queue_type: None,
        ring_address: None,
        ring_size: None,
        write_pointer_address: None,
        read_pointer_address: None,
        doorbell_offset: None,
        priority: None,
        percent: None,
        ..facts(1)
    };
    let event = event(1, 1, PID, Body::QueueCreate(nothing));
    let plain = line(&event);
    assert!(plain.ends_with("gpu ? id=? type=? ring=?\n"), "{plain}");
    let coloured = shown(&event, |event, context| {
        let mut out = Vec::new();
        Stream { colour: true }.event(&mut out, event, context).expect("memory");
        String::from_utf8(out).expect("UTF-8")
    });
    assert!(coloured.contains("\x1b[32mCREATE_QUEUE") && !plain.contains('\x1b'));
}
