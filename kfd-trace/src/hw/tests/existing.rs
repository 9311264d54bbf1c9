//! Queues of sysfs, joined with the dump of their MQDs.

use super::*;
use crate::attribute::{SysfsProcess, SysfsQueue};
use crate::model::event::{Origin, QueueFacts, QueueType};
use crate::model::inventory::Listed;

const PID: u32 = 4242;
const OTHER_GPU: u32 = 0xf05b;
const RPTR: u64 = 0x7f61_c157_6080;
const WPTR: u64 = 0x7f61_c157_6038;

/// Numbers of `enum kfd_queue_type`; those of other SDMA queues differ between drivers.
const COMPUTE: u32 = 0;
const SDMA: u32 = 1;
const OTHER_SDMA: u32 = 5;

/// The MQD of an AQL queue with a ring of 1 MiB.
fn aql(ring: u64) -> Vec<u32> {
    let mut all = registers(BASE, false, 0, ring);
    (all[11], all[12]) = split(RPTR);
    (all[13], all[14]) = split(WPTR);
    all[53] = 1;
    mqd(&all)
}

/// A queue of the dump: its heading, and its MQDs.
fn dumped(name: &str, gpu_id: u32, mqds: &[Vec<u32>]) -> String {
    let mut text = format!("  {name} on device {gpu_id:x}\n");
    mqds.iter().for_each(|mqd| rows(&mut text, mqd, 0, 32));
    text
}

fn compute(ring: u64) -> String {
    dumped("Compute queue", GPU, &[aql(ring)])
}

fn dump(queues: &[String]) -> String {
    format!("Process {PID} PASID 0x8001:\n{}", queues.concat())
}

fn queue(queue_id: u32, raw: u32) -> SysfsQueue {
    SysfsQueue { queue_id, gpu_id: Some(GPU), size: Some(1 << 20), queue_type_raw: Some(raw) }
}

/// Queues in the order of their creation.
fn listing(queues: &[SysfsQueue]) -> Listing {
    let births = queues.iter().zip(100..).map(|(queue, birth)| ((PID, queue.queue_id), birth)).collect();
    let mut queues = queues.to_vec();
    queues.sort_by_key(|queue| queue.queue_id);
    Listing { processes: vec![SysfsProcess { tgid: PID, queues, ..Default::default() }], births }
}

fn between(before: &Listing, text: &str, after: &Listing) -> Vec<Listed> {
    existing(before, &MqdFile::parse(text), after, |_| Some(Generation::V9)).unwrap()
}

/// Queue id and ring of those that are known, without a change meanwhile.
fn rings(queues: &[SysfsQueue], text: &str) -> Vec<(u32, u64)> {
    let listing = listing(queues);
    rings_of(&between(&listing, text, &listing))
}

fn rings_of(found: &[Listed]) -> Vec<(u32, u64)> {
    let queues = found.iter().flat_map(|process| &process.queues);
    let mut rings: Vec<_> =
        queues.map(|queue| (queue.queue_id.unwrap(), queue.ring_address.unwrap())).collect();
    rings.sort_unstable();
    rings
}

/// Two of a kind and size: ids say nothing, since they are used again.
#[test]
fn queues_are_joined_by_the_order_of_their_creation() {
    let text = dump(&[compute(0x3000), compute(0x2000), compute(0x1000)]);
    let of = |ids: [u32; 3]| rings(&ids.map(|id| queue(id, COMPUTE)), &text);
    assert_eq!(of([0, 1, 2]), [(0, 0x1000), (1, 0x2000), (2, 0x3000)]);
    assert_eq!(of([1, 2, 0]), [(0, 0x3000), (1, 0x1000), (2, 0x2000)]);
}

#[test]
fn an_mqd_states_addresses_doorbell_and_priority() {
    let found = facts(&dump(&[compute(RING)]), COMPUTE, Generation::V9);
    let expected = QueueFacts {
        queue_id: Some(3),
        gpu_id: Some(GPU),
        queue_type: Some(QueueType::ComputeAql),
        ring_address: Some(RING),
        ring_size: Some(1 << 20),
        write_pointer_address: Some(WPTR),
        read_pointer_address: Some(RPTR),
        doorbell_offset: Some(0x1008),
        priority: Some(7),
        ..QueueFacts::unknown(Origin::Standing)
    };
    assert_eq!(found, std::slice::from_ref(&expected));
    // PM4, and a driver that writes the level of the priority alone.
    let mut plain = aql(RING);
    (plain[128 + 53], plain[128 + 5], plain[128 + 6]) = (0, 0, 0);
    let found = facts(&dump(&[dumped("Compute queue", GPU, &[plain])]), COMPUTE, Generation::V9);
    assert_eq!(found, [QueueFacts { queue_type: None, priority: None, ..expected }]);
}

