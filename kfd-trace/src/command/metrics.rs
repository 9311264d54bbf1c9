//! `kfd-trace metrics` (hidden): the table of metrics, of which docs/metrics.md is made.

use super::stop::Stop;
use crate::output::metrics::describe;
use std::io::{self, Write as _};

/// Prints the table as Markdown.
///
/// # Errors
/// When the output cannot be written.
pub fn run() -> Result<(), Stop> {
    let mut text = String::from(
        "# Metrics\n\nMade by `kfd-trace metrics` from the table that the exposition is built from; CI compares.\n\n\
         | name | kind | labels | help |\n|---|---|---|---|\n",
    );
    for metric in describe() {
        let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        text += &format!("| `{}` | {} | {} | {} |\n", metric.name, metric.kind, labels.join(" "), metric.help);
    }
    io::stdout().lock().write_all(text.as_bytes()).map_err(Stop::failed)
}
