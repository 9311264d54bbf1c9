//! HTTP: the pages of the daemon ([`shared`], [`answer`]), their addresses ([`router`]), and the server
//! ([`web`]).

mod answer;
mod documents;
mod negotiate;
pub mod router;
pub mod shared;
pub mod web;
