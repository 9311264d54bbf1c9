//! QEMU's control channel (docs/interop/qmp-spec.rst of QEMU). In: commands. Out: their answers; events
//! between them are passed over.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Far beyond what a busy host needs for an answer, or for a few hundred MB.
const LIMIT: Duration = Duration::from_secs(600);

/// Between two looks at a migration, which takes some 0.3 s.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Qmp<R, W> {
    answers: R,
    commands: W,
}

impl Qmp<BufReader<UnixStream>, UnixStream> {
    pub(crate) fn of(channel: UnixStream) -> Result<Self> {
        channel.set_read_timeout(Some(LIMIT)).context("cannot limit the wait for the emulator")?;
        let answers = BufReader::new(channel.try_clone().context("cannot share the emulator's channel")?);
        Self::greet(answers, channel)
    }
}

impl<R: BufRead, W: Write> Qmp<R, W> {
    /// Commands are taken after the greeting's exchange.
    fn greet(answers: R, commands: W) -> Result<Self> {
        let mut client = Self { answers, commands };
        let greeting = client.next()?;
        if greeting.get("QMP").is_none() {
            bail!("the emulator greets with {greeting}");
        }
        client.run("qmp_capabilities", &json!({}))?;
        Ok(client)
    }

    /// Runs a command to its answer.
    pub(crate) fn run(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        let request = json!({ "execute": command, "arguments": arguments });
        writeln!(self.commands, "{request}").with_context(|| format!("the emulator takes no {command}"))?;
        loop {
            let mut answer = self.next().with_context(|| format!("{command} has no answer"))?;
            if let Some(error) = answer.get("error") {
                bail!("{command}: {}", error["desc"].as_str().unwrap_or("an error without description"));
            }
            if let Some(result) = answer.get_mut("return") {
                return Ok(result.take());
            }
        }
    }

    fn next(&mut self) -> Result<Value> {
        let mut line = String::new();
        if self.answers.read_line(&mut line).context("cannot read from the emulator")? == 0 {
            bail!("the emulator has ended");
        }
        serde_json::from_str(&line).with_context(|| format!("the emulator sent {line:?}"))
    }

    /// Stops the machine and saves it. `Ok`: the file is whole.
    pub(crate) fn save(&mut self, file: &Path) -> Result<()> {
        self.run("stop", &json!({}))?;
        self.by_page()?;
        self.run("migrate", &json!({ "uri": uri(file)? }))?;
        self.migrated()
    }

    /// Loads a saved machine, which has not gone on yet.
    pub(crate) fn load(&mut self, file: &Path) -> Result<()> {
        self.by_page()?;
        // The emulator would otherwise end before it has answered why.
        self.run("migrate-incoming", &json!({ "uri": uri(file)?, "exit-on-error": false }))?;
        self.migrated()
    }

    pub(crate) fn go_on(&mut self) -> Result<()> {
        self.run("cont", &json!({})).map(drop)
    }

    /// Each page at its own place in the file: pages of zeros take no room.
    fn by_page(&mut self) -> Result<()> {
        let by_page = json!({ "capabilities": [{ "capability": "mapped-ram", "state": true }] });
        self.run("migrate-set-capabilities", &by_page).map(drop)
    }

    fn migrated(&mut self) -> Result<()> {
        let begin = Instant::now();
        loop {
            let state = self.run("query-migrate", &json!({}))?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some(end @ ("failed" | "cancelled")) => {
                    bail!("{}", state["error-desc"].as_str().unwrap_or(end))
                }
                _ if begin.elapsed() > LIMIT => bail!("not done after {} s", LIMIT.as_secs()),
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

fn uri(file: &Path) -> Result<String> {
    let path = file.to_str().with_context(|| format!("{} is no text", file.display()))?;
    Ok(format!("file:{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}
{"return": {}}
"#;

    /// A client for which these answers have been sent.
    fn client(answers: &str) -> Qmp<&[u8], Vec<u8>> {
        let all: &'static str = (GREETING.to_owned() + answers).leak();
        Qmp::greet(all.as_bytes(), Vec::new()).expect("a greeting")
    }

    #[test]
    fn an_answer_is_found_behind_events() {
        let mut client = client(
            r#"{"timestamp": {"seconds": 1}, "event": "STOP"}
{"event": "MIGRATION", "data": {"status": "setup"}}
{"return": {"status": "paused"}}
{"return": {}}
"#,
        );
        let answer = client.run("query-status", &json!({})).expect("an answer");
        assert_eq!(answer, json!({ "status": "paused" }));
        let sent = String::from_utf8(client.commands).expect("text");
        let names: Vec<Value> = sent.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(names[1], json!({ "execute": "query-status", "arguments": {} }));
    }

    #[test]
    fn an_error_and_an_end_are_named() {
        let mut failed = client(r#"{"error": {"class": "GenericError", "desc": "no such file"}}"#);
        assert_eq!(failed.run("migrate", &json!({})).unwrap_err().to_string(), "migrate: no such file");
        let error = format!("{:#}", client("").run("cont", &json!({})).unwrap_err());
        assert_eq!(error, "cont has no answer: the emulator has ended");
        assert!(Qmp::greet(&b"{\"return\": {}}\n"[..], Vec::new()).is_err());
    }

    #[test]
    fn a_migration_is_done_when_it_is_completed() {
        let state = |status: &str| format!("{{\"return\": {{\"status\": \"{status}\"}}}}\n");
        let done = |answers: &str| client(&("{\"return\": {}}\n".repeat(3) + answers)).save(Path::new("/x"));
        assert!(done(&(state("active") + &state("completed"))).is_ok());
        assert!(done(&(state("active"))).is_err(), "the emulator ended meanwhile");
        let failed = r#"{"return": {"status": "failed", "error-desc": "No space left on device"}}"#;
        assert_eq!(done(failed).unwrap_err().to_string(), "No space left on device");
    }
}
