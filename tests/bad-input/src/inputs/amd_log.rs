//! Logs of AMD_LOG_LEVEL, and streams of kfd-trace with the same queues or others.

use super::{damaged, hostile};
use crate::parts;
use kfd_trace_amd_logs::{Format, Plan, write};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The parts of [`crate::amd_log::read`].
pub fn amd_log() -> impl Strategy<Value = Vec<u8>> {
    let log = (damaged(made()), vec(odd(), 0..4), any::<bool>()).prop_map(|(log, odd, first)| {
        let odd = odd.concat();
        if first { [odd, log].concat() } else { [log, odd].concat() }
    });
    (damaged(stream()), log, 1..9000usize).prop_map(|(stream, log, chunk)| {
        let chunks = log.chunks(chunk).map(<[u8]>::to_vec);
        parts::join(&std::iter::once(stream).chain(chunks).collect::<Vec<_>>())
    })
}

/// A small log of any version.
fn made() -> impl Strategy<Value = Vec<u8>> {
    (select(Format::ALL.to_vec()), 0..9u64, 0..3u32, 1..3u32).prop_map(|(format, kernels, filler, queues)| {
        let plan = Plan { processes: 1, queues, kernels, filler, ..Plan::MIXED };
        let mut log = Vec::new();
        write(&mut log, format, &plan).expect("memory takes all that is written");
        log
    })
}

/// Lines that no version writes.
fn odd() -> impl Strategy<Value = Vec<u8>> {
    let head = select(vec![
        ":4:rocvirtual.cpp           :1177: 7270505876 us: [pid:157801 tid: 0x1f6c0] ",
        ":1:a:1: 9 us: ",
        ":3:a:1: ",
        ":4:a:1: 18446744073709551615 us: [pid:4294967296 tid: 0x] ",
        "\u{1b}[32m:3:a:1: 1 us:  ",
        "trainer-1  | :0:a.cpp:1: 9 us:  ",
        "2026-09-01T08:00:00Z stderr P :4:a.cpp:1: 9 us:  ",
        "2026-09-01T08:00:00Z stderr F ",
        "{\"log\":\":4:a.cpp:1: 9 us:  ",
        "[1,3]<stderr>::1:1:1:1:1: us: us: us:",
        "",
    ]);
    let text = select(vec![
        "SWq=0xffffffffffffffff, HWq=0xffffffffffffffff, id=18446744073709551615, Dispatch Header = 0xffff (), grid=[0, 0, 0], workgroup=[18446744073709551615, 1, 1], rptr=18446744073709551615, wptr=18446744073709551615",
        "HWq=0x1, BarrierOR Header = 0x5, rptr=5, wptr=4",
        "Command () enqueued: 0x0 to queue: 0x0",
        "Command 0x1 complete (Wall: -9223372036854775807, CPU: 9223372036854775807, GPU: 1 us)",
        "Created SWq=0x1 to map on HWq=0x1 with size 18446744073709551615 with priority -9223372036854775807, cooperative: 1",
        "acquireQueue refCount: 0x1 (1)",
        "HSA Copy copy_engine=0xffffffffffffffff, size=18446744073709551615",
        "Callback: Queue 0x1 Aborting with error : ",
        "Device::callbackQueue aborting with error : HSA code: 0xffffffffffffffff",
        "Memory Fault Error [GPU index: 18446744073709551615, faulting addr: 0x, kernel: ",
        "Memory access fault by GPU node-18446744073709551615 on address 0xffffffffffffffff. Reason: ",
        "VGPU=0x1 SWq=0x1, HWq=0xffffffffffffffff, id=1",
        "VGPU(0x1) Queue(0x1) rptr=18446744073709551615, wptr=0. ",
        "Graph ShaderName : ",
        "Signal = (0x1), start = 9223372036854775807, end = 0 time",
        "HSA Async Copy Rect dst=0x0, wait_event=0x0 completion_signal=0x1",
        "ShaderName : ",
        "hipMalloc: Returned hipErrorOutOfMemory : ",
        "",
    ]);
    let end =
        select(vec!["\n", "\r\n", "\0\0\n", "", "\n\n", "\r", "\"}\n", "\\n\",\"stream\":\"stderr\"}\n"]);
    (head, text, hostile(), end).prop_map(|(head, text, name, end)| {
        [head.as_bytes(), text.as_bytes(), &name, end.as_bytes()].concat()
    })
}

fn stream() -> impl Strategy<Value = Vec<u8>> {
    let time = || select(vec!["0", "7270000000000", "18446744073709551615", "-1", "null"]);
    let event = select(vec!["queue_create", "queue_destroy", "process_seen", "summary"]);
    let address = || select(vec!["0x7fad66c00000", "0x7faf945b8038", "0x0", "0xffffffffffffffff", "0x", "7"]);
    let line = (event, time(), address(), address(), 0..3u32).prop_map(|(event, time, ring, pointer, queue)| {
        format!(
            "{{\"event\":\"{event}\",\"mono_ns\":{time},\"pid\":7,\"ns_pid\":1,\"kfd_process\":\"1\",\"queue_id\":{queue},\"ring_address\":\"{ring}\",\"write_pointer_address\":\"{pointer}\",\"queues\":null}}\n"
        )
        .into_bytes()
    });
    vec(line, 0..6).prop_map(|lines| lines.concat())
}
