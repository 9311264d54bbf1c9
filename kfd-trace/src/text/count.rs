//! Numbers of things.

use std::fmt::Display;

/// `1 line`, `2 lines`.
pub(crate) fn counted<N: Copy + Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    let noun = if count == N::from(1) { one } else { many };
    format!("{count} {noun}")
}

/// `is` or `are`, `was` or `were`: the verb of so many things.
pub(crate) fn verb<'a, N: PartialEq + From<u8>>(count: &N, one: &'a str, many: &'a str) -> &'a str {
    if *count == N::from(1) { one } else { many }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let lines = |count: u64| format!("{} {}", counted(count, "line", "lines"), verb(&count, "is", "are"));
        assert_eq!([0, 1, 2].map(lines), ["0 lines are", "1 line is", "2 lines are"]);
    }
}
