//! `hold` and `kill-me`: idle queues, to be observed or to end with their process.

use super::cli::Hold;
use super::until::Finish;
use super::{cgroup, queues, report, script};
use crate::kfd::uapi::QueueType;
use crate::kfd::{Client, Queue, Tally};
use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::unistd::{ForkResult, fork, read};
use serde_json::json;
use std::num::NonZeroUsize;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

pub(crate) fn run(args: &Hold) -> Result<()> {
    let finish = Finish::on_signals()?;
    if let Some(name) = &args.cgroup {
        cgroup::join(name)?;
    }
    let all = queues::gpus()?;
    let mut client = queues::open()?;
    queues::greet(&mut client)?;
    let mut held = Vec::new();
    for gpu in args.gpus.of(&all) {
        for _ in 0..args.aql {
            held.push(queues::make(&mut client, QueueType::ComputeAql, gpu)?);
        }
        for _ in 0..args.sdma {
            held.push(queues::make(&mut client, QueueType::Sdma, gpu)?);
        }
    }
    if args.map {
        let queue = held.first().context("no queue whose doorbells could be mapped")?;
        map_doorbells(&client, queue)?;
    }
    if args.fork {
        fork_idle()?;
    }
    if args.exec {
        return exec_idle(&client);
    }
    if args.dead_leader {
        return end_leader(finish, client.tally.clone());
    }
    if args.close_fd {
        let tally = client.tally.clone();
        drop(client);
        report::done("close", &json!({}))?;
        report::ready()?;
        finish.wait()?;
        return report::counts(&tally);
    }
    report::ready()?;
    finish.wait()?;
    if !args.leave {
        for queue in &held {
            queues::destroy(&mut client, queue.queue_id)?;
        }
    }
    report::counts(&client.tally)
}

/// Maps the doorbells of a queue's process on its GPU, as the thunk does: two pages on gfx9, selected by the
/// upper bits of the offset (kfd_doorbell_process_slice, kfd_mmap).
fn map_doorbells(client: &Client, queue: &Queue) -> Result<()> {
    const SLICE: NonZeroUsize = NonZeroUsize::new(8192).expect("it is not 0");
    let offset = (queue.doorbell_offset & !(SLICE.get() as u64 - 1)).cast_signed();
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
    let mapped = unsafe { mmap(None, SLICE, access, MapFlags::MAP_SHARED, client.fd(), offset) };
    mapped.context("map the doorbells")?;
    report::done("map", &json!({}))
}

/// Forks a child that inherits the open descriptors, until standard input ends.
fn fork_idle() -> Result<()> {
    // SAFETY: this program has one thread, and the child makes system calls alone.
    match unsafe { fork() }.context("fork")? {
        ForkResult::Parent { child } => report::done("fork", &json!({"child": child.as_raw()})),
        ForkResult::Child => {
            let mut byte = [0];
            while read(std::io::stdin(), &mut byte).is_ok_and(|count| count > 0) {}
            // SAFETY: _exit runs no handler of the parent's copy.
            unsafe { libc::_exit(0) }
        }
    }
}

/// Execs [`idle`], with the device open.
fn exec_idle(client: &Client) -> Result<()> {
    fcntl(client.fd(), FcntlArg::F_SETFD(FdFlag::empty())).context("keep the device open")?;
    report::counts(&client.tally)?;
    let error = Command::new(script::program()).arg("idle").exec();
    Err(error).context("exec this program")
}

/// Ends only the thread that main runs in; another one waits for the sign to finish.
fn end_leader(finish: Finish, tally: Tally) -> Result<()> {
    std::thread::spawn(move || {
        let reported = is_led_by_the_dead().and_then(|()| report::ready()).and_then(|()| finish.wait());
        let reported = reported.and_then(|()| report::counts(&tally));
        std::process::exit(i32::from(reported.is_err()));
    });
    // SAFETY: exit(2) ends this thread without returning; its stack stays in place.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    bail!("exit(2) came back")
}

fn is_led_by_the_dead() -> Result<()> {
    let stat = format!("/proc/self/task/{}/stat", std::process::id());
    while !std::fs::read_to_string(&stat).context("look at the first thread")?.contains(") Z ") {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Does nothing until the sign to finish.
pub(crate) fn idle() -> Result<()> {
    let finish = Finish::on_signals()?;
    report::ready()?;
    finish.wait()?;
    report::counts(&Tally::default())
}

/// `count` queues, in turn on each of `gpus` GPUs; every fourth of a GPU is an SDMA queue.
pub(crate) fn kill_me(gpus: NonZeroUsize, count: NonZeroUsize) -> Result<()> {
    let all = queues::gpus()?;
    anyhow::ensure!(all.len() >= gpus.get(), "{gpus} GPUs requested, the machine has {}", all.len());
    let mut client = queues::open()?;
    queues::greet(&mut client)?;
    let mut held = Vec::new();
    for (i, gpu) in all.iter().take(gpus.get()).cycle().take(count.get()).enumerate() {
        let queue_type = if i / gpus % 4 == 3 { QueueType::Sdma } else { QueueType::ComputeAql };
        held.push(queues::make(&mut client, queue_type, gpu)?);
    }
    report::ready()?;
    // SIGTERM and SIGINT keep their default action here: being killed is the point
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())
        .context("wait for the end of standard input")?;
    report::counts(&client.tally)
}
