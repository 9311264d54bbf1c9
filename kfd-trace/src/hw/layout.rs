//! What a dword of an MQD is. Each position is that of the driver's own v9_structs.h, v10_structs.h, v11_structs.h and
//! v12_structs.h (drivers/gpu/drm/amd/include), which agree in all that is taken without a generation.

use std::fmt;
use std::str::FromStr;

/// Registers CP_MQD_BASE_ADDR to CP_HQD_PQ_WPTR_HI: a hardware slot's whole dump, and dwords 128 to 183 of an MQD.
pub(super) const REGISTERS: usize = 56;
const FIRST: usize = 128;

/// A bit of CP_HQD_PQ_CONTROL (gc_9_0_sh_mask.h and later).
const PQ_EMPTY: u32 = 1 << 15;

/// Dwords of a whole compute MQD from gfx8 on; v12.1 has more.
pub(super) const COMPUTE_MQD: usize = 512;

/// Dwords of a whole compute MQD of gfx7 (cik_structs.h, struct cik_mqd), which is laid out in another way.
pub(super) const COMPUTE_MQD_GFX7: usize = 128;

/// Dwords of an SDMA MQD that end with the driver's own engine and queue numbers.
pub(super) const SDMA_V9: usize = 128;
const SDMA_V10: usize = 130;

/// Generations that differ in something that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    V9,
    /// gfx940 to gfx942, gfx950: a shader engine's mask per XCC.
    V9_4_3,
    V10,
    V11,
    V12,
    V12_1,
}

impl Generation {
    /// `gfx_target_version` of sysfs: 90402 is gfx942.
    ///
    /// # Errors
    /// One line: its MQDs are laid out in a way that is not known here.
    pub fn of_target(version: u32) -> Result<Self, String> {
        match (version / 10_000, version / 100 % 100) {
            (9, 4 | 5) => Ok(Generation::V9_4_3),
            (9, 0) => Ok(Generation::V9),
            (10, _) => Ok(Generation::V10),
            (11, _) => Ok(Generation::V11),
            (12, 0) => Ok(Generation::V12),
            (12, 1) => Ok(Generation::V12_1),
            (major, minor) => {
                Err(format!("MQDs of gfx {major}.{minor} are laid out in a way that is not known here"))
            }
        }
    }

    const fn cu_masks(self) -> &'static [usize] {
        match self {
            Generation::V9 => &[23, 24, 26, 27, 39, 40, 41, 42],
            // Dword 39 is the XCC's logical id there.
            Generation::V9_4_3 | Generation::V10 => &[23, 24, 26, 27],
            Generation::V11 | Generation::V12 => &[23, 24, 26, 27, 44, 45, 46, 47],
            Generation::V12_1 => &[49, 50, 51, 52, 53, 54, 55, 56, 57],
        }
    }
}

impl FromStr for Generation {
    type Err = String;

    /// `gfx942`, as ROCm's tools name it: the last two digits are minor and stepping, hexadecimal.
    fn from_str(name: &str) -> Result<Self, String> {
        let wrong = || format!("{name} is no name of a GPU's instruction set; try gfx942");
        let digits = name
            .strip_prefix("gfx")
            .filter(|digits| digits.len() >= 3 && digits.is_ascii())
            .ok_or_else(wrong)?;
        let (major, rest) = digits.split_at(digits.len() - 2);
        let (minor, stepping) = rest.split_at(1);
        let hex = |digit: &str| u32::from_str_radix(digit, 16).map_err(|_| wrong());
        let major: u32 = major.parse().map_err(|_| wrong())?;
        Generation::of_target(major.min(999) * 10_000 + hex(minor)? * 100 + hex(stepping)?)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Generation::V9 => "9.0",
            Generation::V9_4_3 => "9.4.3",
            Generation::V10 => "10",
            Generation::V11 => "11",
            Generation::V12 => "12.0",
            Generation::V12_1 => "12.1",
        })
    }
}

