//! The whole terminal, for a program that draws: entered, and restored on every way out.
//!
//! In: frames. Out: what differs from the frame before, as one update.

use super::exit::Stop;
use super::stderr::{self, Hold};
use crossterm::cursor::Show;
use crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use crossterm::execute;
use crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Size;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IsTerminal as _, Stdout, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// It is entered and not yet restored.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether standard input and output are one.
///
/// # Errors
/// One line, if not.
pub fn check(command: &str) -> Result<(), Stop> {
    let missing = match (io::stdin().is_terminal(), io::stdout().is_terminal()) {
        (true, true) => return Ok(()),
        (_, false) => "output",
        (false, true) => "input",
    };
    Err(Stop::usage(format!(
        "`{command}` needs a terminal, and standard {missing} is none; see `kfd-trace ps` and `kfd-trace --json`"
    )))
}

/// The screen of the terminal; dropping it restores what was there before, and prints the messages that came meanwhile.
pub struct FullScreen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    _hold: Hold,
}

impl FullScreen {
    /// # Errors
    /// If the terminal cannot be set up.
    pub fn enter() -> io::Result<Self> {
        restore_on_panic();
        let hold = stderr::hold();
        ENTERED.store(true, Ordering::SeqCst);
        let entered = enable_raw_mode()
            .and_then(|()| execute!(stdout(), EnterAlternateScreen, EnableMouseCapture))
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        match entered {
            Ok(terminal) => Ok(FullScreen { terminal, _hold: hold }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }

    /// # Errors
    /// If the terminal does not report it.
    pub fn size(&self) -> io::Result<Size> {
        self.terminal.size()
    }

    /// # Errors
    /// If the terminal is gone.
    pub fn draw(&mut self, show: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        // A thread that panicked has restored the terminal, and the process ends.
        if !ENTERED.load(Ordering::SeqCst) {
            return Ok(());
        }
        execute!(stdout(), BeginSynchronizedUpdate)?;
        let drawn = self.terminal.draw(show).map(drop);
        execute!(stdout(), EndSynchronizedUpdate)?;
        drawn
    }
}

impl Drop for FullScreen {
    fn drop(&mut self) {
        restore();
    }
}

/// Once. There is nowhere to report an error: the terminal is gone.
fn restore() {
    if ENTERED.swap(false, Ordering::SeqCst) {
        leave_raw_mode();
        let _ = execute!(stdout(), EndSynchronizedUpdate, DisableMouseCapture, LeaveAlternateScreen, Show);
    }
}

/// Whether standard input's terminal was closed, of which no signal need tell. crossterm goes on to read its end (0.29,
/// `event/source/unix/tty.rs`).
pub fn is_closed() -> bool {
    let input = io::stdin();
    let mut input = [PollFd::new(&input, PollFlags::empty())];
    poll(&mut input, Some(&Timespec::default())).is_ok() && input[0].revents().contains(PollFlags::HUP)
}

/// What does not wait for a terminal that is not read.
pub fn leave_raw_mode() {
    let _ = disable_raw_mode();
}

/// The message of a panic is for the screen that was there before.
fn restore_on_panic() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}
