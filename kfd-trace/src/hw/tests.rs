use super::hqds::Place;
use super::mqds::MqdKind;
use super::progress::Pointers;
use super::*;
use std::fmt::Write as _;

mod cut;
mod existing;
mod naive;
mod slots;

const GPU: u32 = 0xf7bc;

/// Rows as seq_hex_dump prints them.
fn rows(text: &mut String, dwords: &[u32], first: u32, step: u32) {
    for (row, dwords) in (0..).zip(dwords.chunks(8)) {
        let words: Vec<String> = dwords.iter().map(|dword| format!("{dword:08x}")).collect();
        writeln!(text, "    {:08x}: {}", first + row * step, words.join(" ")).unwrap();
    }
}

/// Low and high dword.
fn split(value: u64) -> (u32, u32) {
    let dword = |value: u64| u32::try_from(value & 0xffff_ffff).unwrap();
    (dword(value), dword(value >> 32))
}

/// The 56 registers of a slot with this MQD.
fn registers(mqd: u64, active: bool, vmid: u32, ring: u64) -> Vec<u32> {
    let mut all = vec![0; 56];
    (all[0], all[1]) = split(mqd);
    (all[2], all[3], all[5], all[6]) = (u32::from(active), vmid | vmid << 8, 1, 7);
    (all[8], all[9]) = split(ring >> 8);
    (all[10], all[15], all[17], all[54]) = (16, 0x6000_4022, 0x1401_4511, 32);
    all[53] = 1;
    all
}

/// The MQD of such a slot, as it was saved.
fn mqd(registers: &[u32]) -> Vec<u32> {
    let mut mqd = vec![0; 512];
    mqd[23] = 0xff;
    mqd[128..184].copy_from_slice(registers);
    mqd
}

/// The MQD of an SDMA queue.
fn sdma(ring: u64) -> Vec<u32> {
    let mut all = vec![0; 128];
    all[0] = 1 | 18 << 1;
    (all[1], all[2]) = split(ring >> 8);
    (all[3], all[5], all[126], all[127]) = (64, 128, 1, 3);
    all
}

/// The 44 registers of an SDMA slot of gfx9.4.3 with a queue on it.
fn sdma_slot(ring: u64) -> Vec<u32> {
    let mut all = sdma(ring);
    all.truncate(44);
    // SDMA_RLC_DOORBELL: ENABLE and CAPTURED.
    (all[17], all[18]) = (9, 0x5000_0000);
    all
}

const BASE: u64 = 0x17b_a000;
const RING: u64 = 0x7f41_b520_0000;
const SDMA_RING: u64 = 0x7f41_b000_0000;

/// A process with a compute queue on two XCCs that is active, one that was never mapped, and an SDMA queue behind which
/// the driver prints what is not its own.
fn mqds() -> String {
    let mut text = "Process 4242 PASID 0x8001:\n  Compute queue on device f7bc\n".to_owned();
    for xcc in 0..2 {
        rows(&mut text, &mqd(&registers(BASE + xcc * 0x3000, false, 0, RING)), 0, 32);
    }
    text += "  Compute queue on device f7bc\n";
    for xcc in 0..2 {
        rows(&mut text, &mqd(&registers(0x900_0000 + xcc * 0x3000, false, 0, 0x7f00_0000_0000)), 0, 32);
    }
    text += "  SDMA queue on device f7bc\n";
    rows(&mut text, &sdma(SDMA_RING), 0, 32);
    rows(&mut text, &sdma(0xdead_0000), 0, 32);
    text + "Process 4243 PASID 0x8002:\n"
}

fn slot(text: &mut String, name: &str, registers: &[u32]) {
    writeln!(text, " {name}").unwrap();
    rows(text, registers, 0xc914, 32);
}

/// Two XCCs with two slots each, whose first has the queue, and an SDMA slot.
fn hqds() -> String {
    let mut text = "Node 2, gpu_id f7bc:\n".to_owned();
    slot(&mut text, "  Inst 0, HIQ on MEC 2 Pipe 0 Queue 0", &registers(0x6e_3000, true, 0, 0xfc_c000));
    for xcc in 0..2 {
        let first = registers(BASE + xcc * 0x3000, true, 3, RING);
        slot(&mut text, &format!("Inst {xcc},  CP Pipe 0, Queue 2"), &first);
        slot(&mut text, &format!("Inst {xcc},  CP Pipe 0, Queue 3"), &registers(0, false, 0, 0));
    }
    slot(&mut text, " SDMA Engine 0, RLC 3", &sdma_slot(0));
    slot(&mut text, " SDMA Engine 1, RLC 3", &sdma_slot(SDMA_RING));
    text + "Node 3, gpu_id f05b:\n Device is stopped\n"
}

