//! `kfd-trace metrics` (hidden): the table of metrics, of which docs/metrics.md is made.

use super::stop::Stop;
use crate::output::metrics::describe;
use std::io::{self, Write as _};

/// Prints the table as Markdown.
///
/// # Errors
/// When the output cannot be written.
pub fn run() -> Result<(), Stop> {
    io::stdout().lock().write_all(text().as_bytes()).map_err(Stop::failed)
}

fn text() -> String {
    let mut text = String::from(
        "# Metrics\n\nMade by `kfd-trace metrics` from the table that the exposition is built from; a test compares.\n\n\
         | name | kind | labels | help |\n|---|---|---|---|\n",
    );
    for metric in describe() {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        text +=
            &format!("| `{}` | {} | {} | {} |\n", metric.name, metric.kind, labels.join(" "), metric.help);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_documentation_is_that_of_the_code() {
        let written = include_str!("../../../docs/metrics.md");
        assert!(written == super::text(), "docs/metrics.md is old: kfd-trace metrics > docs/metrics.md");
    }
}
