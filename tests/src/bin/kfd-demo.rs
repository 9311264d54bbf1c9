//! The demo: a workload that `lsof /dev/kfd` cannot see, and kfd-trace that can.
//!
//! On simulated GPUs (in the VM) it starts the workload itself. On a machine with a real GPU nothing is
//! started on it: there the demo shows what runs now.

use anyhow::{Context as _, Result, ensure};
use kfd_trace_tests::harness::tracer::program;
use kfd_trace_tests::harness::wait::SOON;
use kfd_trace_tests::harness::{Daemon, Workload, sysfs, until};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

/// Made by the test GPU only.
const SIMULATED: &str = "/sys/kernel/debug/kfdsim";

/// Metrics that the demo shows.
const SHOWN: [&str; 5] = [
    "kfd_queues{",
    "kfd_queues_created_total{",
    "kfd_process_queues{",
    "kfd_ioctls_total{ioctl=\"CREATE_QUEUE\"",
    "kfd_trace_records_lost_total{kind=\"queue_create\"",
];

fn main() -> ExitCode {
    let shown = if Path::new(SIMULATED).exists() { hidden_workload() } else { this_machine() };
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the demo did not show what it should: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn title(text: &str) {
    println!("\n=== {text}");
}

/// Writes the text stream to a file, so that it can be shown at the end.
struct Stream {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Stream {
    fn start() -> Result<Self> {
        let folder = std::env::temp_dir();
        let file = |name: &str| folder.join(format!("kfd-demo-{}.{name}", std::process::id()));
        let (out, err) = (file("out"), file("err"));
        let child = Command::new(program())
            .stdout(File::create(&out).context("the stream's output")?)
            .stderr(File::create(&err).context("the stream's messages")?)
            .spawn()
            .with_context(|| format!("start {}", program()))?;
        let stream = Stream { child, out, err };
        until("the stream to trace", SOON, || {
            let reported = fs::read_to_string(&stream.err)?;
            Ok(reported.contains("kfd-trace: tracing").then_some(()))
        })?;
        Ok(stream)
    }

    /// Sends Ctrl-C; returns the whole output.
    fn finish(mut self) -> Result<String> {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id())?);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the stream ended with {status}");
        let text = fs::read_to_string(&self.out)?;
        for file in [&self.out, &self.err] {
            fs::remove_file(file)?;
        }
        Ok(text)
    }
}

fn hidden_workload() -> Result<()> {
    title("kfd-trace streams, and serves metrics");
    let stream = Stream::start()?;
    let mut daemon = Daemon::ready(&[])?;
    println!("stream: {}; daemon: http://{}/metrics", program(), daemon.address);

    title(
        "a workload makes an AQL and an SDMA queue, in a mount and PID namespace and with a device node of its own",
    );
    let mut workload = Workload::ready(&["hold", "--aql", "1", "--sdma", "1", "--hidden"])?;
    let pid = workload.host_pid();
    println!("it is process 1 inside, and process {pid} on this host");

    for tool in ["lsof", "fuser"] {
        title(&format!("{tool} /dev/kfd"));
        let output = Command::new(tool).arg("/dev/kfd").output().with_context(|| format!("run {tool}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
        println!("({} lines, {})", text.lines().count(), output.status);
        ensure!(text.is_empty(), "{tool} saw the hidden workload");
    }

    title("kfd-trace ps");
    let ps = run(&["ps"])?;
    let of_workload = ps.lines().filter(|line| line.split_whitespace().next() == Some(&pid.to_string()));
    ensure!(of_workload.count() == 2, "two queues of process {pid} were expected");

    title("curl /metrics (a part)");
    let live = daemon.scrape_until("both queues in the metrics", |metrics| metrics.sum("kfd_queues", &[]));
    let metrics = daemon.get("/metrics")?.body;
    let counted = metrics.lines().filter(|line| SHOWN.iter().any(|shown| line.starts_with(shown)));
    for line in counted.filter(|line| !line.ends_with(" 0") || line.contains("_lost_")) {
        println!("{line}");
    }
    #[expect(clippy::float_cmp, reason = "a count")]
    let two = live? == 2.0;
    ensure!(two, "two live queues were expected in kfd_queues");

    title("the workload ends; what the stream showed");
    workload.finish()?;
    until("its queues to go", SOON, || Ok(sysfs::queues(Path::new("/sys"))?.is_empty().then_some(())))?;
    daemon.stop()?;
    let text = stream.finish()?;
    print!("{text}");
    for event in ["CREATE_QUEUE ", "DESTROY_QUEUE "] {
        let lines = text.lines().filter(|line| line.contains(&pid.to_string()) && line.contains(event));
        ensure!(lines.count() >= 2, "two {event}events of process {pid} were expected");
    }
    println!("\nlsof saw nothing; kfd-trace saw two queues from their birth to their end.");
    Ok(())
}

fn this_machine() -> Result<()> {
    for args in [&["status"][..], &["ps"], &["--duration", "10s"]] {
        title(&format!("kfd-trace {}", args.join(" ")));
        run(args)?;
    }
    Ok(())
}

/// Runs a command of kfd-trace and shows what it prints.
fn run(args: &[&str]) -> Result<String> {
    let output = Command::new(program())
        .args(args)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {}", program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    ensure!(output.status.success(), "kfd-trace {}: {}", args.join(" "), output.status);
    Ok(text)
}
