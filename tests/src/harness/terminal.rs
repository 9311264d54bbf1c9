//! A program on a terminal of its own, and what that shows.

use super::child::OwnChild;
use super::svg::svg;
use super::wait::{SOON, until};
use anyhow::{Context, Result, bail, ensure};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::termios::tcsetwinsize;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use vt100::Parser;

/// Killed and reaped when dropped.
pub struct TerminalProcess {
    child: OwnChild,
    master: File,
    /// Kept open: else the settings of the terminal end with the program.
    slave: File,
    screen: Arc<Mutex<Parser>>,
}

impl TerminalProcess {
    /// `size`: columns and lines.
    pub fn spawn(program: &str, args: &[&str], size: (u16, u16)) -> Result<Self> {
        let (columns, lines) = size;
        let window = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(&window, None).context("open a terminal")?;
        let (master, slave) = (File::from(master), File::from(slave));
        let mut command = Command::new(program);
        command.args(args).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave.try_clone()?);
        // The kernel signals another size to programs of this terminal alone.
        let terminal = slave.try_clone()?;
        let own = move || {
            setsid()?;
            ioctl_tiocsctty(&terminal)?;
            Ok(())
        };
        // SAFETY: two system calls, which allocate nothing.
        unsafe { command.pre_exec(own) };
        let child = command.spawn().with_context(|| format!("start {program} {args:?}"))?;
        let screen = Arc::new(Mutex::new(Parser::new(cells(lines)?, cells(columns)?, 0)));
        let (mut output, shown) = (master.try_clone()?, screen.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                lock(&shown).process(&bytes[..length]);
            }
        });
        Ok(Self { child: OwnChild(child), master, slave, screen })
    }

    pub fn press(&mut self, keys: &str) -> Result<()> {
        self.master.write_all(keys.as_bytes()).context("press keys")
    }

    /// `size`: columns and lines.
    pub fn resize(&self, size: (u16, u16)) -> Result<()> {
        let (ws_col, ws_row) = size;
        lock(&self.screen).screen_mut().set_size(cells(ws_row)?, cells(ws_col)?);
        let window = rustix::termios::Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, window).context("resize the terminal")
    }

    /// The screen's text.
    pub fn text(&self) -> String {
        lock(&self.screen).screen().contents()
    }

    /// The screen as a picture.
    pub fn svg(&self, title: &str) -> String {
        svg(lock(&self.screen).screen(), title)
    }

    /// Waits until the screen is as wanted.
    pub fn wait<T>(&mut self, what: &str, limit: Duration, wanted: impl Fn(&str) -> Option<T>) -> Result<T> {
        let found = until(what, limit, || {
            let text = self.text();
            if let Some(found) = wanted(&text) {
                return Ok(Some(found));
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended: {status}");
            }
            Ok(None)
        });
        found.with_context(|| format!("the screen:\n{}", self.text()))
    }

    /// Waits for this text.
    pub fn wait_text(&mut self, text: &str, limit: Duration) -> Result<()> {
        self.wait(text, limit, |shown| shown.contains(text).then_some(()))
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(Pid::from_raw(i32::try_from(self.child.id())?), signal).context("signal it")
    }

    pub fn wait_exit(&mut self, limit: Duration) -> Result<ExitStatus> {
        until("its end", limit, || Ok(self.child.try_wait()?))
    }

    /// Waits for its end with success, and for [`Self::is_restored`]: what it wrote last may still be on its way.
    pub fn wait_restored(&mut self, limit: Duration) -> Result<()> {
        let status = self.wait_exit(limit)?;
        ensure!(status.success(), "{status}, the screen:\n{}", self.text());
        until("the terminal as it was", SOON, || Ok(self.is_restored()?.then_some(())))
    }

    /// The terminal is as a shell expects it: lines are edited and echoed, the usual screen is shown with a cursor, and
    /// the mouse is not reported.
    pub fn is_restored(&self) -> Result<bool> {
        let flags = tcgetattr(&self.slave).context("read the terminal's settings")?.local_flags;
        let parser = lock(&self.screen);
        let screen = parser.screen();
        let shown = !screen.alternate_screen() && !screen.hide_cursor();
        let silent = screen.mouse_protocol_mode() == vt100::MouseProtocolMode::None;
        Ok(flags.contains(LocalFlags::ECHO | LocalFlags::ICANON) && shown && silent)
    }
}

fn cells(count: u16) -> Result<NonZero<u16>> {
    NonZero::new(count).context("a terminal of no size")
}

fn lock(screen: &Mutex<Parser>) -> MutexGuard<'_, Parser> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_a_screen_keys_and_a_size() {
        let script = "trap 'stty size' WINCH; printf '\\033[?1049h\\033[2J\\033[Hhello'; stty -echo; \
                      until read key; do :; done; stty echo; printf '\\033[?1049l'; exit 3";
        let mut sh = TerminalProcess::spawn("/bin/sh", &["-c", script], (80, 24)).unwrap();
        sh.wait_text("hello", SOON).unwrap();
        until("no echo", SOON, || Ok((!sh.is_restored()?).then_some(()))).unwrap();
        sh.resize((70, 20)).unwrap();
        sh.wait_text("20 70", SOON).unwrap();
        sh.press("\r").unwrap();
        assert_eq!(sh.wait_exit(SOON).unwrap().code(), Some(3));
        until("the usual screen", SOON, || Ok(sh.is_restored()?.then_some(()))).unwrap();
    }
}
