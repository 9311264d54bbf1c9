//! `kfd-trace fleet ps`: what the daemons of many nodes know, in one table.

use super::ps::{Printed, reported, width};
use crate::output::ps::fleet::{self, Asked, NodeRows};
use crate::output::ps::{Columns, PsRow};
use crate::remote::{Access, AccessOptions, Client, Listed};
use crate::runtime::exit::Stop;
use crate::text::count::counted;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use tokio::sync::{Semaphore, oneshot};

/// Bytes of a node's documents together, some 8,000 queues. As many nodes as are asked at the same time have them at once.
const ANSWER: usize = 8 << 20;

/// Bytes of what is kept of all nodes, with the tables that are made of it.
const KEPT: usize = 512 << 20;

type Job = Box<dyn FnOnce() + Send>;

/// What all nodes share of the memory.
struct Shared {
    turns: Semaphore,
    /// Work of the one thread that reads documents: rows that have nothing in them take a hundred times their text, and
    /// an allocator keeps for each thread what it once had.
    jobs: Sender<Job>,
    /// Bytes that are kept.
    kept: AtomicUsize,
}

impl Shared {
    fn new(connections: usize) -> Self {
        let (jobs, todo) = channel::<Job>();
        // One that panics has no result, and the others go on.
        let run = |job: Job| drop(catch_unwind(AssertUnwindSafe(job)));
        thread::spawn(move || todo.into_iter().for_each(run));
        Shared { turns: Semaphore::new(connections), jobs, kept: AtomicUsize::new(0) }
    }

    /// Does it in the thread that reads.
    async fn read<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
        let (done, result) = oneshot::channel();
        let job = move || drop(done.send(job()));
        // Without a thread there is no result below.
        let _ = self.jobs.send(Box::new(job));
        result.await.map_err(|_| "its answer cannot be read".to_owned())
    }

    /// Whether there is room for so many bytes more.
    fn keep(&self, bytes: usize) -> Result<(), String> {
        let kept = |kept: usize| kept.checked_add(bytes).filter(|sum| *sum <= KEPT);
        match self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, kept) {
            Ok(_) => Ok(()),
            Err(_) => Err(format!("all nodes together take more than {} MiB: ask fewer at once", KEPT >> 20)),
        }
    }
}

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
    let shared = Arc::new(Shared::new(connections));
    let begin = |node: Node| {
        let shared = Arc::clone(&shared);
        let name = match &node {
            Ok(access) => access.target.place(),
            Err((name, _)) => name.clone(),
        };
        let asking = tokio::spawn(async move {
            let access = node.map_err(|(_, why)| why)?;
            one(access, &shared).await
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

async fn one(access: Access, shared: &Arc<Shared>) -> Result<NodeRows, String> {
    // They are never closed.
    let _turn = shared.turns.acquire().await;
    let mut client = Client::new(access.clone()).at_most(ANSWER);
    let (status, lists) = client.status_and_lists().await.map_err(|failure| failure.advised(&access))?;
    let keeper = Arc::clone(shared);
    // What there is no room for is dropped before the next node's documents are read.
    let read = move || {
        let printed = reported(&status, &lists).map_err(|failure| failure.advised(&access))?;
        keeper.keep(printed.rows.iter().map(PsRow::weight).sum())?;
        Ok::<Printed, String>(printed)
    };
    let Printed { rows, topology, all_queues, ts, problems, .. } = shared.read(read).await??;
    Ok(NodeRows { rows, topology, all_queues, ts, problems })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_leaves_that_of_others() {
        let shared = Shared::new(1);
        assert!(shared.keep(KEPT - 100).is_ok());
        for _ in 0..3 {
            let why = shared.keep(101).expect_err("too much");
            assert!(why.contains("more than 512 MiB"), "{why}");
        }
        assert!(shared.keep(usize::MAX).is_err());
        assert!(shared.keep(100).is_ok(), "a small node after large ones");
        assert!(shared.keep(1).is_err());
    }
}
