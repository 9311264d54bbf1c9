//! Which line of the terminal is for what. In: its size and the number of GPUs, so that nothing moves when queues come
//! and go.

use ratatui::layout::{Constraint, Layout, Rect};

/// The smallest terminal that has room.
pub(super) const SMALLEST: (u16, u16) = (80, 24);

pub(super) struct Areas {
    /// What there is, and what is missing.
    pub(super) header: Rect,
    pub(super) gpus: Rect,
    pub(super) processes: Rect,
    /// `None` in the tree.
    pub(super) queues: Option<Rect>,
    pub(super) events: Rect,
    pub(super) footer: Rect,
}

/// `None`: it is too small.
pub(super) fn areas(whole: Rect, gpus: usize, tree: bool) -> Option<Areas> {
    if whole.width < SMALLEST.0 || whole.height < SMALLEST.1 {
        return None;
    }
    // A third at most; with heads.
    let gpu_lines = u16::try_from(gpus.max(1) + 1).unwrap_or(u16::MAX).min(whole.height / 3 - 2);
    let queue_lines = if tree { 0 } else { whole.height / 4 };
    let [header, gpus, processes, queues, events, footer] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(gpu_lines),
        Constraint::Fill(1),
        Constraint::Length(queue_lines),
        Constraint::Length(whole.height / 5),
        Constraint::Length(1),
    ])
    .areas(whole);
    Some(Areas { header, gpus, processes, queues: (!tree).then_some(queues), events, footer })
}
