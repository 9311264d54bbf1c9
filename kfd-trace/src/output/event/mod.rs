//! Events in the stream, as text and as JSON.

pub mod context;
pub mod json;
pub mod text;
