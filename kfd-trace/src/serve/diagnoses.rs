//! Bounds what diagnoses of the node cost, and how long they take, however often they are requested.
//!
//! In: what reads a node, and what writes a document of that. Out: the document. One reading is made at a time, on a thread
//! of its own, since a process or a driver that hangs blocks it; all clients of the next second share it.

use super::budget::{LONGEST_PAUSE, cpu_time, pause, sleep_until};
use crate::doctor::progress::{Progress, Step};
use crate::output::api::Refusal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A client gives up after 10 s, if nothing else is requested of it. Counted from the request, with all pauses.
const TIMEOUT: Duration = Duration::from_secs(8);

/// For so long after its end a reading is shared.
const SHARED: Duration = Duration::from_secs(1);

/// Diagnoses of readings of this kind.
pub(super) struct Diagnoses<T> {
    /// Locked by whoever makes one.
    turn: Mutex<Turn<T>>,
    timeout: Duration,
}

struct Turn<T> {
    /// The last reading, and when it ended.
    last: Option<(Instant, Arc<T>)>,
    pause: Pause,
    /// One that took too long.
    late: Option<Late<T>>,
}

/// When work may begin again.
#[derive(Default)]
struct Pause {
    /// A reading.
    reading: Option<Instant>,
    /// A document of a shared reading: it waits for earlier documents, and not for the reading.
    document: Option<Instant>,
}

struct Late<T> {
    began: Instant,
    is_reading: bool,
    answer: Receiver<Answer<T>>,
    progress: Arc<Progress>,
}

struct Answer<T> {
    /// Unless it was shared, or failed.
    reading: Option<Arc<T>>,
    document: Result<String, Refusal>,
    ended: Instant,
    cpu: Duration,
}

impl<T> Default for Diagnoses<T> {
    fn default() -> Self {
        Diagnoses {
            turn: Mutex::new(Turn { last: None, pause: Pause::default(), late: None }),
            timeout: TIMEOUT,
        }
    }
}

impl<T> Diagnoses<T> {
    /// Drops a reading that is not shared any more. Never waits.
    pub(super) fn drop_old(&self) {
        if let Ok(mut turn) = self.turn.try_lock() {
            turn.drop_old();
        }
    }
}

impl<T> Turn<T> {
    fn drop_old(&mut self) {
        self.last.take_if(|(end, _)| end.elapsed() >= SHARED);
    }
}

impl<T: Send + Sync + 'static> Diagnoses<T> {
    /// A document. `read` may block, keeps its progress, and stops when that is cancelled.
    ///
    /// # Errors
    /// Theirs; if they take too long.
    pub(super) fn ask(
        &self,
        read: impl FnOnce(&Progress) -> Result<T, Refusal> + Send + 'static,
        write: impl FnOnce(&T) -> Result<String, Refusal> + Send + 'static,
    ) -> Result<String, Refusal> {
        let asked = Instant::now();
        let deadline = asked + self.timeout;
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(late) = turn.late.take() {
            match late.answer.try_recv() {
                Err(TryRecvError::Empty) => {
                    let why = too_long(late.began.elapsed(), &late.progress);
                    turn.late = Some(late);
                    return Err(why);
                }
                // What it read is too old.
                Ok(answer) => turn.pause.add(late.is_reading, late.began, &answer),
                Err(TryRecvError::Disconnected) => {}
            }
        }
        sleep_until(turn.pause.document);
        turn.drop_old();
        let known = turn.last.as_ref().map(|(_, reading)| Arc::clone(reading));
        let is_reading = known.is_none();
        if is_reading {
            sleep_until(turn.pause.reading);
        }
        let began = Instant::now();
        if began >= deadline {
            let seconds = asked.elapsed().as_secs();
            return Err(Refusal::Failed(format!("other diagnoses took {seconds} s: try again")));
        }
        let progress = Arc::new(Progress::until(deadline));
        let (sender, answer) = mpsc::channel();
        let thread_progress = Arc::clone(&progress);
        // It may be given up.
        let work = move || drop(sender.send(answered(known, &thread_progress, read, write)));
        let thread = thread::Builder::new().name("doctor".to_owned()).spawn(work);
        thread.map_err(|error| Refusal::Failed(format!("no thread can be started: {error}")))?;
        let Ok(answer) = answer.recv_timeout(deadline.saturating_duration_since(began)) else {
            progress.cancel();
            let why = too_long(asked.elapsed(), &progress);
            turn.late = Some(Late { began, is_reading, answer, progress });
            return Err(why);
        };
        turn.pause.add(is_reading, began, &answer);
        if let Some(reading) = answer.reading {
            turn.last = Some((answer.ended, reading));
        }
        answer.document
    }
}

impl Pause {
    /// Each CPU second is followed by its own pause, also where the work was done in an earlier one's.
    fn add<T>(&mut self, is_reading: bool, began: Instant, answer: &Answer<T>) {
        let Answer { ended, cpu, .. } = answer;
        let pause = pause(*cpu);
        let from = self.reading.map_or(began, |reading| reading.max(began));
        let next = from + ended.saturating_duration_since(began) + pause;
        self.reading = Some(next.min(*ended + LONGEST_PAUSE));
        self.document = (!is_reading).then(|| *ended + pause);
    }
}

/// Whatever the work comes to, its CPU time is known.
fn answered<T>(
    known: Option<Arc<T>>,
    progress: &Progress,
    read: impl FnOnce(&Progress) -> Result<T, Refusal>,
    write: impl FnOnce(&T) -> Result<String, Refusal>,
) -> Answer<T> {
    let work = move || {
        let (shared, reading) = match known {
            Some(reading) => (true, reading),
            None => (false, Arc::new(read(progress)?)),
        };
        if progress.is_cancelled() {
            return Err(Refusal::Failed("nobody waits for it any more".to_owned()));
        }
        let document = write(&reading);
        Ok(((!shared).then_some(reading), document))
    };
    let made = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Refusal::Failed("the diagnosis panicked: see the daemon's log".to_owned())));
    let (reading, document) = made.unwrap_or_else(|refusal| (None, Err(refusal)));
    Answer { reading, document, ended: Instant::now(), cpu: cpu_time() }
}

fn too_long(since: Duration, progress: &Progress) -> Refusal {
    let seconds = since.as_secs();
    Refusal::Failed(match progress.step() {
        Step::Driver => {
            format!("reading the driver takes more than {seconds} s: it may hang; see the kernel's log")
        }
        Step::Tracer => format!("waiting for the tracer takes more than {seconds} s: it is busy; try again"),
        Step::Settling | Step::Comparing => {
            format!("the diagnosis takes more than {seconds} s: the node is busy; try again")
        }
        Step::Process(pid) => format!(
            "looking into process {pid} takes more than {seconds} s: its memory or one of its files blocks, or it has very \
             many; see /proc/{pid}/stack"
        ),
    })
}

#[cfg(test)]
mod tests;
