//! The thread that draws and reads keys: a terminal that is not read delays the drawing, and nothing else.
//!
//! In: moments, of which only the latest waits, and keys. Out: frames, and the end.

use super::player::Player;
use crate::output::top::{Controls, Moment, render};
use crate::runtime::exit::Stop;
use crate::runtime::signals::Signals;
use crate::runtime::terminal::{self, FullScreen};
use crossterm::event::{self, Event, MouseEventKind};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

/// How long the end waits for a terminal that is not read.
const LAST: Duration = Duration::from_secs(1);

/// What is shown first may take so long before the screen says what is awaited: an error is printed without it.
const AWAITED: Duration = Duration::from_millis(300);

/// After the end, what is typed is for the next program: how soon the reading of keys notices.
const KEYS: Duration = Duration::from_millis(100);

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
    controls: watch::Receiver<Controls>,
    /// `None` after it.
    ended: Option<oneshot::Receiver<io::Result<()>>>,
    /// No key is read any more.
    over: Arc<AtomicBool>,
    /// `None` after its end.
    reader: Option<JoinHandle<()>>,
}

/// Waits for what is shown first. If that takes a while, the screen shows `awaits`, and hears keys meanwhile. `None`: the
/// user, or a signal, ended it.
///
/// # Errors
/// Those of `first`, or if there is no terminal.
pub(super) async fn await_first<T>(
    first: impl Future<Output = Result<T, Stop>>,
    awaits: &str,
    colour: bool,
    signals: &mut Signals,
) -> Result<Option<(T, Screen)>, Stop> {
    let mut first = pin!(first);
    let early = tokio::select! {
        first = &mut first => Some(first?),
        () = signals.any() => return Ok(None),
        () = sleep(AWAITED) => None,
    };
    let mut screen = Screen::open(colour, awaits)?;
    if let Some(first) = early {
        return Ok(Some((first, screen)));
    }
    let came = tokio::select! {
        first = first => first.map(Some),
        () = signals.any() => Ok(None),
        ended = screen.ended() => ended.map(|()| None),
    };
    match came {
        Ok(Some(first)) => Ok(Some((first, screen))),
        ended => {
            screen.close().await;
            ended.map(|_| None)
        }
    }
}

impl Screen {
    /// Takes the terminal. `awaits`: shown until there is a moment.
    ///
    /// # Errors
    /// If it cannot be set up.
    pub(super) fn open(colour: bool, awaits: &str) -> Result<Self, Stop> {
        let terminal = FullScreen::enter();
        let terminal =
            terminal.map_err(|error| Stop::failed(format!("cannot set up the terminal: {error}")))?;
        let (inputs, received) = channel();
        let (slot, keys) = (Slot::default(), inputs.clone());
        let (end, ended) = oneshot::channel();
        let (control, controls) = watch::channel(Controls::default());
        let moments = slot.clone();
        let over = Arc::new(AtomicBool::new(false));
        let (reads, shows) = (Arc::clone(&over), Arc::clone(&over));
        let reader = thread::spawn(move || read(&keys, &reads));
        let awaits = format!("kfd-trace top: {awaits}…  q quit");
        thread::spawn(move || {
            let shown = show(terminal, &received, &moments, &control, (colour, &awaits));
            shows.store(true, Ordering::Relaxed);
            // Who ended it may be gone.
            let _ = end.send(shown);
        });
        Ok(Screen { inputs, slot, controls, ended: Some(ended), over, reader: Some(reader) })
    }

    pub(super) fn show(&self, moment: Moment) {
        if put(&self.slot, Some(moment)).is_none() {
            // After its end there is nothing to show.
            let _ = self.inputs.send(Input::Moment);
        }
    }

    /// What the user wants of a recording.
    pub(super) fn controls(&self) -> watch::Receiver<Controls> {
        self.controls.clone()
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
        self.over.store(true, Ordering::Relaxed);
        let _ = self.inputs.send(Input::End);
        if timeout(LAST, self.ended()).await.is_err() {
            terminal::leave_raw_mode();
        }
        if let Some(reader) = self.reader.take() {
            // It has panicked, or ends within `KEYS`.
            let ended = async {
                while !reader.is_finished() {
                    sleep(KEYS / 10).await;
                }
            };
            let _ = timeout(LAST, ended).await;
        }
    }
}

/// Until it is over. Ends the screen where keys cannot be read.
fn read(inputs: &Sender<Input>, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        let event = match event::poll(KEYS) {
            Ok(false) if !terminal::is_closed() => continue,
            Ok(false) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(true) => event::read(),
            Err(error) => Err(error),
        };
        let input = match event {
            Ok(event) if is_input(&event) => Input::Event(event),
            Ok(_) => continue,
            Err(_) => Input::End,
        };
        let ends = matches!(input, Input::End);
        if inputs.send(input).is_err() || ends {
            return;
        }
    }
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
fn show(
    mut terminal: FullScreen,
    inputs: &Receiver<Input>,
    slot: &Slot,
    control: &watch::Sender<Controls>,
    (colour, awaits): (bool, &str),
) -> io::Result<()> {
    let mut player = Player::default();
    loop {
        terminal.draw(|frame| match player.view(frame.area().as_size()) {
            Some(view) => render(&view, frame, colour),
            None => frame.render_widget(awaits, frame.area()),
        })?;
        let Ok(first) = inputs.recv() else { return Ok(()) };
        for input in std::iter::once(first).chain(inputs.try_iter()) {
            match input {
                Input::Moment => put(slot, None).into_iter().for_each(|moment| player.take(moment)),
                Input::Event(event) if player.press(&event, terminal.size()?) => {}
                Input::Event(_) | Input::End => return Ok(()),
            }
        }
        control.send_if_modified(|last| std::mem::replace(last, player.controls()) != *last);
    }
}
