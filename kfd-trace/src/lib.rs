//! kfd-trace: an eBPF tracer for AMD's compute driver (amdgpu/KFD).
//!
//! Layers, lowest first: [`model`], [`text`], [`kernel`], [`events`], [`attribute`], [`probes`], [`state`],
//! [`recording`], [`output`], [`timeline`],
//! [`amd_log`], [`doctor`], [`hw`], [`runtime`], `log_files`, [`driver_types`], [`tracer`], [`serve`], [`remote`],
//! [`otlp`], [`cli`],
//! [`command`]. A module uses only the layers before it. `tests/law` checks this; docs/architecture.md
//! describes it.

#![warn(clippy::print_stderr)] // `runtime::stderr::say` escapes, and does not panic when stderr has no reader.

pub mod amd_log;
pub mod attribute;
pub mod cli;
pub mod command;
pub mod doctor;
pub mod driver_types;
pub mod events;
pub mod hw;
pub mod kernel;
mod log_files;
pub mod model;
pub mod otlp;
pub mod output;
pub mod probes;
pub mod recording;
pub mod remote;
pub mod runtime;
pub mod serve;
pub mod state;
pub mod text;
pub mod timeline;
pub mod tracer;
