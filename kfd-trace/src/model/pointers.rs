//! Contents of a queue's two pointers, in the memory of its process. In: bytes. Out: counts, or the reason
//! why there are none.
//!
//! An AQL queue's pointers are fields of ROCr's `amd_queue_t` (inc/amd_hsa_queue.h): they count packets from
//! the queue's creation and never decrease. Those of an SDMA queue are byte offsets of commands; on gfx9 and
//! later they do not wrap, either.

use super::event::{QueueFacts, QueueType};
use kfd_trace_common::aql::{
    BASE_ADDRESS, FIELD_BASE, HEAD_LEN, PACKET_LEN, READ_DISPATCH_ID, SIZE, WRITE_DISPATCH_ID, head,
};
use kfd_trace_common::record::pointers;
use serde::{Deserialize, Serialize};

/// What a queue's pointers count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// AQL packets: kernels, barriers and others alike.
    Packets,
    /// Bytes of commands in the ring of an SDMA queue, not the bytes that these copy.
    RingBytes,
}

impl Unit {
    /// Name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unit::Packets => "packets",
            Unit::RingBytes => "ring_bytes",
        }
    }
}

/// Why a reading gave no counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unmeasured {
    /// Its pointers count something else: a compute queue that is not AQL, or an unknown type.
    QueueType,
    /// The addresses of its pointers are unknown.
    NoAddress,
    /// No permission to read the process's memory.
    Denied,
    /// The address space was released.
    Gone,
    /// Nothing is mapped there, or nothing readable.
    Unreadable,
    /// The memory there belongs to no queue, or no longer to this one.
    Foreign,
    /// A count is below its previous value: the memory is used for something else.
    WentBack,
    /// More processes than descriptors.
    Descriptors,
    /// Any other system error.
    Failed,
    /// Reading the memory of its process blocks the reader, or did so shortly before; or a sample of all queues has been
    /// running for long: earlier readings are no longer current.
    Late,
}

impl Unmeasured {
    /// All possible results of a reading. The others are known without one.
    pub const OF_READING: &'static [Unmeasured] = &[
        Unmeasured::Denied,
        Unmeasured::Gone,
        Unmeasured::Unreadable,
        Unmeasured::Foreign,
        Unmeasured::WentBack,
        Unmeasured::Descriptors,
        Unmeasured::Failed,
        Unmeasured::Late,
    ];

    /// That of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let others = [Unmeasured::QueueType, Unmeasured::NoAddress];
        Self::OF_READING.iter().copied().chain(others).find(|problem| problem.name() == name)
    }

    /// Name in metrics and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Unmeasured::QueueType => "queue_type",
            Unmeasured::NoAddress => "no_address",
            Unmeasured::Denied => "denied",
            Unmeasured::Gone => "gone",
            Unmeasured::Unreadable => "unreadable",
            Unmeasured::Foreign => "foreign",
            Unmeasured::WentBack => "went_back",
            Unmeasured::Descriptors => "descriptors",
            Unmeasured::Failed => "failed",
            Unmeasured::Late => "late",
        }
    }
}

/// Work submitted to a queue and retired by it since its creation; the unit is [`Pointers::unit`]. `retired`
/// is at most `submitted`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub submitted: u64,
    pub retired: u64,
}

impl Counts {
    /// Waiting or running work.
    #[must_use]
    pub fn backlog(self) -> u64 {
        self.submitted.saturating_sub(self.retired)
    }
}

/// Where a queue's pointers are, and how to check that they are still its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointers {
    pub unit: Unit,
    /// User addresses.
    pub write: u64,
    pub read: u64,
    ring_address: u64,
    /// Bytes.
    ring_size: u64,
}

/// What was read at them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    Head(Head),
    /// The words at the pointers.
    Words {
        write: u64,
        read: u64,
    },
    Unreadable,
}

impl Memory {
    /// Decodes the field of a destroyed queue's record; `None`: it was not read.
    ///
    /// # Errors
    /// `what`, if it is none of [`pointers`].
    pub fn parse(what: u32, bytes: &[u8; HEAD_LEN]) -> Result<Option<Self>, u32> {
        let word = |at| u64::from_le_bytes(array(bytes, at));
        match what {
            pointers::NOT_READ => Ok(None),
            pointers::UNREADABLE => Ok(Some(Memory::Unreadable)),
            pointers::HEAD => Ok(Some(Memory::Head(Head::parse(bytes)))),
            pointers::WORDS => Ok(Some(Memory::Words { write: word(0), read: word(8) })),
            other => Err(other),
        }
    }
}

/// The fields of `amd_queue_t` that identify the queue, and its counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    base_address: u64,
    size: u32,
    field_base: u32,
    write: u64,
    read: u64,
}

