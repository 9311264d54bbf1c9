use super::*;
use crate::kernel::btf::BtfWriter;
use crate::kernel::types::{self, TypesSource, table};
use crate::kernel::{Preflight, Roots, Symbols};
use crate::probes::memory::samples::Words;
use std::path::Path;
use std::sync::Arc;

const SYMBOLS: &str = "\
ffffffffc0001000 b kfd_processes_table\t[amdgpu]
ffffffffc0001100 b after\t[amdgpu]
ffffffffc0002000 r kfd_process_mmu_notifier_ops\t[amdgpu]
ffffffffc0003000 t kfd_process_hw_exception\t[amdgpu]
";
pub(super) const TABLE: u64 = 0xffff_ffff_c000_1000;
const OPS: u64 = 0xffff_ffff_c000_2000;
const HW_EXCEPTION: u64 = 0xffff_ffff_c000_3000;

/// Kernel memory, a page and more each.
const BASE: u64 = 0xffff_8880_0000_0000;
const PROCESS: u64 = BASE;
const TASK: u64 = BASE + 0x1_0000;
const NODES: [u64; 2] = [BASE + 0x2_0000, BASE + 0x2_1000];
const QUEUES: [u64; 2] = [BASE + 0x3_0000, BASE + 0x3_1000];
/// `struct kfd_process_device`, of two GPUs.
const PDDS: [u64; 2] = [BASE + 0x4_0000, BASE + 0x4_1000];
const GPUS: [u64; 2] = [BASE + 0x5_0000, BASE + 0x5_1000];
pub(super) const DQMS: [u64; 2] = [BASE + 0x6_0000, BASE + 0x6_1000];
const GPU_IDS: [u64; 2] = [24_439, 16_243];
const TGID: u64 = 4242;

fn vmlinux() -> Arc<Btf> {
    let mut types = BtfWriter::new();
    let word = types.int("int", 4);
    let long = types.int("long", 8);
    types.strukt("task_struct", 64, &[("tgid", word, 40 * 8)]);
    types.strukt("file", 256, &[("private_data", long, 200 * 8)]);
    types.strukt("mmu_notifier", 56, &[("ops", long, 16 * 8)]);
    types.strukt("work_struct", 32, &[("func", long, 24 * 8)]);
    types.btf()
}

pub(super) fn kernel(driver: Vec<u8>) -> Kernel {
    Kernel {
        symbols: Symbols::parse(SYMBOLS.as_bytes()),
        vmlinux_btf: Some(vmlinux()),
        amdgpu_btf: Some(Arc::new(Btf::parse(driver, None).unwrap())),
        types: TypesSource::Table("test".to_owned()),
        release: None,
        preflight: Preflight::read(&Roots::under(Path::new("/nowhere"))),
        btf_problems: Vec::new(),
    }
}

/// The memory of a driver with these types: a process with two GPUs and a queue on each.
struct Driver<'a> {
    btf: &'a Btf,
    words: Words,
}

impl Driver<'_> {
    fn room(&mut self, at: u64, bytes: u64) {
        self.words.0.extend((0..bytes / 8).map(|word| (at + word * 8, 0)));
    }

    fn put(&mut self, at: u64, bytes: u32, value: u64) {
        for (index, byte) in value.to_le_bytes().into_iter().take(bytes as usize).enumerate() {
            let place = at + index as u64;
            let word = self.words.0.get_mut(&(place & !7)).unwrap_or_else(|| panic!("{place:#x}"));
            let shift = (place & 7) * 8;
            *word = *word & !(0xff << shift) | u64::from(byte) << shift;
        }
    }

    fn member(&mut self, base: u64, structure: &str, path: &str, value: u64) {
        if let Ok(member) = self.btf.offset_of(structure, path) {
            let bytes = if member.size == 4 || member.size == 1 { member.size } else { 8 };
            self.put(base + u64::from(member.offset), bytes, value);
        }
    }
}

