//! Timelines: a recording as a trace for Perfetto (<https://ui.perfetto.dev>). In: the items of a recording. Out: packets
//! of its protobuf format.
//!
//! Times are CLOCK_MONOTONIC, as the kernel's records have them; snapshots of the clocks join them with the wall clock and
//! with traces of other programs.

mod gpus;
mod lives;
mod packets;
mod proto;
mod words;

pub use lives::Timeline;

#[cfg(test)]
mod tests;
