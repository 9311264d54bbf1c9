//! The tracer's side: starts the web server's process, configures it, answers it, and starts it again where it ended
//! by itself.

use super::control::{Orders, send_files, send_orders, wait_started};
use super::lane;
use super::watch::{Ended, Watch};
use crate::runtime::beat::Beat;
use crate::runtime::confine::log::Log;
use crate::runtime::confine::{self, Seccomp};
use crate::serve::budget::Budget;
use crate::serve::question::{LANES, PageSource};
use crate::serve::web::settings::{Files, Loaded, SettingsSource, follow};
use crate::serve::web::{GRACE, listen};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::time::timeout;

/// Pause before a process that has ended is started again; each further pause is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One that has run for this long is started again after the shortest pause.
const RAN: Duration = Duration::from_secs(60);

/// How long it may take beyond the requests in progress.
const MARGIN: Duration = Duration::from_secs(2);

/// What a configuration may take to be read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The process's name in the log.
const NAME: &str = "kfd-trace-web";

/// What is served.
pub struct WebServer {
    pub listeners: Vec<TcpListener>,
    /// For `/-/healthy` and `/-/ready` alone.
    pub health: Vec<TcpListener>,
    pub allowed_hosts: Vec<String>,
    pub configured: Option<(SettingsSource, Loaded)>,
    pub source: Arc<dyn PageSource>,
    pub seccomp: Seccomp,
}

struct Shared {
    current: Mutex<Current>,
    stop: Condvar,
    /// Readable once the stop is requested.
    stopping: OwnedFd,
    /// The supervisor's loop.
    turned: Beat,
}

#[derive(Default)]
struct Current {
    stopping: bool,
    /// Of the running process.
    control: Option<UnixStream>,
    /// A process that has not started yet is connected by this.
    starting: Option<UnixStream>,
    /// Number of the running process.
    process: u64,
    /// What is in force.
    files: Option<Files>,
}

impl Shared {
    fn new() -> io::Result<Self> {
        let stopping = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Shared { current: Mutex::default(), stop: Condvar::new(), stopping, turned: Beat::default() })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts these in force, also for a process that is started later.
    fn replace(&self, files: &Files) {
        let (process, control, sent) = {
            let mut current = self.current();
            let sent = current.files.replace(files.clone());
            (current.process, current.control.take(), sent)
        };
        // Without one, who starts the process sends them.
        let done = control.map_or(Ok(()), |control| self.keeps(process, control, sent));
        if let Err(error) = done {
            // A part may have been written: the end of its control makes the process start again with the whole.
            log::error!("the web server's process does not take its configuration: {error}");
        }
    }

    /// Keeps the control of a process once the process has what is in force; `sent`: what it has. Not locked while
    /// it is written: a process that does not read must not block the others.
    fn keeps(&self, process: u64, mut control: UnixStream, mut sent: Option<Files>) -> io::Result<()> {
        loop {
            let newer = {
                let mut current = self.current();
                if current.process != process || current.stopping {
                    return Ok(());
                }
                if current.files == sent {
                    current.control = Some(control);
                    return Ok(());
                }
                current.files.clone()
            };
            if let Some(files) = &newer {
                send_files(&mut control, files)?;
            }
            sent = newer;
        }
    }

