//! Configures a driver's source and compiles one file with the driver's own flags. In: the source as a stream, the
//! kernel's headers, an empty folder of this process's user, a limit of time. Out: the object's bytes. What the
//! programs print goes to standard error.
//!
//! The driver's scripts are run as they are, with a small environment, in a process group of their own, which is
//! killed when the time is over.

use super::find::{self, Layout};
use super::request::Job;
use super::script::Places;
use super::{source_stream, wanted};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Where a build finds its programs.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The script that builds, in the work folder.
const BUILD: &str = "build.sh";

/// An object with all types of a driver has 2 MB.
const LARGEST: u64 = 256 << 20;

/// A build in a private folder.
pub(super) struct Build<'a> {
    pub(super) job: &'a Job,
    /// An empty folder.
    pub(super) work: &'a Path,
    pub(super) deadline: Instant,
    /// Whether the process that wants the object has ended.
    pub(super) is_abandoned: &'a dyn Fn() -> bool,
}

/// What was made.
pub(super) struct Object {
    pub(super) bytes: Vec<u8>,
    /// For the user.
    pub(super) note: Option<String>,
}

impl Build<'_> {
    /// Copies, configures, compiles.
    ///
    /// # Errors
    /// One line.
    pub(super) fn object(&self, source: impl Read) -> Result<Object, String> {
        let tree = self.tree();
        source_stream::read(BufReader::new(source), &tree)?;
        let headers = &self.job.headers;
        File::open(headers.join("Makefile")).map_err(|error| {
            format!("an ordinary user, who builds, cannot read {}: {error}", headers.display())
        })?;
        let path: Vec<PathBuf> = std::env::split_paths(PATH).collect();
        let real = find::program(&path, "make").ok_or("make not found: install make")?;
        let (compiler, note) = self.compiler(&path)?;
        let conf = find::conf(&tree).unwrap_or_else(|| tree.join("dkms.conf"));
        let places = Places {
            layout: &self.job.layout,
            tree: &tree,
            conf: &conf,
            work: self.work,
            headers,
            release: &self.job.release,
            compiler: &compiler,
            real: &real,
            flags: &self.flags(),
            is_clang: find::is_clang(headers),
        };
        self.write(&places)?;
        let ended = self.run("bash", &[BUILD], Stdio::from(stderr()?))?;
        // A Makefile of the driver goes on after kbuild, with modules that were not made.
        match File::open(places.object()) {
            Ok(object) => {
                let mut bytes = Vec::new();
                let read = object.take(LARGEST).read_to_end(&mut bytes);
                read.map_err(|error| format!("cannot read the object: {error}"))?;
                Ok(Object { bytes, note })
            }
            Err(_) if ended => {
                Err("the driver's build succeeded without calling kbuild for its own folder, so no \
                                    types were compiled"
                    .to_owned())
            }
            Err(_) => Err("the driver's build failed".to_owned()),
        }
    }

    /// Adds the C file to the copy, and writes the script and the `make` that it finds first.
    fn write(&self, places: &Places<'_>) -> Result<(), String> {
        let file = places.source().with_extension("c");
        let cannot = |error: io::Error| format!("cannot write {}: {error}", file.display());
        fs::write(&file, wanted::source()).map_err(cannot)?;
        // Older kbuilds make only what a Makefile has among its targets.
        let mut makefile =
            fs::OpenOptions::new().append(true).open(file.with_file_name("Makefile")).map_err(cannot)?;
        writeln!(makefile, "\ntargets += {}.o", wanted::NAME).map_err(cannot)?;
        fs::write(self.work.join(BUILD), places.build()).map_err(cannot)?;
        let wrapper = self.work.join("bin/make");
        fs::write(&wrapper, places.wrapper()).map_err(cannot)?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).map_err(cannot)
    }

    /// The name of the compiler that the headers name. Where only another version is installed, it gets that name for
    /// this build, and a note says so.
    fn compiler(&self, path: &[PathBuf]) -> Result<(String, Option<String>), String> {
        let [probe, bin] = ["probe", "bin"].map(|name| self.work.join(name));
        let cannot = |error: io::Error| format!("cannot ask for the compiler: {error}");
        for folder in [&probe, &bin] {
            fs::create_dir(folder).map_err(cannot)?;
        }
        fs::write(probe.join("Makefile"), "$(info kfd-trace-compiler=$(CC))\n").map_err(cannot)?;
        let (headers, module) = (self.job.headers.display().to_string(), format!("M={}", probe.display()));
        let answer = probe.join("answer");
        // It makes nothing, and may fail for that reason.
        self.run("make", &["-C", &headers, &module], Stdio::from(File::create(&answer).map_err(cannot)?))?;
        let printed = fs::read(&answer).map_err(cannot)?;
        let printed = String::from_utf8_lossy(&printed);
        let named = printed.lines().find_map(|line| line.strip_prefix("kfd-trace-compiler="));
        // `ccache gcc`: the last word is the compiler.
        let named = named.and_then(|words| words.split_whitespace().next_back()).map(Path::new);
        let named = named.and_then(Path::file_name).and_then(|name| name.to_str());
        let named = named.ok_or_else(|| format!("make in {headers} named no compiler"))?;
        let compiler = find::compiler(path, named)?;
        let note = if find::program(path, named).is_none() {
            symlink(&compiler, bin.join(named)).map_err(cannot)?;
            Some(format!("{named} is not installed: {} takes its place", compiler.display()))
        } else {
            None
        };
        Ok((named.to_owned(), note))
    }

    /// The copy: where DKMS would build, since the driver's scripts name that folder.
    fn tree(&self) -> PathBuf {
        match &self.job.layout {
            Layout::Dkms(version) => self.work.join("dkms/amdgpu").join(version).join("build"),
            Layout::InTree => self.work.join("amd"),
        }
    }

    /// Debug information of every structure that is named, in a format that every compiler and reader has.
    fn flags(&self) -> String {
        let headers = &self.job.headers;
        let reduced = fs::read_to_string(headers.join("include/config/auto.conf"))
            .is_ok_and(|text| text.contains("CONFIG_DEBUG_INFO_REDUCED=y"));
        let all = if reduced && !find::is_clang(headers) { " -femit-struct-debug-detailed=any" } else { "" };
        format!("-g -gdwarf-4 -gz=none -Wno-error{all}")
    }

    /// Whether the program succeeded.
    fn run(&self, program: &str, arguments: &[&str], stdout: Stdio) -> Result<bool, String> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(self.work)
            .env_clear()
            .env("PATH", format!("{}:{PATH}", self.work.join("bin").display()))
            .env("LC_ALL", "C")
            .env("HOME", self.work)
            .env("TMPDIR", self.work)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr()?)
            .process_group(0);
        self.wait(command.spawn().map_err(|error| format!("cannot run {program}: {error}"))?)
    }

    /// It is killed with its process group when the time is over.
    fn wait(&self, mut child: Child) -> Result<bool, String> {
        let why = loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ok(status.success()),
                Ok(None) if (self.is_abandoned)() => break "nothing waits for the types any more",
                Ok(None) if Instant::now() < self.deadline => thread::sleep(Duration::from_millis(50)),
                Ok(None) => break TIME_IS_OVER,
                Err(error) => return Err(format!("cannot wait for a build: {error}")),
            }
        };
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // If it has just ended there is nothing to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
        Err(why.to_owned())
    }
}

pub(super) const TIME_IS_OVER: &str = "the time is over: give more with --timeout";

fn stderr() -> Result<std::os::fd::OwnedFd, String> {
    let copy = io::stderr().as_fd().try_clone_to_owned();
    copy.map_err(|error| format!("cannot use standard error: {error}"))
}
