use super::*;
use crate::amd_log::packet::Packet;

const HEAD: &str = "[pid:7     tid:0x1]";

fn packet(kind: &str, signal: &str) -> String {
    format!(
        "SWq=0x10, HWq=0x20, id=1, {kind} Header = 0xb02 (type=2, barrier=1, acquire=1, release=1), setup=3, grid=[64, 1, 1], \
         workgroup=[32, 1, 1], completion_signal={signal}, correlation_id=0, rptr=0, wptr=0"
    )
}

fn dispatch(signal: &str) -> String {
    packet("Dispatch", signal)
}

/// Each line has its time, and is of PID 7.
fn works(lines: &[(u64, &str)]) -> Vec<Work> {
    let lines: Vec<String> =
        lines.iter().map(|(at_us, text)| format!(":4:a.cpp:1: {at_us} us: {HEAD} {text}")).collect();
    works_of(&lines.iter().map(String::as_str).collect::<Vec<_>>())
}

fn works_of(lines: &[&str]) -> Vec<Work> {
    let (mut correlator, mut done) = (Correlator::default(), Vec::new());
    lines.iter().for_each(|line| correlator.line(LogLine::Whole(line.as_bytes()), &mut done));
    correlator.finish(&mut done);
    assert!(correlator.waiting.is_empty() && correlator.commands.is_empty() && correlator.signals.is_empty());
    done
}

fn times(works: &[Work]) -> Vec<(u64, Option<(i64, i64)>)> {
    let measured = |work: &Work| work.measured.map(|of| (of.begin_ns, of.end_ns));
    works.iter().map(|work| (work.at_us, measured(work))).collect()
}

#[test]
fn a_dispatch_has_the_kernel_and_the_command_of_its_thread() {
    let done = works(&[
        (1, "Command (KernelExecution) enqueued: 0xa0 to queue: 0xb0"),
        (2, "ShaderName : gemm"),
        (3, &packet("BarrierAND", "0x0").replace(", grid=[64, 1, 1], workgroup=[32, 1, 1]", "")),
        (4, &dispatch("0x0")),
        (5, "Command 0xa0 complete"),
        (6, &dispatch("0x0")),
    ]);
    let kernels: Vec<_> = done.iter().map(|work| (work.at_us, work.kernel.as_deref())).collect();
    assert_eq!(kernels, [(3, None), (4, Some("gemm")), (6, None)]);
    let commands: Vec<_> = done.iter().map(|work| work.command.map(|kind| kind.name())).collect();
    assert_eq!(commands, [Some("KernelExecution".into()), Some("KernelExecution".into()), None]);
    let Task::Packet(Packet { hwq, swq, .. }) = done[0].task else { panic!("{done:?}") };
    assert_eq!((hwq, swq, done[0].process.pid), (0x20, Some(0x10), Some(7)));
    assert!(done.iter().all(|work| work.measured.is_none()));
}

#[test]
fn a_kernel_without_a_thread_is_that_of_the_next_dispatch() {
    let line = format!(":4:a.cpp:1: 3 us: {HEAD} {}", dispatch("0x0"));
    let done = works_of(&[":3:a.cpp:1: 2 us:  ShaderName : gemm", &line, &line]);
    let kernels: Vec<_> = done.iter().map(|work| work.kernel.as_deref()).collect();
    assert_eq!(kernels, [Some("gemm"), None]);
}

#[test]
fn times_of_a_signal_are_of_the_packet_that_had_it_last() {
    let ran = "Signal = (0x50), Translated start/end = 1000500 / 1002500, Elapsed = 2000 ns";
    let done = works(&[(1, &dispatch("0x50")), (2, &dispatch("0x50")), (9, ran), (10, ran)]);
    assert_eq!(times(&done), [(2, Some((1_000_500, 1_002_500))), (1, None)]);
    let measured = done[0].measured.expect("times");
    assert_eq!((measured.clock, measured.at_us), (WorkClock::Signal, 9));
    let none = "Signal = (0x50), Translated start/end = 0 / 0, Elapsed = 0 ns";
    assert_eq!(times(&works(&[(1, &dispatch("0x50")), (9, none)])), [(1, None)], "not measured");
    let copy = "HSA Copy copy_engine=0x10, dst=0x1, src=0x2, size=4096, forceSDMA=0, completion_signal=0x50";
    let done = works(&[(1, copy), (9, ran)]);
    assert_eq!(times(&done), [(1, Some((1_000_500, 1_002_500)))]);
    assert_eq!(done[0].task, Task::Copy { engine: Some(16), bytes: Some(4096) });
}

#[test]
fn a_creation_has_the_line_of_its_thread_before_it() {
    let pool = "Number of allocated hardware queues with low priority: 0, with normal priority: 0, with high priority: 0, \
                maximum per priority is: 4";
    let created = "Created SWq=0x10 to map on HWq=0x20 with size 16384 with priority 1, cooperative: 0";
    let after = |works: &[Work]| -> Vec<_> {
        let after =
            |work: &Work| if let Task::Created { after_us, .. } = work.task { after_us } else { Some(0) };
        works.iter().map(|work| (work.at_us, after(work))).collect()
    };
    let done = works(&[(1, pool), (4, created), (6, created)]);
    assert_eq!(after(&done), [(4, Some(1)), (6, None)], "a line is of one creation");
    let bare = |at_us: u64, text: &str| format!(":3:a.cpp:1: {at_us} us:  {text}");
    assert_eq!(
        after(&works_of(&[&bare(1, pool), &bare(4, created)])),
        [(4, None)],
        "it may be another thread's"
    );
}

