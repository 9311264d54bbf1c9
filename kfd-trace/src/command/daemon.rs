//! `kfd-trace daemon`: traces until SIGTERM, and serves the results.
//!
//! If the driver is not loaded yet, or not any more, it waits for it and logs this. Its pages respond from
//! the start, also while probes are attached or detached, which takes the kernel seconds.

mod export;
mod past;
mod recording;

use crate::events::ring::Ring;
use crate::kernel::Roots;
use crate::kernel::findings::of_who_waits;
use crate::model::selected::Selected;
use crate::otlp;
use crate::output::metrics::Detail;
use crate::output::status;
use crate::probes::plan::Choice;
use crate::probes::session::Session;
use crate::recording::FolderLimits;
use crate::runtime::code;
use crate::runtime::confine::Seccomp;
use crate::runtime::exit::{NOTHING_TO_TRACE, Stop};
use crate::runtime::privilege::{self, Reads};
use crate::runtime::signals::{Hangups, Signals};
use crate::runtime::stderr::say;
use crate::runtime::systemd::Supervisor;
use crate::runtime::ticks::Turns;
use crate::serve::shared::{Serving, SharedPage};
use crate::serve::web::listen;
use crate::serve::web::settings::{Settings, SettingsSource};
use crate::serve::web_process::{self, WebServer};
use crate::state::{History, StateLimits};
use crate::tracer::driver::{self, UNLOADED};
use crate::tracer::engine::{TraceRequest, Tracer};
use crate::tracer::follow::{Follow, Happened, TURN};
use crate::tracer::history;
use crate::tracer::waiting::Waiting;
use export::Export;
use past::PastReading;
use recording::Recording;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// For a user that sends SIGHUP, as to a daemon that then reads its files again.
const NOTHING_TO_LOAD: &str = "SIGHUP: there is nothing to load again; the web configuration is read by itself when it changes, \
                               and options take a restart";

/// What is requested of the daemon.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    pub roots: Roots,
    /// `None`: on the sockets that systemd passes.
    pub listen: Option<Vec<SocketAddr>>,
    pub web_config: Option<PathBuf>,
    /// Of `/-/healthy` and `/-/ready` alone.
    pub health: Vec<SocketAddr>,
    pub allowed_hosts: Vec<String>,
    pub detail: Detail,
    pub ring_bytes: u32,
    /// Interval between samples of queues; zero for none.
    pub sample: Duration,
    pub choice: Choice,
    /// `None`: nothing is recorded.
    pub record: Option<FolderLimits>,
    /// `None`: nothing is exported.
    pub otlp: Option<otlp::Settings>,
    pub seccomp: Seccomp,
}

/// Runs until SIGTERM or SIGINT; SIGHUP changes nothing.
///
/// # Errors
/// One line and an exit code.
pub async fn run(options: &DaemonOptions) -> Result<(), Stop> {
    let cannot = |error: std::io::Error| Stop::failed(format!("cannot continue: {error}"));
    let mut signals = Signals::of_a_daemon().map_err(cannot)?;
    let hangups = Hangups::new().map_err(cannot)?;
    tokio::spawn(hangups.each(|| say(NOTHING_TO_LOAD)));
    let listeners = match &options.listen {
        Some(addresses) => listen::bind(addresses, "--web.listen-address").map_err(Stop::failed)?,
        None => listen::from_systemd().map_err(Stop::failed)?,
    };
    let health = listen::bind(&options.health, "--web.health-address").map_err(Stop::failed)?;
    // A low port may require one of them.
    let reads = Reads {
        tracefs: options.choice.tracepoints,
        return_events: true,
        memory: !options.sample.is_zero(),
        changes_user: true,
        ..Reads::default()
    };
    privilege::give_up(&options.roots, reads)?;
    // After that, so that what can be read now can be read again.
    let configured =
        options.web_config.as_deref().map(SettingsSource::open).transpose().map_err(Stop::failed)?;
    let plain = Settings::default();
    let settings = configured.as_ref().map_or(&plain, |(_, loaded)| &loaded.settings);
    let addresses = |listeners: &[TcpListener]| -> Vec<SocketAddr> {
        listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect()
    };
    let (served, checked) = (addresses(&listeners), addresses(&health));
    let scheme = settings.scheme();
    let exposed: Vec<String> =
        served.iter().filter_map(|address| listen::exposed(*address, settings)).collect();
    let page = Arc::new(SharedPage::new(options.roots.clone(), options.detail));
    let mut recording = options.record.as_ref().map(Recording::start).transpose()?;
    recording.iter().for_each(|recording| page.records(recording.watch()));
    let mut export =
        options.otlp.as_ref().map(|settings| Export::start(settings, &options.roots)).transpose()?;
    export.iter().for_each(|export| export.join(&page));
    let allowed_hosts = options.allowed_hosts.clone();
    let seccomp = options.seccomp;
    let server = WebServer { listeners, health, allowed_hosts, configured, source: page.clone(), seccomp };
    let mut server = web_process::start(server).map_err(cannot)?;
    let mut supervisor = Supervisor::from_env(page.turned(), server.turned());
    let traced = match unless(&mut signals, server.started()).await {
        None => Ok(()),
        Some(Err(error)) => Err(cannot(error)),
        Some(Ok(())) => {
            for address in served {
                say(format_args!("serving {scheme}://{address}/metrics"));
            }
            for address in checked {
                say(format_args!("serving http://{address}/-/healthy"));
            }
            exposed.iter().for_each(|line| log::warn!("{line}"));
            let past =
                options.record.as_ref().map(|limits| PastReading::start(&limits.folder, &options.roots));
            let past = past.unwrap_or_default();
            let kept = Kept { past, recording: recording.as_mut(), export: export.as_mut() };
            trace(options, &page, &mut signals, &mut supervisor, kept).await
        }
    };
    supervisor.stopping();
    if let Some(export) = &mut export {
        page.with_history(|tracer, history| export.detached(tracer, history));
    }
    if let Some(mut recording) = recording {
        page.with_tracer(|tracer| recording.save(tracer));
        recording.finish();
    }
    // Last, since a collector may be slow.
    export.into_iter().for_each(Export::finish);
    let served = server.stop().await;
    // The process does not wait for a thread that still answers a request and holds the page: nothing else would detach then.
    page.with_tracer(Tracer::detach);
    traced?;
    served.map_err(cannot)?;
    say("stopped");
    Ok(())
}

