//! The cost of records and scrapes in the daemon, from generated records: the library's own code, without
//! BPF.
//!
//! Started by `cargo xtask bench daemon`, natively and under callgrind. In: the name of one part. Out: one
//! JSON object per line: `{"case", "per", "unit", "ns"}` of a [`region`], in the order in which they ran, or
//! `{"case", "value", "unit"}` of anything else; `serve`, `write` and `exposition` print none: the first is a daemon for
//! `cargo xtask attack`, the second writes a recording for `cargo xtask bench look`, the third prints what a scrape
//! gets, for `cargo xtask fleet`.

mod callgrind;
mod export;
mod exposition;
mod load;
mod memory;
mod recording;
mod records;
mod region;
mod serve;
mod world;

use kfd_trace::serve::web_process;
use std::process::ExitCode;

fn main() -> ExitCode {
    let part = std::env::args().nth(1);
    let done = match part.as_deref() {
        Some("load") => load::run(),
        Some("memory") => memory::run(),
        Some("serve") => serve::run(),
        Some("write") => load::write(),
        Some("exposition") => exposition::run(),
        // Itself, started by the web server's supervisor.
        Some("web-server") => web_process::run().map_err(Into::into),
        _ => {
            eprintln!(
                "parts: load and memory, which `cargo xtask bench daemon` runs, serve, which `cargo xtask attack` runs, \
                 write FILE EVENTS, which `cargo xtask bench look` runs, and exposition LIVE ENDED QUEUES GPUS, which \
                 `cargo xtask fleet` runs"
            );
            return ExitCode::FAILURE;
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
