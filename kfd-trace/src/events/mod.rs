//! Decodes the ring buffer's bytes to owned events.
//!
//! In: records (`kfd-trace-common`), the layout of this kernel's structures (`kernel::Offsets`). Out:
//! [`Event`](crate::model::event::Event)s, and the rows of the maps ([`tables`]).

pub mod decode;
pub mod derived;
pub mod ring;
pub mod tables;
pub mod undecoded;
