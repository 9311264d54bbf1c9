//! Definitions shared by the BPF programs and the daemon.
//!
//! The BPF side fills these structures and sends or stores them; the daemon reads them as bytes. Every
//! structure is `repr(C)`, made of integers only, without hidden padding, and its size is asserted.
#![no_std]

pub mod aql;
pub mod counter;
pub mod eviction;
pub mod in_flight;
pub mod kind;
pub mod limits;
pub mod lookup;
pub mod loss;
pub mod nested;
pub mod offset;
pub mod peek;
pub mod process;
pub mod record;
pub mod rules;
pub mod stat;

#[cfg(feature = "user")]
mod pod;

#[cfg(test)]
extern crate std;
