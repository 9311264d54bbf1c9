//! What the tracer costs, against accepted figures.

pub(crate) mod baseline;
pub(crate) mod daemon;
pub(crate) mod look;
pub(crate) mod overhead;