fn of(mqds: Option<&str>, hqds: Option<&str>) -> HwReport {
    let (mqds, hqds) = (mqds.map(MqdFile::parse), hqds.map(HqdFile::parse));
    report(mqds.as_ref(), hqds.as_ref(), |_| Some(Generation::V9_4_3))
}

#[test]
fn queues_have_the_slots_that_name_their_mqds() {
    let report = of(Some(&mqds()), Some(&hqds()));
    let states: Vec<_> = report.queues.iter().map(|queue| (queue.pid, queue.kind, queue.state)).collect();
    let (pid, compute, sdma) = (Some(4242), Some(MqdKind::Compute), Some(MqdKind::Sdma));
    let on = |on| State::Active { on, of: on, unread: 0 };
    assert_eq!(
        states,
        [(pid, compute, on(2)), (pid, compute, State::NotMapped), (pid, sdma, on(1)), (None, None, on(1))]
    );
    let first = &report.queues[0];
    let place = Place::Cp { pipe: 0, queue: 2 };
    let at = |inst| Slot { inst, place, active: true, error: Some(0), dequeue_request: Some(0) };
    assert_eq!(first.slots, [at(0), at(1)]);
    assert_eq!((first.ring, first.ring_bytes, first.vmid), (Some(RING), Some(1 << 20), Some(3)));
    let pointers = Pointers { rptr: 16, wptr: 32, unread: Some(16) };
    assert_eq!((&first.pointers[..], first.unread(), first.xccs), (&[pointers; 2][..], Some(vec![1, 1]), 2));
    assert_eq!((first.pipe_priority, first.queue_priority), (Some(1), Some(7)));
    assert_eq!(first.cu_masks, [[0xff, 0, 0, 0]; 2]);
    assert_eq!(report.queues[1].vmid, None, "it is on no hardware");
    let never_saved = mqds().replace(
        "00000000 00000000 00000000 00000001 00000007",
        "00000001 00000303 00000000 00000001 00000007",
    );
    let again = of(Some(&never_saved), Some(&hqds()));
    assert_eq!(
        (again.queues[1].state, again.queues[1].vmid),
        (State::NotMapped, None),
        "what was saved is old"
    );
    let third = &report.queues[2];
    assert_eq!((third.ring, third.ring_bytes, third.engine), (Some(SDMA_RING), Some(1 << 20), Some((1, 3))));
    assert_eq!(third.pointers, [Pointers { rptr: 64, wptr: 128, unread: Some(64) }]);
    let gpu = Gpu {
        gpu_id: GPU,
        compute_queues: 2,
        sdma_queues: 1,
        xccs: Some(2),
        slots_each: Some(2),
        active_hqds: Some(2),
        active_sdma: Some(1),
        ..Gpu::default()
    };
    let missing = Gpu { compute_missing: true, sdma_missing: true, ..Gpu::default() };
    let stopped = Gpu { gpu_id: 0xf05b, stopped: true, ..missing };
    assert_eq!(report.gpus, [gpu, stopped], "in the order of the dump, which is the topology's");
    assert_eq!(report.idle_processes, [4243]);
}

#[test]
fn without_the_slots_a_state_is_what_was_saved() {
    let report = of(Some(&mqds()), None);
    assert!(report.queues.iter().all(|queue| matches!(queue.state, State::Saved { .. })), "{report:?}");
    assert_eq!(report.queues.len(), 3, "no row of memory behind an SDMA queue");
    let gpu = &report.gpus[0];
    assert_eq!((gpu.xccs, gpu.slots_each, gpu.active_hqds), (None, None, None), "unknown, and not 0");
    assert!(report.queues.iter().all(|queue| queue.unread().is_none()), "what was saved is old");
}

#[test]
fn slots_without_mqds_are_queues_of_nobody() {
    let report = of(None, Some(&hqds()));
    let of_nobody: Vec<_> = report.queues.iter().map(|queue| (queue.pid, queue.ring, queue.xccs)).collect();
    assert_eq!(of_nobody, [(None, Some(0xfc_c000), 1), (None, Some(RING), 2), (None, Some(SDMA_RING), 1)]);
}

#[test]
fn a_slot_that_was_left_is_not_active() {
    let text = hqds().replacen("00000001 00000303", "00000000 00000303", 2);
    let report = of(Some(&mqds()), Some(&text));
    assert_eq!(report.queues[0].state, State::Stale);
    let one = hqds().replacen("00000001 00000303", "00000000 00000303", 1);
    assert_eq!(of(Some(&mqds()), Some(&one)).queues[0].state, State::Active { on: 1, of: 2, unread: 0 });
}

