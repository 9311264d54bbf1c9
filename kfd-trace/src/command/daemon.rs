//! `kfd-trace daemon`: traces until SIGTERM, and serves what it knows.
//!
//! Where the driver is not loaded yet, or not any more, it waits for it and says so. Its pages answer from the start.

use super::driver::UNLOADED;
use super::site::{Page, Serving};
use super::stop::{NOTHING_TO_TRACE, Stop};
use super::tracer::{Request, Tracer};
use super::under_way::UnderWay;
use crate::events::ring::Ring;
use crate::kernel::Roots;
use crate::output::{http, status};
use crate::probes::plan::Choice;
use crate::state::StateLimits;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// How often a driver that is not there yet is looked for.
const WAIT: Duration = Duration::from_secs(2);

/// How often ended processes are forgotten, and it is asked whether the driver has gone, and whether to look at its lists
/// ([`UnderWay::tick`]).
const TIDY: Duration = Duration::from_secs(1);

/// What the daemon is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    pub roots: Roots,
    pub listen: Vec<SocketAddr>,
    pub max_processes: usize,
    pub ring_bytes: u32,
    pub choice: Choice,
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// One line and an exit code.
pub async fn run(ask: &Ask) -> Result<(), Stop> {
    let cannot = |error: std::io::Error| Stop::failed(format!("cannot go on: {error}"));
    let mut signals = Signals {
        terminate: signal(SignalKind::terminate()).map_err(cannot)?,
        interrupt: signal(SignalKind::interrupt()).map_err(cannot)?,
    };
    let listeners = http::bind(&ask.listen).await.map_err(Stop::failed)?;
    for listener in &listeners {
        if let Ok(address) = listener.local_addr() {
            eprintln!("kfd-trace: serving http://{address}/metrics");
        }
    }
    let page = Arc::new(Page::new(ask.roots.clone(), ask.max_processes));
    let (stop, mut stopped) = watch::channel(false);
    let server = tokio::spawn(http::serve(listeners, page.clone(), async move {
        // An error means that the sender is gone, which is a stop, too.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }));
    let traced = trace(ask, &page, &mut signals).await;
    stop.send_replace(true);
    let served = server.await;
    traced?;
    served.map_err(Stop::failed)?.map_err(cannot)?;
    eprintln!("kfd-trace: stopped");
    Ok(())
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    async fn any(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn trace(ask: &Ask, page: &Page, signals: &mut Signals) -> Result<(), Stop> {
    let request = Request {
        roots: ask.roots.clone(),
        ioctl_records: false,
        pids: Vec::new(),
        ring_bytes: ask.ring_bytes,
        choice: ask.choice.clone(),
        limits: StateLimits::default(),
    };
    let mut tracer = Tracer::new(&request);
    let mut told = false;
    while let Some(ring) = wait(&mut tracer, told, page, signals).await? {
        for line in status::meaning(tracer.probes()) {
            eprintln!("kfd-trace: {line}");
        }
        page.serves(Serving { tracer, ring_bytes: ask.ring_bytes });
        eprintln!("kfd-trace: tracing");
        if follow(page, ring, signals).await? == Followed::Signal {
            return Ok(());
        }
        let Some(serving) = page.waits_for(UNLOADED) else { return Ok(()) };
        tracer = serving.tracer;
        eprintln!("kfd-trace: {UNLOADED}; waiting for it");
        told = true;
    }
    Ok(())
}

/// Attaches the tracer, as soon as there is a driver. `told`: it was said that it is waited for. `None` after a signal.
async fn wait(
    tracer: &mut Tracer,
    mut told: bool,
    page: &Page,
    signals: &mut Signals,
) -> Result<Option<Ring>, Stop> {
    loop {
        match tracer.attach() {
            Ok(ring) => return Ok(Some(ring)),
            Err(stop) if stop.code == NOTHING_TO_TRACE => {
                if !told {
                    eprintln!("kfd-trace: {stop}; waiting for it");
                    told = true;
                }
                page.waits_for(&stop.line);
            }
            Err(stop) => return Err(stop),
        }
        tokio::select! {
            () = sleep(WAIT) => {}
            () = signals.any() => return Ok(None),
        }
    }
}

/// Why a tracer is not followed any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Followed {
    Signal,
    /// The driver was unloaded, and what it left was taken in.
    Unloaded,
}

async fn follow(page: &Page, mut ring: Ring, signals: &mut Signals) -> Result<Followed, Stop> {
    let mut tidy = interval(TIDY);
    // After a stop, one tick is enough.
    tidy.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut records = Vec::new();
    let mut look = UnderWay::default();
    loop {
        let (mut seen, mut unloaded) = (None, false);
        tokio::select! {
            read = ring.read(&mut records) => read.map_err(|error| Stop::failed(format!("ring buffer: {error}")))?,
            _ = tidy.tick() => {
                unloaded = page.with_tracer(|tracer| tracer.driver_has_gone()).unwrap_or(false);
                if unloaded {
                    ring.drain(&mut records);
                } else {
                    page.with_tracer(|tracer| tidy_up(tracer, &mut look)).transpose()?;
                }
            }
            finished = look.seen() => {
                seen = Some(finished.map_err(Stop::failed)?);
                ring.drain(&mut records);
            }
            () = signals.any() => return Ok(Followed::Signal),
        }
        page.with_tracer(|tracer| {
            for record in &records {
                tracer.take_in(record);
            }
            records.clear();
            if let Some(seen) = seen {
                tracer.reconcile(seen);
            }
            if unloaded {
                tracer.let_go();
            }
        });
        if unloaded {
            return Ok(Followed::Unloaded);
        }
    }
}

fn tidy_up(tracer: &mut Tracer, look: &mut UnderWay) -> Result<(), Stop> {
    tracer.renew_clock();
    tracer.expire()?;
    look.tick(tracer);
    Ok(())
}
