//! Bounds what diagnoses of the node cost, and how long they take, however often they are requested.
//!
//! In: what reads a node, and what writes a document of that. Out: the document. One reading is made at a time, on a thread
//! of its own, since a process or a driver that hangs blocks it; all clients of the next second share it.

use crate::output::api::Refusal;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A client gives up after 10 s, if nothing else is requested of it.
const TIMEOUT: Duration = Duration::from_secs(8);

/// For so long after its end a reading is shared.
const SHARED: Duration = Duration::from_secs(1);

/// After a reading comes a pause of so many times its CPU time, so that a client without pauses takes a quarter of a CPU.
const PAUSES: u32 = 3;

/// Longer than that no reading waits for another: clients give up.
const LONGEST_PAUSE: Duration = Duration::from_secs(3);

/// Diagnoses of readings of this kind.
pub(super) struct Diagnoses<T> {
    /// Locked by whoever makes one.
    turn: Mutex<Made<T>>,
    timeout: Duration,
}

struct Made<T> {
    /// The last reading, and when it ended.
    last: Option<(Instant, Arc<T>)>,
    /// When the next one may begin.
    next: Option<Instant>,
    /// One that took too long.
    late: Option<Late<T>>,
}

struct Late<T> {
    began: Instant,
    answer: Receiver<Answer<T>>,
    reads: Arc<AtomicU32>,
}

/// The reading, unless it was shared, with its CPU time; and the document.
type Answer<T> = (Option<(Arc<T>, Duration)>, Result<String, Refusal>);

impl<T> Default for Diagnoses<T> {
    fn default() -> Self {
        Diagnoses { turn: Mutex::new(Made { last: None, next: None, late: None }), timeout: TIMEOUT }
    }
}

impl<T: Send + Sync + 'static> Diagnoses<T> {
    /// A document. Both may block; they store the tgid of the process that they are reading.
    ///
    /// # Errors
    /// Theirs; if they take too long.
    pub(super) fn ask(
        &self,
        read: impl FnOnce(&AtomicU32) -> Result<T, Refusal> + Send + 'static,
        write: impl FnOnce(&T, &AtomicU32) -> Result<String, Refusal> + Send + 'static,
    ) -> Result<String, Refusal> {
        let mut made = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(late) = &made.late
            && matches!(late.answer.try_recv(), Err(TryRecvError::Empty))
        {
            return Err(too_long(late.began.elapsed(), &late.reads));
        }
        // What it read is too old.
        made.late = None;
        let known = made.last.as_ref().filter(|(end, _)| end.elapsed() < SHARED);
        let known = known.map(|(_, reading)| Arc::clone(reading));
        if known.is_none() {
            made.last = None;
            let pause = made.next.and_then(|next| next.checked_duration_since(Instant::now()));
            if let Some(pause) = pause {
                thread::sleep(pause);
            }
        }
        let (began, reads) = (Instant::now(), Arc::new(AtomicU32::new(0)));
        let (sender, answer) = mpsc::channel();
        let progress = Arc::clone(&reads);
        let work = move || {
            // It may be given up.
            let _ = sender.send(match known {
                Some(reading) => (None, write(&reading, &progress)),
                None => match read(&progress).map(Arc::new) {
                    Ok(reading) => {
                        let document = write(&reading, &progress);
                        (Some((reading, cpu_time())), document)
                    }
                    Err(refusal) => (None, Err(refusal)),
                },
            });
        };
        let thread = thread::Builder::new().name("doctor".to_owned()).spawn(work);
        thread.map_err(|error| Refusal::Failed(format!("no thread can be started: {error}")))?;
        match answer.recv_timeout(self.timeout) {
            Ok((reading, document)) => {
                if let Some((reading, cpu_time)) = reading {
                    let now = Instant::now();
                    made.last = Some((now, reading));
                    made.next = Some(now + (cpu_time * PAUSES).min(LONGEST_PAUSE));
                }
                document
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(Refusal::Failed("the diagnosis panicked: see the daemon's log".to_owned()))
            }
            Err(RecvTimeoutError::Timeout) => {
                let why = too_long(began.elapsed(), &reads);
                made.late = Some(Late { began, answer, reads });
                Err(why)
            }
        }
    }
}

