//! What keys and the mouse change of what the user chose. In: an event, and the view that it was meant for.

use super::column::Sort;
use super::help::Help;
use super::pane::{Cursor, Key, Pane, PaneId};
use super::ui::Ui;
use super::view::View;
use crossterm::event::{
    Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

/// Rows per notch of the wheel.
const WHEEL: isize = 3;

/// Lines of help per page.
const HELP: usize = 15;

/// How much faster than it happened a recording is played at most: an hour in four seconds.
const FASTEST: u32 = 1024;

/// Longest filter.
const FILTER: usize = 64;

impl Ui {
    /// The same, with the selected rows as they are shown.
    #[must_use]
    pub fn settled(mut self, view: &View) -> Self {
        for pane in &view.panes {
            let at = pane.selected.unwrap_or(0);
            // The first row stays selected, whatever it is, until the user chooses one; of events the newest one.
            let chosen = self.cursors[pane.id as usize].key.is_some();
            let follows = !chosen || pane.id == PaneId::Events && at == 0;
            let key = pane.selected.and_then(|at| pane.keys.get(at)).copied().filter(|_| !follows);
            self.cursors[pane.id as usize] = Cursor { key, at, first: pane.first };
        }
        if !view.panes.is_empty() && view.pane(self.focus).is_none() {
            self.focus = PaneId::Processes;
        }
        self
    }

    /// After a key or the mouse; `None`: it ends.
    #[must_use]
    pub fn after(mut self, event: &Event, view: &View) -> Option<Self> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                if key.modifiers.contains(KeyModifiers::CONTROL) {
                    return if key.code == KeyCode::Char('c') { None } else { Some(self) };
                }
                if self.typing {
                    self.types(*key);
                } else if self.help {
                    return self.reads_help(*key, view);
                } else if key.code == KeyCode::Char('q') {
                    return None;
                } else {
                    self.key(*key, view);
                }
            }
            Event::Mouse(mouse) => self.mouse(*mouse, view),
            _ => {}
        }
        Some(self)
    }

    fn types(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => self.typing = false,
            KeyCode::Esc => {
                self.typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(c) if self.filter.chars().count() < FILTER => self.filter.push(c),
            _ => {}
        }
    }

    fn reads_help(mut self, key: KeyEvent, view: &View) -> Option<Self> {
        let last = view.help.as_ref().map_or(0, Help::last_from);
        self.help_from = match key.code {
            KeyCode::Down | KeyCode::Char('j') => (self.help_from + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.help_from.saturating_sub(1),
            KeyCode::PageDown => (self.help_from + HELP).min(last),
            KeyCode::PageUp => self.help_from.saturating_sub(HELP),
            KeyCode::Char('q') => return None,
            _ => {
                self.help = false;
                0
            }
        };
        Some(self)
    }

    fn key(&mut self, key: KeyEvent, view: &View) {
        let page = view.pane(self.focus).map_or(1, |pane| pane.rows.len().max(2) - 1);
        let page = isize::try_from(page).unwrap_or(isize::MAX);
        match key.code {
            KeyCode::Tab => self.turn(view, 1),
            KeyCode::BackTab => self.turn(view, -1),
            KeyCode::Down | KeyCode::Char('j') => self.moves(view, self.focus, 1),
            KeyCode::Up | KeyCode::Char('k') => self.moves(view, self.focus, -1),
            KeyCode::PageDown => self.moves(view, self.focus, page),
            KeyCode::PageUp => self.moves(view, self.focus, -page),
            KeyCode::Home | KeyCode::Char('g') => self.moves(view, self.focus, isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.moves(view, self.focus, isize::MAX),
            KeyCode::Char('s' | '>') => self.sorts(view, 1),
            KeyCode::Char('<') => self.sorts(view, -1),
            KeyCode::Char('S') => self.reverses(view),
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Char('t') => self.tree = !self.tree,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Left => self.jumps = self.jumps.saturating_sub(1),
            KeyCode::Right => self.jumps = self.jumps.saturating_add(1),
            KeyCode::Char('+' | '=') => self.speed = (self.speed * 2).min(FASTEST),
            KeyCode::Char('-') => self.speed = (self.speed / 2).max(1),
            KeyCode::Char('?') | KeyCode::F(1) => self.help = true,
            KeyCode::Enter if self.focus == PaneId::Gpus => self.only_gpu(view),
            KeyCode::Esc => {
                self.filter.clear();
                self.gpu = None;
            }
            _ => {}
        }
    }

    fn mouse(&mut self, mouse: MouseEvent, view: &View) {
        let Some(pane) = view.pane_at(mouse.column, mouse.row).filter(|_| !self.help) else { return };
        match mouse.kind {
            MouseEventKind::ScrollDown => self.moves(view, pane.id, WHEEL),
            MouseEventKind::ScrollUp => self.moves(view, pane.id, -WHEEL),
            MouseEventKind::Down(MouseButton::Left) => {
                self.focus = pane.id;
                if let Some(row) = pane.row_at(mouse.row) {
                    self.select(pane, row);
                }
            }
            _ => {}
        }
    }

    /// Goes to another table.
    fn turn(&mut self, view: &View, by: isize) {
        let at = view.panes.iter().position(|pane| pane.id == self.focus).unwrap_or(0);
        if let Some(pane) = view.panes.get(around(at, by, view.panes.len())) {
            self.focus = pane.id;
        }
    }

    fn moves(&mut self, view: &View, id: PaneId, by: isize) {
        let Some(pane) = view.pane(id) else { return };
        let Some(last) = pane.keys.len().checked_sub(1) else { return };
        self.select(pane, pane.selected.unwrap_or(0).saturating_add_signed(by).min(last));
    }

    fn select(&mut self, pane: &Pane, row: usize) {
        let cursor = &mut self.cursors[pane.id as usize];
        *cursor = Cursor { key: pane.keys.get(row).copied(), at: row, ..*cursor };
    }

    /// The table that is sorted: the one of queues if it is chosen.
    fn sorted(&mut self) -> (PaneId, &mut Sort) {
        match self.focus {
            PaneId::Queues => (PaneId::Queues, &mut self.queues),
            _ => (PaneId::Processes, &mut self.processes),
        }
    }

    fn sorts(&mut self, view: &View, by: isize) {
        let (id, sort) = self.sorted();
        let Some(pane) = view.pane(id) else { return };
        let at = pane.sortable.iter().position(|column| *column == sort.column).unwrap_or(0);
        if let Some(column) = pane.sortable.get(around(at, by, pane.sortable.len())) {
            sort.column = *column;
        }
    }

    fn reverses(&mut self, view: &View) {
        let (id, sort) = self.sorted();
        if view.pane(id).is_some() {
            sort.descending = !sort.descending;
        }
    }

    /// Only the selected GPU; a second time all of them.
    fn only_gpu(&mut self, view: &View) {
        let pane = view.pane(PaneId::Gpus);
        let selected = pane.and_then(|pane| pane.keys.get(pane.selected?));
        let Some(Key::Gpu(gpu_id)) = selected else { return };
        self.gpu = if self.gpu == Some(*gpu_id) { None } else { Some(*gpu_id) };
    }
}

/// The next place, or the one before, in a circle.
fn around(at: usize, by: isize, of: usize) -> usize {
    if of == 0 {
        return 0;
    }
    if by < 0 { (at + of - 1) % of } else { (at + 1) % of }
}
