//! Whether what the types call a scheduler's counts are its counts: compared with the queues of the walk.
//!
//! In: offsets, kernel memory. Out: yes, or not (yet). A difference refutes nothing: the driver counts a queue before
//! its process has it, and a dying process leaves the table before its queues.

use crate::kernel::Btf;
use crate::model::event::QueueType;
use crate::probes::memory::{KernelMemory, byte, half, word};
use crate::probes::walk::{Met, Walk};
use std::collections::BTreeMap;

/// Offsets in `struct device_queue_manager`.
#[derive(Clone, Copy, Debug)]
struct CountFields {
    processes: u64,
    active: u64,
    active_cp: u64,
    oversubscribed: u64,
    /// Of its `struct packet_manager`, which has `is_over_subscription`: a pointer back, and one to its functions.
    packet_dqm: u64,
    packet_functions: u64,
}

impl CountFields {
    /// `None` if these types do not have all of them.
    fn find(btf: &Btf, field: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let member = |path: &str| {
            let at = |packets: &str| btf.offset_of("device_queue_manager", &format!("{packets}.{path}")).ok();
            at("packet_mgr").or_else(|| at("packets")).map(|member| u64::from(member.offset))
        };
        Some(CountFields {
            processes: field("DQM_PROCESSES")?,
            active: field("DQM_ACTIVE_QUEUES")?,
            active_cp: field("DQM_ACTIVE_CP_QUEUES")?,
            oversubscribed: field("DQM_OVERSUBSCRIBED")?,
            packet_dqm: member("dqm")?,
            packet_functions: member("pmf")?,
        })
    }

    /// `None` where no packet manager is at its place.
    fn read(self, memory: &mut impl KernelMemory, dqm: u64) -> Option<Counts> {
        let at = |offset: u64| dqm.wrapping_add(offset);
        let is_packet_manager = word(memory, at(self.packet_dqm)) == Some(dqm)
            && word(memory, at(self.packet_functions))? > u64::MAX / 2
            && byte(memory, at(self.oversubscribed))? <= 1;
        let counts = Counts {
            processes: half(memory, at(self.processes))?,
            active: half(memory, at(self.active))?,
            active_cp: half(memory, at(self.active_cp))?,
        };
        is_packet_manager.then_some(counts)
    }
}

/// What a scheduler has, as it counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Processes with queues.
    processes: u32,
    /// Active queues, and those of them that are compute queues.
    active: u32,
    active_cp: u32,
}

/// What the comparison needs.
#[derive(Debug)]
pub(super) struct CountsCheck {
    walk: Walk,
    /// Offset of the pointer to its `struct device_queue_manager`, in a GPU.
    device_dqm: u64,
    fields: CountFields,
}

impl CountsCheck {
    /// `None` if these types do not have all of the fields.
    pub(super) fn new(
        walk: &Walk,
        device_dqm: Option<u64>,
        btf: &Btf,
        field: impl Fn(&str) -> Option<u64>,
    ) -> Option<Self> {
        let fields = CountFields::find(btf, field)?;
        Some(CountsCheck { walk: walk.clone(), device_dqm: device_dqm?, fields })
    }

    /// Whether each scheduler with an active queue and a packet manager counts as the walk does, and at least one has
    /// both. With MES there is no packet manager, and nothing is counted.
    pub(super) fn agree(&self, memory: &mut impl KernelMemory) -> bool {
        let mut expected = self.expected(memory);
        expected.retain(|gpu, counts| counts.active > 0 && self.has_packet_manager(memory, *gpu));
        let (mut busy, some) = (expected.iter(), !expected.is_empty());
        let agrees = |(gpu, counts): (&u64, &Counts)| {
            let dqm = word(memory, gpu.wrapping_add(self.device_dqm));
            !self.walk.is_at_work(memory, *gpu)
                && dqm.and_then(|dqm| self.fields.read(memory, dqm)) == Some(*counts)
        };
        // What changed meanwhile proves nothing.
        let agreed = some && busy.all(agrees);
        let again = self.expected(memory);
        agreed && expected.iter().all(|(gpu, counts)| again.get(gpu) == Some(counts))
    }

    fn has_packet_manager(&self, memory: &mut impl KernelMemory, gpu: u64) -> bool {
        let dqm = word(memory, gpu.wrapping_add(self.device_dqm));
        dqm.and_then(|dqm| word(memory, dqm.wrapping_add(self.fields.packet_dqm))) != Some(0)
    }

