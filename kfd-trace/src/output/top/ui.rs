//! What the user chose.

use super::column::Sort;
use super::pane::{Cursor, PaneId};
use crate::state::Queue;

/// The number of the column RATE of processes, by which they are sorted first.
const RATE: usize = 5;

/// What the user chose.
#[derive(Clone, Debug, PartialEq)]
pub struct Ui {
    pub(super) focus: PaneId,
    /// In the order of [`PaneId::ALL`].
    pub(super) cursors: [Cursor; PaneId::ALL.len()],
    pub(super) processes: Sort,
    pub(super) queues: Sort,
    pub(super) filter: String,
    /// Keys are added to the filter.
    pub(super) typing: bool,
    /// Only this gpu_id.
    pub(super) gpu: Option<u32>,
    pub(super) tree: bool,
    pub(super) paused: bool,
    /// Of a recording: how much faster it is played than it happened.
    pub(super) speed: u32,
    /// Of a recording: jumps forward less those back, since the begin.
    pub(super) jumps: i64,
    pub(super) help: bool,
    /// First line of the help.
    pub(super) help_from: usize,
}

impl Default for Ui {
    fn default() -> Self {
        Ui {
            focus: PaneId::Processes,
            cursors: [Cursor::default(); PaneId::ALL.len()],
            processes: Sort { column: RATE, descending: true },
            queues: Sort { column: 0, descending: false },
            filter: String::new(),
            typing: false,
            gpu: None,
            tree: false,
            paused: false,
            speed: 1,
            jumps: 0,
            help: false,
            help_from: 0,
        }
    }
}

/// How a recording is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controls {
    pub paused: bool,
    pub speed: u32,
    /// Jumps forward less those back, since the begin.
    pub jumps: i64,
}

impl Default for Controls {
    fn default() -> Self {
        Ui::default().controls()
    }
}

impl Ui {
    #[must_use]
    pub fn controls(&self) -> Controls {
        Controls { paused: self.paused, speed: self.speed, jumps: self.jumps }
    }

    /// The moment that is shown stays.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn has_filter(&self) -> bool {
        !self.filter.is_empty() || self.gpu.is_some()
    }

    /// Whether a queue is on the chosen GPU.
    pub(super) fn is_on_gpu(&self, queue: &Queue) -> bool {
        self.gpu.is_none_or(|only| queue.facts.gpu_id == Some(only))
    }

    /// One of the texts contains the filter, in upper or lower case.
    pub(super) fn passes<const N: usize>(&self, texts: [Option<&str>; N]) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || texts.into_iter().flatten().any(|text| text.to_lowercase().contains(&wanted))
    }

    pub(super) fn cursor(&self, id: PaneId) -> &Cursor {
        &self.cursors[id as usize]
    }

    /// `None` for tables that cannot be sorted.
    pub(super) fn sort(&self, id: PaneId) -> Option<Sort> {
        match id {
            PaneId::Processes => Some(self.processes),
            PaneId::Queues => Some(self.queues),
            PaneId::Gpus | PaneId::Events => None,
        }
    }
}
