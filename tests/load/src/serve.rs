//! The pages of 500 processes and 10,000 queues: served as the daemon serves them, until standard input ends, and what
//! they cost.

use crate::load::Scraped;
use crate::memory;
use crate::region::region;
use crate::world::{self, Daemon, NODE};
use anyhow::{Context as _, Result, ensure};
use kfd_trace::kernel::Roots;
use kfd_trace::output::api::{Refusal, Resource};
use kfd_trace::output::metrics::{Detail, Format};
use kfd_trace::output::page::Place;
use kfd_trace::runtime::confine::Seccomp;
use kfd_trace::serve::question::PageSource;
use kfd_trace::serve::shared::{Serving, SharedPage};
use kfd_trace::serve::web_process::{self, WebServer};
use kfd_trace::tracer::engine::Tracer;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tempfile::TempDir;

/// The daemon's own, but for the maps and probes, which no tracer without a driver has.
struct Pages {
    shared: SharedPage,
    scraped: Scraped,
    /// Without its state, which is the tracer's.
    daemon: Mutex<Daemon>,
}

impl PageSource for Pages {
    fn metrics(&self, format: Format) -> Result<String, String> {
        let snapshot = self.shared.with_tracer(|tracer| tracer.state.snapshot()).ok_or("no tracer")?;
        let daemon = self.daemon.lock().unwrap_or_else(PoisonError::into_inner);
        self.scraped.text(&daemon, &snapshot, format).map_err(|error| error.to_string())
    }

    fn page(&self, place: Place, pairs: &[(String, String)]) -> Result<String, Refusal> {
        self.shared.page(place, pairs)
    }

    fn api(&self, resource: Resource, pairs: &[(String, String)]) -> Result<String, Refusal> {
        self.shared.api(resource, pairs)
    }

    fn ready(&self) -> Result<(), String> {
        self.shared.ready()
    }

    fn healthy(&self) -> Result<(), String> {
        Ok(())
    }
}

/// What the daemon's pages are made of.
struct Node {
    shared: SharedPage,
    daemon: Daemon,
    /// Its /proc.
    _host: TempDir,
}

impl Node {
    fn new() -> Result<Self> {
        let host = world::host(NODE)?;
        let roots = Roots::under(host.path());
        let detail = Detail {
            processes: Some(NODE.processes),
            new_processes: 1000,
            queues: None,
            linger: Duration::from_secs(300),
        };
        let shared = SharedPage::new(roots.clone(), detail);
        shared.serves(Serving { tracer: Tracer::idle(&roots), ring_bytes: 0 });
        let mut daemon = Daemon::new(&roots);
        shared
            .with_history(|tracer, history| {
                memory::fill(&mut daemon, history);
                std::mem::swap(&mut tracer.state, &mut daemon.state);
            })
            .context("no tracer")?;
        Ok(Node { shared, daemon, _host: host })
    }
}

/// Documents of the API.
pub(crate) fn api() -> Result<()> {
    let node = Node::new()?;
    let lists = [
        (Resource::Queues, "queues", NODE.queues, "queue"),
        (Resource::Processes, "processes", NODE.processes, "process"),
    ];
    for (resource, name, count, unit) in lists {
        let case = format!("api.{name}.{}_queues", NODE.queues);
        let text = region(&case, count, unit, || node.shared.api(resource, &[]));
        ensure!(text.is_ok_and(|text| text.len() > 100 * count), "no {name}");
    }
    Ok(())
}

pub(crate) fn run() -> Result<()> {
    let Node { shared, daemon, _host } = Node::new()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    // Else the thread that serves waits in accept.
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let pages = Pages { shared, scraped: Scraped::new(NODE), daemon: Mutex::new(daemon) };
    // What generating all this took is not the daemon's.
    memory::forget_peak()?;
    let mut server = web_process::start(WebServer {
        listeners: vec![listener],
        health: Vec::new(),
        allowed_hosts: Vec::new(),
        configured: None,
        source: Arc::new(pages),
        seccomp: Seccomp::Required,
    })?;
    tokio::runtime::Builder::new_current_thread().build()?.block_on(server.started())?;
    eprintln!("serving http://{address}/metrics");
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
