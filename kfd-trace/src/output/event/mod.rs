//! Events as the stream shows them, as text and as JSON.

pub mod context;
pub mod json;
pub mod text;
