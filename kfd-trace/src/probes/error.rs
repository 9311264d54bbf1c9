//! The error for when nothing can be loaded, in one line.

use std::error::Error;
use thiserror::Error;

/// Why the object cannot be loaded at all.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("the kernel refused the tracer's maps: {0}")]
    Object(String),
    #[error("the tracer's object has no map {0}")]
    NoMap(&'static str),
    #[error("map {map}: {why}")]
    Map { map: &'static str, why: String },
}

/// An error with its causes in one line; the verifier's log is cut to its end, which has the reason.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        if !line.contains(&text) {
            let tail: Vec<&str> = text.lines().rev().take(4).collect();
            let tail: Vec<&str> = tail.into_iter().rev().map(str::trim).collect();
            line += if line.is_empty() { "" } else { ": " };
            line += &tail.join(" | ");
        }
        next = error.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_one_line_with_its_causes() {
        #[derive(Debug, Error)]
        #[error("outer\nsecond line")]
        struct Outer(#[source] std::io::Error);
        let inner = std::io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(chain(&Outer(inner)), "outer | second line: Operation not permitted (os error 1)");
    }
}
