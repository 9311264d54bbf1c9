//! The guest that is saved and resumed (xtask/src/vm/snapshot.rs): inserts modules state by state, and waits
//! in each until the host has saved it. In: the states' modules, words of the host. Out: a report per state;
//! then the init of the payload in this process.

use crate::job::Module;
use crate::{machine, modules, payload, report};
use anyhow::{Context as _, Result, bail};
use rustix::time::{ClockId, Timespec, clock_settime};
use serde::Deserialize;
use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

const PATH: &str = "/etc/vm-states.json";

/// The payload's init, and the argument by which it knows that the machine is prepared.
const INIT: &str = "/bin/vm-init";
const RESUMED: &str = "resumed";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct States {
    /// Drivers of the payload's disk. They are inserted after the resume, so that nothing of the disk is in a
    /// snapshot.
    disk: Vec<Module>,
    states: Vec<State>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    name: String,
    /// In the order of insertion.
    modules: Vec<Module>,
}

/// A word of the host.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    /// Go on to the next state.
    Next,
    /// Run the payload. Seconds since 1970: the clock still shows when the snapshot was made.
    Run(i64),
}

impl Word {
    fn parse(line: &str) -> Option<Self> {
        match line.split_once(' ') {
            None if line == "next" => Some(Self::Next),
            Some(("run", now)) => now.parse().ok().map(Self::Run),
            _ => None,
        }
    }
}

pub(crate) fn wanted() -> bool {
    Path::new(PATH).exists()
}

/// Whether this is the payload's init, in a machine that is prepared.
pub(crate) fn is_resumed() -> bool {
    std::env::args().nth(1).is_some_and(|word| word == RESUMED)
}

/// Returns only on error: otherwise the payload's init runs in this process.
pub(crate) fn go_through() -> Result<()> {
    match try_to() {
        Err(error) => Err(error),
        Ok(never) => match never {},
    }
}

fn try_to() -> Result<Infallible> {
    let text = fs::read(PATH).with_context(|| format!("cannot read {PATH}"))?;
    let States { disk, states } =
        serde_json::from_slice(&text).with_context(|| format!("{PATH} is not understood"))?;
    machine::prepare()?;
    std::thread::spawn(crate::live);
    let port = report::port_without_waiting()?;
    for state in &states {
        modules::insert_all(&state.modules)?;
        report::line(&format!("kfd-vm-state {}", state.name));
        if let Word::Run(now) = word(&port)? {
            return run(&disk, now);
        }
    }
    bail!("there is no state after the last one");
}

/// The next word. The wait is busy: a guest whose CPUs are idle skips to its next timer, and its clock would
/// be minutes ahead before the host has stopped it.
fn word(mut port: &File) -> Result<Word> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        match port.read(&mut byte) {
            Ok(1) if byte == *b"\n" => break,
            Ok(count) => line.extend_from_slice(&byte[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("cannot read from the host"),
        }
    }
    let line = String::from_utf8_lossy(&line);
    Word::parse(&line).with_context(|| format!("the host sent {line:?}"))
}

fn run(disk: &[Module], now: i64) -> Result<Infallible> {
    clock_settime(ClockId::Realtime, Timespec { tv_sec: now, tv_nsec: 0 }).context("cannot set the clock")?;
    modules::insert_all(disk)?;
    payload::unpack_disk().context("cannot unpack the payload")?;
    bail!(Command::new(INIT).arg(RESUMED).exec());
}

#[cfg(test)]
mod tests {
    use super::Word;

    #[test]
    fn the_host_has_two_words() {
        assert_eq!(Word::parse("next"), Some(Word::Next));
        assert_eq!(Word::parse("run 1795900000"), Some(Word::Run(1_795_900_000)));
        for unknown in ["", "run", "run x", "next 1", "again"] {
            assert_eq!(Word::parse(unknown), None, "{unknown}");
        }
    }
}
