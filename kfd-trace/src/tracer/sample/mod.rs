//! Samples of the queues' pointers: one pass over the processes' memory ([`pass`]), and when the next one is
//! due ([`schedule`]).

pub mod pass;
pub mod schedule;
