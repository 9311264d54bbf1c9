//! Dumps that are not whole: what they leave open is unknown.

use super::*;

/// The dumps of a process with three queues: on pipe 1, in no slot, and an SDMA queue on engine 1.
fn mqds() -> String {
    let mut text = "Process 530 PASID 530:\n".to_owned();
    for base in [BASE, 0x900_0000] {
        text += "  Compute queue on device f7bc\n";
        for xcc in 0..2 {
            rows(&mut text, &mqd(&registers(base + xcc * 0x3000, true, 8, RING + base)), 0, 32);
        }
    }
    text += "  SDMA queue on device f7bc\n";
    rows(&mut text, &sdma(SDMA_RING), 0, 32);
    text
}

/// Two XCCs of two pipes, two engines of two slots each; all headings have a line of their own.
fn hqds() -> String {
    let mut text = "Node 1, gpu_id f7bc:\n".to_owned();
    for xcc in 0..2 {
        for (pipe, queue) in [(0, 2), (0, 3), (1, 2), (1, 3)] {
            let base = BASE + xcc * 0x3000;
            let registers = if (pipe, queue) == (1, 3) {
                registers(base, true, 8, RING + BASE)
            } else {
                registers(0, false, 0, 0)
            };
            slot(&mut text, &format!("Inst {xcc},  CP Pipe {pipe}, Queue {queue}"), &registers);
        }
    }
    for (engine, rlc) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let ring = if (engine, rlc) == (1, 1) { SDMA_RING } else { 0 };
        slot(&mut text, &format!(" SDMA Engine {engine}, RLC {rlc}"), &sdma_slot(ring));
    }
    text
}

const ON: State = State::Active { on: 1, of: 1, unread: 0 };
const BOTH: State = State::Active { on: 2, of: 2, unread: 0 };
const ONE: State = State::Active { on: 1, of: 2, unread: 1 };

fn states(hqds: &str) -> ([State; 3], Vec<String>) {
    let report = of(Some(&mqds()), Some(hqds));
    let states: Vec<State> = report.queues.iter().take(3).map(|queue| queue.state).collect();
    (states.try_into().unwrap(), report.hqds.unwrap().missing)
}

/// Wherever a copy ends, no queue is reported to be in no slot that is in one behind the end, and none as active on
/// fewer XCCs.
#[test]
fn a_copy_that_was_cut_off_anywhere_leaves_the_rest_unknown() {
    let whole = hqds();
    assert_eq!(states(&whole), ([BOTH, State::NotMapped, ON], vec![]));
    let heading = |words: &str| whole.find(words).unwrap();
    let (first, second) = (heading("Inst 0,  CP Pipe 1, Queue 3"), heading("Inst 1,  CP Pipe 1, Queue 3"));
    let (engines, last) = (heading("  SDMA Engine 0, RLC 0"), heading("SDMA Engine 1, RLC 1"));
    let lines: Vec<usize> = whole.match_indices('\n').map(|(at, _)| at + 1).collect();
    // At the end of each line, within it, and within its last number.
    let ends = lines
        .iter()
        .flat_map(|line| [line - 10, line - 3, *line])
        .filter(|end| *end < whole.trim_end().len());
    for end in ends {
        let (found, reasons) = states(&whole[..end]);
        let [compute, unmapped, sdma] = found;
        assert!(!reasons.is_empty(), "{end}: {found:?}");
        let allowed = match end {
            end if end <= first => vec![State::Unknown],
            end if end <= second => vec![State::Unknown, ONE],
            _ => vec![ONE, BOTH],
        };
        assert!(allowed.contains(&compute), "{end}: {compute:?}");
        assert!(end > second || unmapped == State::Unknown, "{end}: {unmapped:?}");
        assert!(end <= engines || unmapped == State::NotMapped, "{end}: {unmapped:?}");
        assert!(sdma == State::Unknown || end > last && sdma == ON, "{end}: {sdma:?}");
    }
}

#[test]
fn the_reason_says_where_a_copy_ends() {
    let whole = hqds();
    let before = |words: &str| states(&whole[..whole.find(words).unwrap()]).1;
    let within = "hqds ends within a slot: that one and those behind it are unknown";
    let cut = whole.find(" Inst 0,  CP Pipe 1").unwrap() - 170;
    assert_eq!(states(&whole[..cut]).1, [within]);
    assert_eq!(
        before("  SDMA Engine 1, RLC 1"),
        ["hqds is not whole: slots of SDMA queues of GPU 63420 (f7bc) are missing"]
    );
    assert_eq!(
        before("  SDMA Engine 0, RLC 0"),
        ["hqds ends before the SDMA slots of GPU 63420 (f7bc): slots of compute queues may be missing, too"]
    );
    assert_eq!(states("").1, ["hqds has no GPU: its slots are unknown"]);
    let middle = whole.replacen("    0000c934: ", "    ", 1);
    let (found, reasons) = states(&middle);
    assert_eq!(found[1], State::Unknown, "a line of a slot is lost");
    assert_eq!(reasons, ["hqds is not whole: slots of compute queues of GPU 63420 (f7bc) are missing"]);
    let pasted = whole.trim_end();
    assert_eq!(states(pasted).0, [BOTH, State::NotMapped, ON], "only the last newline is lost");
}

