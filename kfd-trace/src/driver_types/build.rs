//! Configures a driver's source and compiles one file with the driver's own flags. In: a private copy, the
//! kernel's headers, a limit of time. Out: the object's bytes; or the last lines that the build printed.
//!
//! The driver's scripts are run as they are, by an ordinary user (nobody, where this is run by root) with a
//! small environment, in a process group of their own, which is killed when the time is over.

use super::find::{self, DriverSource, Layout};
use super::{copy, wanted};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// `nobody` on every distribution.
const NOBODY: (u32, u32) = (65_534, 65_534);

/// Where a build finds its programs.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The C file, without its ending.
const NAME: &str = "kfd_trace_types";

/// Lines of a failed build that are shown.
const SHOWN: usize = 12;

/// A build in a private folder.
pub(super) struct Build<'a> {
    pub(super) source: &'a DriverSource,
    pub(super) headers: &'a Path,
    /// Of the headers.
    pub(super) release: &'a str,
    /// An empty folder.
    pub(super) work: &'a Path,
    pub(super) deadline: Instant,
}

/// User and group that the driver's scripts run as; `None` where this process has no root to give up: it is an
/// ordinary user, if only outside of its user namespace.
pub(super) fn user() -> Option<(u32, u32)> {
    let has_nobody = |map: &str| map.lines().any(|line| maps(line, NOBODY.0));
    let is_root = rustix::process::geteuid().is_root();
    let maps_users = fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| has_nobody(&map));
    (is_root && maps_users).then_some(NOBODY)
}

/// Whether a line of uid_map (user_namespaces(7): first id inside, first outside, how many) maps a user.
fn maps(line: &str, user: u32) -> bool {
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    matches!(*numbers, [inside, _, count] if (inside..inside.saturating_add(count)).contains(&user.into()))
}

