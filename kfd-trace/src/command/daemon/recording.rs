//! Keeps what the daemon sees in a folder of recordings. Nothing here waits for a disk.

use crate::recording::{Feed, FolderLimits, Item, Watch};
use crate::runtime::clock;
use crate::runtime::exit::Stop;
use crate::runtime::output_file;
use crate::tracer::engine::Tracer;
use crate::tracer::taping::Taping;
use std::convert::Infallible;
use std::io::ErrorKind;

/// The recording of a daemon.
#[derive(Debug)]
pub(super) struct Recording {
    feed: Feed,
    taping: Taping,
    /// The driver that comes next is another one.
    was_unloaded: bool,
}

impl Recording {
    /// # Errors
    /// If there is no thread for it. A folder that cannot be written is tried again.
    pub(super) fn start(limits: &FolderLimits) -> Result<Self, Stop> {
        let folder = &limits.folder;
        match output_file::open_folder(folder) {
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(Stop::usage(format!("--record: {} is no folder", folder.display())));
            }
            // A link of somebody else.
            Err(error) if error.kind() == ErrorKind::Other => {
                return Err(Stop::usage(format!("--record: {}: {error}", folder.display())));
            }
            _ => {}
        }
        let feed = Feed::new(limits, clock::unix_ns());
        let feed = feed.map_err(|error| Stop::failed(format!("cannot record: {error}")))?;
        Ok(Recording { feed, taping: Taping::default(), was_unloaded: false })
    }

    pub(super) fn watch(&self) -> Watch {
        self.feed.watch()
    }

    /// The tracer was attached, and what it found was added to its state.
    pub(super) fn attached(&mut self, tracer: &mut Tracer) {
        if self.feed.has_begun() {
            let mut items = Vec::new();
            if std::mem::take(&mut self.was_unloaded) {
                let attached_ns = tracer.attached_ns;
                collected(self.taping.loads(tracer, true, attached_ns, &mut into(&mut items)));
            }
            items.push(Taping::driver(tracer));
            collected(self.taping.changes(tracer, &mut into(&mut items)));
            collected(self.taping.look(tracer, &mut into(&mut items)));
            items.push(Item::Existing);
            self.feed.put(items);
        }
        self.save(tracer);
    }

    /// Hands over what has changed. To be called after all that changes the tracer, and at least once a second.
    pub(super) fn save(&mut self, tracer: &mut Tracer) {
        let mut items = Vec::new();
        collected(self.taping.changes(tracer, &mut into(&mut items)));
        collected(self.taping.look_again(tracer, &mut into(&mut items)));
        self.feed.put(items);
        if self.feed.wants_begin() {
            // The first file begins with the tracing: records that came since then are its first changes.
            let at_ns = if self.feed.has_begun() { clock::mono_ns() } else { tracer.attached_ns };
            let mut items = Vec::new();
            collected(self.taping.going_on(tracer, at_ns, &mut into(&mut items)));
            self.feed.begin(items);
        }
    }

    /// The driver was unloaded.
    pub(super) fn unloaded(&mut self, tracer: &mut Tracer) {
        self.was_unloaded = true;
        let mut items = Vec::new();
        collected(self.taping.loads(tracer, false, clock::mono_ns(), &mut into(&mut items)));
        collected(self.taping.look(tracer, &mut into(&mut items)));
        self.feed.put(items);
    }

    pub(super) fn finish(self) {
        self.feed.finish(clock::mono_ns());
    }
}

fn into(items: &mut Vec<Item>) -> impl FnMut(Item) -> Result<(), Infallible> {
    |item| {
        items.push(item);
        Ok(())
    }
}

fn collected(done: Result<(), Infallible>) {
    let Ok(()) = done;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Roots;
    use crate::recording::Folder;
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn the_first_file_begins_when_the_probes_were_attached() {
        let folder = tempfile::tempdir().expect("a folder");
        let (max_bytes, max_age) = (1 << 20, Duration::from_secs(3600));
        let limits =
            FolderLimits { folder: folder.path().to_owned(), max_bytes, max_age, file_bytes: 1 << 18 };
        let mut recording = Recording::start(&limits).expect("a thread");
        let mut tracer = Tracer::idle(&Roots::under(Path::new("/nowhere")));
        tracer.state.start_tape();
        tracer.attached_ns = clock::mono_ns() - 1_000_000_000;
        recording.attached(&mut tracer);
        recording.finish();
        let begin = Folder::open(folder.path()).expect("a file").first().expect("its begin");
        assert_eq!(begin.at_ns, tracer.attached_ns);
        let offset_ns = begin.unix_ns - i64::try_from(begin.at_ns).expect("a time");
        assert!(offset_ns.abs_diff(clock::wall_minus_mono_ns()) < 500_000_000, "by both clocks at one time");
    }

    #[test]
    fn a_folder_behind_a_link_of_somebody_else_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let [real, link] = ["real", "link"].map(|name| folder.path().join(name));
        std::fs::create_dir(&real).expect("a folder");
        std::os::unix::fs::symlink(&real, &link).expect("a link");
        std::os::unix::fs::lchown(&link, Some(1000), None).expect("root may");
        let (max_bytes, max_age) = (1 << 20, Duration::from_secs(3600));
        let limits = FolderLimits { folder: link.join("new"), max_bytes, max_age, file_bytes: 1 << 18 };
        let why = Recording::start(&limits).expect_err("a link of user 1000").line;
        assert!(why.contains("is a link of user 1000"), "{why}");
        assert!(!real.join("new").exists());
    }
}
