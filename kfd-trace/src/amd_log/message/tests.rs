use super::*;

fn parse(text: &str) -> Message<'_> {
    Message::parse(text.as_bytes())
}

#[test]
fn commands_before_7_and_since() {
    let host = |host_queue| Message::Command { kind: b"KernelExecution", address: 0xd17_6c10, host_queue };
    assert_eq!(parse("Command (KernelExecution) enqueued: 0xd176c10"), host(None));
    assert_eq!(
        parse("Command (KernelExecution) enqueued: 0xd176c10 to queue: 0xbe00d60"),
        host(Some(0xbe0_0d60))
    );
    for cut in [
        "Command (KernelExe",
        "Command (Marker) enqueued: ",
        "Command (Marker) enqueued: 0x1:4:file",
        "Command (Marker) enqueued: 0x1 to queue: ",
        "Command (Marker) enq",
        "Command (Marker)",
        "Command (Marker) ",
    ] {
        assert_eq!(parse(cut), Message::Damaged(Damaged::Command), "{cut}");
    }
    assert_eq!(parse("Command 0x10 complete"), Message::Complete { address: 0x10, took_us: None });
    for other in [
        "Command (Marker) processing: 0x10 ,events.size(): 1",
        "Command (Marker) 0x10 awaiting event: 0x20",
        "Command (Marker) submitted: 0x10",
    ] {
        assert_eq!(parse(other), Message::Other, "{other}");
    }
    let took = Message::Complete { address: 0x10, took_us: Some([30, -20, 10]) };
    assert_eq!(parse("Command 0x10 complete (Wall: 30, CPU: -20, GPU: 10 us)"), took);
}

#[test]
fn times_of_the_gpu_are_of_a_signal() {
    let line = "Signal = (0x7f8ad13ff900), Translated start/end = 5000123 / 5001456, Elapsed = 1333 ns, ticks \
                start/end = 17 / 18, Ticks elapsed = 1";
    let (begin_ns, end_ns) = (5_000_123, 5_001_456);
    assert_eq!(parse(line), Message::Ran { signal: 0x7f8a_d13f_f900, begin_ns, end_ns });
    let older = "Signal = (0x7f8ad13ff900), start = 5000123, end = 5001456 time taken= 1333 ns";
    assert_eq!(parse(older), Message::Ran { signal: 0x7f8a_d13f_f900, begin_ns, end_ns });
    for other in [
        "Signal = (0x1), value",
        "Signal = (0x1), start = 5, end = ",
        "Signal = (0x1), Translated start/end = 5",
        "Signal = (0x1), Translated start/end = 5 / 6:4:a",
    ] {
        assert_eq!(parse(other), Message::Other, "{other}");
    }
    let copy = parse("HSA Async Copy dst=0x1, src=0x2, size=1, wait_event=0x0, completion_signal=0x20");
    assert_eq!(copy, Message::Copy { engine: None, bytes: Some(1), signal: Some(0x20) });
}

#[test]
fn lives_of_queues() {
    let step = |step, references| Message::LogStep { address: 0x10, step, references };
    assert_eq!(parse("acquireQueue refCount: 0x10 (1)"), step(LogStep::Acquired, Some(1)));
    assert_eq!(parse("acquireQueue refCount: 0x10 (1) (dedicated)"), step(LogStep::Acquired, Some(1)));
    assert_eq!(parse("selected queue refCount: 0x10 (2)"), step(LogStep::Selected, Some(2)));
    assert_eq!(parse("releaseQueue refCount:0x10 (0)"), step(LogStep::Released, Some(0)));
    assert_eq!(parse("deleting hardware queue 0x10 with refCount 0"), step(LogStep::Deleted, None));
    assert_eq!(parse("Deleting CG enabled hardware queue 0x10 "), step(LogStep::Deleted, None));
    assert_eq!(parse("Setting CU mask 0xff for hardware queue 0x10"), step(LogStep::CuMask, None));
    assert_eq!(parse("setting CU mask 0x000000ff for hardware queue 0x10"), step(LogStep::CuMask, None));
    for cut in ["releaseQueue refCount:", "Deleting hardware queue ", "deleting hardware queue 0x1:4:f"] {
        assert_eq!(parse(cut), Message::Damaged(Damaged::Queue), "{cut}");
    }
    for other in
        ["hostcall buffer 0x20 for hardware queue 0x10", "hostcall buffer 0x20 for virtual queue 0x10"]
    {
        assert_eq!(parse(&format!("Deleting {other}")), Message::Other);
        assert_eq!(parse(&format!("deleting {other}")), Message::Other);
    }
    let pool = QueuePool { low: 0, normal: 1, high: 2, maximum: 8 };
    let text = "umber of allocated hardware queues with low priority: 0, with normal priority: 1, with high \
                priority: 2, maximum per priority is: 8";
    assert_eq!(parse(&format!("N{text}")), Message::QueuePool(pool));
    assert_eq!(parse(&format!("n{text}")), Message::QueuePool(pool));
}

