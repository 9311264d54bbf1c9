//! Where ROCr keeps the dispatch ids of an AQL queue: `amd_queue_t` (inc/amd_hsa_queue.h), in the memory of
//! the process.
//!
//! The two addresses passed to CREATE_QUEUE are those of its fields `write_dispatch_id` and
//! `read_dispatch_id`.

/// Bytes from the begin of `amd_queue_t` to the end of its last field here.
pub const HEAD_LEN: usize = 144;

/// `hsa_queue.base_address`, u64: the ring.
pub const BASE_ADDRESS: usize = 8;

/// `hsa_queue.size`, u32: packets that the ring holds.
pub const SIZE: usize = 24;

/// Packets submitted to the ring, u64.
pub const WRITE_DISPATCH_ID: usize = 56;

/// Packets that the GPU has retired, u64.
pub const READ_DISPATCH_ID: usize = 128;

/// `read_dispatch_id_field_base_byte_offset`, u32: always [`READ_DISPATCH_ID`].
pub const FIELD_BASE: usize = 136;

/// Bytes of a packet in the ring.
pub const PACKET_LEN: u64 = 64;

/// The address of the `amd_queue_t` whose two fields these are; `None` if their distance fits no such
/// structure.
#[inline(always)]
#[must_use]
pub const fn head(write_address: u64, read_address: u64) -> Option<u64> {
    let apart = (READ_DISPATCH_ID - WRITE_DISPATCH_ID) as u64;
    let own = write_address >= WRITE_DISPATCH_ID as u64 && read_address == write_address.wrapping_add(apart);
    if own { Some(write_address - WRITE_DISPATCH_ID as u64) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_of_one_structure_have_a_head() {
        assert_eq!(head(0x7faf_945b_8038, 0x7faf_945b_8080), Some(0x7faf_945b_8000));
        assert_eq!(head(0x7faf_945b_8038, 0x7faf_945b_8040), None);
        assert_eq!(head(0, 0x48), None);
        assert_eq!(head(u64::MAX, 0x47), Some(u64::MAX - 0x38));
    }
}
