//! What the BPF side remembers of a KFD process: the value of the map keyed by the address of its structure.

/// One KFD process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Its number, as in [`crate::record::Header::process`].
    pub id: u64,
    /// Address of its `lead_thread`; 0 when the driver's BTF is missing.
    pub leader: u64,
    /// tgid of the leader in the initial PID namespace.
    pub tgid: u32,
    /// 1 when the process is asked for.
    pub wanted: u32,
    /// 1 from the begin of `kfd_process_wq_release` on: an entry under this address is a leftover.
    pub releasing: u32,
    /// Its PASID, under which faults name it; 0 where the driver keeps one per GPU.
    pub pasid: u32,
}

const _: () = assert!(size_of::<Entry>() == 32);
