//! How far it is, on a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Shown on standard error where that is a terminal, else nothing.
#[derive(Debug)]
pub(super) struct Bar(ProgressBar);

impl Bar {
    /// Of so many bytes of files; 0 where that is not known, or grows.
    pub(super) fn new(bytes: u64, follow: bool) -> Bar {
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

    /// So many bytes of the files more.
    pub(super) fn read(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    /// Takes it off.
    pub(super) fn done(&self) {
        self.0.finish_and_clear();
    }
}

/// Between two looks at a file that grows, or a pipe.
pub(super) const LOOK: Duration = Duration::from_millis(200);
