//! The commands: the only place where the parts meet, and where I/O, clocks and signals are.
//!
//! Takes in: what the command line asked for. Gives out: an exit code, and one clear line where it is not 0.

pub mod amd_log;
pub mod clock;
pub mod daemon;
mod differences;
pub mod doctor;
mod driver;
pub mod enrich;
mod gone;
pub mod ground;
pub mod intake;
pub mod look;
pub mod manual;
pub mod metrics;
pub mod outlet;
mod patience;
pub mod privilege;
mod progress;
pub mod ps;
pub mod reconcile;
mod remember;
mod sampler;
mod sampling;
pub mod say;
pub mod signals;
pub mod site;
pub mod standing;
pub mod status;
pub mod stop;
mod supervisor;
pub mod trace;
pub mod tracer;
mod under_way;
mod waiting;
pub mod watched;
