//! A table as it is shown. In: its rows, columns and keys, and what the user chose. Out: a [`Pane`], with cells of the
//! visible rows alone.

use super::column::{self, Column};
use super::pane::{Cell, Frame, Key, Pane, PaneId};
use super::ui::Ui;
use ratatui::layout::Rect;

/// A table of columns `C`.
pub(super) struct Table<'t, C> {
    pub(super) id: PaneId,
    /// A line above the heads of the columns.
    pub(super) caption: Option<String>,
    pub(super) columns: &'t [Column<C>],
    /// One of each row.
    pub(super) keys: Vec<Key>,
    /// Shown where there is no row.
    pub(super) empty: String,
}

impl<C> Table<'_, C> {
    /// `cells`: of a row, in the columns that have room.
    pub(super) fn pane<R>(
        self,
        rows: &[R],
        ui: &Ui,
        area: Rect,
        cells: impl Fn(&[(usize, &Column<C>)], &R) -> Vec<Cell>,
    ) -> Pane {
        let Table { id, caption, columns, keys, empty } = self;
        let heads = 1 + u16::from(caption.is_some());
        let frame = Frame::new(area, heads, &keys, ui.cursor(id));
        let shown = column::shown(columns, area.width);
        Pane {
            id,
            caption,
            titles: column::titles(&shown, ui.sort(id)),
            sortable: column::sortable(&shown),
            rows: frame.visible(rows).iter().map(|row| cells(&shown, row)).collect(),
            area: frame.area,
            first: frame.first,
            selected: frame.selected,
            keys,
            empty,
        }
    }
}
