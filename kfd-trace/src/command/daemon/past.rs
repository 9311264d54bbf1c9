//! What the daemons before this one knew, from their recordings: read beside the attaching of probes, by a thread of its own.
//! Where that takes longer than the attaching, the ring buffer is emptied meanwhile, for a bounded time.

use crate::kernel::{Roots, boot_id};
use crate::recording::{Boot, Past};
use crate::runtime::clock;
use crate::runtime::stderr::say;
use crate::serve::shared::SharedPage;
use crate::state::{Class, History, State};
use crate::text::clock::rfc3339;
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

/// The reading, and what it has found. The default: nothing is read.
#[derive(Debug, Default)]
pub(super) struct PastReading {
    folder: PathBuf,
    /// `None` when it is over.
    reads: Option<Receiver<Read>>,
    stop: Arc<AtomicBool>,
    /// The last state, and when that was, until the first tracing begins.
    last: Option<(State, u64)>,
}

impl PastReading {
    /// To be called after capabilities were given up: the thread keeps those that there are.
    pub(super) fn start(folder: &Path, roots: &Roots) -> Self {
        let (boot, stop) = (boot(roots), Arc::new(AtomicBool::new(false)));
        let (sender, reads) = sync_channel(1);
        let read = {
            let (folder, stop) = (folder.to_owned(), Arc::clone(&stop));
            // Nobody may wait for it any more.
            move || drop(sender.send(Past::read(&folder, &boot, &stop)))
        };
        let past = PastReading { folder: folder.to_owned(), reads: None, stop, last: None };
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
        let Some(reads) = &self.reads else { return };
        match reads.try_recv() {
            Ok(read) => self.takes(read, page),
            Err(TryRecvError::Empty) => return,
            Err(TryRecvError::Disconnected) => self.cannot("its thread panicked"),
        }
        self.reads = None;
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
                self.stop.store(true, Relaxed);
                self.reads = None;
                return self.cannot("reading them takes longer than attaching probes");
            }
            sleep(PAUSE).await;
            follow.drain();
        }
    }

    /// The first tracing begins.
    pub(super) fn goes_on(&mut self, tracer: &mut Tracer, history: &mut History) {
        if let Some((state, until_ns)) = self.last.take() {
            history::continues(tracer, history, state, until_ns);
        }
    }

    fn takes(&mut self, read: Read, page: &SharedPage) {
        let folder = self.folder.display();
        let past = match read {
            Ok(Some(past)) => past,
            Ok(None) => return log::info!("{folder}: nothing of this boot was recorded there before"),
            Err(why) => return self.cannot(&why),
        };
        let Past { history, state, since_unix_ns, until_ns, files, is_bounded, cut } = past;
        let events: usize = Class::ALL.into_iter().map(|class| history.kept(class).entries).sum();
        let since = rfc3339(since_unix_ns).unwrap_or_default();
        let older = if is_bounded { "; older ones are left out" } else { "" };
        say(format_args!(
            "the history goes on: {events} events since {since}, from {files} recordings in {folder}{older}"
        ));
        if let Some(why) = cut {
            log::warn!("{folder}: the end of the last recording is left out: {why}");
        }
        self.last = Some((state, until_ns));
        page.remembers(history, since_unix_ns);
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
