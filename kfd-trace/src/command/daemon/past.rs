//! What the daemons before this one knew, from their recordings: read beside the attaching of probes, by a thread of its own.
//! Where that takes longer than the attaching, the ring buffer is emptied meanwhile, for a bounded time.

use crate::kernel::{Roots, boot_id};
use crate::recording::{Boot, MOST_FILES, Past};
use crate::runtime::clock;
use crate::runtime::stderr::say;
use crate::serve::shared::SharedPage;
use crate::state::{Class, History, State};
use crate::text::clock::rfc3339;
use crate::text::count::counted;
use crate::tracer::engine::Tracer;
use crate::tracer::follow::Follow;
use crate::tracer::history;
use crate::tracer::taping::machine;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// How long attached probes wait for it, and how many records may come meanwhile.
const LONGEST: Duration = Duration::from_secs(1);
const RECORDS: usize = 1 << 16;

const PAUSE: Duration = Duration::from_millis(10);

type Read = Result<Option<Past>, String>;

/// What the thread has read.
#[derive(Debug)]
enum Step {
    /// The newest file, if there are more: it has what existed last, and takes a part of the time.
    Newest(Box<Past>),
    All(Box<Read>),
}

/// The reading, and what it has found. The default: nothing is read.
#[derive(Debug, Default)]
pub(super) struct PastReading {
    folder: PathBuf,
    /// `None` when it is over.
    reads: Option<Receiver<Step>>,
    /// What is taken if the rest is not read in time.
    newest: Option<Box<Past>>,
    stop: Arc<AtomicBool>,
    /// The last state, and when that was, until the first tracing begins.
    last: Option<(State, u64)>,
}

impl PastReading {
    /// To be called after capabilities were given up: the thread keeps those that there are.
    pub(super) fn start(folder: &Path, roots: &Roots) -> Self {
        let (boot, stop) = (boot(roots), Arc::new(AtomicBool::new(false)));
        let (sender, reads) = sync_channel(2);
        let read = {
            let (folder, stop) = (folder.to_owned(), Arc::clone(&stop));
            move || {
                let read = |most_files| Past::read(&folder, &boot, most_files, &stop);
                let all = match read(1) {
                    Ok(Some(past)) if past.left_out.is_some() => {
                        // Nobody may wait for it any more.
                        let _ = sender.send(Step::Newest(Box::new(past)));
                        read(MOST_FILES)
                    }
                    // The newest one may have been begun only.
                    Ok(None) => read(MOST_FILES),
                    read => read,
                };
                let _ = sender.send(Step::All(Box::new(all)));
            }
        };
        let past = PastReading { folder: folder.to_owned(), reads: None, newest: None, stop, last: None };
        match thread::Builder::new().name("past".to_owned()).spawn(read) {
            Ok(_) => PastReading { reads: Some(reads), ..past },
            Err(error) => {
                past.cannot(&error.to_string());
                past
            }
        }
    }

    /// Does this, and shows what was read as soon as that is done.
    pub(super) async fn shown_beside(&mut self, page: &SharedPage, act: impl Future<Output = ()>) {
        let mut act = pin!(act);
        while self.reads.is_some() {
            tokio::select! {
                () = &mut act => return,
                () = sleep(PAUSE) => self.shows_on(page),
            }
        }
        act.await;
    }

