//! Cost of a tracer, counted in instructions: in a guest whose clocks count them (QEMU's `-icount shift=0`).
//!
//! In: the running guest, with a GPU of kfdsim and one CPU. Out: one line per case and subject ([`figure`]),
//! from which xtask makes a table. A separate process makes the calls and measures them ([`caller`]);
//! subjects ([`subject`]) trace it meanwhile, or another process. [`own`] reports the tracer's own cost.

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