pub(super) fn memory(btf: &Btf) -> Words {
    let mut driver = Driver { btf, words: Words::default() };
    driver.room(TABLE, 0x100);
    for at in [&[PROCESS, TASK][..], &NODES, &QUEUES, &PDDS, &GPUS, &DQMS].concat() {
        driver.room(at, 0x1000);
    }
    driver.put(TABLE + 24, 8, PROCESS);
    driver.member(PROCESS, "kfd_process", "mm", TASK);
    driver.member(PROCESS, "kfd_process", "ref", 1);
    driver.member(PROCESS, "kfd_process", "lead_thread", TASK);
    driver.member(PROCESS, "kfd_process", "pasid", 0x8001);
    let at = |structure: &str, path: &str| u64::from(btf.offset_of(structure, path).unwrap().offset);
    driver.put(PROCESS + at("kfd_process", "mmu_notifier") + 16, 8, OPS);
    driver.put(TASK + 40, 4, TGID);
    let queues = PROCESS + at("kfd_process", "pqm.queues");
    driver.put(queues - 8, 8, PROCESS);
    let list = at("process_queue_node", "process_queue_list");
    for (from, to) in
        [(queues, NODES[0] + list), (NODES[0] + list, NODES[1] + list), (NODES[1] + list, queues)]
    {
        driver.put(from, 8, to);
    }
    let gpu = if btf.size_of("kfd_node").is_ok() { "kfd_node" } else { "kfd_dev" };
    let properties = QUEUES.map(|queue| queue + at("queue", "properties"));
    for index in 0..2 {
        // Where the array is differs between drivers.
        driver.put(PROCESS + 168 + 8 * index as u64, 8, PDDS[index]);
        driver.member(NODES[index], "process_queue_node", "q", QUEUES[index]);
        driver.member(QUEUES[index], "queue", "process", PROCESS);
        driver.member(QUEUES[index], "queue", "device", GPUS[index]);
        let values = [
            ("format", 1),
            ("queue_id", index as u64),
            ("queue_address", 0x7f00_0000_0000),
            ("queue_size", 0x10_0000),
            ("priority", 7),
            ("queue_percent", 100),
            ("read_ptr", 0x7f00_1000_0080),
            ("write_ptr", 0x7f00_1000_0038),
            ("doorbell_ptr", 0xffff_c900_0000_1000),
            ("doorbell_off", 0x400),
            ("is_active", 1),
        ];
        for (name, value) in values {
            driver.member(properties[index], "queue_properties", name, value);
        }
        driver.member(GPUS[index], gpu, "id", GPU_IDS[index]);
        driver.member(GPUS[index], gpu, "dqm", DQMS[index]);
        driver.member(DQMS[index], "device_queue_manager", "dev", GPUS[index]);
        if let Ok(work) = btf.offset_of("device_queue_manager", "hw_exception_work") {
            let work = DQMS[index] + u64::from(work.offset);
            // No pool; an empty list; what it runs.
            for (offset, value) in [(0, 0xf_ffff_ffe0), (8, work + 8), (16, work + 8), (24, HW_EXCEPTION)] {
                driver.put(work + offset, 8, value);
            }
        }
        driver.member(PDDS[index], "kfd_process_device", "dev", GPUS[index]);
        driver.member(PDDS[index], "kfd_process_device", "process", PROCESS);
        driver.member(PDDS[index], "kfd_process_device", "drm_priv", TASK);
        let qpd = PDDS[index] + at("kfd_process_device", "qpd");
        driver.put(qpd, 8, DQMS[index]);
        driver.put(qpd + 8, 8, queues - 8);
        driver.put(qpd + 48, 4, 1);
    }
    driver.words
}

fn listing() -> Listing {
    let queue = |id: u32| {
        let gpu_id = u32::try_from(GPU_IDS[id as usize]).unwrap();
        (
            (4242, id),
            ListedQueue { gpu_id: Some(gpu_id), size: Some(0x10_0000), queue_type: Some(0), birth: None },
        )
    };
    Listing {
        processes: BTreeMap::from([(4242, Some(0x8001))]),
        queues: BTreeMap::from([queue(0), queue(1)]),
        gpu_ids: Some(GPU_IDS.map(|id| u32::try_from(id).unwrap()).into()),
    }
}

