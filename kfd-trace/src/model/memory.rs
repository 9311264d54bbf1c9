//! Memory that a process holds by KFD, as its ioctls show it. In: a call with its arguments. Out: what it allocated,
//! imported or freed.

use super::event::IoctlCall;
use super::ioctl::{Arg, decode_args, def, nr};
use kfd_trace_common::rules::{ALLOC_MEMORY, CRIU, FREE_MEMORY, IMPORT_DMABUF, changes_memory};
use serde::{Deserialize, Serialize};

/// Pages of the CPU, which the driver rounds up to (`PAGE_ALIGN`, amdgpu_amdkfd_gpuvm_alloc_memory_of_gpu).
const PAGE: u64 = 4096;

/// `KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM`: the same pages are mapped twice, one after the other.
const TWICE: u64 = 1 << 27;

/// No allocation is larger: 256 TiB, all that an address of four levels reaches.
const LARGEST: u64 = 1 << 48;

/// Where memory lies: `KFD_IOC_ALLOC_MEM_FLAGS_VRAM`, `_GTT`, `_USERPTR`, `_DOORBELL` and `_MMIO_REMAP`
/// (include/uapi/linux/kfd_ioctl.h), in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Domain {
    /// Of the GPU.
    Vram,
    /// Of the machine, allocated by the driver.
    Gtt,
    /// Of the process itself, made accessible to the GPU.
    Userptr,
    Doorbell,
    Mmio,
    /// A dma-buf of another process or device; its size is not in the call.
    Imported,
}

impl Domain {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Domain::Vram => "vram",
            Domain::Gtt => "gtt",
            Domain::Userptr => "userptr",
            Domain::Doorbell => "doorbell",
            Domain::Mmio => "mmio",
            Domain::Imported => "imported",
        }
    }

    /// Its size is in the call.
    #[must_use]
    pub fn has_bytes(self) -> bool {
        self != Domain::Imported
    }

    fn of_flags(flags: u64) -> Option<Domain> {
        let all = [Domain::Vram, Domain::Gtt, Domain::Userptr, Domain::Doorbell, Domain::Mmio];
        all.into_iter().enumerate().find(|(bit, _)| flags >> bit & 1 != 0).map(|(_, domain)| domain)
    }
}

/// One allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Unique in the process.
    pub handle: u64,
    pub gpu_id: u32,
    pub domain: Domain,
    /// As the driver counts them; 0 where they are not known ([`Domain::Imported`]).
    pub bytes: u64,
    /// Address in the process.
    pub va: u64,
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    Holds(Allocation),
    Frees {
        handle: u64,
    },
    /// It succeeded, or may have: its arguments or its result were not seen.
    NotSeen,
}

/// `None`: it changes no memory, or failed.
#[must_use]
pub fn of_call(call: &IoctlCall) -> Option<MemoryCall> {
    let command = u32::from(nr(call.cmd));
    if !changes_memory(command) {
        return None;
    }
    match call.outcome.errno() {
        Some(0) => {
            let args = decode_args(def(nr(call.cmd)), &call.args);
            // Of its operations one allocates, with handles that are in no argument (criu_restore_bo).
            let other = |op: &Arg| op.name == "op" && op.word.is_some_and(|word| word != "RESTORE");
            if command == CRIU && args.iter().any(other) {
                return None;
            }
            Some(done(command, &args).unwrap_or(MemoryCall::NotSeen))
        }
        // It has freed all but the mapping, or nothing: the driver keeps the handle (kfd_ioctl_free_memory_of_gpu).
        Some(_) => None,
        None => Some(MemoryCall::NotSeen),
    }
}