/// An ended process is kept for as long as its series are exported, and never for less than the rules of the
/// state require.
fn limits(detail: &Detail) -> StateLimits {
    let limits = StateLimits::default();
    StateLimits { linger_ns: limits.linger_ns.max(detail.linger_ns()), ..limits }
}

/// Where what is traced is kept beside the history.
struct Kept<'k> {
    past: PastReading,
    recording: Option<&'k mut Recording>,
    export: Option<&'k mut Export>,
}

impl Kept<'_> {
    /// The tracer was attached, and what it found was added to its state and to the history.
    fn attached(&mut self, tracer: &mut Tracer, history: &mut History) {
        if let Some(recording) = &mut self.recording {
            recording.attached(tracer);
        }
        if let Some(export) = &mut self.export {
            export.attached(tracer, history);
        }
    }

    /// The driver was unloaded, and what ended with it was added.
    fn unloaded(&mut self, tracer: &mut Tracer, history: &mut History) {
        if let Some(recording) = &mut self.recording {
            recording.unloaded(tracer);
        }
        if let Some(export) = &mut self.export {
            export.detached(tracer, history);
        }
    }

    /// To be called after all that changes the tracer or the history, and at least once a second.
    fn save(&mut self, tracer: &mut Tracer, history: &mut History) {
        if let Some(recording) = &mut self.recording {
            recording.save(tracer);
        }
        if let Some(export) = &mut self.export {
            export.save(tracer, history);
        }
    }
}

async fn trace(
    options: &DaemonOptions,
    page: &SharedPage,
    signals: &mut Signals,
    supervisor: &mut Supervisor,
    mut kept: Kept<'_>,
) -> Result<(), Stop> {
    let request = TraceRequest {
        roots: options.roots.clone(),
        ioctl_records: false,
        selected: Selected::All,
        ring_bytes: options.ring_bytes,
        choice: options.choice.clone(),
        sample: options.sample,
        limits: limits(&options.detail),
    };
    let (mut tracer, mut over) = (Tracer::new(&request), None);
    if kept.recording.is_some() {
        tracer.state.start_tape();
    }
    let mut waiting = Waiting::default();
    loop {
        let past = &mut kept.past;
        let waited = wait(tracer, over, waiting, page, signals, supervisor, past).await?;
        let Some((attached, ring)) = waited else { return Ok(()) };
        tracer = attached;
        for line in status::meaning(tracer.probes()) {
            say(line);
        }
        let follow = Follow::new(ring, &tracer, TURN);
        let mut follow = follow.map_err(|error| Stop::failed(format!("cannot continue: {error}")))?;
        kept.past.finish(page, &mut follow).await;
        page.serves(Serving { tracer, ring_bytes: options.ring_bytes });
        page.with_history(|tracer, history| {
            kept.past.goes_on(tracer, history);
            history::begins(tracer, history);
            kept.attached(tracer, history);
        });
        say("tracing");
        supervisor.up("tracing");
        code::let_go();
        match followed(page, follow, signals, supervisor, &mut kept).await? {
            Followed::Signal => return Ok(()),
            Followed::Unloaded(session) => {
                over = session;
                let Some(serving) = page.waits_for(UNLOADED) else { return Ok(()) };
                tracer = serving.tracer;
                let line = format!("{UNLOADED}; waiting for it");
                say(&line);
                supervisor.up(line);
                waiting = Waiting::new(driver::absence(&options.roots));
            }
            Followed::Refuted(session) => {
                over = session;
                let Some(serving) = page.waits_for(REFUTED) else { return Ok(()) };
                tracer = serving.tracer;
                waiting = Waiting::default();
            }
        }
    }
}

