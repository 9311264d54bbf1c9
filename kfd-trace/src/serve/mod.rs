//! HTTP: the pages of the daemon ([`shared`], [`answer`]), what is asked of the tracer ([`question`]), their addresses ([`router`]), the server ([`web`]), and the
//! process of its own that it has ([`web_process`]).

mod answer;
mod budget;
pub(crate) mod certificate;
mod diagnoses;
mod doctor;
mod documents;
mod negotiate;
pub mod question;
pub mod router;
pub mod shared;
pub mod web;
pub mod web_process;
