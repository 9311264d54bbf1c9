//! PID 1 of the VM. Reads its job from /etc/vm-job.json, sets up the guest as a small Linux, runs the stages
//! (insert modules, run a test executable), reports the end on the second serial port and powers off. Kernel
//! messages stay on the first port.
//!
//! Where the guest is a Debian on a disk, it first switches to that, as PID 1, and does its job there as a
//! unit of systemd. Where guests are resumed, it is the init of the guest that is saved; that of the payload
//! does the job.

mod disk;
mod job;
mod machine;
mod modules;
mod payload;
mod process;
mod report;
mod snapshot;

use anyhow::{Context as _, Result};
use job::{Job, Mode, Stage};
use kfd_trace_tests::harness::workload::reshape;
use kfd_trace_tests::pulse;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

fn main() {
    // Nothing above PID 1 could handle an error: it is reported, then the machine powers off all the same.
    let prepared = match std::process::id() == 1 {
        true if disk::wanted() => disk::go_over(),
        true if snapshot::is_resumed() => Ok(()),
        true if snapshot::wanted() => snapshot::go_through(),
        true => machine::prepare(),
        false => Ok(()),
    };
    let outcome = prepared.and_then(|()| Job::read());
    let (nonce, failures) = match &outcome {
        Ok(job) => (job.nonce.as_str(), work(job)),
        Err(error) => {
            report::line(&format!("vm-init: {error:#}"));
            ("", 1)
        }
    };
    report::exit(nonce, failures);
    machine::power_off();
}

/// Does the job and returns the number of failures.
fn work(job: &Job) -> u32 {
    machine::name(&job.release);
    let min_ring = job.min_ring.to_string();
    let environment = [
        ("KFD_VM_KERNEL", job.release.as_str()),
        ("KFD_VM_SERIES", job.series.as_str()),
        ("KFD_VM_DRIVER", job.driver.as_str()),
        ("KFD_VM_ALL", if job.all { "1" } else { "0" }),
        ("KFD_VM_TYPES", job.types.as_str()),
        ("KFD_VM_MIN_RING", &min_ring),
        ("KFD_VM_RESTORES", if job.restores { "1" } else { "0" }),
    ];
    if job.mode != Mode::Cost {
        // Where instructions are counted, the heartbeat's own would be among them.
        // Before the first line: the uptime of a resumed guest does not begin at zero.
        pulse::beat();
        thread::spawn(live);
    }
    if job.mode == Mode::Test {
        return job.stages.iter().map(|stage| u32::from(!test(job, stage, &environment))).sum();
    }
    for stage in &job.stages {
        if let Err(error) = insert(stage) {
            report::line(&format!("vm-init: {error:#}"));
            return 1;
        }
    }
    let done = match job.mode {
        Mode::Demo => program(Command::new("/bin/kfd-demo").envs(environment)),
        Mode::Cost => program(Command::new("/bin/kfd-cost").args(&job.arguments).envs(environment)),
        Mode::Shell | Mode::Test => process::shell(Command::new("/bin/busybox").arg("sh").envs(environment)),
    };
    match done {
        Ok(end) => u32::from(job.mode != Mode::Shell && !end.success()),
        Err(error) => {
            report::line(&format!("vm-init: {error:#}"));
            1
        }
    }
}

/// From one heartbeat to the next.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Shows the host that the guest's clock advances and that its programs get to run.
fn live() -> ! {
    loop {
        pulse::beat();
        thread::sleep(HEARTBEAT);
    }
}

/// Runs a program that reports to the host.
fn program(command: &mut Command) -> Result<ExitStatus> {
    report::to_port()?;
    process::run(command)
}

/// Runs one stage of the tests; returns whether it succeeded. The executable itself reports what failed
/// inside.
fn test(job: &Job, stage: &Stage, environment: &[(&str, &str)]) -> bool {
    let inserted = insert(stage);
    let Some(program) = &stage.test else {
        return inserted.map_err(|error| report::line(&format!("stage {}: {error:#}", stage.name))).is_ok();
    };
    report::line(&format!("\n==> Linux {}, stage {}", job.release, stage.name));
    let outcome = inserted.and_then(|()| {
        report::to_port()?;
        let mut command = Command::new(program);
        // Probes and counters are machine-wide: one test at a time.
        // The host reads its closing line, and a console may have colours.
        command.args(["--test-threads=1", "--color=never"]).args(&job.arguments);
        command.args(stage.skip.iter().map(|begin| format!("--skip={begin}"))).args(&stage.only);
        command.envs(environment.iter().copied()).env("KFD_VM_STAGE", &stage.name);
        process::run(&mut command)
    });
    // The next stage must not see a test's stray daemon.
    if std::process::id() == 1 {
        process::end_all();
    }
    match outcome {
        Ok(end) if end.success() => true,
        Ok(end) => {
            report::line(&format!("stage {}: {program} ended with {end}", stage.name));
            false
        }
        Err(error) => {
            report::line(&format!("stage {}: {error:#}", stage.name));
            false
        }
    }
}

/// Sets up what a stage needs: modules, then GPUs.
fn insert(stage: &Stage) -> Result<()> {
    modules::insert_all(&stage.modules)?;
    if let Some(shape) = &stage.shape {
        reshape(shape)?;
    }
    if Path::new(FIRST_QUEUE).exists() {
        let first = if stage.name == COUNTS_FROM_ANOTHER_ID { "4" } else { "0" };
        fs::write(FIRST_QUEUE, first).with_context(|| format!("cannot write to {FIRST_QUEUE}"))?;
    }
    Ok(())
}

/// The id of each process's first queue (tests/kfdsim/README.md).
const FIRST_QUEUE: &str = "/sys/module/kfdsim/parameters/first_queue";

/// The stage in which ids of queues do not begin at 0, so that neither the tracer nor its tests take that for
/// granted: drivers exist that begin at another one.
const COUNTS_FROM_ANOTHER_ID: &str = "sim";
