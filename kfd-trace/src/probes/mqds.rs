//! Which of the driver's MQD functions the GPUs of this machine use. The driver has a set per GPU generation,
//! and a probe on a function that no GPU uses costs the same as on one that is called.
//!
//! In: kernel memory. Out: addresses of functions. `topology_device_list` (kfd_topology.c) has a `struct
//! kfd_topology_device` per node, with its GPU if it is one; the GPU has its queue manager, and that has a
//! `struct mqd_manager` per kind of MQD, whose functions are called only through pointers. The walk takes no
//! lock: if anything cannot be read, the result is unknown.

use super::functions::Functions;
use super::memory::{KernelMemory, word};
use crate::kernel::Kernel;
use std::collections::BTreeSet;

/// Prefixes of the functions' names.
const FAMILIES: [&str; 3] = ["init_mqd", "update_mqd", "restore_mqd"];

/// A further pointer of drivers that move MQDs (7.3); its functions have a prefix of the above.
const MOVE: &str = "update_mqd_gpu_addr";

/// Longest list that is followed: more nodes than a machine can have.
const NODES_MAX: usize = 4096;

/// The addresses and offsets on this kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct MqdWalk {
    /// The head of the list.
    list: u64,
    /// In `struct kfd_topology_device`: its list entry, and its GPU.
    node_list: u64,
    node_gpu: u64,
    /// The queue manager in `struct kfd_node` (`kfd_dev` on 6.1).
    gpu_dqm: u64,
    /// The MQD managers in the queue manager, and their number.
    managers: u64,
    kinds: u64,
    /// The pointers to functions in an MQD manager.
    functions: Vec<u64>,
    /// All functions of the driver that such a pointer can have.
    known: BTreeSet<u64>,
}

impl MqdWalk {
    /// `None` if this kernel does not provide one of the offsets or addresses.
    #[must_use]
    pub fn find(kernel: &Kernel) -> Option<Self> {
        let list = kernel.symbols.find("topology_device_list").first().map(|symbol| symbol.address)?;
        let btf = kernel.amdgpu_btf.as_ref()?;
        let member = |strukt: &str, path: &str| btf.offset_of(strukt, path).ok();
        let offset = |strukt: &str, path: &str| member(strukt, path).map(|member| u64::from(member.offset));
        let managers = member("device_queue_manager", "mqd_mgrs")?;
        let named = FAMILIES.iter().flat_map(|family| kernel.symbols.beginning(family));
        let known: BTreeSet<u64> = named.flat_map(|name| kernel.symbols.copies(&name)).collect();
        Some(MqdWalk {
            list,
            node_list: offset("kfd_topology_device", "list")?,
            node_gpu: offset("kfd_topology_device", "gpu")?,
            gpu_dqm: offset("kfd_node", "dqm").or_else(|| offset("kfd_dev", "dqm"))?,
            managers: u64::from(managers.offset),
            kinds: u64::from(managers.size) / 8,
            functions: {
                let always = FAMILIES.iter().map(|family| offset("mqd_manager", family));
                always.chain(offset("mqd_manager", MOVE).map(Some)).collect::<Option<_>>()?
            },
            known,
        })
        .filter(|walk| walk.list != 0 && !walk.known.contains(&0))
    }

    /// Addresses of the functions in use; empty without a GPU. `None`: they could not be read.
    pub fn run(&self, memory: &mut impl KernelMemory) -> Option<BTreeSet<u64>> {
        let mut used = BTreeSet::new();
        // struct list_head { next, prev }: circular, so it ends at its head.
        let mut at = word(memory, self.list)?;
        for _ in 0..NODES_MAX {
            if at == self.list {
                return Some(used);
            }
            let gpu = word(memory, at.wrapping_sub(self.node_list).wrapping_add(self.node_gpu))?;
            // A node with CPUs only has no GPU.
            if gpu != 0 {
                self.gpu(memory, gpu, &mut used)?;
            }
            at = word(memory, at)?;
        }
        None
    }

    fn gpu(&self, memory: &mut impl KernelMemory, gpu: u64, used: &mut BTreeSet<u64>) -> Option<()> {
        let dqm = word(memory, gpu.wrapping_add(self.gpu_dqm)).filter(|dqm| *dqm != 0)?;
        let mut some = false;
        for kind in 0..self.kinds {
            let manager = word(memory, dqm.wrapping_add(self.managers + 8 * kind))?;
            if manager == 0 {
                // Debuggers' queues; optional in the driver.
                continue;
            }
            some = true;
            for offset in &self.functions {
                match word(memory, manager.wrapping_add(*offset))? {
                    // The scheduler's own queues are not restored, nor are all MQDs moved.
                    0 => {}
                    function if self.known.contains(&function) => {
                        used.insert(function);
                    }
                    // Freed memory, or a function that is not called as its symbol describes.
                    _ => return None,
                }
            }
        }
        some.then_some(())
    }
}

/// When to scan for added GPUs. Pure.
#[derive(Debug)]
pub struct Arrivals {
    /// Generation of the driver's topology at the last scan.
    generation: Option<u32>,
    /// Further scans after a change: the driver counts a change before it is complete.
    left: u32,
    /// Consecutive scans that could not read it.
    unknown: u32,
    /// There is a GPU: a change is counted.
    has_gpu: bool,
}

/// Scans after a change.
const LOOKS: u32 = 3;

impl Default for Arrivals {
    fn default() -> Self {
        Arrivals { generation: None, left: LOOKS, unknown: 0, has_gpu: false }
    }
}

