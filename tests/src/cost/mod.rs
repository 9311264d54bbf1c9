//! What a tracer costs, counted in instructions: in a guest whose clocks go by them (QEMU's `-icount shift=0`).
//!
//! Takes in the guest as it is, with a GPU of kfdsim and one CPU; gives out one line for each case and subject
//! ([`figure`]), for xtask to make a table of. A process of its own makes the calls and measures them ([`caller`]);
//! subjects ([`subject`]) trace it meanwhile, or another. What the tracer itself needs is told by [`own`].

pub mod caller;
mod case;
mod clock;
mod empty;
mod figure;
mod foreign;
pub mod own;
mod session;
mod sites;
mod subject;

pub use session::run;
