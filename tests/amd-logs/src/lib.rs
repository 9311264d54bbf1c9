//! Logs of AMD_LOG_LEVEL that nobody's GPU has written, in the wordings of each version of ROCm, with what is in them.
//!
//! Takes in: a [`Format`], a [`Plan`], and where to write. Gives out: the log, and its [`Ledger`], which counts what the writer did and
//! not what a reader would find: nothing here reads a line. The wordings are clr's (rocclr: utils/debug.cpp,
//! device/rocm/rocdevice.cpp, rocvirtual.cpp, rocblit.cpp, platform/command.cpp).

mod filler;
mod format;
mod ledger;
mod plan;
mod wording;
mod writer;

pub use format::Format;
pub use ledger::{Ledger, OfQueue};
pub use plan::{Plan, write};