impl Arrivals {
    /// Whether to scan now. Must be called once a second.
    pub fn due(&mut self, generation: Option<u32>) -> bool {
        if generation != self.generation {
            self.generation = generation;
            self.left = LOOKS;
        }
        let due = self.left > 0 || !self.has_gpu;
        self.left = self.left.saturating_sub(1);
        due
    }

    /// Takes the result of a scan. If it could not be read, the scan is repeated, and after several attempts
    /// all functions are taken to be in use: `None`.
    pub fn looked(&mut self, used: Option<BTreeSet<u64>>) -> Option<BTreeSet<u64>> {
        match used {
            Some(used) => {
                (self.unknown, self.has_gpu) = (0, !used.is_empty());
                Some(used)
            }
            None if self.unknown < LOOKS => {
                (self.unknown, self.left) = (self.unknown + 1, LOOKS);
                Some(BTreeSet::new())
            }
            None => {
                self.has_gpu = true;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probes::memory::samples::Words;

    const LIST: u64 = 0x1000;
    const CPU: u64 = 0x2000;
    const NODE: u64 = 0x3000;
    const GPU: u64 = 0x4000;
    const DQM: u64 = 0x5000;
    const COMPUTE: u64 = 0x6000;
    const SDMA: u64 = 0x7000;

    fn walk() -> MqdWalk {
        MqdWalk {
            list: LIST,
            node_list: 8,
            node_gpu: 24,
            gpu_dqm: 16,
            managers: 32,
            kinds: 3,
            functions: vec![0, 8, 16],
            known: BTreeSet::from([0x10, 0x20, 0x30, 0x40]),
        }
    }

    /// A node with CPUs only, and a GPU with two kinds of MQDs.
    fn memory() -> Words {
        let mut words = Words::default();
        words.0.extend([(LIST, CPU + 8), (CPU + 8, NODE + 8), (CPU + 24, 0)]);
        words.0.extend([(NODE + 8, LIST), (NODE + 24, GPU), (GPU + 16, DQM)]);
        words.0.extend([(DQM + 32, COMPUTE), (DQM + 40, SDMA), (DQM + 48, 0)]);
        words.0.extend([(COMPUTE, 0x10), (COMPUTE + 8, 0x20), (COMPUTE + 16, 0)]);
        words.0.extend([(SDMA, 0x30), (SDMA + 8, 0x20), (SDMA + 16, 0x40)]);
        words
    }

    #[test]
    fn the_functions_of_each_kind_are_found() {
        assert_eq!(walk().run(&mut memory()), Some(BTreeSet::from([0x10, 0x20, 0x30, 0x40])));
    }

    #[test]
    fn functions_that_move_mqds_are_found_where_a_kind_has_one() {
        let moves = MqdWalk { functions: vec![0, 8, 16, 24], known: (0x10..=0x50).collect(), ..walk() };
        let mut memory = memory();
        memory.0.extend([(COMPUTE + 24, 0x50), (SDMA + 24, 0)]);
        assert!(moves.run(&mut memory).unwrap().contains(&0x50));
    }

    #[test]
    fn without_a_gpu_none_is_in_use() {
        let mut memory = memory();
        memory.0.insert(CPU + 8, LIST);
        assert_eq!(walk().run(&mut memory), Some(BTreeSet::new()));
    }

    #[test]
    fn what_cannot_be_read_whole_is_not_known() {
        for lost in [LIST, CPU + 8, CPU + 24, NODE + 24, GPU + 16, DQM + 40, SDMA + 16] {
            let mut memory = memory();
            memory.0.remove(&lost);
            assert_eq!(walk().run(&mut memory), None, "{lost:#x}");
        }
        for (at, value, why) in [
            (SDMA + 16, 0x50, "no such function"),
            (GPU + 16, 0, "no queue manager yet"),
            (NODE + 8, NODE + 8, "a loop"),
        ] {
            let mut memory = memory();
            memory.0.insert(at, value);
            assert_eq!(walk().run(&mut memory), None, "{why}");
        }
        let mut bare = memory();
        bare.0.extend([(DQM + 32, 0), (DQM + 40, 0)]);
        assert_eq!(walk().run(&mut bare), None, "no manager yet");
    }

    #[test]
    fn gpus_are_looked_for_while_there_is_none_and_after_a_change() {
        let mut arrivals = Arrivals::default();
        let some = || Some(BTreeSet::from([1]));
        for _ in 0..9 {
            assert!(arrivals.due(Some(1)), "no GPU yet");
            assert_eq!(arrivals.looked(Some(BTreeSet::new())), Some(BTreeSet::new()));
        }
        assert!(arrivals.due(Some(2)));
        assert_eq!(arrivals.looked(some()), some());
        assert_eq!([(); 4].map(|()| arrivals.due(Some(2))), [true, true, false, false]);
        assert_eq!([(); 4].map(|()| arrivals.due(Some(3))), [true, true, true, false]);
        assert_eq!(arrivals.looked(some()), some());
    }

    #[test]
    fn what_stays_unreadable_has_all_functions_in_use() {
        let mut arrivals = Arrivals::default();
        let looks = [(); 4].map(|()| {
            assert!(arrivals.due(None));
            arrivals.looked(None)
        });
        let none_yet = Some(BTreeSet::new());
        assert_eq!(looks, [none_yet.clone(), none_yet.clone(), none_yet, None]);
        assert_eq!([(); 3].map(|()| arrivals.due(None)), [true, true, false]);
    }
}
