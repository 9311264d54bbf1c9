//! `hold --hidden`: what a container runtime does to a device, so that lsof and fuser on the host, which
//! compare device number and inode of the file system, do not find its user.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::{Mode, SFlag, mknod, stat};
use nix::unistd::Pid;
use serde_json::json;

use super::cli::{Gpus, Hold};
use super::report;
use super::until::Finish;

/// Starts `hold` as PID 1 of a new PID namespace and passes the sign to finish on to it.
pub(crate) fn run(args: &Hold) -> Result<()> {
    let finish = Finish::on_signals()?;
    let program = std::env::current_exe().context("find this program")?;
    let device = stat("/dev/kfd").context("look at /dev/kfd")?.st_rdev;
    unshare(CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID).context("make namespaces (root only)")?;
    own_dev(device)?;
    let mut command = Command::new(program);
    command.args(words(args));
    let die_with_parent = || nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into);
    // SAFETY: between fork and exec it makes one system call and touches no memory of others.
    unsafe { command.pre_exec(die_with_parent) };
    let mut child = command.spawn().context("start the hidden process")?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    report::line(&json!({"op": "hide", "host_pid": child.id()}))?;
    // The child holds the same standard input and sees its end by itself.
    finish.wait()?;
    // It may be gone by now, which is as good.
    let _ = kill(pid, Signal::SIGTERM);
    let status = child.wait().context("wait for the hidden process")?;
    ensure!(status.success(), "the hidden process: {status}");
    Ok(())
}

/// An empty /dev with one node: same device number, another inode on another file system.
fn own_dev(kfd: nix::libc::dev_t) -> Result<()> {
    let none = None::<&Path>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("make the mounts private")?;
    mount(Some("tmpfs"), "/dev", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))
        .context("mount a tmpfs on /dev")?;
    mknod("/dev/kfd", SFlag::S_IFCHR, Mode::from_bits_truncate(0o666), kfd).context("mknod /dev/kfd")
}

fn words(args: &Hold) -> Vec<String> {
    let mut words = vec!["hold".to_owned(), format!("--aql={}", args.aql), format!("--sdma={}", args.sdma)];
    words.push(match args.gpus {
        Gpus::All => "--gpus=all".to_owned(),
        Gpus::First(n) => format!("--gpus={n}"),
    });
    words.extend(args.cgroup.as_ref().map(|name| format!("--cgroup={name}")));
    words.extend(args.close_fd.then(|| "--close-fd".to_owned()));
    words.extend(args.leave.then(|| "--leave".to_owned()));
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::cli::{Cli, Workload};
    use clap::Parser;

    #[test]
    fn the_hidden_process_gets_the_same_order_without_hiding_again() {
        let given =
            ["x", "hold", "--hidden", "--aql=3", "--sdma=0", "--gpus=all", "--cgroup=a/b", "--close-fd"];
        let Workload::Hold(outer) = Cli::parse_from(given).workload else { panic!("hold") };
        let words = ["x".to_owned()].into_iter().chain(words(&outer));
        let Workload::Hold(inner) = Cli::parse_from(words).workload else { panic!("hold") };
        assert!(!inner.hidden);
        let with_hiding = Hold { hidden: true, ..inner };
        assert_eq!(format!("{with_hiding:?}"), format!("{outer:?}"));
    }
}
