//! The host's job for the guest: /etc/vm-job.json, written by xtask/src/vm/testbed.rs.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::fs;

const PATH: &str = "/etc/vm-job.json";

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// The stages' test executables.
    Test,
    /// /bin/kfd-demo after all modules are in.
    Demo,
    /// /bin/kfd-cost after all modules are in.
    Cost,
    /// A shell on the first serial port after all modules are in.
    Shell,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) mode: Mode,
    /// The kernel's release, for example `6.1.0-56-amd64`.
    pub(crate) release: String,
    /// The column of the matrix, for example `6.1`.
    pub(crate) series: String,
    /// The series whose driver this one is like: the same, unless it was built elsewhere.
    pub(crate) driver: String,
    /// Tests that are the same on every kernel are run, too.
    pub(crate) all: bool,
    /// Where the tracer has the driver's types from: `kernel`, `file` or `table`.
    pub(crate) types: String,
    /// The driver's least ring, bytes; 0: it has none.
    pub(crate) min_ring: u32,
    /// The driver restores (CRIU) a process without buffers.
    pub(crate) restores: bool,
    /// Part of the exit line.
    pub(crate) nonce: String,
    pub(crate) stages: Vec<Stage>,
    /// Passed to every test executable.
    pub(crate) arguments: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Stage {
    pub(crate) name: String,
    /// In the order of insertion.
    pub(crate) modules: Vec<Module>,
    /// The shape that kfdsim's GPUs get after that, if it changes (tests/kfdsim/README.md).
    pub(crate) shape: Option<String>,
    /// The test executable to run then, if the stage's tests are selected.
    pub(crate) test: Option<String>,
    /// Prefixes of its test names to skip.
    pub(crate) skip: Vec<String>,
    /// Prefixes of the names of the only tests to run; none: of all.
    pub(crate) only: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Module {
    pub(crate) file: String,
    /// As on insmod's command line: `NAME=VALUE`, separated by spaces.
    pub(crate) parameters: String,
}

impl Job {
    pub(crate) fn read() -> Result<Self> {
        let text = fs::read(PATH).with_context(|| format!("cannot read {PATH}"))?;
        serde_json::from_slice(&text).with_context(|| format!("{PATH} is not understood"))
    }
}
