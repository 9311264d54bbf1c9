//! A headless Chromium, controlled by its DevTools protocol over a pipe: JSON messages that end with a zero byte.
//!
//! In: commands. Out: their results, and what the browser reported meanwhile.

use crate::paths;
use crate::setup::BROWSER;
use anyhow::{Context as _, Result, bail};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time for an answer: the machine may be busy.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) struct Browser {
    child: Child,
    commands: File,
    messages: Receiver<Value>,
    /// Of the page.
    session: Option<String>,
    next: u64,
    /// Events that were not looked at yet.
    events: Vec<Value>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts it with a profile of its own, and one empty page.
    ///
    /// # Errors
    /// If it cannot be started, or does not answer.
    pub(super) fn start() -> Result<Self> {
        let folder = paths::target().join("browser");
        // What another run left.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).context("cannot make the browser's folder")?;
        let [commands, messages] = ["commands", "messages"].map(|name| folder.join(name));
        for pipe in [&commands, &messages] {
            mkfifo(pipe, Mode::S_IRUSR | Mode::S_IWUSR).context("cannot make a pipe")?;
        }
        // The browser reads descriptor 3 and writes 4.
        let child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<\"$COMMANDS\" 4>\"$MESSAGES\"", BROWSER])
            .args(["--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--disable-background-networking", "--ignore-certificate-errors", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", folder.join("profile").display()))
            .env("COMMANDS", &commands)
            .env("MESSAGES", &messages)
            .env("HOME", &folder)
            .stdout(Stdio::null())
            .stderr(File::create(folder.join("log"))?)
            .spawn()
            .context("cannot start the browser")?;
        // Each waits until the other side has opened it.
        let commands = File::options().write(true).open(&commands).context("no pipe to the browser")?;
        let pipe = File::open(&messages).context("no pipe from the browser")?;
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(pipe).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut browser = Browser { child, commands, messages, session: None, next: 0, events: Vec::new() };
        let made = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let attach = json!({"targetId": made["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Performance"] {
            browser.call(&format!("{domain}.enable"), &json!({}))?;
        }
        Ok(browser)
    }

    /// Sends a command and waits for its result.
    ///
    /// # Errors
    /// What the browser refuses; that it does not answer.
    pub(super) fn call(&mut self, method: &str, parameters: &Value) -> Result<Value> {
        self.next += 1;
        let mut command = json!({"id": self.next, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut text = command.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).context("the browser has ended")?;
        let until = Instant::now() + ANSWER_TIMEOUT;
        loop {
            let message = self.message(until).with_context(|| format!("no answer to {method}"))?;
            if message["id"] != json!(self.next) {
                self.events.push(message);
            } else if let Some(error) = message.get("error") {
                bail!("{method}: {error}");
            } else {
                return Ok(message["result"].clone());
            }
        }
    }

    fn message(&self, until: Instant) -> Result<Value> {
        self.messages
            .recv_timeout(until.saturating_duration_since(Instant::now()))
            .context("the browser sends nothing")
    }

    /// Waits for an event of this name.
    ///
    /// # Errors
    /// If it does not come.
    pub(super) fn until(&mut self, method: &str) -> Result<()> {
        let until = Instant::now() + ANSWER_TIMEOUT;
        while !self.events.iter().any(|event| event["method"] == method) {
            let message = self.message(until).with_context(|| format!("no {method}"))?;
            self.events.push(message);
        }
        Ok(())
    }

    /// Opens a page and waits until it is there.
    ///
    /// # Errors
    /// As [`Browser::call`], and if the page cannot be had.
    pub(super) fn open(&mut self, url: &str) -> Result<()> {
        self.events.retain(|event| event["method"] != "Page.loadEventFired");
        let done = self.call("Page.navigate", &json!({"url": url}))?;
        if let Some(error) = done.get("errorText").and_then(Value::as_str) {
            bail!("{url}: {error}");
        }
        self.until("Page.loadEventFired")
    }

    /// The value of an expression, or of its promise.
    ///
    /// # Errors
    /// As [`Browser::call`], and if it throws.
    pub(super) fn value(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let done = self.call("Runtime.evaluate", &parameters)?;
        if let Some(thrown) = done.get("exceptionDetails") {
            bail!("{expression}: {thrown}");
        }
        Ok(done["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// If it does not become so, with `what`.
    pub(super) fn becomes(&mut self, expression: &str, what: &str) -> Result<()> {
        let until = Instant::now() + ANSWER_TIMEOUT;
        while self.value(expression)? != json!(true) {
            if Instant::now() > until {
                bail!("{what}: {expression} did not become true");
            }
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Takes the events that have come.
    pub(super) fn events(&mut self) -> Vec<Value> {
        self.events.extend(self.messages.try_iter());
        std::mem::take(&mut self.events)
    }
}
