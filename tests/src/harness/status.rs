//! Files of /proc whose lines are `key: value`: `status`, `fdinfo`.

use anyhow::{Context, Result};

/// The text after `key:`, without surrounding blanks.
pub fn field<'a>(text: &'a str, key: &str) -> Result<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.map(str::trim).with_context(|| format!("no {key}"))
}

/// The number after `key:`; a unit may follow.
pub fn number(text: &str, key: &str) -> Result<u64> {
    let value = field(text, key)?;
    let number = value.split_whitespace().next().unwrap_or_default();
    number.parse().with_context(|| format!("{key}: {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let text = "Name:\tx y\nVmRSSx:\t1 kB\nVmRSS:\t  5220 kB\nThreads:\t2\n";
        assert_eq!((number(text, "VmRSS").unwrap(), number(text, "Threads").unwrap()), (5220, 2));
        assert_eq!(field(text, "Name").unwrap(), "x y");
        assert!(
            number(text, "VmHWM").is_err() && number(text, "Vm").is_err() && number(text, "Name").is_err()
        );
    }
}