    /// By address of the GPU.
    fn expected(&self, memory: &mut impl KernelMemory) -> BTreeMap<u64, Counts> {
        let mut all: BTreeMap<u64, Counts> = BTreeMap::new();
        for process in self.walk.table(memory, &mut Met::default()) {
            let mut own: BTreeMap<u64, Counts> = BTreeMap::new();
            for queue in self.walk.queues(memory, process, &mut Met::default()) {
                let Some(gpu) = word(memory, queue + self.walk.queue_device) else { continue };
                let counts = own.entry(gpu).or_default();
                let Some(facts) = self.walk.queue(memory, queue, &mut Met::default()) else { continue };
                let active = facts.active == Some(true);
                let is_compute = matches!(facts.queue_type, Some(QueueType::Compute | QueueType::ComputeAql));
                counts.active += u32::from(active);
                counts.active_cp += u32::from(active && is_compute);
            }
            for (gpu, counts) in own {
                let sum = all.entry(gpu).or_default();
                sum.processes += 1;
                sum.active += counts.active;
                sum.active_cp += counts.active_cp;
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests;
    use super::*;
    use crate::kernel::types::table;
    use crate::probes::facts::Facts;
    use crate::probes::memory::samples::Words;

    const FIELDS: CountFields = CountFields {
        processes: 0x80,
        active: 0x84,
        active_cp: 0x88,
        oversubscribed: 0x20,
        packet_dqm: 0x10,
        packet_functions: 0x28,
    };
    const DQM: u64 = 0xffff_8880_0006_0000;

    /// Two processes, three active queues, two of them compute queues; `gws_queue_count` follows.
    fn scheduler() -> Words {
        let mut words = Words::default();
        words.0.extend((0..0x100).step_by(8).map(|at| (DQM + at, 0)));
        words.0.extend([
            (DQM + 0x10, DQM),
            (DQM + 0x28, 0xffff_ffff_c000_4000),
            (DQM + 0x80, 3 << 32 | 2),
            (DQM + 0x88, 2),
        ]);
        words
    }

    fn read(memory: &mut Words, fields: CountFields) -> Option<Counts> {
        fields.read(memory, DQM)
    }

    #[test]
    fn counts_are_read_behind_a_packet_manager_that_leads_back() {
        let counts = Counts { processes: 2, active: 3, active_cp: 2 };
        assert_eq!(read(&mut scheduler(), FIELDS), Some(counts));
        for (at, value) in [(0x10, DQM + 8), (0x28, 0), (0x20, 7)] {
            let mut other = scheduler();
            other.0.insert(DQM + at, value);
            assert_eq!(read(&mut other, FIELDS), None, "{at:#x}");
        }
    }

    /// Whether the counts of the sample driver agree: two GPUs, each with an active compute queue of one process.
    fn agree(fields: CountFields, change: impl Fn(&mut Words)) -> bool {
        let (types, _) = table::off_by_8("6.12.12");
        let btf = Btf::parse(types.clone(), None).unwrap();
        let kernel = tests::kernel(types);
        let walk = Walk::new(&kernel, &Facts::gather(&kernel)).unwrap();
        let device_dqm = u64::from(btf.offset_of("kfd_node", "dqm").unwrap().offset);
        let check = CountsCheck { walk, device_dqm, fields };
        let mut memory = tests::memory(&btf);
        for dqm in tests::DQMS {
            let counts = [(0x10, dqm), (0x28, dqm), (0x80, 1 << 32 | 1), (0x88, 1)];
            memory.0.extend(counts.map(|(at, value)| (dqm + at, value)));
        }
        change(&mut memory);
        check.agree(&mut memory)
    }

    #[test]
    fn counts_agree_where_the_queues_of_all_processes_add_up_to_them() {
        assert!(agree(FIELDS, |_| ()));
        // Another process, another active queue, another compute queue: of the second GPU alone.
        for (at, value) in [(0x80, 1 << 32 | 2), (0x80, 2 << 32 | 1), (0x88, 2)] {
            assert!(!agree(FIELDS, |memory| memory.0.extend([(tests::DQMS[1] + at, value)])), "{at:#x}");
        }
        // Another build of the driver: what is read is `gws_queue_count`, or the count before.
        for by in [4, 8] {
            let moved = |at: u64| at + by;
            let (processes, active) = (moved(FIELDS.processes), moved(FIELDS.active));
            let moved = CountFields { processes, active, active_cp: moved(FIELDS.active_cp), ..FIELDS };
            assert!(!agree(moved, |_| ()), "{by}");
        }
        // The second GPU has MES, and counts nothing.
        let mes = [(tests::DQMS[1] + 0x10, 0), (tests::DQMS[1] + 0x80, 0), (tests::DQMS[1] + 0x88, 0)];
        assert!(agree(FIELDS, |memory| memory.0.extend(mes)));
        // Its lock is held.
        assert!(!agree(FIELDS, |memory| memory.0.extend([(tests::DQMS[0] + 328, 0x1000)])));
        assert!(
            !agree(FIELDS, |memory| memory.0.extend([(tests::TABLE + 24, 0)])),
            "nothing to compare with"
        );
    }
}