fn facts(text: &str, raw: u32, generation: Generation) -> Vec<QueueFacts> {
    let listing = listing(&[queue(3, raw)]);
    let found = existing(&listing, &MqdFile::parse(text), &listing, |_| Some(generation)).unwrap();
    found.into_iter().flat_map(|process| process.queues).collect()
}

#[test]
fn an_sdma_mqd_has_its_addresses_where_its_generation_has_them() {
    let (rptr_low, rptr_high) = split(RPTR);
    let (wptr_low, wptr_high) = split(WPTR);
    let doorbell = 0x1008 << 2;
    let v9 = [(8, rptr_high), (9, rptr_low), (22, doorbell)];
    let v11 = [(7, rptr_high), (8, rptr_low), (19, doorbell), (26, wptr_high), (27, wptr_low)];
    let v12 = [(7, rptr_low), (8, rptr_high), (17, doorbell), (24, wptr_low), (25, wptr_high)];
    for (generation, places, wptr) in [
        (Generation::V9, &v9[..], None),
        (Generation::V9_4_3, &v9, None),
        (Generation::V10, &v9, None),
        (Generation::V11, &v11, Some(WPTR)),
        (Generation::V12, &v12, Some(WPTR)),
        (Generation::V12_1, &v12, Some(WPTR)),
    ] {
        let mut mqd = sdma(SDMA_RING);
        places.iter().for_each(|(at, value)| mqd[*at] = *value);
        // Behind it the driver prints what is not its own.
        let text = dump(&[dumped("SDMA queue", GPU, &[mqd, sdma(0xdead_0000)])]);
        let expected = QueueFacts {
            queue_id: Some(3),
            gpu_id: Some(GPU),
            ring_address: Some(SDMA_RING),
            ring_size: Some(1 << 20),
            write_pointer_address: wptr,
            read_pointer_address: Some(RPTR),
            doorbell_offset: Some(0x1008),
            sdma_engine_id: Some(1),
            ..QueueFacts::unknown(Origin::Standing)
        };
        assert_eq!(facts(&text, SDMA, generation), [expected], "{generation}");
    }
}

#[test]
fn a_change_meanwhile_leaves_a_process_unknown() {
    let text = dump(&[compute(0x2000), compute(0x1000)]);
    let before = listing(&[queue(0, COMPUTE), queue(1, COMPUTE)]);
    let unknown = |after: &Listing, why: &str| {
        let found = between(&before, &text, after);
        assert_eq!((found.len(), rings_of(&found)), (1, vec![]), "{why}");
    };
    assert_eq!(rings_of(&between(&before, &text, &before)).len(), 2);
    unknown(&listing(&[queue(0, COMPUTE)]), "one ended");
    unknown(&listing(&[queue(0, COMPUTE), queue(1, COMPUTE), queue(2, COMPUTE)]), "one came");
    let resized = SysfsQueue { size: Some(4096), ..queue(1, COMPUTE) };
    unknown(&listing(&[queue(0, COMPUTE), resized]), "one has another ring");
    let mut again = before.clone();
    again.births.insert((PID, 1), 900);
    unknown(&again, "one ended, and another one has its id");
    again.births.remove(&(PID, 1));
    unknown(&again, "one ended while it was looked at");
    unknown(&Listing::default(), "the process ended");
}

#[test]
fn what_contradicts_sysfs_leaves_the_whole_process_unknown() {
    let text = dump(&[compute(0x2000), compute(0x1000)]);
    let known = |first, second| rings(&[first, second], &text).len();
    let plain = |queue_id| queue(queue_id, COMPUTE);
    assert_eq!(known(plain(0), plain(1)), 2);
    assert_eq!(known(plain(0), queue(1, SDMA)), 0);
    assert_eq!(known(plain(0), SysfsQueue { gpu_id: Some(OTHER_GPU), ..plain(1) }), 0);
    assert_eq!(known(plain(0), SysfsQueue { size: Some(4096), ..plain(1) }), 0);
    assert_eq!(rings(&[plain(0)], &text), [], "one more than sysfs lists");
    assert_eq!(rings(&[plain(0), plain(1), plain(2)], &text), [], "one less");
    let unread = |queue_id| SysfsQueue { queue_id, gpu_id: None, size: None, queue_type_raw: None };
    assert_eq!(known(unread(0), unread(1)), 2, "what cannot be read contradicts nothing");
}

