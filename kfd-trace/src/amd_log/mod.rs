//! AMD_LOG_LEVEL logs, as written by clr of ROCm 5.x to 7.x.
//!
//! In: bytes, in chunks of any size ([`lines`], [`Tally`]), and queues that KFD had ([`recorded`]). Out: a
//! [`Report`] as text and as JSON, with the log's queues joined to KFD's ([`join`]). Nothing here does I/O;
//! memory is bounded (limits.rs), and every line is in exactly one count of [`tally::LineCounts`].
//! clr's lines are found behind what collectors of logs put before them ([`entries`]).
//! For a timeline: the packets and copies, one by one ([`Correlator`]).

mod capped;
mod colours;
mod correlate;
mod encoding;
pub mod entries;
pub mod fault;
pub mod hang;
pub mod join;
mod kind;
pub mod life;
pub mod limits;
pub mod lines;
pub mod message;
mod notes;
pub mod packet;
pub mod prefix;
mod processes;
mod queues;
mod rate;
pub mod recorded;
pub mod report;
mod rows;
mod scan;
mod slots;
pub mod source;
pub mod tally;
mod text;
pub mod trouble;
pub mod work;
mod wrapped;

pub use correlate::Correlator;
pub use kind::CommandName;
pub use lines::Lines;
pub use report::Report;
pub use tally::Tally;