impl Build<'_> {
    /// Copies, configures, compiles. `step` is called with the name of each step, `copied` with bytes.
    ///
    /// # Errors
    /// One line, and where a program failed the end of what it printed.
    pub(super) fn object(
        &self,
        mut step: impl FnMut(&str),
        mut copied: impl FnMut(u64),
    ) -> Result<Vec<u8>, String> {
        step("copying the driver's source");
        copy::own(self.work, user())?;
        let tree = self.tree();
        let parent = tree.parent().unwrap_or(self.work);
        fs::create_dir_all(parent).map_err(|error| format!("cannot make {}: {error}", parent.display()))?;
        for folder in parent.ancestors().take_while(|folder| *folder != self.work) {
            copy::own(folder, user())?;
        }
        copy::tree(&self.source.folder, &tree, user(), &mut |bytes| {
            copied(bytes);
            if Instant::now() < self.deadline { Ok(()) } else { Err(TIME_IS_OVER.to_owned()) }
        })?;
        let file = tree.join(self.folder()).join(NAME).with_extension("c");
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", file.display());
        fs::write(&file, wanted::source()).map_err(cannot)?;
        copy::own(&file, user())?;
        // Older kbuilds make only what a Makefile has among its targets.
        let makefile = file.with_file_name("Makefile");
        let mut makefile = fs::OpenOptions::new().append(true).open(makefile).map_err(cannot)?;
        writeln!(makefile, "\ntargets += {NAME}.o").map_err(cannot)?;
        self.compiler()?;
        if let Layout::Dkms(version) = &self.source.layout {
            step("running the driver's own configuration step");
            self.run("the driver's configuration step", &self.script(&tree, version, CONFIGURE))?;
            step("compiling one file with the driver's flags");
            self.run("the driver's compilation", &self.script(&tree, version, COMPILE))?;
        } else {
            step("compiling one file with the driver's flags");
            self.run("the compilation", &self.in_tree(&tree))?;
        }
        let object = file.with_extension("o");
        fs::read(&object).map_err(|error| format!("the build made no {}: {error}", object.display()))
    }

    /// Finds the compiler that the headers name. Where only another version is installed, it gets that name for this
    /// build.
    fn compiler(&self) -> Result<(), String> {
        let [probe, bin] = ["probe", "bin"].map(|name| self.work.join(name));
        let cannot = |error: std::io::Error| format!("cannot ask for the compiler: {error}");
        for folder in [&probe, &bin] {
            fs::create_dir(folder).map_err(cannot)?;
            copy::own(folder, user())?;
        }
        fs::write(probe.join("Makefile"), "$(info kfd-trace-compiler=$(CC))\n").map_err(cannot)?;
        let words = ["make", "-C", &self.headers.display().to_string(), &format!("M={}", probe.display())];
        // It makes nothing, and may fail for that reason.
        let asked = self.run("make, which names the compiler", &words.map(str::to_owned));
        let printed = fs::read(self.work.join("log")).unwrap_or_default();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let named = printed.lines().find_map(|line| line.strip_prefix("kfd-trace-compiler="));
        // `ccache gcc`: the last word is the compiler.
        let named = named.and_then(|words| words.split_whitespace().next_back()).map(Path::new);
        let named = named.and_then(Path::file_name).and_then(|name| name.to_str());
        let Some(named) = named else { return asked };
        let path: Vec<PathBuf> = std::env::split_paths(PATH).collect();
        let compiler = find::compiler(&path, named)?;
        if !find::is_there(&path, named) {
            log::warn!("{named} is not installed: {} takes its place", compiler.display());
            symlink(&compiler, bin.join(named)).map_err(cannot)?;
        }
        Ok(())
    }

    /// The copy: where DKMS would build, since the driver's scripts name that folder.
    fn tree(&self) -> PathBuf {
        match &self.source.layout {
            Layout::Dkms(version) => self.work.join("dkms/amdgpu").join(version).join("build"),
            Layout::InTree => self.work.join("amd"),
        }
    }

    /// The folder of the C file in the copy, and so the one whose flags it is compiled with.
    fn folder(&self) -> &'static str {
        match self.source.layout {
            Layout::Dkms(_) => "amd/amdgpu",
            Layout::InTree => "amdgpu",
        }
    }

    /// A script for bash with the variables that DKMS sets (dkms(8)).
    fn script(&self, tree: &Path, version: &str, body: &str) -> Vec<String> {
        let conf = find::conf(tree).unwrap_or_else(|| tree.join("dkms.conf"));
        let variables = [
            ("kernelver", self.release.to_owned()),
            ("kernel_source_dir", self.headers.display().to_string()),
            ("dkms_tree", self.work.join("dkms").display().to_string()),
            ("source_tree", self.work.display().to_string()),
            ("module", "amdgpu".to_owned()),
            ("module_version", version.to_owned()),
            ("arch", std::env::consts::ARCH.to_owned()),
            ("conf", conf.display().to_string()),
            ("build", tree.display().to_string()),
            ("target", format!("{}/{NAME}.o", self.folder())),
            ("flags", self.flags()),
        ];
        let mut script = String::from("set -e\n");
        for (name, value) in variables {
            script += &format!("{name}={}\n", quoted(&value));
        }
        script += body;
        vec!["bash".to_owned(), "-c".to_owned(), script]
    }

    fn in_tree(&self, tree: &Path) -> Vec<String> {
        let module = tree.join(self.folder());
        let mut command = vec![
            "make".to_owned(),
            "-C".to_owned(),
            self.headers.display().to_string(),
            format!("M={}", module.display()),
            // As the kernel's own build has it; below M= the path is wrong before Linux 6.12.
            format!("FULL_AMD_PATH={}", tree.display()),
            format!("KCFLAGS={}", self.flags()),
        ];
        if find::is_clang(self.headers) {
            command.push("LLVM=1".to_owned());
        }
        command.push(format!("{NAME}.o"));
        command
    }

    /// Debug information of every structure that is named, in a format that every compiler and reader has.
    fn flags(&self) -> String {
        let reduced = fs::read_to_string(self.headers.join("include/config/auto.conf"))
            .is_ok_and(|text| text.contains("CONFIG_DEBUG_INFO_REDUCED=y"));
        let all =
            if reduced && !find::is_clang(self.headers) { " -femit-struct-debug-detailed=any" } else { "" };
        format!("-g -gdwarf-4 -gz=none -Wno-error{all}")
    }

    fn run(&self, what: &str, words: &[String]) -> Result<(), String> {
        let log = self.work.join("log");
        let cannot = |error: std::io::Error| format!("cannot run {what}: {error}");
        let out = File::create(&log).map_err(cannot)?;
        let (program, arguments) = words.split_first().ok_or_else(|| format!("cannot run {what}"))?;
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
            .stdout(out.try_clone().map_err(cannot)?)
            .stderr(out)
            .process_group(0);
        if let Some((user, group)) = user() {
            command.uid(user).gid(group);
        }
        let child = command.spawn().map_err(cannot)?;
        match wait(child, self.deadline)? {
            true => Ok(()),
            false => Err(format!("{what} failed; above is the end of what it printed\n{}", end_of(&log))),
        }
    }
}

