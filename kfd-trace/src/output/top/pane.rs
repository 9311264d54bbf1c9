//! A table on the screen: the rows that are visible, and which rows there are.

use crate::state::ProcessKey;
use ratatui::layout::Rect;

/// Which table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaneId {
    Gpus,
    Processes,
    Queues,
    Events,
}

impl PaneId {
    /// From top to bottom.
    pub(super) const ALL: [PaneId; 4] = [PaneId::Gpus, PaneId::Processes, PaneId::Queues, PaneId::Events];
}

/// What a row is about: the selection stays with it when rows are sorted, come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Gpu(u32),
    Process(ProcessKey),
    Queue(ProcessKey, u32),
    /// Where its entry is: several can have the same time.
    Event(usize),
}

/// The selected row of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Cursor {
    /// `None`: the row at `at`, whatever it is.
    pub(super) key: Option<Key>,
    /// Where it was last.
    pub(super) at: usize,
    /// The first visible row.
    pub(super) first: usize,
}

/// How a cell is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    Quiet,
    Good,
    Info,
    Warn,
    Bad,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String, Tone),
    /// The latest last.
    Spark(Vec<Option<u64>>),
}

impl Cell {
    /// `-` is "not known".
    pub(super) fn text(text: Option<impl ToString>) -> Self {
        text.map_or_else(
            || Cell::Text("-".to_owned(), Tone::Quiet),
            |text| Cell::Text(text.to_string(), Tone::Plain),
        )
    }

    pub(super) fn toned(self, tone: Tone) -> Self {
        match self {
            Cell::Text(text, _) => Cell::Text(text, tone),
            spark @ Cell::Spark(_) => spark,
        }
    }
}

/// Head of a column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Title {
    pub(super) text: String,
    /// 0: what is left.
    pub(super) width: u16,
    pub(super) right: bool,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pane {
    pub(super) id: PaneId,
    pub(super) area: Rect,
    /// A line above the heads of the columns.
    pub(super) caption: Option<String>,
    pub(super) titles: Vec<Title>,
    /// Numbers of the columns by which its rows can be sorted.
    pub(super) sortable: Vec<usize>,
    /// All rows, in their order.
    pub(super) keys: Vec<Key>,
    /// Number of the first visible row.
    pub(super) first: usize,
    /// The visible ones.
    pub(super) rows: Vec<Vec<Cell>>,
    /// Number of the selected row among all.
    pub(super) selected: Option<usize>,
    /// Shown where there is no row.
    pub(super) empty: String,
}

/// Where the rows of a pane are, and which of them are visible.
pub(super) struct Frame {
    pub(super) area: Rect,
    pub(super) selected: Option<usize>,
    pub(super) first: usize,
    height: usize,
}

impl Frame {
    /// `heads`: lines above the first row.
    pub(super) fn new(area: Rect, heads: u16, keys: &[Key], cursor: &Cursor) -> Self {
        let height = usize::from(area.height.saturating_sub(heads));
        let last = keys.len().checked_sub(1);
        let found = cursor.key.and_then(|key| keys.iter().position(|other| *other == key));
        // What was selected has ended: the one in its place.
        let selected = last.map(|last| found.unwrap_or(cursor.at.min(last)));
        let at = selected.unwrap_or(0);
        let lowest = (at + 1).saturating_sub(height);
        let most = keys.len().saturating_sub(height);
        Frame {
            area,
            selected,
            first: cursor.first.clamp(lowest, at.max(lowest)).min(most.max(lowest)),
            height,
        }
    }

    /// The visible rows of all.
    pub(super) fn visible<'r, R>(&self, rows: &'r [R]) -> &'r [R] {
        let until = (self.first + self.height).min(rows.len());
        rows.get(self.first..until).unwrap_or_default()
    }
}

impl Pane {
    /// Lines above the first row.
    pub(super) fn heads(&self) -> u16 {
        1 + u16::from(self.caption.is_some())
    }

    /// The number of the row on a line of the terminal.
    pub(super) fn row_at(&self, line: u16) -> Option<usize> {
        let top = self.area.y + self.heads();
        let row = usize::from(line.checked_sub(top)?);
        (row < self.rows.len()).then_some(self.first + row)
    }
}
