//! The help: keys, columns, and all that cannot be seen.

use super::Moment;
use super::pane::Tone;
use crate::text::escape;
use ratatui::layout::Rect;

const KEYS: &str = "\
Tab, Shift-Tab     next table, table before; a click does it, too
arrows, j k        select; PageUp, PageDown, Home, End; the wheel
s > <              sort by the next column, by the one before
S                  reverse the order
/                  filter by PID, name and owner; Esc clears it
Enter              in the table of GPUs: only the selected one
t                  tree: processes with their queues
p, space           pause
← →, - +           of a recording: 10 s back or on; slower, faster
?                  help; any key closes it
q, Ctrl-C          quit

COMPUTE SDMA XGMI  queues that take a hardware slot / slots
PACKETS, RATE      AQL packets retired per second by live queues; of SDMA
                   queues bytes of commands
BACKLOG            packets submitted and not retired
STATE              of a GPU: resetting, hung, or how many queues are evicted;
                   of a process: busy, idle, stalled (packets wait and none
                   is retired), suspended (by a debugger), evicted (off the
                   GPU, memory is needed), exiting, no queue; since when
EVICTIONS          how often queues were taken off the GPU since the begin
AGE                since the queue's creation; <5m: of its process, since the
                   queue existed before
PRIO               the queue's priority: 0 to 6 low, 7 to 10 normal, else high
≥                  not all queues are measured
-                  not known";

/// The help as it is shown.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Help {
    pub(super) area: Rect,
    pub(super) lines: Vec<(String, Tone)>,
    /// The first visible line.
    pub(super) from: usize,
}

impl Help {
    pub(super) fn new(moment: &Moment, area: Rect, from: usize) -> Self {
        let mut lines: Vec<(String, Tone)> =
            KEYS.lines().map(|line| (line.to_owned(), Tone::Plain)).collect();
        let unseen = moment.sight.unseen.iter().cloned();
        let unreadable = moment.topology.errors.iter().map(ToString::to_string);
        let lost = moment.lost.iter().flatten().map(|(name, count)| format!("lost: {name}: {count}"));
        let missing: Vec<String> = unseen.chain(unreadable).chain(lost).collect();
        if !missing.is_empty() {
            lines.push((String::new(), Tone::Plain));
        }
        lines.extend(missing.iter().map(|line| (escape::terminal(line), Tone::Warn)));
        let help = Help { area, lines, from };
        Help { from: from.min(help.last_from()), ..help }
    }

    /// The greatest value of `from`.
    pub(super) fn last_from(&self) -> usize {
        self.lines.len().saturating_sub(usize::from(self.area.height))
    }
}
