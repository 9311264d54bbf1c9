//! From the probe table and this kernel to attached programs.
//!
//! Takes in: the table ([`rows`]), what the kernel tells of itself ([`facts`]), what is asked for. Gives out: a
//! plan ([`plan`], pure), a running [`session::Session`] with a verdict for each probe ([`attach`]), the readings
//! of its maps ([`maps`]), what its probes missed ([`misses`]), and kernel memory for the walks over existing queues and
//! GPUs ([`peek`]).

pub mod attach;
pub mod error;
pub mod facts;
pub mod functions;
pub mod load;
mod maps;
pub mod mqds;
mod multi;
mod narrow;
pub mod plan;
mod rows;
pub mod session;
mod site;
pub mod table;
mod together;
pub mod walk;

pub use rows::PROBES;
pub use site::{At, Target};
