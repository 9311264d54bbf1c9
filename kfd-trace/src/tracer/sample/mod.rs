//! Samples of the queues' pointers: one pass over the processes' memory ([`pass`]), in which order and for how long each is
//! read ([`order`]), which share that as one tenant ([`tenant`]), which are left alone since they block whoever reads them
//! ([`aside`]), when the next pass is due ([`schedule`]), and two passes without a running tracer ([`twice`]).

mod aside;
mod order;
pub mod pass;
pub mod schedule;
mod tenant;
pub mod twice;

#[cfg(test)]
mod samples;
