//! From the ring buffer's bytes to owned events.
//!
//! Takes in: records (`kfd-trace-common`), the layout of this kernel's structures (`kernel::Offsets`).
//! Gives out: [`event::Event`]; [`ioctl`] knows the names, sizes and arguments of KFD's ioctls.

pub mod counters;
pub mod decode;
pub mod event;
pub mod ioctl;
pub mod layout;
pub mod life;
pub mod pointers;
pub mod queue;
pub mod queue_ioctl;
pub mod ring;
pub mod tables;
pub mod undecoded;
