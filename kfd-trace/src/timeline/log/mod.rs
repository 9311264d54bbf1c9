//! Logs of AMD_LOG_LEVEL on a timeline. A log is read twice: [`Survey`] learns what of it joins the recording and how its
//! times of the GPU do, [`Placer`] writes its packets and copies.

mod offsets;
mod place;
mod report;
mod survey;

pub use place::Placer;
pub use report::LogReport;
pub use survey::{LogPlan, Survey};
