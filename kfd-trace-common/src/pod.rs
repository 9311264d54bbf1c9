//! Keys and values that the daemon reads from maps unchanged.

use crate::in_flight::{Caller, Seat, Slot};
use crate::peek::Answer;
use crate::process::Entry;
use crate::stat::{ErrorKey, IoctlKey, IoctlStat, Sum};
use aya::Pod;

// SAFETY: repr(C) structures of integers without padding, as their asserted sizes show.
unsafe impl Pod for IoctlKey {}
// SAFETY: as above.
unsafe impl Pod for ErrorKey {}
// SAFETY: as above.
unsafe impl Pod for IoctlStat {}
// SAFETY: as above.
unsafe impl Pod for Slot {}
// SAFETY: as above.
unsafe impl Pod for Answer {}
// SAFETY: as above.
unsafe impl Pod for Entry {}
// SAFETY: as above.
unsafe impl Pod for Seat {}
// SAFETY: as above.
unsafe impl Pod for Caller {}
// SAFETY: as above.
unsafe impl Pod for Sum {}