/// A compute queue's registers: now, in a slot; when they were last saved, in an MQD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Registers {
    /// GPU address of the MQD.
    pub(super) mqd: u64,
    pub(super) active: bool,
    pub(super) vmid: u32,
    /// 0 low, 1 medium, 2 high.
    pub(super) pipe_priority: u32,
    /// 0 to 15; Linux 7.2 and later write 0.
    pub(super) queue_priority: u32,
    /// Address of the ring.
    pub(super) ring: u64,
    /// `None`: no ring has such a size.
    pub(super) ring_bytes: Option<u64>,
    /// Dwords.
    pub(super) rptr: u32,
    /// Dwords.
    pub(super) wptr: u64,
    /// Dwords, in the doorbell BAR.
    pub(super) doorbell: u32,
    /// User addresses, as CREATE_QUEUE got them.
    pub(super) rptr_address: u64,
    pub(super) wptr_address: u64,
    /// CP_HQD_AQL_CONTROL, which the driver sets only in the MQD of an AQL queue.
    pub(super) aql: bool,
    /// CP_HQD_PQ_CONTROL, PQ_EMPTY: the hardware has read all that it knows of. In an MQD it is not kept.
    pub(super) empty: bool,
    /// CP_HQD_DEQUEUE_REQUEST: not 0 while the queue is being taken off the hardware.
    pub(super) dequeue_request: u32,
    /// CP_HQD_ERROR: not 0 after an error of the queue.
    pub(super) error: u32,
}

fn pair(dwords: &[u32], low: usize) -> u64 {
    u64::from(dwords[low + 1]) << 32 | u64::from(dwords[low])
}

/// Dwords, from a register of a doorbell's offset in bytes.
fn doorbell(register: u32) -> u32 {
    register >> 2 & 0x03ff_ffff
}

impl Registers {
    /// `None`: there are too few registers.
    pub(super) fn of_slot(registers: &[u32]) -> Option<Self> {
        let all = registers.get(..REGISTERS)?;
        // CP_HQD_PQ_CONTROL, QUEUE_SIZE: 2 to this power and one more, dwords.
        let size = (all[17] & 0x3f) + 1;
        Some(Registers {
            mqd: pair(all, 0),
            active: all[2] & 1 != 0,
            vmid: all[3] & 0xf,
            pipe_priority: all[5],
            queue_priority: all[6],
            ring: pair(all, 8) << 8,
            ring_bytes: (size < 40).then(|| 4 << size),
            rptr: all[10],
            wptr: pair(all, 54),
            doorbell: doorbell(all[15]),
            rptr_address: pair(all, 11),
            wptr_address: pair(all, 13),
            aql: all[53] & 1 != 0,
            empty: all[17] & PQ_EMPTY != 0,
            dequeue_request: all[24],
            error: all[51],
        })
    }

    pub(super) fn of_mqd(mqd: &[u32]) -> Option<Self> {
        Registers::of_slot(mqd.get(FIRST..)?)
    }
}

/// Masks of CUs, by shader engine. `None`: the dump is too short.
pub(super) fn cu_masks(mqd: &[u32], generation: Generation) -> Option<Vec<u32>> {
    generation.cu_masks().iter().map(|at| mqd.get(*at).copied()).collect()
}

/// An SDMA queue's registers, which begin alike in its MQD and in the dump of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SdmaRegisters {
    /// SDMA_RLC_RB_CNTL, RB_ENABLE. It stays set in a slot that a queue left.
    pub(super) enabled: bool,
    pub(super) ring: u64,
    pub(super) ring_bytes: u64,
    /// Bytes.
    pub(super) rptr: u64,
    /// Bytes.
    pub(super) wptr: u64,
}

impl SdmaRegisters {
    pub(super) fn of(registers: &[u32]) -> Option<Self> {
        let all = registers.get(..7)?;
        Some(SdmaRegisters {
            enabled: all[0] & 1 != 0,
            ring: pair(all, 1) << 8,
            ring_bytes: 4 << (all[0] >> 1 & 0x1f),
            rptr: pair(all, 3),
            wptr: pair(all, 5),
        })
    }
}

/// SDMA_RLC_DOORBELL (gfx9, gfx10) or SDMA_QUEUE_DOORBELL, ENABLE.
const DOORBELL_ENABLE: u32 = 1 << 28;

