//! `hold` and `kill-me`: queues that stand still, to be looked at or to die with their process.

use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use serde_json::json;

use super::cli::Hold;
use super::until::Finish;
use super::{cgroup, queues, report};
use crate::kfd::uapi::QueueType;

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

/// `count` queues, turn by turn on each of `gpus` GPUs; every fourth of a GPU is an SDMA queue.
pub(crate) fn kill_me(gpus: NonZeroUsize, count: NonZeroUsize) -> Result<()> {
    let all = queues::gpus()?;
    anyhow::ensure!(all.len() >= gpus.get(), "{gpus} GPUs asked for, {} here", all.len());
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
