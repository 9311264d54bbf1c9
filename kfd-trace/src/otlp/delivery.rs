//! Sends batches in their order, each until the collector has answered for it; connects again where the connection is lost.

use super::batch::{Batch, Waiting};
use super::resource::Envelope;
use super::sender::Said;
use super::settings::Way;
use super::verdict::Verdict;
use crate::output::exported::Exported;
use crate::runtime::confine;
use crate::runtime::confine::log::Log;
use crate::runtime::frames::{read_frame, write_frame};
use crate::text::escape;
use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The process's name in the log.
const NAME: &str = "kfd-trace-otlp";

/// Pause after a failure; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A host that accepts no connection in this time does not at all.
const CONNECT: Duration = Duration::from_secs(5);

/// What the process that sends may take beyond the time of an attempt.
const MARGIN: Duration = Duration::from_secs(5);

/// How often a connection without work is looked at.
const CHECK: Duration = Duration::from_secs(60);

/// Another reason is not logged before that.
const QUIET: Duration = Duration::from_secs(10);

/// Characters of a reason.
const SHOWN: usize = 400;

/// It says little.
const LONGEST_SAYING: u32 = 1 << 20;

/// Batches, and how they are sent.
#[derive(Debug)]
pub(super) struct Delivery {
    way: Way,
    envelope: Envelope,
    exported: Exported,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: Waiting,
    /// Nothing more comes.
    ending: bool,
    /// The log has said that records are dropped, since one had room.
    said_full: bool,
    /// What the log has said of why nothing is taken, since something was, and when.
    said_down: Option<(String, Instant)>,
}

impl Delivery {
    pub(super) fn new(way: Way, most: usize, envelope: Envelope, exported: Exported) -> Self {
        let state = Mutex::new(State {
            waiting: Waiting::new(most),
            ending: false,
            said_full: false,
            said_down: None,
        });
        Delivery { way, envelope, exported, state, changed: Condvar::new() }
    }

    pub(super) fn shown(&self) -> String {
        self.way.shown()
    }