#[test]
fn a_signal_of_two_processes_is_of_the_one_that_the_line_names() {
    let of = |pid: u32, at_us: u64| {
        format!(":4:a.cpp:1: {at_us} us: [pid:{pid}     tid:0x1] {}", dispatch("0x50"))
    };
    let ran = |who: &str| {
        format!(
            ":3:a.cpp:1: 9 us: {who} Signal = (0x50), Translated start/end = 3000 / 4000, Elapsed = 1000 ns"
        )
    };
    let done = works_of(&[&of(7, 1), &of(8, 2), &ran("[pid:8     tid:0x9]")]);
    assert_eq!(times(&done), [(2, Some((3000, 4000))), (1, None)]);
    let done = works_of(&[&of(7, 1), &of(8, 2), &ran("")]);
    assert_eq!(times(&done), [(1, None), (2, None)], "it is not clear whose");
    assert_eq!(times(&works_of(&[&of(7, 1), &ran("")])), [(1, Some((3000, 4000)))]);
    let bare = format!(":4:a.cpp:1: 3 us: {}", dispatch("0x50"));
    assert_eq!(
        times(&works_of(&[&bare, &ran("[pid:8     tid:0x9]")])),
        [(3, Some((3000, 4000)))],
        "the packet's line names no process"
    );
    let done = works_of(&[&of(8, 2), &bare, &ran("[pid:8     tid:0x9]")]);
    assert_eq!(times(&done), [(2, None), (3, None)], "of 8, or of the packet without a process");
}

#[test]
fn times_of_a_command_are_of_its_only_part_or_of_all_together() {
    let begun = "Command (KernelExecution) enqueued: 0xa0";
    let complete = "Command 0xa0 complete (Wall: 30, CPU: 1, GPU: 10 us)";
    let single = works(&[(1, begun), (2, &dispatch("0x0")), (50, complete)]);
    assert_eq!(times(&single), [(2, Some((20_000, 30_000)))]);
    assert_eq!(single[0].measured.map(|of| of.clock), Some(WorkClock::Wall));
    let many = works(&[(1, begun), (2, &dispatch("0x0")), (3, &dispatch("0x0")), (50, complete)]);
    assert_eq!(times(&many), [(2, None), (3, None), (2, Some((20_000, 30_000)))]);
    assert!(matches!(many[2].task, Task::Command { parts: 2, first: Some(_) }), "{many:?}");
    let marker = "Command 0xa0 complete (Wall: 20161701438, CPU: 0, GPU: 0 us)";
    assert_eq!(times(&works(&[(1, begun), (2, &dispatch("0x0")), (50, marker)])), [(2, None)]);
    let again = works(&[(1, begun), (2, &dispatch("0x0")), (3, begun), (50, complete)]);
    assert_eq!(times(&again), [(2, None)], "the end is that of the second, which has no packet");
    let ran = "Signal = (0x50), Translated start/end = 1000 / 3000, Elapsed = 2000 ns";
    let both = works(&[(1, begun), (2, &dispatch("0x50")), (40, ran), (50, complete)]);
    assert_eq!(times(&both), [(2, Some((1000, 3000)))], "once, and to the nanosecond");
}

#[test]
fn what_waits_is_bounded_and_nothing_is_lost() {
    let (mut correlator, mut done) = (Correlator::default(), Vec::new());
    for at in 0..=WORK_UNDER_WAY {
        let line = format!(":4:a.cpp:1: {at} us: {HEAD} {}", dispatch(&format!("{:#x}", at + 1)));
        correlator.line(LogLine::Whole(line.as_bytes()), &mut done);
    }
    assert_eq!((done.len(), correlator.gave_up), (WORK_UNDER_WAY + 1, WORK_UNDER_WAY as u64 + 1));
    assert!(correlator.waiting.is_empty() && correlator.signals.is_empty());
    let line = format!(":4:a.cpp:1: {}", dispatch("0x0"));
    correlator.line(LogLine::Whole(line.as_bytes()), &mut done);
    assert_eq!(correlator.without_time, 1, "a quoted line has no time");
}

#[test]
fn what_there_is_no_room_for_is_counted() {
    let (mut correlator, mut done) = (Correlator::default(), Vec::new());
    let mut line = |text: String| correlator.line(LogLine::Whole(text.as_bytes()), &mut done);
    for number in 0..=KERNELS {
        line(format!(":4:a.cpp:1: 1 us: {HEAD} ShaderName : kernel{number}"));
    }
    // With the one of those names.
    for thread in 2..=THREADS + 1 {
        line(format!(":4:a.cpp:1: 1 us: [pid:7     tid:{thread:#x}] ShaderName : kernel1"));
    }
    assert_eq!((correlator.nameless_kernels, correlator.threads_forgotten), (1, THREADS as u64));
}