fn done(command: u32, args: &[Arg]) -> Option<MemoryCall> {
    let arg = |name: &str| args.iter().find(|arg| arg.name == name).map(|arg| arg.value);
    let handle = arg("handle")?;
    Some(match command {
        ALLOC_MEMORY => {
            let (size, flags) = (arg("size")?, arg("flags")?);
            let size = if flags & TWICE == 0 { size } else { size / 2 };
            MemoryCall::Holds(Allocation {
                handle,
                gpu_id: u32::try_from(arg("gpu_id")?).ok()?,
                domain: Domain::of_flags(flags)?,
                bytes: size.checked_next_multiple_of(PAGE).filter(|bytes| *bytes <= LARGEST)?,
                va: arg("va_addr")?,
            })
        }
        IMPORT_DMABUF => MemoryCall::Holds(Allocation {
            handle,
            gpu_id: u32::try_from(arg("gpu_id")?).ok()?,
            domain: Domain::Imported,
            bytes: 0,
            va: arg("va_addr")?,
        }),
        FREE_MEMORY => MemoryCall::Frees { handle },
        _ => return None,
    })
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::model::event::{Body, Outcome};

    pub(crate) const VRAM: u32 = 1;
    pub(crate) const GTT: u32 = 2;

    /// A call with these arguments, in their order, that returned this.
    pub(crate) fn call(nr: u32, args: &[u64], words: &[u32], result: i32) -> IoctlCall {
        let args = args.iter().flat_map(|arg| arg.to_le_bytes());
        let args: Vec<u8> = args.chain(words.iter().flat_map(|word| word.to_le_bytes())).collect();
        let size = u32::try_from(args.len()).expect("small");
        let outcome = Outcome::Returned { result, latency_ns: 5 };
        IoctlCall { cmd: 3 << 30 | size << 16 | u32::from(b'K') << 8 | nr, entered_ns: 7, outcome, args }
    }

    pub(crate) fn allocated(handle: u64, gpu_id: u32, size: u64, flags: u32) -> Body {
        Body::Ioctl(call(ALLOC_MEMORY, &[0x1000, size, handle, 0], &[gpu_id, flags], 0))
    }

    pub(crate) fn freed(handle: u64) -> Body {
        Body::Ioctl(call(FREE_MEMORY, &[handle], &[], 0))
    }

    pub(crate) fn imported(handle: u64, gpu_id: u32) -> Body {
        Body::Ioctl(call(IMPORT_DMABUF, &[0x2000, handle], &[gpu_id, 3], 0))
    }
}

#[cfg(test)]
mod tests {
    use super::samples::call;
    use super::*;
    use crate::model::event::Outcome;

    const WRITABLE: u32 = 1 << 31;

    fn alloc(size: u64, flags: u32) -> Option<MemoryCall> {
        of_call(&call(ALLOC_MEMORY, &[0x1000, size, 9, 0], &[7, flags | WRITABLE], 0))
    }

    #[test]
    fn an_allocation_has_the_size_that_the_driver_counts() {
        let held = |domain, bytes| {
            Some(MemoryCall::Holds(Allocation { handle: 9, gpu_id: 7, domain, bytes, va: 0x1000 }))
        };
        assert_eq!(alloc(1, 1), held(Domain::Vram, 4096));
        assert_eq!(alloc(8192, 2), held(Domain::Gtt, 8192));
        assert_eq!((alloc(1, 4), alloc(1, 8)), (held(Domain::Userptr, 4096), held(Domain::Doorbell, 4096)));
        assert_eq!(alloc(65536, 1 | 1 << 27), held(Domain::Vram, 32768), "mapped twice");
        let odd = [alloc(1, 0), alloc(1 << 49, 1)];
        assert_eq!(odd, [Some(MemoryCall::NotSeen); 2], "the driver has done something else");
    }

    #[test]
    fn only_what_succeeded_changes_anything() {
        let free = |result| of_call(&call(FREE_MEMORY, &[9], &[], result));
        assert_eq!((free(0), free(-22)), (Some(MemoryCall::Frees { handle: 9 }), None));
        let import = of_call(&call(IMPORT_DMABUF, &[0x2000, 5], &[7, 3], 0));
        let expected = Allocation { handle: 5, gpu_id: 7, domain: Domain::Imported, bytes: 0, va: 0x2000 };
        assert_eq!(import, Some(MemoryCall::Holds(expected)));
        assert_eq!(of_call(&call(2, &[9; 12], &[], 0)), None, "CREATE_QUEUE");
        let criu = |op: u32| of_call(&call(CRIU, &[0; 6], &[op, 0], 0));
        assert_eq!(
            (criu(3), criu(1)),
            (Some(MemoryCall::NotSeen), None),
            "RESTORE allocates, CHECKPOINT does not"
        );
        assert_eq!(of_call(&call(0x80, &[], &[], 0)), Some(MemoryCall::NotSeen), "ROCm's import");
        let lost = IoctlCall { outcome: Outcome::NoReturnSeen, ..call(FREE_MEMORY, &[9], &[], 0) };
        let bare = IoctlCall { args: vec![], ..call(FREE_MEMORY, &[9], &[], 0) };
        assert_eq!([of_call(&lost), of_call(&bare)], [Some(MemoryCall::NotSeen); 2]);
    }
}