#[test]
fn copies_kernels_and_gpus() {
    let copy = |engine, bytes| Message::Copy { engine, bytes, signal: None };
    let tail = "dst=0x1, src=0x2, size=4096, wait_event=0x0";
    for (line, expected) in [
        (format!("HSA Async Copy on copy_engine=1, {tail}"), copy(Some(1), Some(4096))),
        (format!("HSA Copy copy_engine=0x10, {tail}"), copy(Some(16), Some(4096))),
        (format!("HSA Async Copy {tail}"), copy(None, Some(4096))),
        (format!("HSA Async Blit Copy {tail}"), copy(None, Some(4096))),
        (
            "HSA Async Copy staged D2H dst=0x1, src=0x2, size=4096, completion_signal=0x0".to_owned(),
            copy(None, Some(4096)),
        ),
        (
            "HSA Async Copy Rect dst=0x1, src=0x2, wait_event=0x0 completion_signal=0x0".to_owned(),
            copy(None, None),
        ),
        ("HSA Async Copy wait_event=0x0, completion_signal=0x0".to_owned(), copy(None, None)),
    ] {
        assert_eq!(parse(&line), expected, "{line}");
    }
    for cut in [
        "HSA Copy dst=0x1, sr",
        "HSA Copy copy_eng",
        "HSA Async Copy Rect dst=0x1",
        "HSA Copy dst=0x1, size=, wait_event=0x0",
    ] {
        assert_eq!(parse(cut), Message::Damaged(Damaged::Copy), "{cut}");
    }
    for other in [
        "HSA Copy Using Staging resource size 8192",
        "HSA Async Copy staged H2D, Async=1",
        "HSA Async Copy staged H2D",
    ] {
        assert_eq!(parse(other), Message::Other, "{other}");
    }
    let kernel = |in_graph| Message::Kernel { name: b"Cijk_A, b", in_graph };
    assert_eq!(parse("ShaderName : Cijk_A, b"), kernel(false));
    for line in [
        "Graph ShaderName : Cijk_A, b, device id : 3",
        "Graph shader name : Cijk_A, b",
        "Graph shader name : Cijk_A, b, device id : 0",
    ] {
        assert_eq!(parse(line), kernel(true), "{line}");
    }
    for label in ["[Graph cross dep barrier]", "[Graph completion barrier]", "[Graph batch barrier]"] {
        assert_eq!(parse(&format!("Graph ShaderName : {label}, device id : 0")), Message::Other);
    }
    assert_eq!(parse("Gfx Major/Minor/Stepping: 9/4/2"), Message::Gfx([9, 4, 2]));
    assert_eq!(parse("!\tkernel : Cijk_A, b"), kernel(false));
    assert_eq!(parse("Enumerated GPU agents = 8"), Message::Agents(8));
    assert_eq!(parse("Initalizing runtime stack, Enumerated GPU agents = 8"), Message::Agents(8));
}

#[test]
fn trouble() {
    assert_eq!(
        parse("hipMalloc: Returned hipErrorOutOfMemory : "),
        Message::Returned(b"hipErrorOutOfMemory")
    );
    assert_eq!(parse("hipMalloc ( 0x7ffd, 16 )"), Message::Other);
    for (line, address, code) in [
        (
            "Callback: Queue 0x10 Aborting with error : HSA_STATUS_ERROR_X: x Code: 0x1008 Available Free mem : 1 MB",
            Some(0x10),
            Some(0x1008),
        ),
        (
            "Callback: Queue 0x10 aborting with error : HSA_STATUS_ERROR_X: code: 0x1. code: 0x29",
            Some(0x10),
            Some(0x29),
        ),
        ("Device::callbackQueue aborting with error : HSA_STATUS_ERROR_X: x. code: 0x2b", None, Some(0x2b)),
        ("Callback: Queue 0x10 aborting with error : HSA_STATUS_ERROR_X", Some(0x10), None),
    ] {
        assert_eq!(
            parse(line),
            Message::Abort(Abort { address, error: b"HSA_STATUS_ERROR_X", code }),
            "{line}"
        );
    }
    assert!(matches!(parse("Memory Fault Error [host: a, GPU index: 2"), Message::Fault(_)));
    let tail = "the AQL queue limit. SW is much ahead of HW. Blocking AQL queue!";
    for word in ["reached", "reachead"] {
        assert_eq!(parse(&format!("Runtime {word} {tail}")), Message::QueueFull);
    }
    for other in [
        "",
        "Arg0:   = ptr:0x7f",
        "Command queue",
        "Callback: x",
        "Device::x",
        "Memory x",
        "SVM",
        "Host active",
        "created x",
    ] {
        assert_eq!(parse(other), Message::Other, "{other}");
    }
}