const VERSIONS: [&str; 3] = ["6.0.5", "6.7.0", "6.12.12"];

/// Checks a driver that has the types `right` with the types `taken`.
fn check(right: &[u8], taken: Vec<u8>, listing: &Listing) -> Result<Compared, String> {
    let right = Btf::parse(right.to_vec(), None).unwrap();
    let kernel = kernel(taken);
    types::ordered(kernel.amdgpu_btf.as_deref().unwrap())?;
    let facts = Facts::gather(&kernel);
    TypesCheck::new(&kernel, &facts)?.run(&mut memory(&right), listing).map_err(|mismatch| mismatch.why)
}

#[test]
fn right_types_pass_with_all_that_there_is() {
    for version in VERSIONS {
        let (right, _) = table::off_by_8(version);
        let compared = check(&right, right.clone(), &listing());
        assert_eq!(compared, Ok(Compared { processes: 1, devices: 2, queues: 2 }), "{version}");
        assert!(compared.unwrap().is_complete());
    }
}

/// Members that change nothing that is shown: read by no program, read by their presence alone, or only to put off
/// comparisons.
const UNUSED: [&str; 7] = [
    "kfd_process.exception_status",
    "kfd_process.mm",
    "kfd_process.ref",
    "device_queue_manager.lock_hidden.owner",
    "queue.list",
    "queue.mqd",
    "process_queue_node.kq",
];

/// Members that no walk can compare: what they lead to is checked where it is read (probes/update.rs).
const AT_USE: [&str; 2] = ["mqd_update_info.cu_mask.count", "mqd_update_info.cu_mask.ptr"];

#[test]
fn each_member_off_by_8_is_noticed() {
    for version in VERSIONS {
        let (right, moved) = table::off_by_8(version);
        assert!(moved.len() > 100, "{version}: {} members were moved", moved.len());
        let mut passed = Vec::new();
        for (member, types) in moved {
            let harmless =
                UNUSED.iter().chain(&AT_USE).any(|unused| member.starts_with(&format!("{unused} at")));
            if !harmless && check(&right, types, &listing()).is_ok() {
                passed.push(member);
            }
        }
        assert_eq!(passed, [""; 0], "{version}");
    }
}

#[test]
fn without_the_hardware_scheduler_its_work_is_not_initialized() {
    let (right, _) = table::off_by_8("6.7.0");
    let btf = Btf::parse(right.clone(), None).unwrap();
    let at = u64::from(btf.offset_of("device_queue_manager", "hw_exception_work").unwrap().offset);
    let kernel = kernel(right);
    let facts = Facts::gather(&kernel);
    let checked = |value: u64| {
        let mut memory = memory(&btf);
        for dqm in DQMS {
            memory.0.extend((0..32).step_by(8).map(|byte| (dqm + at + byte, value)));
        }
        TypesCheck::new(&kernel, &facts).unwrap().run(&mut memory, &listing())
    };
    assert!(checked(0).is_ok());
    assert!(checked(TASK).unwrap_err().why.contains("hw_exception_work"));
}

/// The same process once more, next in the bucket of the first; GPUs and their schedulers are the same ones.
fn with_another_process(words: &mut Words) {
    const AWAY: u64 = 0x100_0000;
    let own = |address: u64| (BASE..GPUS[0]).contains(&address);
    let moved = |value: u64| if own(value) { value + AWAY } else { value };
    let copies: Vec<_> =
        words.0.iter().filter(|(at, _)| own(**at)).map(|(at, value)| (at + AWAY, moved(*value))).collect();
    words.0.extend(copies);
    words.0.insert(TASK + AWAY + 40, TGID + 1);
    words.0.insert(PROCESS, PROCESS + AWAY);
    words.0.insert(PROCESS + AWAY + 8, PROCESS);
}

