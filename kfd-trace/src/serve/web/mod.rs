//! Serving: addresses, TLS, passwords, and what keeps one client from being in the way of another.
//!
//! Takes in: a router, addresses, and a configuration in the format of the Prometheus exporters ([`config`]). Gives out: the
//! router's answers to those who may have them. Of what is in force ([`settings`]) each connection and request asks anew.

pub mod config;
mod deaf;
mod gate;
pub mod listen;
mod seats;
mod serve;
pub mod settings;
mod tally;
mod tls;
mod users;

pub use serve::serve;

#[cfg(test)]
mod tests;
