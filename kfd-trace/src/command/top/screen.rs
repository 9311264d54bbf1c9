//! The thread that draws and reads keys: a terminal that is not read delays the drawing, and nothing else.
//!
//! In: moments, of which only the latest waits, and keys. Out: frames, and the end.

use super::player::Player;
use crate::output::top::{Moment, render};
use crate::runtime::exit::Stop;
use crate::runtime::terminal::{self, FullScreen};
use ratatui::crossterm::event::{self, Event, MouseEventKind};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long the end waits for a terminal that is not read.
const LAST: Duration = Duration::from_secs(1);

enum Input {
    /// There is a moment.
    Moment,
    Event(Event),
    End,
}

/// The latest moment that is not shown yet.
type Slot = Arc<Mutex<Option<Moment>>>;

fn put(slot: &Slot, moment: Option<Moment>) -> Option<Moment> {
    std::mem::replace(&mut *slot.lock().unwrap_or_else(PoisonError::into_inner), moment)
}

/// The drawing thread.
pub(super) struct Screen {
    inputs: Sender<Input>,
    slot: Slot,
    /// `None` after it.
    ended: Option<oneshot::Receiver<io::Result<()>>>,
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub(super) fn open(colour: bool) -> Result<Self, Stop> {
        let terminal = FullScreen::enter();
        let terminal =
            terminal.map_err(|error| Stop::failed(format!("cannot set up the terminal: {error}")))?;
        let (inputs, received) = channel();
        let (slot, keys) = (Slot::default(), inputs.clone());
        let (end, ended) = oneshot::channel();
        let moments = slot.clone();
        // It waits for keys until the process ends.
        thread::spawn(move || read(&keys));
        thread::spawn(move || {
            let shown = show(terminal, &received, &moments, colour);
            // Who ended it may be gone.
            let _ = end.send(shown);
        });
        Ok(Screen { inputs, slot, ended: Some(ended) })
    }

    pub(super) fn show(&self, moment: Moment) {
        if put(&self.slot, Some(moment)).is_none() {
            // After its end there is nothing to show.
            let _ = self.inputs.send(Input::Moment);
        }
    }

    /// Waits for the user to end it. Cancel-safe.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub(super) async fn ended(&mut self) -> Result<(), Stop> {
        let Some(ended) = &mut self.ended else { return Ok(()) };
        let ended = ended.await;
        self.ended = None;
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Stop::failed(format!("cannot write to the terminal: {error}"))),
            Err(_) => Err(Stop::failed("the screen ended unexpectedly")),
        }
    }

    /// Restores the terminal, if [`Screen::ended`] has not returned yet; one that is not read only as far as that needs
    /// no output.
    pub(super) async fn close(&mut self) {
        let _ = self.inputs.send(Input::End);
        if timeout(LAST, self.ended()).await.is_err() {
            terminal::leave_raw_mode();
        }
    }
}

/// Ends the screen when no key can be read any more.
fn read(inputs: &Sender<Input>) {
    while let Ok(event) = event::read() {
        if is_input(&event) && inputs.send(Input::Event(event)).is_err() {
            return;
        }
    }
    let _ = inputs.send(Input::End);
}

/// A mouse that is only moved sends hundreds of events.
pub(super) fn is_input(event: &Event) -> bool {
    match event {
        Event::Key(_) | Event::Resize(..) => true,
        Event::Mouse(mouse) => matches!(
            mouse.kind,
            MouseEventKind::Down(_) | MouseEventKind::ScrollDown | MouseEventKind::ScrollUp
        ),
        Event::FocusGained | Event::FocusLost | Event::Paste(_) => false,
    }
}

/// Draws once for all that came meanwhile. Dropping the terminal restores it.
fn show(mut terminal: FullScreen, inputs: &Receiver<Input>, slot: &Slot, colour: bool) -> io::Result<()> {
    let mut player = Player::default();
    while let Ok(first) = inputs.recv() {
        for input in std::iter::once(first).chain(inputs.try_iter()) {
            match input {
                Input::Moment => put(slot, None).into_iter().for_each(|moment| player.take(moment)),
                Input::Event(event) if player.press(&event, terminal.size()?) => {}
                Input::Event(_) | Input::End => return Ok(()),
            }
        }
        if let Some(view) = player.view(terminal.size()?) {
            terminal.draw(|frame| render(&view, frame, colour))?;
        }
    }
    Ok(())
}