    /// The stop will find the control of a process that starts now.
    ///
    /// # Errors
    /// If the stop came before.
    fn starts(&self, control: &UnixStream) -> io::Result<()> {
        let mut current = self.current();
        if current.stopping {
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        current.starting = Some(control.try_clone()?);
        Ok(())
    }

    fn stop(&self) -> io::Result<()> {
        {
            let mut current = self.current();
            current.stopping = true;
            current.control = None;
            // Its start is waited for: this ends the wait, whatever the process does.
            let _ = current.starting.take().map(|starting| starting.shutdown(Shutdown::Both));
        }
        self.stop.notify_all();
        rustix::io::write(&self.stopping, &1_u64.to_ne_bytes())?;
        Ok(())
    }

    /// Whether to go on after this pause.
    fn pause(&self, pause: Duration) -> bool {
        let stopped = self.stop.wait_timeout_while(self.current(), pause, |current| !current.stopping);
        !stopped.unwrap_or_else(PoisonError::into_inner).0.stopping
    }
}

/// The running web server.
pub struct Running {
    shared: Arc<Shared>,
    started: oneshot::Receiver<io::Result<()>>,
    ended: oneshot::Receiver<()>,
    /// Its end ends the checks of the configuration.
    _follows: mpsc::Sender<()>,
}

/// Starts it: see [`Running::started`].
///
/// # Errors
/// If there is no thread or descriptor for it.
pub fn start(server: WebServer) -> io::Result<Running> {
    start_by(server, || confine::process("web-server"))
}

fn start_by(server: WebServer, program: impl Fn() -> Command + Send + 'static) -> io::Result<Running> {
    let WebServer { listeners, health, allowed_hosts, configured, source, seccomp } = server;
    let shared = Arc::new(Shared::new()?);
    let (_follows, end) = mpsc::channel();
    if let Some((source, Loaded { settings, files })) = configured {
        shared.current().files = Some(files);
        let shared = Arc::clone(&shared);
        let follow = move || follow(source, settings, &end, |files| shared.replace(&files));
        thread::Builder::new().name("web-config".to_owned()).spawn(follow)?;
    }
    let (ends, ended) = oneshot::channel();
    let (starts, started) = oneshot::channel();
    let sockets = listeners.iter().chain(&health);
    let addresses = sockets.map(TcpListener::local_addr).collect::<io::Result<_>>()?;
    let supervisor = Supervisor {
        listeners,
        health,
        addresses,
        allowed_hosts,
        source,
        seccomp,
        budgets: Arc::default(),
        shared: Arc::clone(&shared),
        program: Box::new(program),
    };
    thread::Builder::new().name("web".to_owned()).spawn(move || {
        supervisor.run(|first| drop(starts.send(first)));
        drop(ends);
    })?;
    Ok(Running { shared, started, ended, _follows })
}

impl Running {
    /// Waits until its process serves for the first time.
    ///
    /// # Errors
    /// If its process cannot be started.
    pub async fn started(&mut self) -> io::Result<()> {
        (&mut self.started).await.map_err(io::Error::other)?
    }

    /// The loop that keeps the web server's process running: it turns also while that one is started again.
    #[must_use]
    pub fn turned(&self) -> Beat {
        self.shared.turned.clone()
    }

    /// Completes requests in progress, for a few seconds at most; a process that hangs, or that has not started yet, is
    /// killed at once.
    ///
    /// # Errors
    /// If the kernel does not end its process: it does with this one.
    pub async fn stop(self) -> io::Result<()> {
        self.shared.stop()?;
        match timeout(GRACE + 2 * MARGIN, self.ended).await {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::other("the web server's process did not end in time")),
        }
    }
}

/// A process that serves, and its ends of the sockets between them.
struct Started {
    child: Child,
    lanes: [UnixStream; LANES],
    pulse: UnixStream,
    log: Log,
}

struct Supervisor {
    listeners: Vec<TcpListener>,
    health: Vec<TcpListener>,
    /// Addresses of listeners and health sockets.
    addresses: Vec<SocketAddr>,
    allowed_hosts: Vec<String>,
    source: Arc<dyn PageSource>,
    seccomp: Seccomp,
    /// What each lane may cost.
    budgets: Arc<[Budget; LANES]>,
    shared: Arc<Shared>,
    /// What runs [`super::run`].
    program: Box<dyn Fn() -> Command + Send>,
}

