//! What this kernel reports about itself, reduced to what the plan, the loader and the decoder need.

use super::mqds::MqdWalk;
use crate::kernel::bpf_info::InfoLayout;
use crate::kernel::btf::Btf;
use crate::kernel::{Kernel, tracefs_folders};
use crate::model::ioctl::IOCTLS;
use crate::model::layout::{PropertyField, QueueLayout};
use kfd_trace_common::limits::PROPERTIES_LEN;
use kfd_trace_common::offset::FIELDS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Everything that depends on the layout of this kernel's structures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Offset by global (`kfd_trace_common::offset`), or why it is not known.
    pub fields: BTreeMap<&'static str, Result<u32, String>>,
    /// Bytes of `struct upid`, 0 if unknown.
    pub upid_bytes: u32,
    /// Bytes of `struct queue_properties`, at most what fits in a record; 0 if unknown.
    pub properties_bytes: u32,
    pub layout: QueueLayout,
    /// Where the kernel counts the probe runs that it skipped; `None` if it does not count them or has no
    /// BTF.
    pub misses: Option<InfoLayout>,
    /// Where the driver records which MQD functions its GPUs use; `None` if unknown.
    pub mqds: Option<MqdWalk>,
    /// Number of parameters of `kfd_process_evict_queues`: with three, as ROCm's driver has them, the trigger is the
    /// third. `None` if unknown.
    pub evict_parameters: Option<usize>,
    /// Bytes of an ioctl's arguments in this kernel, by number; empty without the driver's BTF.
    pub ioctl_sizes: BTreeMap<u8, u32>,
    pub return_room: ReturnRoom,
    /// `system:name` of the tracepoints of this kernel; empty unless they were searched for.
    pub tracepoints: BTreeSet<String>,
    /// Functions whose returns are events of tracefs.
    pub return_events: BTreeSet<String>,
    /// The number of `bpf_session_is_return` in the kernel's types: one link can hold the entry and the return of a function.
    pub session: Option<u32>,
}

/// How many calls under way a link on many functions still sees return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReturnRoom {
    #[default]
    Unknown,
    /// As many as a pool has instances, which the link's functions share: two per CPU and listed function (up to 6.13,
    /// kernel/trace/fprobe.c:fprobe_init_rethook).
    Pool,
    /// All: each task has a stack of its own for them.
    All,
}

impl ReturnRoom {
    fn find(btf: &Btf) -> Self {
        match (btf.size_of("fprobe"), btf.offset_of("fprobe", "rethook")) {
            (Err(_), _) => ReturnRoom::Unknown,
            (Ok(_), Ok(_)) => ReturnRoom::Pool,
            (Ok(_), Err(_)) => ReturnRoom::All,
        }
    }
}

impl Facts {
    /// Looks up all facts.
    #[must_use]
    pub fn gather(kernel: &Kernel) -> Self {
        let offsets = kernel.offsets(FIELDS);
        let fields = offsets.iter().map(|(global, found)| (global, found.map_err(ToString::to_string)));
        let upid = kernel.vmlinux_btf.as_ref().and_then(|btf| btf.size_of("upid").ok());
        let mut facts = Facts {
            fields: fields.collect(),
            upid_bytes: upid.unwrap_or(0),
            return_room: kernel.vmlinux_btf.as_ref().map_or(ReturnRoom::Unknown, |btf| ReturnRoom::find(btf)),
            misses: kernel.vmlinux_btf.as_ref().and_then(|btf| InfoLayout::find(btf)),
            session: kernel.vmlinux_btf.as_ref().and_then(|btf| btf.function("bpf_session_is_return")),
            ..Facts::default()
        };
        let Some(btf) = kernel.amdgpu_btf.as_ref() else { return facts };
        // If the structure is larger than the record, its tail is not recorded.
        let most = u32::try_from(PROPERTIES_LEN).unwrap_or(u32::MAX);
        facts.mqds = MqdWalk::find(kernel);
        facts.evict_parameters = btf.parameters("kfd_process_evict_queues");
        facts.properties_bytes = btf.size_of("queue_properties").unwrap_or(0).min(most);
        let place = |member: &str| {
            let member = btf.offset_of("queue_properties", member).ok()?;
            Some(PropertyField { offset: member.offset, size: member.size })
        };
        let values = |name| btf.enum_values(name).unwrap_or_default();
        facts.layout = QueueLayout::from_members(place)
            .with_enums(&values("kfd_queue_type"), &values("kfd_queue_format"));
        let sizes = IOCTLS.iter().filter(|def| !def.strukt.is_empty());
        facts.ioctl_sizes = sizes.filter_map(|def| Some((def.nr, btf.size_of(def.strukt).ok()?))).collect();
        facts
    }

    /// Adds the kernel's own tracepoints, if tracefs can be read.
    #[must_use]
    pub fn with_tracepoints(mut self, sysfs: &Path) -> Self {
        let places = tracefs_folders(sysfs).map(|folder| folder.join("available_events"));
        let listed = places.iter().find_map(|place| std::fs::read_to_string(place).ok());
        self.tracepoints = listed.unwrap_or_default().lines().map(|line| line.trim().to_owned()).collect();
        self
    }

    /// Offset of a field of the list.
    ///
    /// # Errors
    /// Why this kernel does not provide it.
    pub fn field(&self, global: &str) -> Result<u64, String> {
        match self.fields.get(global) {
            Some(Ok(offset)) => Ok(u64::from(*offset)),
            Some(Err(why)) => Err(why.clone()),
            None => Err(format!("{global}: not looked up")),
        }
    }
}
