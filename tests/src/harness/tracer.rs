//! `kfd-trace` as a child: its stream, its daemon, and commands that end by themselves.

use super::exposition::Metrics;
use super::http;
use super::json_process::JsonProcess;
use super::wait::{ATTACH, SOON, until};
use crate::pulse;
use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

/// The program under test, for one start, which the host counts; `KFD_TRACE` overrides it.
pub fn program() -> String {
    pulse::start();
    path()
}

/// Its file.
pub fn path() -> String {
    std::env::var("KFD_TRACE").unwrap_or_else(|_| "/bin/kfd-trace".to_owned())
}

/// Arguments of a tracer that starts much sooner: without the probes that are attached to most functions. For
/// tests that need neither MQD writes nor arguments of ioctls. Not where queues are tracked from ioctls
/// alone.
pub const FEW: [&str; 5] = ["--without-probe=ioctl_handler", NO_MQD[0], NO_MQD[1], NO_MQD[2], NO_MQD[3]];

/// The same with the arguments of ioctls.
pub const NO_MQD: [&str; 4] = [
    "--without-probe=mqd_init",
    "--without-probe=mqd_update",
    "--without-probe=mqd_address",
    "--without-probe=mqd_restore",
];

/// Runs a command that ends by itself (`ps`, `status`, bad usage...).
pub fn run(args: &[&str]) -> Result<Output> {
    run_program(&path(), args)
}

/// [`run`] of another program.
pub fn run_program(path: &str, args: &[&str]) -> Result<Output> {
    pulse::start();
    Command::new(path).args(args).output().with_context(|| format!("run {path} {args:?}"))
}

/// [`run`] as another user, without any capability.
pub fn run_as(uid: u32, args: &[&str]) -> Result<Output> {
    let mut command = Command::new(program());
    command.args(args).uid(uid).gid(uid).output().with_context(|| format!("run kfd-trace {args:?} as {uid}"))
}

/// [`run`], checks for success, and returns the JSON of its standard output: one value, or one per line.
pub fn run_json(args: &[&str]) -> Result<Vec<Value>> {
    let output = run(args)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "kfd-trace {args:?}: {}, stderr: {errors}", output.status);
    let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    values.collect::<Result<_, _>>().with_context(|| format!("JSON of kfd-trace {args:?}"))
}

/// `kfd-trace --json`.
#[derive(Debug)]
pub struct Stream(JsonProcess);

impl Stream {
    /// Starts it without waiting for anything.
    pub fn spawn(args: &[&str]) -> Result<Self> {
        let words: Vec<&str> = ["--json"].iter().chain(args).copied().collect();
        JsonProcess::spawn(&program(), &words).map(Self)
    }

    /// Starts it and waits until it reports that nothing is missed from here on.
    pub fn tracing(args: &[&str]) -> Result<Self> {
        Self::tracing_program(&program(), args)
    }

    /// [`Self::tracing`] of another program.
    pub fn tracing_program(path: &str, args: &[&str]) -> Result<Self> {
        let words: Vec<&str> = ["--json"].iter().chain(args).copied().collect();
        let mut stream = JsonProcess::spawn(path, &words).map(Self)?;
        stream.0.wait_stderr("kfd-trace: tracing", ATTACH)?;
        Ok(stream)
    }

    /// Sends Ctrl-C; checks that it ends with success.
    pub fn interrupt(&mut self) -> Result<()> {
        self.0.signal(Signal::SIGINT)?;
        self.0.wait_success(ATTACH)
    }

    /// [`Self::interrupt`], and returns its final summary.
    pub fn finish(&mut self) -> Result<Value> {
        self.interrupt()?;
        self.summary()
    }

    /// The summary line.
    pub fn summary(&self) -> Result<Value> {
        let last = self.0.lines().pop().context("it printed nothing")?;
        ensure!(last["event"] == "summary", "the last line is no summary: {last}");
        Ok(last)
    }
}

impl Deref for Stream {
    type Target = JsonProcess;
    fn deref(&self) -> &JsonProcess {
        &self.0
    }
}