    /// As [`Exported::down_if_panicked`].
    pub(super) fn seen(&self) -> impl Drop + use<> {
        self.exported.down_if_panicked()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a batch, or drops it where there is no room.
    pub(super) fn put(&self, batch: Batch) {
        let records = batch.records;
        let mut state = self.state();
        if state.waiting.push(batch) {
            self.exported.waits(records);
            self.changed.notify_all();
            return;
        }
        self.exported.drops(records);
        if !std::mem::replace(&mut state.said_full, true) {
            log::warn!(
                "{}: too many records wait (--otlp.queue): what comes now is dropped, and counted",
                self.shown()
            );
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.state().ending = true;
        self.changed.notify_all();
    }

    /// Runs until all that came was answered for.
    pub(super) fn run(&self) {
        let _seen = self.exported.down_if_panicked();
        self.run_by(|| Ok(Box::new(Link::open(&self.way)?)));
    }

    /// `open`: makes a connection, or says why there is none.
    pub(super) fn run_by(&self, open: impl Fn() -> Result<Box<dyn Sends>, String>) {
        let (mut link, mut pause, mut has_answered) = (None, PAUSE, false);
        while let Some(batch) = self.next(&mut link) {
            let had_answered = std::mem::replace(&mut has_answered, false);
            let verdict = self.attempt(&mut link, &open, &batch);
            has_answered = !matches!(verdict, Verdict::Broken(_));
            match verdict {
                Verdict::Taken { refused, why } => {
                    let refused = refused.min(batch.records);
                    self.done(batch.records - refused, refused);
                    let takes = refused < batch.records;
                    self.exported.set_up(takes);
                    let why = why.map_or_else(String::new, |why| format!(": {why}"));
                    if refused > 0 {
                        self.warn(&format!("records are refused, {refused} of {}{why}", batch.records));
                    } else if !why.is_empty() {
                        self.warn(&format!("records are taken{why}"));
                    } else if self.state().said_down.take().is_some() {
                        log::warn!("{}: takes records again", self.shown());
                    }
                    pause = PAUSE;
                }
                Verdict::Refused(why) => {
                    self.done(0, batch.records);
                    self.down(&format!("records are refused: {why}"));
                }
                Verdict::Again { why, after } => {
                    self.down(&format!("{why}; records wait, and are sent again"));
                    self.rest(after.unwrap_or(pause));
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                // Closed since the last batch, as servers do after a while.
                Verdict::Broken(_) if had_answered => link = None,
                Verdict::Broken(why) => {
                    link = None;
                    self.down(&format!("cannot export: {why}; records wait, and are sent again"));
                    self.rest(pause);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Waits for the oldest batch; `None` after the last one. A connection that ends meanwhile is let go.
    fn next(&self, link: &mut Option<Box<dyn Sends>>) -> Option<Arc<Batch>> {
        let mut state = self.state();
        loop {
            if let Some(batch) = state.waiting.first() {
                return Some(batch);
            }
            if state.ending {
                return None;
            }
            if link.is_none() {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let waited = self.changed.wait_timeout(state, CHECK);
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            drop(now);
            if timeout.timed_out() && link.as_mut().is_some_and(|link| link.is_over()) {
                *link = None;
            }
            state = self.state();
        }
    }

    fn done(&self, taken: u64, refused: u64) {
        let mut state = self.state();
        state.waiting.pop();
        if state.waiting.first().is_none() {
            state.said_full = false;
        }
        drop(state);
        self.exported.answered(taken, refused);
    }

    /// Says why nothing is taken: once, and again where it is for another reason, though not all the time.
    fn down(&self, why: &str) {
        self.exported.set_up(false);
        self.warn(why);
    }

    fn warn(&self, why: &str) {
        // It may be a collector's words, by way of a process that was taken over.
        let why = escape::terminal(&why.chars().take(SHOWN).collect::<String>());
        let mut state = self.state();
        let is_known =
            state.said_down.as_ref().is_some_and(|(said, at)| *said == why || at.elapsed() < QUIET);
        if !is_known {
            state.said_down = Some((why.clone(), Instant::now()));
        }
        drop(state);
        log::log!(if is_known { log::Level::Debug } else { log::Level::Warn }, "{}: {why}", self.shown());
    }

    /// A pause, which the end makes short.
    fn rest(&self, pause: Duration) {
        let state = self.state();
        if state.ending {
            drop(state);
            return std::thread::sleep(pause.min(PAUSE));
        }
        drop(self.changed.wait_timeout_while(state, pause, |state| !state.ending));
    }

    fn attempt(
        &self,
        link: &mut Option<Box<dyn Sends>>,
        open: impl Fn() -> Result<Box<dyn Sends>, String>,
        batch: &Batch,
    ) -> Verdict {
        let link = match link {
            Some(link) => link,
            None => match open() {
                Ok(opened) => link.insert(opened),
                Err(why) => return Verdict::Broken(why),
            },
        };
        link.send(&self.envelope.request(&batch.bytes))
    }
}

/// A connection to a collector.
pub(super) trait Sends {
    /// Sends a request, and waits for what it is answered.
    fn send(&mut self, request: &[u8]) -> Verdict;

    /// It has ended.
    fn is_over(&mut self) -> bool {
        false
    }
}

/// The process that sends, with its connection.
struct Link {
    child: Child,
    control: UnixStream,
    log: Option<Log>,
}

impl Drop for Link {
    fn drop(&mut self) {
        // What it has to do is done with its answer.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.log.take().into_iter().for_each(Log::finish);
    }
}

impl Link {
    fn open(way: &Way) -> Result<Self, String> {
        let stream = connect(way)?;
        let started = Self::start(way, stream);
        started.map_err(|error| format!("the process that sends cannot run: {error}"))?
    }

    fn start(way: &Way, stream: TcpStream) -> io::Result<Result<Self, String>> {
        let (control, theirs) = UnixStream::pair()?;
        control.set_write_timeout(Some(MARGIN))?;
        control.set_read_timeout(Some(way.timeout() + MARGIN))?;
        let mut command = confine::process("otlp-sender");
        // Where the system's authorities are.
        let found = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(|name| (name, std::env::var_os(name)));
        command.envs(found.into_iter().filter_map(|(name, value)| Some((name, value?))));
        let (log, stderr) = confine::log::pipe(NAME)?;
        command.stdin(OwnedFd::from(theirs)).stdout(OwnedFd::from(stream)).stderr(stderr);
        let child = command.spawn()?;
        drop(command);
        let mut link = Link { child, control, log: Some(log) };
        write_frame(&mut link.control, &serde_json::to_vec(way)?)?;
        Ok(match link.said()? {
            Said::Ready => Ok(link),
            Said::Of(Verdict::Broken(why)) => Err(why),
            Said::Of(verdict) => Err(format!("{verdict:?}")),
        })
    }

    fn said(&mut self) -> io::Result<Said> {
        Ok(serde_json::from_slice(&read_frame(&mut self.control, LONGEST_SAYING)?)?)
    }
}

impl Sends for Link {
    fn send(&mut self, request: &[u8]) -> Verdict {
        // Where it has ended, it may have said why.
        let written = write_frame(&mut self.control, request);
        match self.said() {
            Ok(Said::Of(verdict)) => verdict,
            Ok(Said::Ready) => Verdict::Broken("the process that sends sent an unexpected answer".to_owned()),
            Err(error) => {
                let error = written.err().unwrap_or(error);
                Verdict::Broken(format!("the process that sends has ended: {error}"))
            }
        }
    }

    fn is_over(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }
}

fn connect(way: &Way) -> Result<TcpStream, String> {
    let found = (way.host.as_str(), way.port).to_socket_addrs();
    let addresses: Vec<_> = found.map_err(|error| format!("{}: {error}", way.host))?.collect();
    // Where one does not answer, the others are still tried.
    let each = CONNECT / u32::try_from(addresses.len().clamp(1, 5)).unwrap_or(1);
    let mut why = format!("{} has no address", way.host);
    for address in addresses {
        match TcpStream::connect_timeout(&address, each) {
            Ok(stream) => {
                // A request is written at once; without it a small one would wait for the acknowledgement before it.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => why = format!("{address}: {error}"),
        }
    }
    Err(why)
}
