//! `hold --hidden` and `hold --apart`: isolates the device as a container runtime does, so that lsof and
//! fuser on the host, which compare device number and inode of the file system, do not find its user.

use super::cli::{Apart, Gpus, Hold};
use super::report;
use super::until::Finish;
use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, mknod, stat};
use nix::unistd::Pid;
use serde_json::json;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Starts `hold` in new namespaces, in a PID namespace as PID 1, and forwards the sign to finish.
pub(crate) fn run(args: &Hold) -> Result<()> {
    let finish = Finish::on_signals()?;
    let program = std::env::current_exe().context("find this program")?;
    let device = stat("/dev/kfd").context("look at /dev/kfd")?.st_rdev;
    let namespaces = match args.apart {
        None => CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID,
        Some(Apart::Node | Apart::Bind) => CloneFlags::CLONE_NEWNS,
        Some(Apart::Pids) => CloneFlags::CLONE_NEWPID,
    };
    unshare(namespaces).context("make namespaces (root only)")?;
    match args.apart {
        None | Some(Apart::Node) => own_dev(device)?,
        Some(Apart::Bind) => bound_dev()?,
        Some(Apart::Pids) => {}
    }
    let mut command = Command::new(program);
    command.args(words(args));
    let die_with_parent = || nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into);
    // SAFETY: between fork and exec it makes one system call and touches no memory of the parent.
    unsafe { command.pre_exec(die_with_parent) };
    let mut child = command.spawn().context("start the hidden process")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    report::line(&json!({"op": "hide", "host_pid": child.id()}))?;
    // The child holds the same standard input and sees its end by itself.
    finish.wait()?;
    // It may already have ended, which is fine.
    let _ = kill(pid, Signal::SIGTERM);
    let status = child.wait().context("wait for the hidden process")?;
    ensure!(status.success(), "the hidden process: {status}");
    Ok(())
}

const NONE: Option<&Path> = None;

/// An empty /dev with one node: same device number, another inode on another file system.
fn own_dev(kfd: nix::libc::dev_t) -> Result<()> {
    private()?;
    empty_dev()?;
    mknod("/dev/kfd", SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), kfd).context("mknod /dev/kfd")
}

/// An empty /dev with the host's node mounted on a file of it: same inode on the same file system.
fn bound_dev() -> Result<()> {
    private()?;
    let aside = tempfile::NamedTempFile::new().context("make a file")?;
    bind(Path::new("/dev/kfd"), aside.path())?;
    empty_dev()?;
    std::fs::write("/dev/kfd", "").context("make a file in /dev")?;
    bind(aside.path(), Path::new("/dev/kfd"))?;
    umount(aside.path()).context("unmount the node aside")
}

fn private() -> Result<()> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).context("make the mounts private")
}

fn empty_dev() -> Result<()> {
    mount(Some("tmpfs"), "/dev", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .context("mount a tmpfs on /dev")
}

fn bind(from: &Path, to: &Path) -> Result<()> {
    let mounted = mount(Some(from), to, NONE, MsFlags::MS_BIND, NONE);
    mounted.with_context(|| format!("mount {} on {}", from.display(), to.display()))
}

fn words(args: &Hold) -> Vec<String> {
    let mut words = vec!["hold".to_owned(), format!("--aql={}", args.aql), format!("--sdma={}", args.sdma)];
    words.push(match args.gpus {
        Gpus::All => "--gpus=all".to_owned(),
        Gpus::First(n) => format!("--gpus={n}"),
    });
    words.extend(args.cgroup.as_ref().map(|name| format!("--cgroup={name}")));
    words.extend(args.close_fd.then(|| "--close-fd".to_owned()));
    let flags = [
        (args.map, "--map"),
        (args.fork, "--fork"),
        (args.exec, "--exec"),
        (args.dead_leader, "--dead-leader"),
        (args.leave, "--leave"),
    ];
    words.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag.to_owned()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::cli::{Cli, Workload};
    use clap::Parser;

    #[test]
    fn the_hidden_process_gets_the_same_order_without_hiding_again() {
        let given = [
            "x",
            "hold",
            "--hidden",
            "--aql=3",
            "--sdma=0",
            "--gpus=all",
            "--cgroup=a/b",
            "--close-fd",
            "--map",
            "--fork",
            "--exec",
            "--dead-leader",
            "--leave",
        ];
        let Workload::Hold(outer) = Cli::parse_from(given).workload else { panic!("hold") };
        let words = ["x".to_owned()].into_iter().chain(words(&outer));
        let Workload::Hold(inner) = Cli::parse_from(words).workload else { panic!("hold") };
        assert!(!inner.hidden);
        let with_hiding = Hold { hidden: true, ..inner };
        assert_eq!(format!("{with_hiding:?}"), format!("{outer:?}"));
    }
}