/// Older drivers print one MQD of a queue, whatever the number of its XCCs.
#[test]
fn further_xccs_are_found_by_the_ring_where_one_mqd_is_printed() {
    let mut text = "Process 4242 PASID 0x8001:\n  Compute queue on device f7bc\n".to_owned();
    rows(&mut text, &mqd(&registers(BASE, true, 3, RING)), 0, 32);
    let report = of(Some(&text), Some(&hqds()));
    assert_eq!(
        (report.queues[0].slots.len(), report.queues[0].state),
        (2, State::Active { on: 2, of: 2, unread: 0 })
    );
    let others: Vec<_> = report.queues[1..].iter().map(|queue| (queue.pid, queue.kind)).collect();
    assert_eq!(others, [(None, None), (None, Some(MqdKind::Sdma))], "the kernel's, and one without an MQD");
}

#[test]
fn what_is_damaged_or_strange_is_shown_as_such() {
    let mut lines: Vec<String> = mqds().lines().map(str::to_owned).collect();
    lines.remove(5);
    lines.push("    garbage".to_owned());
    lines.push("  Bad user queue type 9 on device f7bc".to_owned());
    let report = of(Some(&lines.join("\n")), None);
    assert_eq!(report.queues[0].state, State::Damaged);
    assert_eq!((report.queues[0].ring, report.unknown_queues), (None, 1));
    let strange = report.mqds.unwrap().strange;
    assert_eq!((strange.lines, strange.first.values().next().map(String::as_str)), (1, Some("garbage")));
    let cut = of(Some("Process 1 PASID 1:\n  Compute queue on device f7bc\n    00000000: 00000001\n"), None);
    assert_eq!(cut.queues[0].state, State::Damaged);
    assert_eq!(
        of(Some("Process 1 PASID 1:\n  SDMA queue on device f7bc\n"), None).queues[0].state,
        State::Damaged
    );
}

#[test]
fn generations_are_those_whose_layout_is_known() {
    for (name, generation) in [
        ("gfx900", Generation::V9),
        ("gfx90a", Generation::V9),
        ("gfx942", Generation::V9_4_3),
        ("gfx950", Generation::V9_4_3),
        ("gfx1030", Generation::V10),
        ("gfx1151", Generation::V11),
        ("gfx1201", Generation::V12),
        ("gfx1250", Generation::V12_1),
    ] {
        let parsed: Result<Generation, String> = name.parse();
        if name == "gfx1250" {
            assert!(parsed.is_err(), "minor 5 is not known");
        } else {
            assert_eq!(parsed, Ok(generation), "{name}");
        }
    }
    assert_eq!(Generation::of_target(90_402), Ok(Generation::V9_4_3));
    assert_eq!(Generation::of_target(120_100), Ok(Generation::V12_1));
    for wrong in ["gfx803", "gfx701", "942", "gfx", "gfxé42", "gfx9z2", "gfx99999999942"] {
        assert!(wrong.parse::<Generation>().is_err(), "{wrong}");
    }
}

struct Plain;

impl Names for Plain {
    fn gpu(&self, _: u32) -> String {
        "0".to_owned()
    }

    fn gpu_in_full(&self, gpu_id: u32) -> String {
        format!("gpu {gpu_id:x}")
    }

    fn process(&self, pid: u32) -> Option<String> {
        (pid == 4242).then(|| "gemm\x1b[2J".to_owned())
    }
}

#[test]
fn the_table_has_one_row_a_queue_and_the_totals_above() {
    let mut out = Vec::new();
    text::text(&mut out, &of(Some(&mqds()), Some(&hqds())), &Plain).unwrap();
    let shown = String::from_utf8(out).unwrap();
    let expected = "\
gpu f7bc: 2 compute queues = 2 active HQDs on 2 XCCs, 2 slots each; 1 SDMA queue, 1 active
gpu f05b: the driver has stopped it

GPU   PID  NAME           TYPE          RING               SIZE  XCCS  SLOT                  VMID  STATE       RPTR  WPTR    UNREAD
0    4242  gemm\\u{1b}[2J  compute       0x7f41b5200000  1.0 MiB     2  pipe 0 queue 2           3  active        16    32  1 packet
0    4242  gemm\\u{1b}[2J  compute       0x7f0000000000  1.0 MiB     2  -                        -  in no slot    16    32         ?
0    4242  gemm\\u{1b}[2J  sdma          0x7f41b0000000  1.0 MiB     1  engine 1 RLC 3           -  active        64   128  64 bytes
0       -  -              kernel (HIQ)  0xfcc000        1.0 MiB     1  MEC 2 pipe 0 queue 0     0  active        16    32  1 packet
Processes without a queue: 4243.
";
    assert_eq!(shown, expected);
    let mut out = Vec::new();
    json::json(&mut out, &of(Some(&mqds()), None), &Plain).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let first = &document["queues"][0];
    assert_eq!(
        (&first["state"], &first["active_xccs"]),
        (&"saved_inactive".into(), &serde_json::Value::Null)
    );
    assert_eq!((&first["ring_address"], &first["pid"]), (&"0x7f41b5200000".into(), &4242.into()));
}
