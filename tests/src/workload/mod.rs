//! Programs that use KFD as ROCm does, each for one situation that the tracer has to report correctly.
//!
//! In: command-line arguments. Out: one JSON line per operation on standard output, `{"ready":true}` once its
//! state is set up, and at its end the counts of every ioctl it issued. The caller keeps its standard input
//! open: the end of that input, or SIGTERM, is the sign to finish.

mod activity;
mod cgroup;
pub mod cli;
mod criu;
mod criu_tracer;
mod crowd;
mod debugger;
mod flood;
mod hidden;
mod hold;
mod lives;
mod lookups;
mod memory;
mod operation;
mod queues;
mod report;
mod rewritten;
mod script;
mod until;

use anyhow::Result;
use cli::Workload;
use std::time::Duration;

/// Runs one workload to its end.
pub fn run(workload: &Workload) -> Result<()> {
    match workload {
        Workload::Hold(args) if args.hidden || args.apart.is_some() => hidden::run(args),
        Workload::Hold(args) => hold::run(args),
        Workload::KillMe { gpus, queues } => hold::kill_me(*gpus, *queues),
        Workload::Script { operations } => script::run(operations),
        Workload::Agent => script::agent(),
        Workload::Burst { threads, count, cpu } => flood::burst(*threads, *count, *cpu),
        Workload::Flood { threads, seconds } => flood::flood(*threads, Duration::from_secs(*seconds)),
        Workload::Lookups { cpu } => lookups::run(*cpu),
        Workload::Noise => flood::noise(),
        Workload::CriuTracer { pid } => criu_tracer::run(*pid),
        Workload::Debugger { pid } => debugger::run(*pid),
        Workload::ExecSelf => lives::exec_self(),
        Workload::ForkChild => lives::fork_child(),
        Workload::Idle => hold::idle(),
        Workload::Short { cgroup } => lives::short(cgroup.as_deref()),
    }
}
