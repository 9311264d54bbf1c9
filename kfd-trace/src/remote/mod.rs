//! The API of a running daemon, here or on another node, read as curl would: without any privilege.
//!
//! In: a URL with a login and certificates ([`Access`]). Out: documents of a bounded size ([`Client`]), or in one line
//! what, where and what to do ([`Failure`]). No redirect is followed and no proxy is used: a password goes to the host
//! of the URL alone.

mod access;
mod client;
mod documents;
mod failure;
mod login;
mod target;
mod targets;
mod trust;

pub use access::{Access, AccessOptions};
pub use client::Client;
pub use documents::{Documents, Lists, UnreadLists};
pub use failure::Failure;
pub use login::{Login, PASSWORD, Secret};
pub use target::Target;
pub use targets::{Listed, read as targets};
pub use trust::{Trust, TrustOptions};

#[cfg(test)]
pub(crate) mod tests;