const TIME_IS_OVER: &str = "the time is over: give more with --timeout";

/// DKMS runs PRE_BUILD in the build folder.
const CONFIGURE: &str = r#"cd "$build"
. "$conf"
if [ -n "$PRE_BUILD" ]; then ./$PRE_BUILD; fi
"#;

/// DKMS runs MAKE[0] there, with the kernel's release; only one object is made.
const COMPILE: &str = r#"cd "$build"
. "$conf"
command=${MAKE[0]:-make -C $kernel_source_dir M=$build}
case $command in make*) command="make KERNELRELEASE=$kernelver${command#make}" ;; esac
eval "$command KCFLAGS='$flags' $target"
"#;

/// A word for the shell.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

/// Whether it succeeded; it is killed with all that it started when the time is over.
fn wait(mut child: Child, deadline: Instant) -> Result<bool, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status.success()),
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            Ok(None) => break,
            Err(error) => return Err(format!("cannot wait for a build: {error}")),
        }
    }
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // If it has just ended there is nothing to kill.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
    Err(TIME_IS_OVER.to_owned())
}

fn end_of(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(words: &[&str], limit: Duration) -> Result<(), String> {
        let work = tempfile::tempdir().unwrap();
        // Another user's scripts must reach it.
        copy::own(work.path(), user()).unwrap();
        let source = DriverSource { folder: PathBuf::new(), layout: Layout::InTree };
        let build = Build {
            source: &source,
            headers: Path::new("/nowhere"),
            release: "5.10",
            work: work.path(),
            deadline: Instant::now() + limit,
        };
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        build.run("it", &words)
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_failure_shows_the_end_of_what_was_printed() {
        assert_eq!(run(&["sh", "-c", "id -u | grep -qv '^0$'"], LONG), Ok(()), "never as root");
        let why = run(&["sh", "-c", "seq 1 40; exit 3"], LONG).unwrap_err();
        assert!(
            why.starts_with("it failed; above") && why.contains("\n29\n30") && why.ends_with("\n40"),
            "{why}"
        );
    }

    #[test]
    fn what_takes_too_long_is_killed_with_all_that_it_started() {
        let begin = Instant::now();
        let why = run(&["sh", "-c", "sleep 600 & sleep 600"], Duration::from_millis(200)).unwrap_err();
        assert!(why.contains("--timeout") && begin.elapsed() < LONG, "{why}");
    }

    #[test]
    fn nobody_is_a_user_where_the_namespace_has_it() {
        assert!(maps("         0          0 4294967295", NOBODY.0));
        assert!(!maps("0 1000 1", NOBODY.0) && !maps("", NOBODY.0));
        assert!(maps("65534 1000 1", NOBODY.0));
    }

    #[test]
    fn words_for_the_shell_are_one_word() {
        let printed =
            Command::new("sh").args(["-c", &format!("printf %s {}", quoted("a 'b' $HOME"))]).output();
        assert_eq!(printed.unwrap().stdout, b"a 'b' $HOME");
    }
}