#[test]
fn a_queue_that_is_not_known_itself_leaves_the_others_known() {
    let of = |second: SysfsQueue, shown: String| {
        let text = dump(&[compute(0x3000), shown, compute(0x1000)]);
        rings(&[queue(0, COMPUTE), second, queue(2, COMPUTE)], &text)
    };
    let others = [(0, 0x1000), (2, 0x3000)];
    for words in ["Bad user queue type 5", "Queue node with bad user queue type 5"] {
        let shown = format!("  {words} on device f7bc\n");
        assert_eq!(of(queue(1, OTHER_SDMA), shown.clone()), others);
        assert_eq!(of(queue(1, COMPUTE), shown), [], "every driver knows these");
    }
    let mut cut = compute(0x2000);
    cut.truncate(cut.find("00000200:").unwrap());
    assert_eq!(of(queue(1, COMPUTE), cut), others);
    // On a GPU with two XCCs.
    let on_two = |first: u64, second: u64| dumped("Compute queue", GPU, &[aql(first), aql(second)]);
    let rings_on_two = |second: String| {
        let text = dump(&[on_two(0x3000, 0x3000), second, on_two(0x1000, 0x1000)]);
        rings(&[queue(0, COMPUTE), queue(1, COMPUTE), queue(2, COMPUTE)], &text)
    };
    assert_eq!(rings_on_two(on_two(0x2000, 0x9000)), others, "another ring on another XCC");
    assert_eq!(rings_on_two(on_two(0x2000, 0x2000)), [(0, 0x1000), (1, 0x2000), (2, 0x3000)]);
    let stopped = SysfsQueue { size: Some(0), ..queue(1, COMPUTE) };
    assert_eq!(of(stopped, compute(0x2000)), others, "UPDATE_QUEUE has taken its ring away");
    let elsewhere = SysfsQueue { gpu_id: Some(OTHER_GPU), ..queue(1, COMPUTE) };
    let listing = listing(&[queue(0, COMPUTE), elsewhere]);
    let text = dump(&[dumped("Compute queue", OTHER_GPU, &[aql(0x2000)]), compute(0x1000)]);
    let known = |gpu_id| (gpu_id == GPU).then_some(Generation::V9);
    let found = existing(&listing, &MqdFile::parse(&text), &listing, known).unwrap();
    assert_eq!(rings_of(&found), [(0, 0x1000)], "the layout of the other GPU is not known");
}

#[test]
fn queues_of_the_kernel_are_no_users() {
    let kernels = [
        dumped("DIQ", GPU, &[aql(0x9000)]),
        "  Bad kernel queue type 7 on device f7bc\n".to_owned(),
        "  Weird: Queue node with neither kernel nor user queue\n".to_owned(),
        compute(0x1000),
    ];
    assert_eq!(rings(&[queue(0, COMPUTE)], &dump(&kernels)), [(0, 0x1000)]);
}

#[test]
fn processes_that_cannot_be_distinguished_are_left_out() {
    let text = dump(&[compute(0x1000)]);
    let one = listing(&[queue(0, COMPUTE)]);
    let none: [u32; 0] = [];
    let tgids = |found: Vec<Listed>| found.iter().map(|process| process.tgid).collect::<Vec<_>>();
    assert_eq!(tgids(between(&one, &text, &one)), [PID]);
    assert_eq!(tgids(between(&one, &[&*text, &text].concat(), &one)), none, "two of a PID in the dump");
    assert_eq!(tgids(between(&one, "Process 4243 PASID 4243:\n", &one)), none, "it is not in the dump");
    let mut two = one.clone();
    two.processes.push(SysfsProcess { tgid: PID, context_id: Some(5), ..Default::default() });
    assert_eq!(tgids(between(&two, &text, &two)), none, "two contexts in sysfs");
    let mut further = one.clone();
    further.processes[0].context_id = Some(5);
    assert_eq!(tgids(between(&further, &text, &further)), none, "another than the first one");
}

#[test]
fn a_dump_with_lines_that_are_not_understood_is_not_used() {
    let one = listing(&[queue(0, COMPUTE)]);
    let text = dump(&["  Newer queue on device f7bc\n".to_owned(), compute(0x1000)]);
    let refused = existing(&one, &MqdFile::parse(&text), &one, |_| Some(Generation::V9)).unwrap_err();
    assert_eq!(refused, "line 2 of the dump of MQDs is not understood: Newer queue on device f7bc");
}
