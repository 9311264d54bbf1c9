//! The process itself: standard output and error, signals, exit codes, the service manager, capabilities,
//! clocks.
//!
//! Independent of KFD.

pub mod clock;
pub(crate) mod code;
pub(crate) mod confine;
pub mod exit;
pub(crate) mod frames;
pub mod launched;
pub mod password;
pub mod pidfd;
pub mod privilege;
pub mod signals;
pub mod stderr;
pub mod stdout;
pub mod systemd;
pub mod terminal;
pub(crate) mod ticks;
pub mod timeout;
pub mod user;