/// SDMA_RLC_DOORBELL_OFFSET: its position, which is the same in a slot and in an MQD, and what it is there, in dwords of
/// the doorbell BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Doorbell {
    at: usize,
    dwords: u32,
}

impl Doorbell {
    /// `None`: that place has none.
    fn new(registers: &[u32], at: usize) -> Option<Self> {
        let dwords = doorbell(*registers.get(at)?);
        (dwords != 0).then_some(Doorbell { at, dwords })
    }

    /// What may be the doorbell of an SDMA queue's MQD, by generation.
    pub(super) fn all_of(mqd: &[u32]) -> impl Iterator<Item = Doorbell> {
        SDMA_SLOTS.into_iter().filter_map(|(.., at)| Doorbell::new(mqd, at))
    }
}

/// Numbers of registers of a slot's dump, and the positions of SDMA_RLC_DOORBELL (SDMA_QUEUE_DOORBELL) and
/// SDMA_RLC_DOORBELL_OFFSET among them.
const SDMA_SLOTS: [([usize; 2], usize, usize); 3] = [
    // amdgpu_amdkfd_gfx_v9.c, _arcturus.c and _gfx_v10.c; _gc_9_4_3.c and _gfx_v10_3.c.
    ([42, 44], 18, 22),
    // amdgpu_amdkfd_gfx_v11.c.
    ([43, 43], 17, 19),
    // amdgpu_amdkfd_gfx_v12.c; _gfx_v12_1.c.
    ([49, 50], 15, 17),
];

/// What an SDMA slot has behind those registers. Which registers its dump consists of, and so their positions, differs
/// between generations; the number of registers identifies the generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SdmaSlot {
    /// Whether a queue is connected: the driver and firmware clear it when they take the queue off the engine
    /// (`hqd_sdma_destroy`), and RB_ENABLE is set again then.
    pub(super) doorbell_enabled: bool,
    /// `None`: the slot does not keep it.
    pub(super) doorbell: Option<Doorbell>,
}

impl SdmaSlot {
    /// `None`: no generation's dump has this number of registers.
    pub(super) fn of(registers: &[u32]) -> Option<Self> {
        let known = SDMA_SLOTS.into_iter().find(|(counts, ..)| counts.contains(&registers.len()));
        let (_, enable_at, doorbell_at) = known?;
        Some(SdmaSlot {
            doorbell_enabled: registers[enable_at] & DOORBELL_ENABLE != 0,
            doorbell: Doorbell::new(registers, doorbell_at),
        })
    }
}

/// What the driver writes to an SDMA queue's MQD at places that differ between generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SdmaAddresses {
    /// User addresses, as CREATE_QUEUE got them.
    pub(super) rptr_address: u64,
    /// `None`: up to v10 the driver does not write it.
    pub(super) wptr_address: Option<u64>,
    /// Dwords, in the doorbell BAR.
    pub(super) doorbell: u32,
}

impl SdmaAddresses {
    pub(super) fn of(mqd: &[u32], generation: Generation) -> Option<Self> {
        let all = mqd.get(..SDMA_V9)?;
        let high_first = |at: usize| u64::from(all[at]) << 32 | u64::from(all[at + 1]);
        let (rptr_address, wptr_address, at) = match generation {
            Generation::V9 | Generation::V9_4_3 | Generation::V10 => (high_first(8), None, 22),
            Generation::V11 => (high_first(7), Some(high_first(26)), 19),
            Generation::V12 | Generation::V12_1 => (pair(all, 7), Some(pair(all, 24)), 17),
        };
        Some(SdmaAddresses { rptr_address, wptr_address, doorbell: doorbell(all[at]) })
    }
}

/// The driver's own numbers of an SDMA queue's engine and of the queue on it.
pub(super) fn sdma_place(mqd: &[u32]) -> Option<(u32, u32)> {
    let at = match mqd.len() {
        SDMA_V9 => SDMA_V9 - 2,
        SDMA_V10 => SDMA_V10 - 2,
        _ => return None,
    };
    Some((mqd[at], mqd[at + 1]))
}
