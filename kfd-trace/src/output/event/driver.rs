//! Stream lines that belong to no process: the driver was unloaded, or its successor is traced.

use crate::text::clock::Clock;
use crate::text::escape;
use serde::Serialize;
use std::io::{self, Write};

/// Version of the format of all lines.
pub const SCHEMA: u32 = 1;

/// State change of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// It was unloaded; the ends of everything it had were reported before.
    Unloaded,
    /// The next one is traced; what exists in it is reported after this.
    Loaded,
}

/// The fields of every event, of a line that belongs to no process.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Unowned {
    schema: u32,
    /// Wall clock, RFC 3339 in UTC.
    ts: Option<String>,
    mono_ns: u64,
    event: &'static str,
    pid: Option<u32>,
    tid: Option<u32>,
    task_pid: Option<u32>,
    comm: Option<&'static str>,
    kfd_process: Option<&'static str>,
}

impl Unowned {
    pub(super) fn new(event: &'static str, mono_ns: u64, clock: &Clock) -> Self {
        let (pid, tid, task_pid, comm, kfd_process) = (None, None, None, None, None);
        let ts = clock.rfc3339(mono_ns);
        Unowned { schema: SCHEMA, ts, mono_ns, event, pid, tid, task_pid, comm, kfd_process }
    }
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DriverLine {
    #[serde(flatten)]
    unowned: Unowned,
    /// Loads of the driver that were traced, including this one.
    driver_loads: u64,
}

/// Writes one line. `mono_ns`: when it was noticed; `loads`: driver loads traced so far, including this one.
///
/// # Errors
/// Those of `out`.
pub fn driver(out: &mut impl Write, what: Driver, mono_ns: u64, clock: &Clock, loads: u64) -> io::Result<()> {
    escape::json(&mut *out, &line(what, mono_ns, clock, loads))?;
    writeln!(out)
}

/// The object of one line, see [`driver`].
pub(crate) fn line(what: Driver, mono_ns: u64, clock: &Clock, loads: u64) -> impl Serialize + use<> {
    let event = match what {
        Driver::Unloaded => "driver_unloaded",
        Driver::Loaded => "driver_loaded",
    };
    DriverLine { unowned: Unowned::new(event, mono_ns, clock), driver_loads: loads }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::tz::TimeZone;
    use serde_json::{Value, json};

    #[test]
    fn it_has_the_fields_of_every_event_and_is_of_nobody() {
        let clock = Clock { mono_to_wall_ns: 1_790_000_000_000_000_000, zone: TimeZone::UTC };
        let mut out = Vec::new();
        driver(&mut out, Driver::Unloaded, 1, &clock, 1).unwrap();
        driver(&mut out, Driver::Loaded, 2, &clock, 2).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let none = Value::Null;
        let line = |at: u64, event: &str, loads: u64| {
            json!({
                "schema": 1, "ts": format!("2026-09-21T14:13:20.{at:09}Z"), "mono_ns": at, "event": event,
                "pid": none, "tid": none, "task_pid": none, "comm": none, "kfd_process": none,
                "driver_loads": loads,
            })
        };
        assert_eq!(lines, [line(1, "driver_unloaded", 1), line(2, "driver_loaded", 2)]);
    }
}
