//! The process itself: standard output and error, signals, exit codes, the service manager, capabilities,
//! clocks.
//!
//! Independent of KFD.

pub mod beat;
pub mod clock;
pub(crate) mod code;
pub mod confine;
pub mod exit;
pub(crate) mod frames;
pub mod launched;
#[cfg(any(test, target_env = "musl"))]
mod memcmp;
pub mod output_file;
pub mod password;
pub mod pidfd;
pub(crate) mod private_user;
pub mod privilege;
pub mod signals;
pub mod stderr;
pub mod stdout;
pub mod systemd;
pub mod terminal;
pub(crate) mod ticks;
pub mod timeout;
pub(crate) mod unused_user;
pub mod user;
