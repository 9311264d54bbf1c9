//! The answer of the `peek` program.

use crate::limits::PEEK_LEN;

/// One read of kernel memory.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Answer {
    /// Bytes that were read; 0 when the address cannot be read.
    pub len: u64,
    pub bytes: [u8; PEEK_LEN],
}

const _: () = assert!(size_of::<Answer>() == 8 + PEEK_LEN);
