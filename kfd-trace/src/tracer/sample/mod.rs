//! Samples of the queues' pointers: one pass over the processes' memory ([`pass`]), when the next one is due
//! ([`schedule`]), and two passes without a running tracer ([`twice`]).

pub mod pass;
pub mod schedule;
pub mod twice;
