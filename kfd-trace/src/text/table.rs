//! Plain aligned columns: two spaces between them, no rules, no trailing spaces.

use comfy_table::{CellAlignment, Table, presets};

/// Lines without a final newline; `right` lists the right-aligned columns.
pub(crate) fn plain(header: &[&str], rows: Vec<Vec<String>>, right: &[usize]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(header.to_vec());
    table.add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if right.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}