impl Head {
    #[must_use]
    pub fn parse(bytes: &[u8; HEAD_LEN]) -> Self {
        let long = |at: usize| u64::from_le_bytes(array(bytes, at));
        let short = |at: usize| u32::from_le_bytes(array(bytes, at));
        Head {
            base_address: long(BASE_ADDRESS),
            size: short(SIZE),
            field_base: short(FIELD_BASE),
            write: long(WRITE_DISPATCH_ID),
            read: long(READ_DISPATCH_ID),
        }
    }
}

/// Zeros past the end; no field of the structure is there.
fn array<const N: usize>(bytes: &[u8; HEAD_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(from) = bytes.get(at..at + N) {
        out.copy_from_slice(from);
    }
    out
}

impl Pointers {
    /// The pointers of a queue as it was created.
    ///
    /// # Errors
    /// [`Unmeasured::QueueType`], [`Unmeasured::NoAddress`]; [`Unmeasured::Foreign`] if an AQL queue's
    /// pointers are not those of an `amd_queue_t`.
    pub fn of(facts: &QueueFacts) -> Result<Self, Unmeasured> {
        let unit = match facts.queue_type {
            Some(QueueType::ComputeAql) => Unit::Packets,
            Some(QueueType::Sdma | QueueType::SdmaXgmi | QueueType::SdmaByEngId) => Unit::RingBytes,
            _ => return Err(Unmeasured::QueueType),
        };
        let reported = (
            facts.write_pointer_address.filter(|address| *address != 0),
            facts.read_pointer_address.filter(|address| *address != 0),
            facts.ring_address,
            facts.ring_size,
        );
        let (Some(write), Some(read), Some(ring_address), Some(ring_size)) = reported else {
            return Err(Unmeasured::NoAddress);
        };
        let pointers = Pointers { unit, write, read, ring_address, ring_size };
        if unit == Unit::Packets && pointers.head().is_none() {
            return Err(Unmeasured::Foreign);
        }
        Ok(pointers)
    }

    /// Address of an AQL queue's `amd_queue_t`.
    #[must_use]
    pub fn head(&self) -> Option<u64> {
        head(self.write, self.read).filter(|_| self.unit == Unit::Packets)
    }

    /// The counts in what was read.
    ///
    /// # Errors
    /// [`Unmeasured::Foreign`], [`Unmeasured::Unreadable`].
    pub fn counts(&self, memory: &Memory) -> Result<Counts, Unmeasured> {
        match *memory {
            Memory::Unreadable => Err(Unmeasured::Unreadable),
            Memory::Head(head) if self.unit == Unit::RingBytes => {
                // The thunk's structure happens to have the same layout as ROCr's; nothing else of it is
                // known.
                self.offsets(head.write, head.read)
            }
            Memory::Head(head) => self.packets(&head),
            Memory::Words { write, read } if self.unit == Unit::RingBytes => self.offsets(write, read),
            Memory::Words { .. } => Err(Unmeasured::Foreign),
        }
    }

    fn packets(&self, head: &Head) -> Result<Counts, Unmeasured> {
        let own = head.base_address == self.ring_address
            && u64::from(head.size) * PACKET_LEN == self.ring_size
            && usize::try_from(head.field_base) == Ok(READ_DISPATCH_ID);
        // Both advance while they are read, the write pointer first: what is retired was submitted.
        let counts = Counts { submitted: head.write.max(head.read), retired: head.read };
        if own { Ok(counts) } else { Err(Unmeasured::Foreign) }
    }

    /// Nothing marks these words as the queue's own. A backlog larger than the ring plus what was submitted
    /// between the two reads is not from a queue.
    fn offsets(&self, write: u64, read: u64) -> Result<Counts, Unmeasured> {
        let possible =
            write.checked_sub(read).is_some_and(|backlog| backlog <= self.ring_size.saturating_mul(2));
        if possible { Ok(Counts { submitted: write, retired: read }) } else { Err(Unmeasured::Foreign) }
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::state::samples::facts;

    /// With a ring of 1 MiB.
    pub(crate) fn sdma(queue_id: u32) -> QueueFacts {
        let facts = facts(queue_id);
        let read = facts.write_pointer_address.map(|write| write + 8);
        QueueFacts { queue_type: Some(QueueType::Sdma), read_pointer_address: read, ..facts }
    }

    /// The head of [`facts`].
    pub(crate) fn head_bytes(write: u64, read: u64) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        bytes[BASE_ADDRESS..BASE_ADDRESS + 8].copy_from_slice(&0x7fad_66c0_0000_u64.to_le_bytes());
        bytes[SIZE..SIZE + 4].copy_from_slice(&16_384_u32.to_le_bytes());
        bytes[WRITE_DISPATCH_ID..WRITE_DISPATCH_ID + 8].copy_from_slice(&write.to_le_bytes());
        bytes[READ_DISPATCH_ID..READ_DISPATCH_ID + 8].copy_from_slice(&read.to_le_bytes());
        bytes[FIELD_BASE..FIELD_BASE + 4].copy_from_slice(&128_u32.to_le_bytes());
        bytes
    }

    pub(crate) fn memory(write: u64, read: u64) -> Memory {
        Memory::Head(Head::parse(&head_bytes(write, read)))
    }
}

#[cfg(test)]
mod tests {
    use super::samples::{head_bytes, memory, sdma};
    use super::*;
    use crate::state::samples::facts;

    fn counts(queue: &QueueFacts, memory: &Memory) -> Result<(u64, u64, u64), Unmeasured> {
        let counts = Pointers::of(queue)?.counts(memory)?;
        Ok((counts.submitted, counts.retired, counts.backlog()))
    }

    #[test]
    fn an_aql_queue_counts_packets_while_its_head_is_its_own() {
        let pointers = Pointers::of(&facts(1)).unwrap();
        assert_eq!((pointers.unit, pointers.head()), (Unit::Packets, Some(0x7faf_945b_8000)));
        assert_eq!(counts(&facts(1), &memory(127_644, 127_600)), Ok((127_644, 127_600, 44)));
        assert_eq!(counts(&facts(1), &memory(7, 9)), Ok((9, 9, 0)), "it went on between both words");
        for at in [BASE_ADDRESS, SIZE, FIELD_BASE] {
            let mut bytes = head_bytes(3, 2);
            bytes[at] ^= 1;
            assert_eq!(
                counts(&facts(1), &Memory::Head(Head::parse(&bytes))),
                Err(Unmeasured::Foreign),
                "{at}"
            );
        }
        let zeros = Memory::Head(Head::parse(&[0; HEAD_LEN]));
        assert_eq!(counts(&facts(1), &zeros), Err(Unmeasured::Foreign));
        assert_eq!(counts(&facts(1), &Memory::Unreadable), Err(Unmeasured::Unreadable));
        assert_eq!(counts(&facts(1), &Memory::Words { write: 2, read: 1 }), Err(Unmeasured::Foreign));
    }

    #[test]
    fn an_sdma_queue_counts_bytes_that_its_ring_can_hold() {
        let pointers = Pointers::of(&sdma(1)).unwrap();
        assert_eq!((pointers.unit, pointers.head()), (Unit::RingBytes, None));
        let words = |write, read| counts(&sdma(1), &Memory::Words { write, read });
        assert_eq!(words(0x1_2345_0040, 0x1_2345_0000), Ok((0x1_2345_0040, 0x1_2345_0000, 64)));
        assert_eq!(words(2 << 20, 0), Ok((2 << 20, 0, 2 << 20)));
        assert_eq!(words((2 << 20) + 1, 0), Err(Unmeasured::Foreign));
        assert_eq!(words(1, 2), Err(Unmeasured::Foreign));
        assert_eq!(counts(&sdma(1), &memory(5, 4)), Ok((5, 4, 1)));
    }

    #[test]
    fn a_record_shows_what_was_read() {
        let bytes = head_bytes(9, 4);
        let parse = |what| Memory::parse(what, &bytes);
        assert_eq!(parse(pointers::NOT_READ), Ok(None));
        assert_eq!(parse(pointers::UNREADABLE), Ok(Some(Memory::Unreadable)));
        assert_eq!(parse(pointers::HEAD), Ok(Some(memory(9, 4))));
        let mut words = [0; HEAD_LEN];
        (words[0], words[8]) = (7, 6);
        assert_eq!(Memory::parse(pointers::WORDS, &words), Ok(Some(Memory::Words { write: 7, read: 6 })));
        assert_eq!(parse(4), Err(4));
    }

    #[test]
    fn what_is_not_known_to_count_is_not_measured() {
        let of = |queue: QueueFacts| Pointers::of(&queue).map(|pointers| pointers.unit);
        for queue_type in [None, Some(QueueType::Compute), Some(QueueType::Hiq), Some(QueueType::Unknown(9))]
        {
            assert_eq!(of(QueueFacts { queue_type, ..facts(1) }), Err(Unmeasured::QueueType));
        }
        for queue in [
            QueueFacts { write_pointer_address: Some(0), ..sdma(1) },
            QueueFacts { read_pointer_address: None, ..facts(1) },
            QueueFacts { ring_size: None, ..facts(1) },
        ] {
            assert_eq!(of(queue), Err(Unmeasured::NoAddress));
        }
        let apart = QueueFacts { read_pointer_address: Some(0x7faf_945b_8040), ..facts(1) };
        assert_eq!(of(apart), Err(Unmeasured::Foreign), "no amd_queue_t has them so");
    }
}
