//! The web server in a process of its own: an attacker who takes it over by a request or a handshake holds no capability,
//! opens no file, and sees no memory but that of this process.
//!
//! The tracer's process binds the sockets, reads the configuration and makes the documents; it starts the other
//! ([`start`]), which serves ([`run`]). Between them: one socket by which it is configured ([`control`]), one for
//! each sort of question ([`lane`]), one that shows whether it hangs ([`watch`]), and a pipe for its log.

mod child;
mod control;
mod lane;
mod supervise;
mod watch;

pub use child::run;
pub use supervise::{Running, WebServer, start};

#[cfg(test)]
mod tests;
