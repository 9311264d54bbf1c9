//! Memory that a process holds by KFD, as its ioctls show it. In: a call with its arguments. Out: what it allocated,
//! imported, mapped or freed.

use super::event::{IoctlCall, Outcome};
use super::ioctl::{Arg, decode_args, def, gpus, nr};
use kfd_trace_common::rules::{
    ALLOC_MEMORY, CRIU, FREE_MEMORY, IMPORT_DMABUF, MAP_MEMORY, changes_memory, maps_memory,
};
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

/// An allocation was mapped on GPUs, or unmapped from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub handle: u64,
    /// False: unmapped.
    pub mapped: bool,
    /// Those for which that was done; `None` where they are not known.
    pub gpus: Option<Vec<u32>>,
}

/// What a call did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryCall {
    Holds(Allocation),
    Frees {
        handle: u64,
    },
    Maps(Mapping),
    /// It may have mapped any allocation, or unmapped it: its arguments were not seen.
    MapsNotSeen,
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
    if maps_memory(command) {
        return mapped(command, call);
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

/// Also a call that fails has done what it says it has: one GPU after the other, up to the first that fails.
fn mapped(command: u32, call: &IoctlCall) -> Option<MemoryCall> {
    if matches!(call.outcome, Outcome::Refused { .. }) {
        return None;
    }
    let args = decode_args(def(nr(call.cmd)), &call.args);
    let arg = |name: &str| args.iter().find(|arg| arg.name == name).map(|arg| arg.value);
    let (Some(handle), Some(all), Some(done)) = (arg("handle"), arg("n_devices"), arg("n_success")) else {
        return Some(MemoryCall::MapsNotSeen);
    };
    // More than all is what the caller passed in, and was refused.
    if done == 0 || done > all {
        return None;
    }
    let gpus = gpus(call).zip(usize::try_from(done).ok()).map(|(mut gpus, done)| {
        gpus.truncate(done);
        gpus
    });
    Some(MemoryCall::Maps(Mapping { handle, mapped: command == MAP_MEMORY, gpus }))
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
    use crate::model::event::Body;
    use kfd_trace_common::rules::UNMAP_MEMORY;

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

    /// The first `done` of these GPUs, the return value that of a driver which stops at the first failure.
    fn on_gpus(nr: u32, handle: u64, gpus: &[u32], done: u32) -> Body {
        let count = u32::try_from(gpus.len()).expect("few");
        let result = if done == count { 0 } else { -22 };
        let mut call = call(nr, &[handle, 0x7000], &[count, done], result);
        call.args.extend(gpus.iter().flat_map(|gpu| gpu.to_le_bytes()));
        Body::Ioctl(call)
    }

    pub(crate) fn mapped(handle: u64, gpus: &[u32], done: u32) -> Body {
        on_gpus(MAP_MEMORY, handle, gpus, done)
    }

    pub(crate) fn unmapped(handle: u64, gpus: &[u32], done: u32) -> Body {
        on_gpus(UNMAP_MEMORY, handle, gpus, done)
    }

    pub(crate) fn imported(handle: u64, gpu_id: u32) -> Body {
        Body::Ioctl(call(IMPORT_DMABUF, &[0x2000, handle], &[gpu_id, 3], 0))
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{call, mapped, unmapped};
    use super::*;
    use crate::model::event::Body;

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
        assert!(
            odd.iter().all(|call| *call == Some(MemoryCall::NotSeen)),
            "the driver has done something else"
        );
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
        assert_eq!([of_call(&lost), of_call(&bare)], [const { Some(MemoryCall::NotSeen) }; 2]);
    }

    fn ioctl(body: Body) -> IoctlCall {
        let Body::Ioctl(call) = body else { panic!("an ioctl") };
        call
    }

    #[test]
    fn a_call_that_maps_has_done_what_it_says_even_if_it_failed() {
        let on = |mapped, gpus: &[u32]| {
            Some(MemoryCall::Maps(Mapping { handle: 9, mapped, gpus: Some(gpus.to_vec()) }))
        };
        let of = |body| of_call(&ioctl(body));
        assert_eq!(of(mapped(9, &[7, 8], 2)), on(true, &[7, 8]));
        assert_eq!(of(unmapped(9, &[7, 8], 2)), on(false, &[7, 8]));
        assert_eq!(of(mapped(9, &[7, 8, 6], 2)), on(true, &[7, 8]), "the third one failed");
        assert_eq!(of(unmapped(9, &[7], 0)), None, "the first one failed");
        assert_eq!(of(mapped(9, &[7], 2)), None, "refused: the caller's own number");
    }

    #[test]
    fn gpus_that_were_not_seen_are_not_taken_for_none() {
        let seen = ioctl(mapped(9, &[7, 8], 2));
        let cut = |len| IoctlCall { args: seen.args[..len].to_vec(), ..seen.clone() };
        let unknown = Some(MemoryCall::Maps(Mapping { handle: 9, mapped: true, gpus: None }));
        assert_eq!([of_call(&cut(24)), of_call(&cut(28))], [unknown.clone(), unknown]);
        let lost = IoctlCall { outcome: Outcome::NoReturnSeen, ..cut(0) };
        assert_eq!([of_call(&cut(0)), of_call(&lost)], [const { Some(MemoryCall::MapsNotSeen) }; 2]);
        let refused = IoctlCall { outcome: Outcome::Refused { errno: 9 }, ..cut(0) };
        assert_eq!(of_call(&refused), None);
        // A larger structure of later drivers: what follows is not the array.
        let larger = IoctlCall { cmd: seen.cmd + (8 << 16), ..seen };
        assert_eq!(gpus(&larger), None);
    }
}
