//! The rows of many nodes: one table, or one JSON object with an object for each node.

use super::json::{PsDocument, document};
use super::{COLUMNS, Columns, PsRow, PsView, SCHEMA, budget, columns, dash, write_table};
use crate::attribute::Topology;
use crate::output::budget::PoolUse;
use crate::state::Sources;
use crate::text::escape;
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::{self, Write};

/// What a node has, as [`super::text`] takes it of one.
#[derive(Debug)]
pub struct NodeRows {
    pub rows: Vec<PsRow>,
    pub topology: Topology,
    /// The rows have all queues.
    pub all_queues: bool,
    /// RFC 3339, by the node's clock.
    pub ts: Option<String>,
    /// What the node's daemon does not see, or has lost, each in a line.
    pub problems: Vec<String>,
}

impl NodeRows {
    fn view(&self, columns: Columns) -> PsView<'_> {
        let NodeRows { topology, all_queues, .. } = self;
        PsView { asked: Sources::default(), all_queues: *all_queues, topology, columns }
    }
}

/// A node that was asked: its name, and what it has, or why that is not known.
pub type Asked = (String, Result<NodeRows, String>);

/// Writes the table, then each GPU with more queues than slots, and what is not known of which node.
///
/// # Errors
/// Those of `out`.
pub fn text(out: &mut impl Write, nodes: &[Asked], of: Columns) -> io::Result<()> {
    let answered = || nodes.iter().filter_map(|(name, node)| Some((name, node.as_ref().ok()?)));
    let names = answered().flat_map(|(_, node)| columns(&node.rows, &node.view(of)));
    let names: BTreeSet<&str> = names.map(|(name, ..)| name).collect();
    let shown: Vec<_> = COLUMNS.into_iter().filter(|(name, ..)| names.contains(name)).collect();
    let mut header = vec!["NODE"];
    header.extend(shown.iter().map(|(name, ..)| *name));
    let right: Vec<usize> = (1..).zip(&shown).filter(|(_, column)| column.1).map(|(at, _)| at).collect();
    let mut cells = Vec::new();
    for (name, node) in answered() {
        let view = node.view(of);
        for row in &node.rows {
            let mut line = vec![escape::terminal(name)];
            line.extend(shown.iter().map(|(_, _, cell)| cell(row, &view).unwrap_or_else(dash)));
            cells.push(line);
        }
    }
    write_table(out, &header, cells, &right, of)?;
    for (name, node) in nodes {
        let name = escape::terminal(name);
        let node = match node {
            Ok(node) => node,
            Err(why) => {
                writeln!(out, "{name}: {}", escape::terminal(why))?;
                continue;
            }
        };
        let budget = budget(&node.rows, &node.view(of));
        for gpu in &node.topology.gpus {
            if budget.pools(gpu).iter().any(PoolUse::oversubscribed) {
                writeln!(out, "{name}: {}", budget.line(gpu))?;
            }
        }
        if !node.all_queues {
            writeln!(out, "{name}: not all queues are known")?;
        }
        node.problems
            .iter()
            .try_for_each(|problem| writeln!(out, "{name}: {}", escape::terminal(problem)))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Node<'a> {
    node: &'a str,
    /// Why nothing is known of it; `null` where it answered.
    error: Option<&'a str>,
    /// `null` where it did not answer.
    ps: Option<PsDocument<'a>>,
    all_queues: Option<bool>,
    problems: &'a [String],
}

/// Writes one object: `nodes`, each with the object of `kfd-trace ps --json`, or an `error`.
///
/// # Errors
/// Those of `out`.
pub fn json(out: &mut impl Write, nodes: &[Asked]) -> io::Result<()> {
    // Node by node: the whole may be hundreds of megabytes.
    write!(out, "{{\"schema\":{SCHEMA},\"nodes\":[")?;
    for (number, (name, node)) in nodes.iter().enumerate() {
        if number > 0 {
            write!(out, ",")?;
        }
        let known = node.as_ref().ok();
        let row = Node {
            node: name,
            error: node.as_ref().err().map(String::as_str),
            ps: known.map(|node| document(&node.rows, &node.view(Columns::All), node.ts.clone())),
            all_queues: known.map(|node| node.all_queues),
            problems: known.map_or(&[], |node| &node.problems),
        };
        escape::json(&mut *out, &row)?;
    }
    writeln!(out, "]}}")
}