    /// Shows what was read, if that is done.
    fn shows_on(&mut self, page: &SharedPage) {
        while let Some(reads) = &self.reads {
            match reads.try_recv() {
                Ok(Step::Newest(past)) => self.newest = Some(past),
                Ok(Step::All(read)) => self.takes(*read, page),
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Disconnected) => self.takes(Err("its thread panicked".to_owned()), page),
            }
        }
    }

    /// Waits a little until it is done. Records that come meanwhile are not processed yet.
    pub(super) async fn finish(&mut self, page: &SharedPage, follow: &mut Follow) {
        let start = Instant::now();
        loop {
            self.shows_on(page);
            if self.reads.is_none() {
                return;
            }
            if start.elapsed() > LONGEST || follow.records.len() > RECORDS {
                return self.gives_up(page);
            }
            sleep(PAUSE).await;
            follow.drain();
        }
    }

    /// There is no more time: what was read until now is shown.
    fn gives_up(&mut self, page: &SharedPage) {
        self.stop.store(true, Relaxed);
        self.takes(Err("reading them takes longer than attaching probes".to_owned()), page);
    }

    /// The first tracing begins.
    pub(super) fn goes_on(&mut self, tracer: &mut Tracer, history: &mut History) {
        if let Some((state, until_ns)) = self.last.take() {
            history::continues(tracer, history, state, until_ns);
        }
    }

    fn takes(&mut self, read: Read, page: &SharedPage) {
        self.reads = None;
        let folder = self.folder.display();
        let past = match (read, self.newest.take()) {
            (Ok(Some(past)), _) => past,
            (Ok(None), _) => return log::info!("{folder}: nothing of this boot was recorded there before"),
            (Err(why), Some(newest)) => Past { left_out: Some(why), ..*newest },
            (Err(why), None) => return self.cannot(&why),
        };
        let Past { history, state, since_unix_ns, until_ns, files, left_out, cut } = past;
        let events: usize = Class::ALL.into_iter().map(|class| history.kept(class).entries).sum();
        // Before it is said: who reads the line asks for it.
        page.remembers(history, since_unix_ns);
        let since = rfc3339(since_unix_ns).unwrap_or_default();
        let older = left_out.map(|why| format!("; older ones are left out: {why}")).unwrap_or_default();
        say(format_args!(
            "the history goes on: {} since {since}, from {} in {folder}{older}",
            counted(events, "event", "events"),
            counted(files, "recording", "recordings")
        ));
        if let Some(why) = cut {
            log::warn!("{folder}: the end of the last recording is left out: {why}");
        }
        self.last = Some((state, until_ns));
    }

    fn cannot(&self, why: &str) {
        log::warn!(
            "{}: the recordings of before cannot be read, so the history begins anew: {why}",
            self.folder.display()
        );
    }
}

fn boot(roots: &Roots) -> Boot {
    let began_unix_ns = clock::wall_minus_mono_ns() - clock::boot_minus_mono_ns();
    Boot { id: boot_id(&roots.procfs), machine: machine(), now_ns: clock::mono_ns(), began_unix_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::metrics::Detail;
    use crate::state::StateLimits;

    fn past(until_ns: u64) -> Past {
        let state = State::new(StateLimits::default());
        let (left_out, cut) = (Some("they are more than is read at a start".to_owned()), None);
        Past { history: History::default(), state, since_unix_ns: 1, until_ns, files: 1, left_out, cut }
    }

    /// Until when something is known, after these steps and the end of the time.
    fn known_until(steps: Vec<Step>) -> Option<u64> {
        let roots = Roots::under(Path::new("/nowhere"));
        let linger = Duration::from_secs(300);
        let detail = Detail { processes: None, new_processes: 0, queues: None, linger };
        let page = SharedPage::new(roots, detail);
        let (sender, reads) = sync_channel(2);
        let mut reading = PastReading { reads: Some(reads), ..PastReading::default() };
        steps.into_iter().for_each(|step| sender.send(step).expect("room"));
        reading.shows_on(&page);
        if reading.reads.is_some() {
            reading.gives_up(&page);
        }
        assert!(reading.reads.is_none());
        reading.last.map(|(_, until_ns)| until_ns)
    }

    #[test]
    fn what_was_read_in_time_is_shown() {
        let newest = || Step::Newest(Box::new(past(9)));
        let all = |read| Step::All(Box::new(read));
        assert_eq!(known_until(vec![newest(), all(Ok(Some(past(5))))]), Some(5));
        assert_eq!(known_until(vec![all(Ok(Some(past(5))))]), Some(5));
        assert_eq!(known_until(vec![newest()]), Some(9), "there was no time for the others");
        assert_eq!(known_until(vec![newest(), all(Err("it takes too long".to_owned()))]), Some(9));
        assert_eq!(known_until(vec![]), None);
        assert_eq!(known_until(vec![all(Ok(None))]), None);
    }
}
