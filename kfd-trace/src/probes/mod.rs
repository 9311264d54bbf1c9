//! From the probe table and this kernel to attached programs.
//!
//! In: the table ([`rows`]), what the kernel reports about itself ([`facts`]), what is requested. Out: a plan
//! ([`plan`], pure), a running [`session::Session`] with a verdict per probe ([`attach`]), the readings of
//! its maps ([`maps`]), the misses of its probes ([`misses`]), and kernel memory for the walks over existing
//! queues and GPUs ([`peek`]).

pub mod attach;
mod changes;
pub mod error;
pub mod events;
pub mod facts;
pub mod functions;
pub mod load;
mod loader;
mod maps;
pub mod memory;
pub mod mqds;
mod multi;
mod narrow;
pub mod plan;
mod refusal;
mod rows;
pub mod session;
mod site;
pub mod table;
mod together;
pub mod walk;

pub use rows::PROBES;
pub use site::{At, AttachTarget};
