//! The result of the programs `peek` and `lookup`, which the daemon runs itself.

use crate::limits::PEEK_LEN;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One read of kernel memory, or of a map's entry.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Answer {
    /// Bytes read; 0 when the address cannot be read, or there is no such entry.
    pub len: u64,
    pub bytes: [u8; PEEK_LEN],
}

const _: () = assert!(size_of::<Answer>() == 8 + PEEK_LEN);
