//! A progress bar on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Shown on standard error if that is a terminal, else not at all.
#[derive(Debug)]
pub(crate) struct Bar(ProgressBar);

impl Bar {
    /// `bytes`: size of the files; 0 if unknown or growing.
    pub(crate) fn new(bytes: u64, follow: bool) -> Bar {
        let target = ProgressDrawTarget::stderr_with_hz(10);
        if bytes == 0 || follow {
            let bar = ProgressBar::with_draw_target(None, target);
            let style =
                ProgressStyle::with_template("{spinner} {bytes} read, {binary_bytes_per_sec}, {elapsed}");
            return Bar(style.map(|style| bar.clone().with_style(style)).unwrap_or(bar));
        }
        let bar = ProgressBar::with_draw_target(Some(bytes), target);
        let style = ProgressStyle::with_template(
            "{wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta}",
        );
        Bar(style.map(|style| bar.clone().with_style(style)).unwrap_or(bar))
    }

    /// Adds this many bytes of the files.
    pub(super) fn read(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Removes the bar.
    pub(crate) fn done(&self) {
        self.0.finish_and_clear();
    }
}

/// Interval between checks of a file that grows, or of a pipe.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);