#[test]
fn another_process_of_the_same_bucket_is_no_device_of_the_first() {
    for version in VERSIONS {
        let (right, _) = table::off_by_8(version);
        let btf = Btf::parse(right.clone(), None).unwrap();
        let kernel = kernel(right);
        let mut memory = memory(&btf);
        with_another_process(&mut memory);
        // Its GPUs have one queue of each process.
        let mut listing = listing();
        listing.processes.insert(4243, None);
        let check = TypesCheck::new(&kernel, &Facts::gather(&kernel)).unwrap();
        let compared = check.run(&mut memory, &listing);
        assert_eq!(compared, Ok(Compared { processes: 2, devices: 4, queues: 2 }), "{version}");
    }
}

#[test]
fn a_scheduler_at_work_may_count_otherwise() {
    let (right, _) = table::off_by_8("6.12.12");
    let btf = Btf::parse(right.clone(), None).unwrap();
    let kernel = kernel(right);
    let facts = Facts::gather(&kernel);
    let checked = |owner: u64| {
        let mut driver = Driver { btf: &btf, words: memory(&btf) };
        let qpd = u64::from(btf.offset_of("kfd_process_device", "qpd").unwrap().offset);
        driver.put(PDDS[0] + qpd + 48, 4, 0);
        driver.member(DQMS[0], "device_queue_manager", "lock_hidden.owner", owner);
        TypesCheck::new(&kernel, &facts).unwrap().run(&mut driver.words, &listing())
    };
    assert!(checked(0).unwrap_err().why.contains("qcm_process_device.evicted"));
    assert_eq!(checked(TASK), Ok(Compared { processes: 1, devices: 1, queues: 2 }), "the other GPU's");
}

#[test]
fn the_types_of_another_driver_are_noticed() {
    for (right, taken) in [("6.0.5", "6.7.0"), ("6.7.0", "6.12.12"), ("6.12.12", "6.0.5")] {
        let [right, taken] = [right, taken].map(|version| table::off_by_8(version).0);
        assert!(check(&right, taken, &listing()).is_err());
    }
}

#[test]
fn what_sysfs_lists_otherwise_is_noticed() {
    let (right, _) = table::off_by_8("6.12.12");
    let refused = |change: fn(&mut Listing)| {
        let mut listing = listing();
        change(&mut listing);
        check(&right, right.clone(), &listing).unwrap_err()
    };
    assert!(refused(|listing| listing.processes = BTreeMap::from([(7, None)])).contains("lead_thread"));
    assert!(refused(|listing| listing.gpu_ids = Some(BTreeSet::from([7]))).contains("queue.device"));

    assert!(
        refused(|listing| listing.queues.get_mut(&(4242, 0)).unwrap().size = Some(4096))
            .contains("queue_size")
    );
    assert!(
        refused(|listing| listing.queues.get_mut(&(4242, 1)).unwrap().queue_type = Some(1)).contains("type")
    );
    let third = |listing: &mut Listing| {
        let queue = listing.queues[&(4242, 0)].clone();
        listing.queues.insert((4242, 9), queue);
    };
    assert!(refused(third).contains("does not have the queues"));
}

#[test]
fn without_processes_nothing_is_compared() {
    let (right, _) = table::off_by_8("6.12.12");
    let btf = Btf::parse(right.clone(), None).unwrap();
    let kernel = kernel(right);
    let mut memory = memory(&btf);
    memory.0.insert(TABLE + 24, 0);
    let check = TypesCheck::new(&kernel, &Facts::gather(&kernel)).unwrap();
    let compared = check.run(&mut memory, &listing()).unwrap();
    assert_eq!((compared, compared.is_complete()), (Compared::default(), false));
}

#[test]
fn only_what_both_readings_show_is_compared() {
    let (before, mut after) = (listing(), listing());
    after.queues.remove(&(4242, 1));
    after.queues.get_mut(&(4242, 0)).unwrap().size = None;
    after.processes = BTreeMap::from([(7, None)]);
    let rests = [Rests::Memory, Rests::Gpus, Rests::Processes, Rests::QueuesOf(4242), Rests::QueuesOf(7)];
    assert_eq!(rests.map(|rests| before.agrees(&after, rests)), [true, true, false, false, true]);
    let common = Listing::common(before, after);
    assert_eq!(common.queues.len(), 0);
    assert_eq!(common.processes.keys().copied().collect::<Vec<_>>(), [7, 4242]);
}
