//! What is shown, between the moments that come and the keys that are pressed. Pure.

use crate::output::top::{Controls, Moment, Trends, Ui, View};
use crossterm::event::{Event, KeyCode, KeyModifiers};
use ratatui::layout::Size;

/// The moments with what the user chose.
#[derive(Default)]
pub(super) struct Player {
    ui: Ui,
    trends: Trends,
    latest: Option<Moment>,
    /// While it is paused: what was shown then.
    kept: Option<(Moment, Trends)>,
}

impl Player {
    pub(super) fn take(&mut self, moment: Moment) {
        // A recording may go back.
        if self.latest.as_ref().is_some_and(|latest| latest.now_ns > moment.now_ns) {
            self.trends = Trends::default();
        }
        self.trends.add(&moment);
        self.latest = Some(moment);
    }

    /// False if it ends.
    pub(super) fn press(&mut self, event: &Event, size: Size) -> bool {
        let Some(view) = self.view(size) else { return !ends(event) };
        let Some(ui) = std::mem::take(&mut self.ui).after(event, &view) else { return false };
        self.ui = ui;
        match (self.ui.is_paused(), &self.latest) {
            (false, _) => self.kept = None,
            // A recording that is paused does not go on.
            (true, Some(latest)) if self.kept.is_none() && latest.played.is_none() => {
                self.kept = Some((latest.clone(), self.trends.clone()));
            }
            (true, _) => {}
        }
        true
    }

    pub(super) fn controls(&self) -> Controls {
        self.ui.controls()
    }

    /// `None` before the first moment.
    pub(super) fn view(&mut self, size: Size) -> Option<View> {
        let latest = self.latest.as_ref().map(|moment| (moment, &self.trends));
        let (moment, trends) = self.kept.as_ref().map(|(moment, trends)| (moment, trends)).or(latest)?;
        let view = View::new(moment, trends, &self.ui, size);
        self.ui = std::mem::take(&mut self.ui).settled(&view);
        Some(view)
    }
}

/// Before the first moment.
fn ends(event: &Event) -> bool {
    let Event::Key(key) = event else { return false };
    match key.code {
        KeyCode::Char('q') => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}
