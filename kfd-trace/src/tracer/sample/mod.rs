//! Samples of the queues' pointers: one pass over the processes' memory ([`pass`]), which processes it leaves alone since
//! they block it ([`aside`]), when the next one is due ([`schedule`]), and two passes without a running tracer ([`twice`]).

mod aside;
pub mod pass;
pub mod schedule;
pub mod twice;

#[cfg(test)]
mod samples;