fn too_long(since: Duration, reads: &AtomicU32) -> Refusal {
    let seconds = since.as_secs();
    Refusal::Failed(match reads.load(Ordering::Relaxed) {
        0 => format!("reading the driver takes more than {seconds} s: it may hang; see the kernel's log"),
        pid => format!(
            "looking into process {pid} takes more than {seconds} s: its memory is locked; see /proc/{pid}/stack"
        ),
    })
}

/// Of this thread.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Reads by counting; `takes`: for so long.
    fn ask(
        diagnoses: &Diagnoses<usize>,
        count: &Arc<AtomicUsize>,
        takes: Duration,
    ) -> Result<String, Refusal> {
        let count = Arc::clone(count);
        let read = move |reads: &AtomicU32| {
            reads.store(4711, Ordering::Relaxed);
            thread::sleep(takes);
            Ok(count.fetch_add(1, Ordering::Relaxed))
        };
        diagnoses.ask(read, |number, _| Ok(number.to_string()))
    }

    #[test]
    fn clients_within_a_second_share_a_reading() {
        let (diagnoses, count) = (Diagnoses::default(), Arc::default());
        let ask = || ask(&diagnoses, &count, Duration::from_millis(100));
        let answers: Vec<_> = thread::scope(|scope| {
            let all: Vec<_> = (0..20).map(|_| scope.spawn(ask)).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(answers, vec![Ok("0".to_owned()); 20]);
        thread::sleep(SHARED);
        assert_eq!(ask(), Ok("1".to_owned()), "no answer is older");
    }

    #[test]
    fn a_reading_that_hangs_is_given_up_and_no_other_is_begun() {
        let diagnoses = Diagnoses { timeout: Duration::from_millis(100), ..Diagnoses::default() };
        let count = Arc::default();
        let hangs = Duration::from_millis(1500);
        let begin = Instant::now();
        for turn in 0..3 {
            let Err(Refusal::Failed(why)) = ask(&diagnoses, &count, hangs) else { panic!("{turn}") };
            assert!(why.starts_with("looking into process 4711 takes more than 0 s"), "{why}");
        }
        assert!(begin.elapsed() < Duration::from_millis(600), "the others do not wait for it");
        assert_eq!(count.load(Ordering::Relaxed), 0);
        thread::sleep(hangs);
        assert_eq!(ask(&diagnoses, &count, Duration::ZERO), Ok("1".to_owned()), "what came late is too old");
    }

    #[test]
    fn a_client_without_pauses_takes_a_quarter_of_a_cpu() {
        let (diagnoses, began) = (Diagnoses::<()>::default(), Arc::new(Mutex::new(Vec::new())));
        let ask = || {
            let began = Arc::clone(&began);
            let read = move |_: &AtomicU32| {
                began.lock().unwrap().push(Instant::now());
                while cpu_time() < Duration::from_millis(600) {}
                Ok(())
            };
            diagnoses.ask(read, |(), _| Ok(String::new())).unwrap();
        };
        ask();
        let end = Instant::now();
        thread::sleep(SHARED);
        ask();
        let pause = began.lock().unwrap()[1].duration_since(end);
        assert!(pause >= Duration::from_millis(1790), "{pause:?}");
    }

    #[test]
    fn a_refusal_and_a_panic_are_no_readings() {
        let diagnoses = Diagnoses::<()>::default();
        let refused =
            diagnoses.ask(|_| Err(Refusal::NotTraced("no driver".to_owned())), |(), _| panic!("unused"));
        assert_eq!(refused, Err(Refusal::NotTraced("no driver".to_owned())));
        let panicked = diagnoses.ask(|_| Ok(()), |(), _| panic!("on purpose"));
        assert!(matches!(panicked, Err(Refusal::Failed(line)) if line.contains("panicked")));
        assert_eq!(diagnoses.ask(|_| Ok(()), |(), _| Ok("well".to_owned())), Ok("well".to_owned()));
    }
}
