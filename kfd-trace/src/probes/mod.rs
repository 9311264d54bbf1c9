//! From the probe table and this kernel to attached programs.
//!
//! Takes in: the table ([`rows`]), what the kernel tells of itself ([`facts`]), what is asked for. Gives out: a
//! plan ([`plan`], pure), a running [`session::Session`] with a verdict for each probe ([`attach`]), the readings
//! of its maps ([`maps`]), what its probes missed ([`misses`]), and kernel memory for the walks over existing queues and
//! GPUs ([`peek`]).

pub mod attach;
pub mod facts;
mod leaving;
pub mod load;
mod lookup;
mod mapped;
mod maps;
pub mod misses;
pub mod mqds;
mod multi;
mod narrow;
pub mod peek;
pub mod plan;
mod rows;
mod seats;
pub mod session;
mod site;
mod sums;
pub mod table;
mod together;
pub mod walk;

pub use rows::PROBES;
pub use site::{At, Target};
