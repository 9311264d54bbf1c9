//! What is shown, between the moments that come and the keys that are pressed. Pure.

use crate::output::top::{Moment, Trends, Ui, View};
use ratatui::crossterm::event::Event;
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
        self.trends.add(&moment);
        self.latest = Some(moment);
    }

    /// False if it ends.
    pub(super) fn press(&mut self, event: &Event, size: Size) -> bool {
        let Some(view) = self.view(size) else { return true };
        let Some(ui) = std::mem::take(&mut self.ui).after(event, &view) else { return false };
        self.ui = ui;
        match (self.ui.is_paused(), &self.latest) {
            (false, _) => self.kept = None,
            (true, Some(latest)) if self.kept.is_none() => {
                self.kept = Some((latest.clone(), self.trends.clone()));
            }
            (true, _) => {}
        }
        true
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
