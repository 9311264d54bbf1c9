//! Asks for a password on the terminal, without showing it.

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{self, IsTerminal as _, Read as _, Write as _, stderr, stdin};

/// What was set before; set again when this is dropped.
struct Quiet(Termios);

impl Quiet {
    /// Keys come one by one, unseen, those that end a program as well: it would leave the terminal like this.
    fn new() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        tcsetattr(stdin(), OptionalActions::Flush, &quiet)?;
        Ok(Quiet(before))
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone needs none.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

/// `None`: standard input is no terminal.
///
/// # Errors
/// If it cannot be read, or the user ends it.
pub fn ask(prompt: &str) -> io::Result<Option<String>> {
    if !stdin().is_terminal() {
        return Ok(None);
    }
    // Lines for people are written by `stderr::say`, which ends each.
    write!(stderr(), "{prompt}")?;
    let quiet = Quiet::new()?;
    let typed = typed(stdin().lock().bytes());
    drop(quiet);
    writeln!(stderr())?;
    typed.map(Some)
}

const CTRL_C: u8 = 0x03;
const CTRL_D: u8 = 0x04;
const CTRL_U: u8 = 0x15;
const BACKSPACE: [u8; 2] = [0x08, 0x7f];

/// A line as it was typed and corrected.
fn typed(keys: impl Iterator<Item = io::Result<u8>>) -> io::Result<String> {
    let mut line = Vec::new();
    for key in keys {
        match key? {
            b'\r' | b'\n' => break,
            CTRL_C | CTRL_D => return Err(io::ErrorKind::Interrupted.into()),
            CTRL_U => line.clear(),
            key if BACKSPACE.contains(&key) => {
                // A character may have several bytes.
                while line.pop().is_some_and(|byte: u8| byte & 0xc0 == 0x80) {}
            }
            key => line.push(key),
        }
    }
    String::from_utf8(line).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(keys: &[u8]) -> io::Result<String> {
        typed(keys.iter().map(|key| Ok(*key)))
    }

    #[test]
    fn it_can_be_corrected_and_ended() {
        assert_eq!(line(b"abc\nmore").expect("a line"), "abc");
        assert_eq!(line("aö\u{7f}\u{7f}b\u{8}cd\r".as_bytes()).expect("a line"), "cd");
        assert_eq!(line(b"\x7f\x7fab\x15xy").expect("a line"), "xy");
        assert_eq!(line(b"ab\x03").expect_err("ended").kind(), io::ErrorKind::Interrupted);
        assert_eq!(line(b"\xff\n").expect_err("no text").kind(), io::ErrorKind::InvalidData);
    }
}
