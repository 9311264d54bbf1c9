//! The cost of records and scrapes in the daemon, from generated records: the library's own code, without
//! BPF.
//!
//! Started by `cargo xtask bench daemon`, natively and under callgrind. In: the name of one part. Out: one
//! JSON object per line: `{"case", "per", "unit", "ns"}` of a [`region`], in the order in which they ran, or
//! `{"case", "value", "unit"}` of anything else.

mod callgrind;
mod load;
mod memory;
mod records;
mod region;
mod world;

use std::process::ExitCode;

fn main() -> ExitCode {
    let part = std::env::args().nth(1);
    let done = match part.as_deref() {
        Some("load") => load::run(),
        Some("memory") => memory::run(),
        _ => {
            eprintln!("parts: load, memory; `cargo xtask bench daemon` runs them");
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