/// A whole GPU shows how many slots the last one has.
#[test]
fn a_gpu_is_compared_with_the_others() {
    let other = hqds().replace("f7bc", "c3f1").replace("Node 1", "Node 0");
    let whole = other.clone() + &hqds();
    assert_eq!(states(&whole), ([BOTH, State::NotMapped, ON], vec![]));
    let at = |words: &str| other.len() + hqds().find(words).unwrap();
    let (found, reasons) = states(&whole[..at(" Inst 1,  CP Pipe 0, Queue 2")]);
    assert_eq!((found[0], found[1], reasons.len()), (ONE, State::Unknown, 1), "{reasons:?}");
    let (found, reasons) = states(&whole[..at("  SDMA Engine 1, RLC 0")]);
    assert_eq!((found[1], found[2], reasons.len()), (State::NotMapped, State::Unknown, 1), "{reasons:?}");
    let (found, _) = states(&other);
    assert_eq!(found, [State::Unknown; 3], "the dump has no slots of that GPU");
    let (found, _) = states(&(other + "Node 1, gpu_id f7bc:\n Device is stopped\n"));
    assert_eq!(found, [State::Unknown; 3], "the driver prints no slots of a stopped GPU");
}

#[test]
fn totals_of_a_copy_that_was_cut_off_are_lower_bounds() {
    let cut = hqds();
    let cut = &cut[..cut.find(" Inst 1,  CP Pipe 0, Queue 2").unwrap()];
    let mut out = Vec::new();
    text::text(&mut out, &of(Some(&mqds()), Some(cut)), &Plain).unwrap();
    let shown = String::from_utf8(out).unwrap();
    let line = "gpu f7bc: 2 compute queues = at least 1 active HQD on 1 XCC, 4 slots each; 1 SDMA queue\n";
    assert!(shown.starts_with(line), "{shown}");
    assert!(shown.contains("active on 1 of 2 XCCs, 1 not read") && shown.contains("  ?  "), "{shown}");
}

#[test]
fn a_copy_of_mqds_that_was_cut_off_says_so() {
    let whole = mqds();
    let missing = |text: &str| of(Some(text), None).mqds.unwrap().missing;
    assert_eq!(missing(&whole), [""; 0]);
    let note = ["mqds ends within a queue: further queues and processes are missing"];
    let second = whole.rfind("  Compute queue").unwrap();
    let rows: Vec<usize> = whole.match_indices('\n').map(|(at, _)| at + 1).collect();
    for end in rows.iter().copied().filter(|end| *end > second + 40 && *end < whole.len()) {
        // Between two queues nothing shows it.
        if end != whole.find("  SDMA queue").unwrap() {
            assert_eq!(missing(&whole[..end]), note, "{end}: {}", &whole[end..end + 40]);
        }
    }
    for within in [2, 20, 60] {
        assert_eq!(missing(&whole[..whole.len() - within]), note);
    }
    let cut = of(Some(&whole[..whole.len() - 200]), None);
    assert_eq!(cut.queues[2].state, State::Damaged);
    let empty = ["mqds has no process: none uses KFD, or the copy is empty"];
    assert_eq!(missing(""), empty);
    assert_eq!(cut.mqds.unwrap().strange.lines, 0, "its last line is not one that is not understood");
}

/// A compute MQD of gfx7 has 128 dwords, which is where a copy of a later one may end as well.
#[test]
fn a_lone_mqd_of_gfx7_is_not_damaged_and_not_read_as_a_later_one() {
    let of_gfx7 = |queues: usize, dwords: usize| {
        let mut text = "Process 530 PASID 530:\n".to_owned();
        for _ in 0..queues {
            text += "  Compute queue on device f7bc\n";
            rows(&mut text, &mqd(&registers(BASE, true, 8, RING))[..dwords], 0, 32);
        }
        let report = of(Some(&text), None);
        let states: Vec<State> = report.queues.iter().map(|queue| queue.state).collect();
        (states, report.queues[0].ring, report.mqds.unwrap().missing)
    };
    let note =
        "mqds has MQDs of 128 dwords: of gfx7, whose layout is not known here, unless the copy ends there";
    assert_eq!(of_gfx7(1, 128), (vec![State::Unknown], None, vec![note.to_owned()]));
    assert_eq!(of_gfx7(2, 128), (vec![State::Unknown; 2], None, vec![note.to_owned()]));
    let (states, ring, missing) = of_gfx7(1, 120);
    assert_eq!((states, ring), (vec![State::Damaged], None));
    assert_eq!(missing, ["mqds ends within a queue: further queues and processes are missing"]);
}
