//! The JSON lines that a process prints; callers can wait for them.

use anyhow::{Result, bail};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Output {
    lines: Vec<Value>,
    /// Lines that are not JSON.
    other: Vec<String>,
    ended: bool,
    stderr: String,
}

/// A view of the output of a process, from one of its lines on.
#[derive(Clone, Debug)]
pub struct JsonLines {
    /// The command line, for messages.
    name: String,
    from: usize,
    output: Arc<(Mutex<Output>, Condvar)>,
}

impl JsonLines {
    /// Reads both outputs of a process to their ends, each in a thread of its own.
    pub(super) fn read(
        name: String,
        stdout: impl Read + Send + 'static,
        stderr: impl Read + Send + 'static,
    ) -> Self {
        let output = Arc::<(Mutex<Output>, Condvar)>::default();
        let lines = Arc::clone(&output);
        std::thread::spawn(move || read_lines(stdout, &lines));
        let errors = Arc::clone(&output);
        std::thread::spawn(move || read_errors(stderr, &errors));
        Self { name, from: 0, output }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same output without its first lines: as many as given, counted from this view.
    #[must_use]
    pub fn after(&self, lines: usize) -> Self {
        Self { from: self.from + lines, ..self.clone() }
    }

    /// Passes all JSON lines so far to `look`, without copying them.
    pub fn look<T>(&self, look: impl FnOnce(&[Value]) -> T) -> T {
        look(self.seen(&lock(&self.output.0)))
    }

    /// All JSON lines so far.
    pub fn lines(&self) -> Vec<Value> {
        self.look(<[Value]>::to_vec)
    }

    /// Events of one kind, in order.
    pub fn events(&self, event: &str) -> Vec<Value> {
        self.look(|lines| lines.iter().filter(|line| line["event"] == event).cloned().collect())
    }

    /// Lines of standard output that are not JSON.
    pub fn other_lines(&self) -> Vec<String> {
        lock(&self.output.0).other.clone()
    }

    /// All of standard error so far.
    pub fn stderr(&self) -> String {
        lock(&self.output.0).stderr.clone()
    }

    /// The first line, of those printed already and those to come, that `wanted` accepts.
    pub fn wait_line(&self, what: &str, limit: Duration, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        self.wait_lines(what, limit, |lines| lines.iter().find(|line| wanted(line)).cloned())
    }

    /// Passes all lines so far to `look`, whenever there is a new one, until `look` returns a value.
    pub fn wait_lines<T>(
        &self,
        what: &str,
        limit: Duration,
        look: impl Fn(&[Value]) -> Option<T>,
    ) -> Result<T> {
        let start = Instant::now();
        let (mutex, changed) = &*self.output;
        let mut output = lock(mutex);
        loop {
            if let Some(value) = look(self.seen(&output)) {
                return Ok(value);
            }
            let left = limit.saturating_sub(start.elapsed());
            if output.ended || left.is_zero() {
                let why = if output.ended { "its output ended" } else { "not in time" };
                let (lines, stderr) = (self.seen(&output).len(), &output.stderr);
                bail!("{what}: {why} ({limit:?}); `{}`: {lines} lines, stderr: {stderr}", self.name);
            }
            output = changed.wait_timeout(output, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn seen<'a>(&self, output: &'a Output) -> &'a [Value] {
        output.lines.get(self.from..).unwrap_or_default()
    }
}

/// A panic of a reader leaves the lines read so far usable.
fn lock(mutex: &Mutex<Output>) -> MutexGuard<'_, Output> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_lines(stdout: impl Read, (mutex, changed): &(Mutex<Output>, Condvar)) {
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        let mut output = lock(mutex);
        match serde_json::from_str(&line) {
            Ok(value) => output.lines.push(value),
            Err(_) => output.other.push(line),
        }
        changed.notify_all();
    }
    lock(mutex).ended = true;
    changed.notify_all();
}

fn read_errors(stderr: impl Read, (mutex, _): &(Mutex<Output>, Condvar)) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        let mut output = lock(mutex);
        output.stderr.push_str(&line);
        output.stderr.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::json_process::JsonProcess;
    use super::super::wait::SOON;

    #[test]
    fn a_view_begins_at_its_mark() {
        let script = r#"for n in 1 2 3; do echo "{\"event\":\"e\",\"n\":$n}"; done"#;
        let process = JsonProcess::spawn("sh", &["-c", script]).unwrap();
        process.wait_line("the last", SOON, |line| line["n"] == 3).unwrap();
        let last = process.after(1).after(1);
        assert_eq!((process.lines().len(), last.events("e").len()), (3, 1));
        last.wait_line("the last", SOON, |_| true).unwrap();
        assert!(last.after(1).lines().is_empty() && last.after(9).lines().is_empty());
    }
}
