//! Events as OpenTelemetry logs, for a collector: what the history gets, as it happens.
//!
//! Three parts, none of which waits for the one behind it. The thread that follows the ring buffer hands over what happened
//! ([`Feed`]); a thread makes records of it, in batches that wait in bounded memory ([`record`], [`batch`]); another one sends these
//! in their order ([`delivery`]), by a process of its own for each connection ([`sender`]). A batch is done with when the collector has
//! answered for it: until then it is sent again, so a record may arrive twice. What has no room is dropped and counted.

mod batch;
mod delivery;
mod feed;
mod fields;
mod message;
pub mod proto;
mod record;
mod resource;
mod sender;
mod settings;
mod verdict;

pub use feed::Feed;
pub use record::{At, Encoder, Item};
pub use resource::{Host, resource};
pub use sender::run;
pub use settings::{OtlpOptions, Protocol, Settings};

#[cfg(test)]
mod tests;
