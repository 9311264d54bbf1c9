//! The BPF side's data on a KFD process: the value of the map keyed by the address of its structure.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One KFD process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// Its number, as in [`crate::record::Header::process`].
    pub id: u64,
    /// Address of its `lead_thread`; 0 when the driver's BTF is missing.
    pub leader: u64,
    /// tgid of the leader in the initial PID namespace.
    pub tgid: u32,
    /// 1 when the process is selected.
    pub wanted: u32,
    /// 1 from the begin of `kfd_process_wq_release` on: an entry under this address is a leftover.
    pub releasing: u32,
    /// Its PASID, by which faults identify it; 0 where the driver keeps one per GPU.
    pub pasid: u32,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// Validity of cached data on an entry: while the generation in which it was looked up is current. A
/// generation is a number that was never used before.
pub mod generation {
    /// Nothing may ever be cached: not every change of an entry is seen.
    pub const NEVER: u64 = 0;
    /// Nothing may be cached before the next change: one is under way.
    pub const NOT_NOW: u64 = 1;

    /// Whether data looked up in this generation may be cached.
    #[must_use]
    #[inline(always)]
    pub const fn remembers(generation: u64) -> bool {
        generation > NOT_NOW
    }
}

#[cfg(test)]
mod tests {
    use super::generation::{NEVER, NOT_NOW, remembers};

    #[test]
    fn only_a_number_that_was_made_is_remembered() {
        assert!(!remembers(NEVER) && !remembers(NOT_NOW) && remembers(5 << 10) && remembers(u64::MAX));
    }
}
