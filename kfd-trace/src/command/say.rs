//! Standard error: what is said to people, and the log.
//!
//! Takes in: lines, which may carry text that others chose (a name, an answer of the kernel). Gives out: each as one line
//! that no terminal obeys. That nobody reads it, or that it is closed, is no reason to end.

use crate::output::escape;
use log::{LevelFilter, Record};
use std::fmt;
use std::io::{self, Write as _};

/// One line for people.
pub fn say(line: impl fmt::Display) {
    // `eprintln` panics where standard error is closed, and there is nobody else to tell.
    let _ = io::stderr().write_all(said(&line).as_bytes());
}

fn said(line: &impl fmt::Display) -> String {
    format!("kfd-trace: {}\n", escape::terminal(&line.to_string()))
}

/// Lets the log go to standard error, too, from this level on.
pub fn log_from(level: LevelFilter) {
    let format =
        |out: &mut env_logger::fmt::Formatter, record: &Record<'_>| out.write_all(logged(record).as_bytes());
    env_logger::Builder::new().filter_level(level).format(format).init();
}

fn logged(record: &Record<'_>) -> String {
    let text = escape::terminal(&record.args().to_string());
    format!("[{:<5} {}] {text}\n", record.level(), record.target())
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    const FOREIGN: &str = "a\x1b[2J\nb\u{9b}31m";

    #[test]
    fn a_line_is_one_line_that_no_terminal_obeys() {
        assert_eq!(said(&FOREIGN), "kfd-trace: a\\u{1b}[2J\\u{a}b\\u{9b}31m\n");
    }

    #[test]
    fn so_is_a_line_of_the_log() {
        let told = |args: fmt::Arguments<'_>| {
            logged(&Record::builder().level(Level::Warn).target("kfd_trace").args(args).build())
        };
        let line = told(format_args!("process {FOREIGN}"));
        assert_eq!(line, "[WARN  kfd_trace] process a\\u{1b}[2J\\u{a}b\\u{9b}31m\n");
    }
}