impl DerefMut for Stream {
    fn deref_mut(&mut self) -> &mut JsonProcess {
        &mut self.0
    }
}

/// `kfd-trace daemon`, on its own port.
#[derive(Debug)]
pub struct Daemon {
    process: JsonProcess,
    pub address: SocketAddr,
}

impl Daemon {
    /// Starts it without waiting for anything.
    pub fn spawn(args: &[&str]) -> Result<Self> {
        Self::spawn_program(&path(), args)
    }

    fn spawn_program(path: &str, args: &[&str]) -> Result<Self> {
        pulse::start();
        let address = free_address()?;
        let listen = format!("--web.listen-address={address}");
        let words: Vec<&str> = ["daemon", &listen].iter().chain(args).copied().collect();
        Ok(Self { process: JsonProcess::spawn(path, &words)?, address })
    }

    /// Starts it and waits until `/-/ready` succeeds: all probes are attached then.
    pub fn ready(args: &[&str]) -> Result<Self> {
        Self::ready_program(&path(), args)
    }

    /// [`Self::ready`] of another program.
    pub fn ready_program(path: &str, args: &[&str]) -> Result<Self> {
        let mut daemon = Self::spawn_program(path, args)?;
        until("the daemon to be ready", ATTACH, || {
            if let Some(status) = daemon.process.exited()? {
                anyhow::bail!("it ended: {status}, stderr: {}", daemon.process.stderr());
            }
            let ready = http::get(daemon.address, "/-/ready").is_ok_and(|response| response.status == 200);
            Ok(ready.then_some(()))
        })?;
        Ok(daemon)
    }

    /// [`Self::ready`] much sooner: with one link for all functions of a program, which holds amdgpu. For
    /// tests that do not depend on how functions are attached.
    pub fn quick(args: &[&str]) -> Result<Self> {
        Self::ready(&[&["--attach=multi"], args].concat())
    }

    pub fn get(&self, path: &str) -> Result<http::Response> {
        http::get(self.address, path)
    }

    /// A page of the API.
    pub fn json(&self, path: &str) -> Result<Value> {
        let response = self.get(path)?;
        ensure!(response.status == 200, "{path}: status {}", response.status);
        serde_json::from_str(&response.body).with_context(|| format!("JSON of {path}"))
    }

    pub fn scrape(&self) -> Result<Metrics> {
        let response = self.get("/metrics")?;
        ensure!(response.status == 200, "/metrics: status {}", response.status);
        Metrics::parse(&response.body).context("/metrics")
    }

    /// Scrapes until `look` returns a value.
    pub fn scrape_until<T>(&self, what: &str, look: impl Fn(&Metrics) -> Option<T>) -> Result<T> {
        until(what, SOON, || Ok(look(&self.scrape()?)))
    }

    /// Waits until its state has been compared with a list of the driver this many more times.
    pub fn compared(&self, source: &str, times: u32) -> Result<()> {
        let count = |metrics: &Metrics| metrics.sum("kfd_trace_comparisons_total", &[("source", source)]);
        let before = count(&self.scrape()?).context("no comparisons are counted")?;
        let enough = |metrics: &Metrics| count(metrics).filter(|now| *now >= before + f64::from(times));
        self.scrape_until(&format!("{times} comparisons with {source}"), enough).map(drop)
    }

    /// Sends SIGTERM; checks that it ends with success.
    pub fn stop(&mut self) -> Result<()> {
        self.process.signal(Signal::SIGTERM)?;
        self.process.wait_success(ATTACH)
    }
}

impl Deref for Daemon {
    type Target = JsonProcess;
    fn deref(&self) -> &JsonProcess {
        &self.process
    }
}

impl DerefMut for Daemon {
    fn deref_mut(&mut self) -> &mut JsonProcess {
        &mut self.process
    }
}

/// A port that was free a moment ago: sufficient as long as no other task opens one.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    listener.local_addr().context("find a free port")
}
