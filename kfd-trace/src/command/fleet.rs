//! `kfd-trace fleet ps`: what the daemons of many nodes know, in one table.

use super::ps::{Printed, reported, width};
use crate::output::ps::Columns;
use crate::output::ps::fleet::{self, Asked, NodeRows};
use crate::remote::{Access, Client};
use crate::runtime::exit::Stop;
use crate::runtime::stderr::say;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Whom to ask, and how it is printed.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    pub nodes: Vec<Access>,
    /// Nodes that are asked at the same time.
    pub connections: usize,
    pub json: bool,
    pub wide: bool,
}

/// Prints the table of those that answer, and says which do not.
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
        (silent, all) => Err(Stop::failed(format!("{silent} of {all} nodes are not in the list: see above"))),
    }
}

/// All of them, in their order. Says at once what is wrong with a node.
async fn ask(nodes: Vec<Access>, connections: usize) -> Vec<Asked> {
    let (turns, mut asking) = (Arc::new(Semaphore::new(connections)), JoinSet::new());
    for (number, access) in nodes.into_iter().enumerate() {
        let turns = Arc::clone(&turns);
        asking.spawn(async move {
            // It is never closed.
            let _turn = turns.acquire().await;
            (number, one(access).await)
        });
    }
    let mut all: Vec<(usize, Asked)> = asking.join_all().await;
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, asked)| asked).collect()
}

async fn one(access: Access) -> Asked {
    let name = access.target.place();
    let node = match reported(&mut Client::new(access.clone())).await {
        Ok(Printed { rows, topology, all_queues, ts, .. }) => Ok(NodeRows { rows, topology, all_queues, ts }),
        Err(failure) => {
            say(failure.stop(&access).line);
            Err(failure.what())
        }
    };
    (name, node)
}
