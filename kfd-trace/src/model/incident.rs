//! What happens to a queue between creation and end, and to the GPU under it.

use super::event::QueueFacts;
use serde::{Deserialize, Serialize};

/// A queue after `update_queue`: UPDATE_QUEUE, SET_CU_MASK or ALLOC_QUEUE_GWS.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueUpdate {
    /// The queue after the call; the origin means nothing here.
    pub now: QueueFacts,
    /// The mask that this call sets; `None` if the call changes something else.
    pub cu_mask: Option<CuMask>,
    /// The call sets a mask that could not be read: which one holds now is not known.
    pub mask_unread: bool,
    /// Positive errno of `update_queue`, 0 for success. The new properties are in place either way. `None` if no return
    /// was seen.
    pub errno: Option<i32>,
}

/// The compute units that a queue may use, as passed by the caller: the driver spreads the bits over the
/// shader engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CuMask {
    /// Words of 32 bits, bit 0 of the first word first.
    pub words: Vec<u32>,
}

impl CuMask {
    /// From the bytes of a record.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let (words, _) = bytes.as_chunks::<4>();
        CuMask { words: words.iter().map(|word| u32::from_le_bytes(*word)).collect() }
    }

    /// Bits that it has.
    #[must_use]
    pub fn bits(&self) -> u32 {
        u32::try_from(self.words.len()).map_or(u32::MAX, |words| words.saturating_mul(u32::BITS))
    }

    /// Whether it has this bit, and it is set.
    #[must_use]
    pub fn has(&self, bit: u32) -> bool {
        let word = usize::try_from(bit / u32::BITS).ok().and_then(|word| self.words.get(word));
        word.is_some_and(|word| word >> (bit % u32::BITS) & 1 == 1)
    }

    /// Bits that are set.
    #[must_use]
    pub fn enabled(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }
}

/// Which function wrote an MQD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MqdOp {
    Init,
    Update,
    /// By CRIU.
    Restore,
}

impl MqdOp {
    /// All functions.
    pub const ALL: &'static [MqdOp] = &[MqdOp::Init, MqdOp::Update, MqdOp::Restore];

    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MqdOp::Init => "init",
            MqdOp::Update => "update",
            MqdOp::Restore => "restore",
        }
    }
}

/// Why queues were evicted (`enum KFD_QUEUE_EVICTION_TRIGGERS`, include/uapi/linux/kfd_ioctl.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A range of shared virtual memory migrates.
    Svm,
    /// User memory that the GPU maps was moved or unmapped.
    Userptr,
    /// Memory pressure: TTM moves the process's buffers.
    Ttm,
    /// The device is suspended or reset.
    Suspend,
    CriuCheckpoint,
    CriuRestore,
    /// A VM fault or a poisoned memory access of the process itself.
    Fault,
    /// A number unknown to this program.
    Unknown(u32),
}

impl Trigger {
    /// The name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Trigger::Svm => "svm",
            Trigger::Userptr => "userptr",
            Trigger::Ttm => "ttm",
            Trigger::Suspend => "suspend",
            Trigger::CriuCheckpoint => "criu_checkpoint",
            Trigger::CriuRestore => "criu_restore",
            Trigger::Fault => "fault",
            Trigger::Unknown(_) => "unknown",
        }
    }

    /// From the number in a record.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Option<Self> {
        use kfd_trace_common::record::trigger;
        Some(match raw {
            0 => Trigger::Svm,
            1 => Trigger::Userptr,
            2 => Trigger::Ttm,
            3 => Trigger::Suspend,
            4 => Trigger::CriuCheckpoint,
            5 => Trigger::CriuRestore,
            trigger::FAULT => Trigger::Fault,
            trigger::NOT_READ | trigger::NONE => return None,
            other => Trigger::Unknown(other),
        })
    }
}

/// The queues of a process on one GPU were evicted or restored; only real transitions, nested calls are
/// omitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    pub gpu_id: Option<u32>,
    /// For an eviction; `None` if it was not seen, and for a restore.
    pub trigger: Option<Trigger>,
    /// Positive errno of the driver's function, 0 for success.
    pub errno: i32,
    /// Time inside the driver's function, nanoseconds.
    pub latency_ns: u64,
}

/// A VM fault of a process on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmFault {
    pub gpu_id: Option<u32>,
    /// Address and kind of access; `None` if the driver did not get them.
    pub access: Option<FaultAccess>,
}

/// `struct kfd_memory_exception_failure` (uapi kfd_ioctl.h), and the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultAccess {
    /// GPU virtual address of the page.
    pub address: u64,
    pub not_present: bool,
    /// A write to a read-only page.
    pub read_only: bool,
    pub no_execute: bool,
}

/// `AMDGPU_USERQ_OP_*` (include/uapi/drm/amdgpu_drm.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserQueueOp {
    Create,
    Free,
}

impl UserQueueOp {
    /// The name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            UserQueueOp::Create => "create",
            UserQueueOp::Free => "free",
        }
    }
}

/// A call of AMDGPU_USERQ: a queue that bypasses KFD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserQueueCall {
    /// `None`: another operation.
    pub op: Option<UserQueueOp>,
    pub queue_id: u32,
    /// `AMDGPU_HW_IP_*`: 0 gfx, 1 compute, 2 SDMA.
    pub ip_type: u32,
    pub ring_address: u64,
    /// Bytes.
    pub ring_size: u64,
    /// Positive errno, 0 for success.
    pub errno: i32,
    /// comm of the caller.
    pub comm: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_is_read_word_by_word() {
        let mask = CuMask::from_bytes(&[0xff, 0, 0, 0, 1, 0, 0, 0x80]);
        assert_eq!(mask.words, [0xff, 0x8000_0001]);
        assert_eq!((mask.enabled(), mask.bits()), (10, 64));
        assert_eq!(
            [7, 8, 31, 32, 63, 64, u32::MAX].map(|bit| mask.has(bit)),
            [true, false, false, true, true, false, false]
        );
    }

    #[test]
    fn a_trigger_that_was_not_seen_is_none() {
        assert_eq!((Trigger::from_raw(u32::MAX), Trigger::from_raw(0x101)), (None, None));
        assert_eq!(Trigger::from_raw(2), Some(Trigger::Ttm));
        assert_eq!(Trigger::from_raw(9).map(Trigger::name), Some("unknown"));
    }
}
