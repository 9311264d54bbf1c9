//! All that the screen shows.

use super::header::{self, Text};
use super::help::Help;
use super::layout::{self, SMALLEST};
use super::pane::{Key, Pane, PaneId};
use super::trends::Trends;
use super::ui::Ui;
use super::{Moment, events, gpus, processes, queues};
use ratatui::layout::{Position, Rect, Size};

/// What the screen shows. A terminal that is too small shows one line.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    pub(super) header: Rect,
    pub(super) first: Text,
    pub(super) second: Vec<Text>,
    /// From top to bottom.
    pub(super) panes: Vec<Pane>,
    pub(super) focus: PaneId,
    pub(super) footer: (Rect, Text),
    /// In the place of all tables.
    pub(super) help: Option<Help>,
    pub(super) too_small: Option<String>,
}

impl View {
    #[must_use]
    pub fn new(moment: &Moment, trends: &Trends, ui: &Ui, size: Size) -> Self {
        let whole = Rect::from((Position::ORIGIN, size));
        let mut view = View {
            header: whole,
            first: header::first(moment, ui),
            second: header::second(moment),
            panes: Vec::new(),
            focus: ui.focus,
            footer: (Rect::default(), Text::default()),
            help: None,
            too_small: None,
        };
        let Some(areas) = layout::areas(whole, moment.topology.gpus.len(), ui.tree) else {
            let (width, height) = SMALLEST;
            let has = format!("this terminal has {} x {}", size.width, size.height);
            view.too_small = Some(format!("{has}; {width} x {height} are needed"));
            return view;
        };
        view.header = areas.header;
        let (rows, count) = processes::rows(moment, ui);
        view.footer = (areas.footer, header::footer(moment, ui, (rows.len(), count)));
        if ui.help {
            let area = Rect { y: areas.gpus.y, height: areas.footer.y - areas.gpus.y, ..whole };
            view.help = Some(Help::new(moment, area, ui.help_from));
            return view;
        }
        view.panes.push(gpus::pane(moment, trends, ui, areas.gpus));
        let pane = processes::pane(&rows, moment, ui, areas.processes);
        if let Some(area) = areas.queues {
            let selected = pane.selected.and_then(|at| pane.keys.get(at));
            let process = rows.iter().map(|row| row.process).find(|process| match selected {
                Some(Key::Process(key) | Key::Queue(key, _)) => process.key == *key,
                _ => false,
            });
            let name = process.map(processes::pid).unwrap_or_default();
            view.panes.push(pane);
            view.panes.push(queues::pane(process, &name, moment, ui, area));
        } else {
            view.panes.push(pane);
        }
        view.panes.push(events::pane(moment, ui, areas.events));
        view
    }

    pub(super) fn pane(&self, id: PaneId) -> Option<&Pane> {
        self.panes.iter().find(|pane| pane.id == id)
    }

    pub(super) fn pane_at(&self, column: u16, row: u16) -> Option<&Pane> {
        self.panes.iter().find(|pane| pane.area.contains(Position::new(column, row)))
    }
}
