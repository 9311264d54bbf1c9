//! How far the hardware is in a ring.
//!
//! In: registers of a slot. Out: both pointers, and what is written and not read yet. Pure.

use super::layout::{Registers, SdmaRegisters};

/// What a backlog is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// AQL packets of 16 dwords: the driver shifts the write pointer of AQL queues by 4 (kfd_mqd_manager_v9.c to _v12.c,
    /// load_mqd).
    Packets,
    Dwords,
    Bytes,
}

const PACKET_DWORDS: u64 = 16;

/// Read and write pointer of a queue on one XCC or engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointers {
    /// Dwords of a compute queue, modulo its ring; bytes of an SDMA queue.
    pub rptr: u64,
    /// Dwords of a compute queue, bytes of an SDMA queue.
    pub wptr: u64,
    /// Written and not read, in the unit of the pointers. `None`: not known, as of what was saved to memory.
    pub unread: Option<u64>,
}

/// Dwords of a ring of `ring` dwords that are not read. The hardware's read pointer wraps at the end of the ring, its write
/// pointer does not, so that an empty ring and a full one differ only by `empty`, PQ_EMPTY. That register is read before
/// the write pointer: if nothing was left to read up to then, it is set.
fn unread(rptr: u64, wptr: u64, ring: u64, empty: bool) -> u64 {
    match wptr.wrapping_sub(rptr) % ring {
        0 if empty || (rptr == wptr && wptr < ring) => 0,
        0 => ring,
        distance => distance,
    }
}

impl Pointers {
    /// `live`: registers of an active slot, and not what was saved.
    pub(super) fn compute(registers: &Registers, live: bool) -> Self {
        let (rptr, wptr) = (registers.rptr.into(), registers.wptr);
        let ring = registers.ring_bytes.filter(|_| live).map(|bytes| bytes / 4);
        Pointers { rptr, wptr, unread: ring.map(|ring| unread(rptr, wptr, ring, registers.empty)) }
    }

    /// As [`Pointers::compute`]. Pointers of SDMA queues do not wrap at the end of their ring.
    pub(super) fn sdma(registers: &SdmaRegisters, live: bool) -> Self {
        let (rptr, wptr) = (registers.rptr, registers.wptr);
        let distance = wptr.checked_sub(rptr).filter(|distance| live && *distance <= registers.ring_bytes);
        Pointers { rptr, wptr, unread: distance }
    }

    /// Everything read since the queue was created; comparable between two samples.
    pub(super) fn read(&self) -> Option<u64> {
        Some(self.wptr.wrapping_sub(self.unread?))
    }
}

impl Unit {
    pub(super) fn of_compute(registers: &Registers) -> Self {
        if registers.aql { Unit::Packets } else { Unit::Dwords }
    }

    /// A packet that is not read to its end counts.
    pub(super) fn count(self, unread: u64) -> u64 {
        if self == Unit::Packets { unread.div_ceil(PACKET_DWORDS) } else { unread }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Unit::Packets => "packets",
            Unit::Dwords => "dwords",
            Unit::Bytes => "bytes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_full_where_the_hardware_does_not_call_it_empty() {
        assert_eq!(unread(0x32250, 0x32450, 0x4_0000, false), 512);
        assert_eq!(unread(119, 2679, 512, true), 0, "five times round");
        assert_eq!(unread(119, 2679, 512, false), 512);
        assert_eq!(unread(500, 512 + 4, 512, false), 16, "around the end");
        assert_eq!((unread(0, 0, 512, true), unread(16, 16, 512, false)), (0, 0));
        assert_eq!(unread(0, 512, 512, false), 512);
    }

    #[test]
    fn a_packet_counts_until_its_last_dword_is_read() {
        assert_eq!([0, 1, 16, 17].map(|dwords| Unit::Packets.count(dwords)), [0, 1, 1, 2]);
        assert_eq!([Unit::Dwords, Unit::Bytes].map(|unit| unit.count(17)), [17, 17]);
    }
}
