//! Serving: addresses, TLS, passwords, and the limits that keep one client from blocking another.
//!
//! In: a router, addresses, and a configuration in the format of the Prometheus exporters ([`config`]). Out:
//! the router's responses to the clients that may have them. Each connection and request reads the settings
//! in force ([`settings`]) anew.

pub mod config;
mod connections;
mod deaf;
mod gate;
pub mod listen;
pub mod names;
mod rate;
mod serve;
pub mod settings;
mod tally;
mod tls;
mod users;

pub use serve::{ClientLimits, GRACE, Site, serve};

#[cfg(test)]
pub(crate) mod tests;