/// Attaches the tracer as soon as there is a driver. `over`: the session that is detached first. `None` after
/// a signal.
///
/// # Errors
/// If it was never attached, and cannot be: what ran once is worth retrying.
async fn wait(
    mut tracer: Tracer,
    mut over: Option<Box<Session>>,
    mut waiting: Waiting,
    page: &SharedPage,
    signals: &mut Signals,
    supervisor: &mut Supervisor,
    past: &mut PastReading,
) -> Result<Option<(Tracer, Ring)>, Stop> {
    loop {
        let session = over.take();
        let attempt = spawn_blocking(move || {
            drop(session);
            let attached = tracer.attach();
            (tracer, attached)
        });
        // If a signal comes first, the attempt ends with the program.
        let Some(done) = supervisor.beside(unless(signals, attempt)).await else { return Ok(None) };
        let attached;
        (tracer, attached) = done.map_err(Stop::failed)?;
        let stop = match attached {
            Ok(ring) => return Ok(Some((tracer, ring))),
            Err(stop) if stop.code != NOTHING_TO_TRACE && tracer.driver_loads == 0 => return Err(stop),
            Err(stop) => stop,
        };
        let absent = stop.line;
        let stop = Stop { line: of_who_waits(&absent), ..stop };
        if let Some(line) = waiting.message(&stop) {
            say(&line);
            supervisor.up(line);
        }
        page.waits_for(&stop.line);
        // As long as the driver is absent for this same reason. The files that show it are few: no other thread wakes up
        // for them.
        let mut looks = Turns::each(waiting.pause(&stop));
        loop {
            // What is not traced now may have been before.
            let pause = past.shown_beside(page, looks.next());
            if supervisor.beside(unless(signals, pause)).await.is_none() {
                return Ok(None);
            }
            if driver::absence(&tracer.roots).as_deref() != Some(&*absent) {
                break;
            }
            page.drop_old();
        }
    }
}

/// `None`: a signal came first.
async fn unless<T>(signals: &mut Signals, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        done = work => Some(done),
        () = signals.any() => None,
    }
}

/// Shown on the page while probes are attached again.
const REFUTED: &str = "the driver contradicts its types: probes are attached without them";

/// Why a tracer is no longer followed.
enum Followed {
    Signal,
    /// The driver was unloaded, and what it left was processed; the session must be detached.
    Unloaded(Option<Box<Session>>),
    /// The driver contradicts its types; the session must be detached.
    Refuted(Option<Box<Session>>),
}

async fn followed(
    page: &SharedPage,
    mut follow: Follow,
    signals: &mut Signals,
    supervisor: &mut Supervisor,
    kept: &mut Kept<'_>,
) -> Result<Followed, Stop> {
    loop {
        let happened = follow.next(&mut &*page, signals).await?;
        page.drop_old();
        if matches!(happened, Happened::Signal) {
            // What happened before it belongs to what is kept.
            follow.drain();
        }
        let over = page.with_history(|tracer, history| {
            tracer.renew_clock();
            history::records(tracer, history, &follow.records);
            follow.records.clear();
            let over = match happened {
                Happened::Records => None,
                Happened::Signal => Some(Followed::Signal),
                Happened::Listed(seen) => {
                    let reported = tracer.reconcile(*seen);
                    history::reported(tracer, history, &reported);
                    None
                }
                Happened::Sampled(pass) => {
                    follow.sampled(tracer, &pass);
                    page.sampled(tracer);
                    None
                }
                Happened::DriverGone => {
                    let session = history::driver_unloaded(tracer, history);
                    kept.unloaded(tracer, history);
                    Some(Followed::Unloaded(session.map(Box::new)))
                }
                Happened::TypesRefuted(why) => {
                    if let Some(export) = &mut kept.export {
                        export.detached(tracer, history);
                    }
                    Some(Followed::Refuted(tracer.types_refuted(why).map(Box::new)))
                }
            };
            kept.save(tracer, history);
            over
        });
        if let Some(over) = over.flatten() {
            return Ok(over);
        }
        supervisor.alive();
    }
}

#[cfg(test)]
mod tests;
