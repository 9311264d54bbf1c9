//! kfd-trace: an eBPF tracer for AMD's compute driver (amdgpu/KFD).
//!
//! Data flows one way, and a module uses only what stands to its left:
//!
//! ```text
//! kernel -> probes -> events -> attribute -> state -> output
//! ```
//!
//! [`amd_log`] stands beside it: it reads what the application's own runtime wrote. So does [`doctor`], which holds the views of a node
//! against each other.
//!
//! [`command`] is the only place where the parts meet; [`verdict`] and [`missed`] are plain data that all may
//! name.

#![warn(clippy::print_stderr)] // `command::say` escapes, and does not panic where nobody listens.

pub mod amd_log;
pub mod attribute;
pub mod cli;
pub mod command;
pub mod doctor;
pub mod events;
pub mod kernel;
pub mod model;
pub mod output;
pub mod probes;
pub mod runtime;
pub mod serve;
pub mod state;
pub mod text;
pub mod tracer;
