//! Write pointers of packets that a graph launches, which clr prints as slots of the ring from 2026 on
//! (`dispatchAqlPacketBatchFlat`: `(startIndex + i) & queueMask`), next to a whole read pointer.
//!
//! In: creations of queues, names of kernels and packets, in the order of the log. Out: packets with indices. Packets of a
//! graph are printed before the GPU can take them, so that each is at or after the read pointer, by less than the ring.

use super::capped::Capped;
use super::life::Birth;
use super::limits::QUEUES;
use super::packet::Packet;
use super::source::LogProcess;

#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    /// Packets of each ring, by its address.
    sizes: Capped<(LogProcess, u64), u64, QUEUES>,
    /// The thread whose last kernel is a graph's.
    graph: Option<(LogProcess, Option<u64>)>,
}

impl Slots {
    pub(super) fn birth(&mut self, process: LogProcess, birth: &Birth) {
        if let Some(hwq) = birth.hwq
            && let Some(size) = self.sizes.at((process, hwq))
        {
            *size = birth.size;
        }
    }

    pub(super) fn kernel(&mut self, process: LogProcess, tid: Option<u64>, in_graph: bool) {
        self.graph = in_graph.then_some((process, tid));
    }

    /// Turns a slot into an index; into nothing if the size of its ring is not known.
    pub(super) fn resolve(&mut self, process: LogProcess, tid: Option<u64>, packet: &mut Packet) {
        let of_graph = self.graph.take_if(|graph| *graph == (process, tid)).is_some();
        let Some(pointers) = packet.pointers.as_mut().filter(|pointers| pointers.write < pointers.read)
        else {
            return;
        };
        let of_pid = self.sizes.get(&(process, packet.hwq));
        let size =
            of_pid.or_else(|| self.sizes.get(&(LogProcess { pid: None, ..process }, packet.hwq))).copied();
        let Some(size) = size.filter(|size| size.is_power_of_two()) else {
            if of_graph {
                packet.pointers = None;
            }
            return;
        };
        // Without its name: no other packet is printed when half a ring of later ones has retired.
        let apart = pointers.read - pointers.write;
        if pointers.write < size && (of_graph || apart > size / 2) {
            pointers.write = pointers.read + (pointers.write.wrapping_sub(pointers.read) & (size - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amd_log::packet::PacketPointers;

    const HEAD: &str =
        "SWq=0x10, HWq=0x20, id=1, Dispatch Header = 0xb02 (type=2), grid=[1, 1, 1], workgroup=[1, 1, 1]";

    fn resolved(slots: &mut Slots, read: u64, write: u64) -> Option<(u64, u64)> {
        let mut packet = Packet::parse(format!("{HEAD}, rptr={read}, wptr={write}").as_bytes()).unwrap();
        slots.resolve(LogProcess::default(), Some(1), &mut packet);
        packet.pointers.map(|PacketPointers { read, write }| (read, write))
    }

    fn known(size: u64) -> Slots {
        let mut slots = Slots::default();
        let birth = Birth { swq: 0x10, hwq: Some(0x20), size, priority: 1, cooperative: false };
        slots.birth(LogProcess::default(), &birth);
        slots
    }

    #[test]
    fn slots_become_indices_and_indices_stay() {
        let mut slots = known(16384);
        for (read, write, expected) in [
            (20_001, 3617, 20_001),
            (20_001, 3619, 20_003),
            (16_380, 1, 16_385),
            (5, 7, 7),
            (7, 5, 5),
            (20_001, 19_999, 19_999),
            (20_001, 20_001, 20_001),
        ] {
            assert_eq!(resolved(&mut slots, read, write), Some((read, expected)), "{read} {write}");
        }
        let graph = |slots: &mut Slots| slots.kernel(LogProcess::default(), Some(1), true);
        graph(&mut slots);
        assert_eq!(resolved(&mut slots, 20_010, 3620), Some((20_010, 36_388)), "a ring that is nearly full");
        assert_eq!(
            resolved(&mut slots, 16_390, 16_380),
            Some((16_390, 16_380)),
            "the name was another packet's"
        );
    }

    #[test]
    fn without_the_size_of_the_ring_a_slot_is_no_index() {
        let mut slots = Slots::default();
        assert_eq!(resolved(&mut slots, 7, 5), Some((7, 5)));
        slots.kernel(LogProcess::default(), Some(1), true);
        assert_eq!(resolved(&mut slots, 20_001, 3617), None);
        slots.kernel(LogProcess::default(), Some(1), true);
        assert_eq!(resolved(&mut slots, 3, 3), Some((3, 3)), "below the ring's size a slot is an index");
        slots.kernel(LogProcess::default(), Some(2), true);
        assert_eq!(resolved(&mut known(1000), 20_001, 617), Some((20_001, 617)), "no ring has such a size");
    }
}
