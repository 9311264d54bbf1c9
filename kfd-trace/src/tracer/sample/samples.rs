//! A stand-in for procfs with a process whose memory blocks whoever opens it, as a page of a file system that does not answer
//! blocks a reader; for tests; and processes to sample.

use crate::model::event::ProcessId;
use crate::state::Target;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use tempfile::TempDir;

/// A process without queues, in no known cgroup.
pub(super) fn target(process: u64, uid: u32) -> Target {
    let key = ProcessId(process).into();
    Target { key, tgid: 7, uid: Some(uid), cgroup: None, start_boottime_ns: None, queues: Vec::new() }
}

pub(super) struct Procfs(TempDir);

impl Procfs {
    pub(super) fn new() -> Self {
        Procfs(tempfile::tempdir().expect("a folder"))
    }

    pub(super) fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    /// A process with the status of this one, under another number. Returns the number.
    fn process(&self, tgid: u32) -> u32 {
        let folder = self.0.path().join(tgid.to_string());
        fs::create_dir_all(&folder).expect("a folder");
        let own = std::process::id().to_string();
        for file in ["stat", "status"] {
            let text = fs::read_to_string(format!("/proc/{own}/{file}")).expect("its own");
            let line = |line: &str| match line.split_once(':') {
                Some(("Tgid" | "Pid", _)) => line.replace(&own, &tgid.to_string()),
                _ => line.to_owned(),
            };
            let text: String = text.lines().map(|each| line(each) + "\n").collect();
            fs::write(folder.join(file), text).expect("a file");
        }
        tgid
    }

    /// One with this process's memory.
    pub(super) fn own(&self, tgid: u32) -> u32 {
        let memory = format!("/proc/{}/mem", std::process::id());
        std::os::unix::fs::symlink(memory, self.mem(self.process(tgid))).expect("a link");
        tgid
    }

    /// One whose memory is a pipe without a writer.
    pub(super) fn blocking(&self, tgid: u32) -> u32 {
        let mem = self.mem(self.process(tgid));
        let made = std::process::Command::new("mkfifo").arg(mem).status().expect("coreutils");
        assert!(made.success());
        tgid
    }

    /// Whoever waits for it waits no longer.
    pub(super) fn answer(&self, tgid: u32) {
        drop(OpenOptions::new().write(true).open(self.mem(tgid)).expect("the pipe"));
    }

    fn mem(&self, tgid: u32) -> PathBuf {
        self.0.path().join(tgid.to_string()).join("mem")
    }
}

/// Else a failing test waits for its readers.
impl Drop for Procfs {
    fn drop(&mut self) {
        for process in fs::read_dir(self.0.path()).into_iter().flatten().flatten() {
            let mem = process.path().join("mem");
            if fs::symlink_metadata(&mem).is_ok_and(|file| file.file_type().is_fifo()) {
                // Without a reader there is nothing to do.
                let _ = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&mem);
            }
        }
    }
}
