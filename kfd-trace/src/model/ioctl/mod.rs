//! KFD's ioctls: numbers, names, handlers, argument layouts.
//!
//! In: the command that user space passed, and the bytes of its arguments. Out: its name, its decoded
//! arguments, and whether its size is the one this kernel was built with. Source:
//! include/uapi/linux/kfd_ioctl.h and the table `amdkfd_ioctls` of kfd_chardev.c, from 5.10 to 7.2 and in
//! ROCm's out-of-tree driver.

mod args;
mod named;
mod operations;
mod table;

pub use args::{Arg, Mismatch, decode_args, gpus, mismatch_of};
pub use named::Named;
pub use operations::{Operation, operation};
pub use table::{Def, FieldKind, IOCTLS, WAIT_EVENTS, def, result_words};

/// Number of a command (`_IOC_NR`).
#[must_use]
pub const fn nr(cmd: u32) -> u8 {
    (cmd & 0xff) as u8
}

/// Argument bytes that user space passed (`_IOC_SIZE`).
#[must_use]
pub const fn size(cmd: u32) -> u32 {
    (cmd >> 16) & 0x3fff
}
