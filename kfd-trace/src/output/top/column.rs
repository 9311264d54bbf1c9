//! Columns of a table: what a row shows in them, and by what it is sorted.

use super::Moment;
use super::pane::{Cell, Title};
use std::cmp::Ordering;

type ValueOf<R> = fn(&R) -> Value<'_>;

/// A column of rows `R`.
pub(super) struct Column<R> {
    pub(super) title: &'static str,
    /// Columns of the terminal; 0: those that are left.
    width: u16,
    right: bool,
    /// It is shown from this width of the terminal on.
    from: u16,
    pub(super) cell: fn(&R, &Moment) -> Cell,
    /// `None`: rows are not sorted by it.
    value: Option<ValueOf<R>>,
}

impl<R> Column<R> {
    pub(super) fn left(title: &'static str, width: u16, cell: fn(&R, &Moment) -> Cell) -> Self {
        Column { title, width, right: false, from: 0, cell, value: None }
    }

    pub(super) fn right(title: &'static str, width: u16, cell: fn(&R, &Moment) -> Cell) -> Self {
        Column { right: true, ..Column::left(title, width, cell) }
    }

    pub(super) fn from(self, from: u16) -> Self {
        Column { from, ..self }
    }

    pub(super) fn by(self, value: ValueOf<R>) -> Self {
        Column { value: Some(value), ..self }
    }
}

/// By what rows are sorted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'r> {
    Number(f64),
    /// The first decides; the others where it is the same.
    Numbers([f64; 2]),
    Text(&'r str),
    /// Comes last, in either direction.
    Unknown,
}

impl<'r> Value<'r> {
    pub(super) fn number(value: Option<impl Into<f64>>) -> Self {
        value.map_or(Value::Unknown, |value| Value::Number(value.into()))
    }

    pub(super) fn pair(values: Option<[f64; 2]>) -> Self {
        values.map_or(Value::Unknown, Value::Numbers)
    }

    #[expect(clippy::cast_precision_loss, reason = "it is compared")]
    pub(super) fn count(count: u64) -> Self {
        Value::Number(count as f64)
    }

    /// Of a time: what is older is more.
    #[expect(clippy::cast_precision_loss, reason = "it is compared")]
    pub(super) fn earlier(at_ns: u64) -> Self {
        Value::Number(-(at_ns as f64))
    }

    pub(super) fn text(text: Option<&'r str>) -> Self {
        text.map_or(Value::Unknown, Value::Text)
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Value::Number(one), Value::Number(other)) => one.total_cmp(other),
            (Value::Numbers([a, b]), Value::Numbers([c, d])) => a.total_cmp(c).then(b.total_cmp(d)),
            (Value::Text(one), Value::Text(other)) => one.cmp(other),
            _ => Ordering::Equal,
        }
    }
}

/// By which column rows are sorted; an index among all columns, shown or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) column: usize,
    pub(super) descending: bool,
}

/// The columns that have room, with their numbers.
pub(super) fn shown<R>(columns: &[Column<R>], width: u16) -> Vec<(usize, &Column<R>)> {
    columns.iter().enumerate().filter(|(_, column)| column.from <= width).collect()
}

pub(super) fn cells<R>(shown: &[(usize, &Column<R>)], row: &R, moment: &Moment) -> Vec<Cell> {
    shown.iter().map(|(_, column)| (column.cell)(row, moment)).collect()
}

pub(super) fn titles<R>(shown: &[(usize, &Column<R>)], sort: Option<Sort>) -> Vec<Title> {
    let title = |(index, column): &(usize, &Column<R>)| {
        let sort = sort.filter(|sort| sort.column == *index);
        let mark = sort.map_or("", |sort| if sort.descending { "▼" } else { "▲" });
        Title { text: format!("{}{mark}", column.title), width: column.width, right: column.right }
    };
    shown.iter().map(title).collect()
}

/// The numbers of those by which rows can be sorted.
pub(super) fn sortable<R>(shown: &[(usize, &Column<R>)]) -> Vec<usize> {
    shown.iter().filter(|(_, column)| column.value.is_some()).map(|(index, _)| *index).collect()
}

/// Rows of the same value keep their order.
pub(super) fn sort<R>(rows: &mut [R], columns: &[Column<R>], sort: Option<Sort>) {
    let Some(sort) = sort else { return };
    let Some(value) = columns.get(sort.column).and_then(|column| column.value) else { return };
    rows.sort_by(|one, other| match (value(one), value(other)) {
        (Value::Unknown, Value::Unknown) => Ordering::Equal,
        (Value::Unknown, _) => Ordering::Greater,
        (_, Value::Unknown) => Ordering::Less,
        (one, other) if sort.descending => other.compare(&one),
        (one, other) => one.compare(&other),
    });
}
