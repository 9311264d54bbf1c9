//! The tracer's own cost, as the guest's kfd-cost reports it (tests/src/cost/own.rs). Pure.

use crate::bench::baseline::Figure;
use anyhow::{Context as _, Result};

/// Prefix of its lines.
const MARK: &str = "kfd-own ";

/// `None`: a line of another kind.
pub(super) fn parse(line: &str) -> Option<Result<Figure>> {
    let text = line.trim().strip_prefix(MARK)?.strip_prefix('{')?;
    Some(read(&format!("{{{text}")).with_context(|| format!("the guest's line `{line}`")))
}

fn read(text: &str) -> Result<Figure> {
    Figure::read(&serde_json::from_str(text)?).context("not a whole figure")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_lines_are_distinguished_from_others() {
        let line = r#"kfd-own {"case":"start.first_event","value":7,"unit":"instructions"}"#;
        let figure = parse(line).expect("a figure").expect("whole");
        assert_eq!(figure, Figure::new("start.first_event", 7, "instructions"));
        assert!(parse("kfd-own: an error").is_none() && parse("kfd-cost {}").is_none());
        assert!(parse(r#"kfd-own {"case":"x"}"#).expect("a figure").is_err());
    }
}
