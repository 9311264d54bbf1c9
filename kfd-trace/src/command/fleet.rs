//! `kfd-trace fleet ps`: what the daemons of many nodes know, in one table.

use super::ps::{Printed, reported, width};
use crate::output::ps::Columns;
use crate::output::ps::fleet::{self, Asked, NodeRows};
use crate::remote::{Access, AccessOptions, Client, Listed};
use crate::runtime::exit::Stop;
use crate::text::count::counted;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// Bytes of an answer at most: some 8,000 queues. Many nodes are kept at the same time.
const ANSWER: usize = 8 << 20;

/// Rows of all nodes at most, some 400 MB.
const ROWS: usize = 500_000;

/// A node, or the name of what is none, and why.
pub type Node = Result<Access, (String, String)>;

/// Whom to ask, and how it is printed.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub nodes: Vec<Node>,
    /// Nodes that are asked at the same time.
    pub connections: usize,
    pub json: bool,
    pub wide: bool,
}

/// How each node of a list is reached.
///
/// # Errors
/// As [`AccessOptions::each`].
pub fn reach(listed: Vec<Listed>, way: &AccessOptions) -> Result<Vec<Node>, Stop> {
    let targets = listed.iter().filter_map(|node| node.as_ref().ok().cloned()).collect();
    let mut reached = way.each(targets)?.into_iter();
    Ok(listed.into_iter().filter_map(|node| node.map(|_| reached.next()).transpose()).collect())
}

/// Prints the table of those that answer, and which do not.
///
/// # Errors
/// If one does not, or the output cannot be written.
pub async fn run(options: FleetOptions) -> Result<(), Stop> {
    let FleetOptions { nodes, connections, json, wide } = options;
    let asked = ask(nodes, connections).await;
    let columns = if wide { Columns::All } else { Columns::Usual { width: width() } };
    let mut out = io::stdout().lock();
    let written = if json { fleet::json(&mut out, &asked) } else { fleet::text(&mut out, &asked, columns) };
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(Stop::failed(error)),
        _ => {}
    }
    let silent = asked.iter().filter(|(_, node)| node.is_err()).count();
    match (silent, asked.len()) {
        (0, _) => Ok(()),
        (silent, all) => Err(Stop::failed(format!(
            "{silent} of {} gave no answer: the list says which",
            counted(all, "node", "nodes")
        ))),
    }
}

/// All of them, in their order.
async fn ask(nodes: Vec<Node>, connections: usize) -> Vec<Asked> {
    let (turns, rows) = (Arc::new(Semaphore::new(connections)), Arc::new(AtomicUsize::new(0)));
    let begin = |node: Node| {
        let (turns, rows) = (Arc::clone(&turns), Arc::clone(&rows));
        let name = match &node {
            Ok(access) => access.target.place(),
            Err((name, _)) => name.clone(),
        };
        let asking = tokio::spawn(async move {
            let access = node.map_err(|(_, why)| why)?;
            // It is never closed.
            let _turn = turns.acquire().await;
            one(access, &rows).await
        });
        (name, asking)
    };
    let begun: Vec<_> = nodes.into_iter().map(begin).collect();
    let mut all = Vec::with_capacity(begun.len());
    for (name, asking) in begun {
        let node = asking.await.unwrap_or_else(|_| Err("its answer cannot be read".to_owned()));
        all.push((name, node));
    }
    all
}

async fn one(access: Access, all_rows: &AtomicUsize) -> Result<NodeRows, String> {
    let mut client = Client::new(access.clone()).at_most(ANSWER);
    let Printed { rows, topology, all_queues, ts, problems, .. } =
        reported(&mut client).await.map_err(|failure| failure.advised(&access))?;
    if all_rows.fetch_add(rows.len(), Ordering::Relaxed) > ROWS {
        return Err(format!("there are more than {ROWS} rows: ask fewer nodes at once"));
    }
    Ok(NodeRows { rows, topology, all_queues, ts, problems })
}
