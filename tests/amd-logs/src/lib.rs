//! Synthetic logs of AMD_LOG_LEVEL, not written by any GPU, in the format of each version of ROCm, with their
//! contents counted.
//!
//! In: a [`Format`], a [`Plan`], and a writer. Out: the log, and its [`Ledger`], which counts what the writer
//! did and not what a reader would find: nothing here reads a line. The formats are clr's (rocclr:
//! utils/debug.cpp, device/rocm/rocdevice.cpp, rocvirtual.cpp, rocblit.cpp, platform/command.cpp).

mod crash;
mod filler;
mod format;
mod graph;
mod ledger;
mod plan;
mod wording;
mod writer;

pub use format::Format;
pub use ledger::{Ledger, OfQueue};
pub use plan::{Plan, write};