impl Supervisor {
    /// Runs until the stop, or until the first process could not be started. `first`: is called with its result.
    fn run(&self, first: impl FnOnce(io::Result<()>)) {
        let mut started = match self.spawn() {
            Ok(started) => {
                first(Ok(()));
                Ok(started)
            }
            Err(error) => return first(Err(error)),
        };
        let mut pause = PAUSE;
        loop {
            let begin = Instant::now();
            if started.is_err() && self.shared.current().stopping {
                return;
            }
            let (how, is_well) = match started.and_then(|started| self.serve(started)) {
                Ok(ended) => (ended.to_string(), ended.is_well()),
                Err(error) => (format!("cannot run: {error}"), false),
            };
            self.shared.turned.turn();
            let stopping = {
                let mut current = self.shared.current();
                current.control = None;
                current.stopping
            };
            if stopping {
                if !is_well {
                    log::error!("the web server's process {how} at the end");
                }
                return;
            }
            pause = if begin.elapsed() > RAN { PAUSE } else { pause };
            log::error!("the web server's process {how}; it is started again in {} s", pause.as_secs());
            if !self.shared.pause(pause) {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
            self.shared.turned.turn();
            self.restore();
            started = self.spawn();
        }
    }

    /// Has the sockets listen again that a process that was taken over has shut down.
    fn restore(&self) {
        let sockets = self.listeners.iter().chain(&self.health);
        for (listener, address) in sockets.zip(&self.addresses) {
            match listen::restore(listener, *address) {
                Ok(false) => {}
                Ok(true) => log::warn!("{address} did not listen any more, and does again"),
                Err(error) => {
                    log::error!("{address} does not listen any more: {error}; restart the daemon");
                }
            }
        }
    }

    fn spawn(&self) -> io::Result<Started> {
        let (mut control, theirs) = UnixStream::pair()?;
        control.set_write_timeout(Some(WRITE_TIMEOUT))?;
        let (log, stderr) = confine::log::pipe(NAME)?;
        self.shared.starts(&control)?;
        let mut command = (self.program)();
        // No descriptor but these and those that are sent: all others are closed by exec.
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(stderr);
        let mut child = command.spawn()?;
        drop(command);
        let streams = (|| {
            let ((ours, theirs), (pulse, their_pulse)) = (lane::pairs()?, UnixStream::pair()?);
            let (process, files) = {
                let mut current = self.shared.current();
                current.process += 1;
                (current.process, current.files.clone())
            };
            let orders = Orders {
                allowed_hosts: self.allowed_hosts.clone(),
                files,
                listeners: self.listeners.len(),
                seccomp: self.seccomp,
            };
            let sockets: Vec<&TcpListener> = self.listeners.iter().chain(&self.health).collect();
            send_orders(&mut control, &orders, &theirs, &their_pulse, &sockets)?;
            drop((theirs, their_pulse));
            wait_started(&mut control)?;
            self.shared.keeps(process, control, orders.files)?;
            Ok::<_, io::Error>((ours, pulse))
        })();
        self.shared.current().starting = None;
        match streams {
            Ok((lanes, pulse)) => Ok(Started { child, lanes, pulse, log }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                log.finish();
                Err(error)
            }
        }
    }

    /// Answers until it has ended. The threads that answer see that by themselves, after what they do then.
    fn serve(&self, Started { mut child, lanes, pulse, log }: Started) -> io::Result<Ended> {
        let answering = lanes.into_iter().enumerate().try_for_each(|(number, stream)| {
            let (source, budgets) = (Arc::clone(&self.source), Arc::clone(&self.budgets));
            let answer = move || lane::answer(stream, &*source, &budgets[number]);
            thread::Builder::new().name(lane::NAMES[number].to_owned()).spawn(answer).map(drop)
        });
        let listens = || self.listeners.iter().chain(&self.health).all(listen::listens);
        let watch = Watch { pulse: &pulse, stopping: &self.shared.stopping, turned: &self.shared.turned };
        let ended = answering.and_then(|()| watch.until_ended(&mut child, listens));
        if ended.is_err() {
            child.kill()?;
            child.wait()?;
        }
        log.finish();
        ended
    }
}

#[cfg(test)]
mod tests;
