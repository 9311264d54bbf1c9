//! A view on a frame. Colours are the terminal's own.

use super::header::Text;
use super::pane::{Cell, Pane, Title, Tone};
use super::view::View;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

/// Shows a view. `colour`: else only bold, dim and reversed text is used.
pub fn render(view: &View, frame: &mut Frame<'_>, colour: bool) {
    let ink = Ink { colour };
    if let Some(line) = &view.too_small {
        whole(Line::raw(line.as_str()), row_of(frame.area(), 0), frame);
        return;
    }
    let (first, tone) = &view.first;
    whole(Line::styled(first.as_str(), ink.style(*tone).bold()), row_of(view.header, 0), frame);
    whole(ink.parts(&view.second), row_of(view.header, 1), frame);
    for pane in &view.panes {
        table(pane, pane.id == view.focus, frame, ink);
    }
    if let Some(help) = &view.help {
        for (line, (text, tone)) in (0..help.area.height).zip(help.lines.iter().skip(help.from)) {
            whole(Line::styled(text.as_str(), ink.style(*tone)), row_of(help.area, line), frame);
        }
    }
    let (area, (text, tone)) = &view.footer;
    whole(Line::styled(text.as_str(), ink.style(*tone)), *area, frame);
}

#[derive(Clone, Copy)]
struct Ink {
    colour: bool,
}

impl Ink {
    fn style(self, tone: Tone) -> Style {
        let style = match tone {
            Tone::Plain => return Style::new(),
            Tone::Quiet => return Style::new().dim(),
            Tone::Good => Style::new().fg(Color::Green),
            Tone::Info => Style::new().fg(Color::Cyan),
            Tone::Warn => Style::new().fg(Color::Yellow),
            Tone::Bad => Style::new().fg(Color::Red).bold(),
        };
        if self.colour { style } else { Style { fg: None, ..style } }
    }

    fn parts(self, parts: &[Text]) -> Line<'_> {
        let mut spans = Vec::new();
        for (text, tone) in parts {
            if !spans.is_empty() {
                spans.push(Span::raw("; "));
            }
            spans.push(Span::styled(text.as_str(), self.style(*tone)));
        }
        Line::from(spans)
    }
}

/// One line of an area; empty if it has fewer.
fn row_of(area: Rect, line: u16) -> Rect {
    Rect { y: area.y.saturating_add(line), height: 1, ..area }.intersection(area)
}

fn table(pane: &Pane, focused: bool, frame: &mut Frame<'_>, ink: Ink) {
    if let Some(caption) = &pane.caption {
        whole(Line::styled(caption.as_str(), Style::new().bold()), row_of(pane.area, 0), frame);
    }
    let widths = pane.titles.iter().map(|title| match title.width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    });
    let columns = Layout::horizontal(widths).spacing(1).split(pane.area);
    let heads = pane.heads();
    let head = row_of(pane.area, heads - 1);
    let style = Style::new().bold();
    frame.buffer_mut().set_style(head, if focused { style.reversed() } else { style.underlined() });
    for (title, column) in pane.titles.iter().zip(columns.iter()) {
        text(&title.text, Style::new(), title, in_column(head, *column), frame);
    }
    if pane.rows.is_empty() {
        whole(Line::styled(pane.empty.as_str(), Style::new().dim()), row_of(pane.area, heads), frame);
    }
    for (number, (line, row)) in (heads..pane.area.height).zip(&pane.rows).enumerate() {
        let area = row_of(pane.area, line);
        for ((cell, title), column) in row.iter().zip(&pane.titles).zip(columns.iter()) {
            let area = in_column(area, *column);
            match cell {
                Cell::Text(content, tone) => text(content, ink.style(*tone), title, area, frame),
                Cell::Spark(points) => spark(points, area, frame),
            }
        }
        if pane.selected == Some(pane.first + number) {
            let mark = if focused { Modifier::REVERSED } else { Modifier::BOLD };
            frame.buffer_mut().set_style(area, Style::new().add_modifier(mark));
        }
    }
}

fn in_column(line: Rect, column: Rect) -> Rect {
    Rect { x: column.x, width: column.width, ..line }
}

fn text(content: &str, style: Style, title: &Title, area: Rect, frame: &mut Frame<'_>) {
    let line = Line::styled(content, style);
    let fits = line.width() <= usize::from(area.width);
    whole(if title.right && fits { line.right_aligned() } else { line }, area, frame);
}

/// One that is cut ends with `…`. The view may be of a terminal that was larger.
fn whole(line: Line<'_>, area: Rect, frame: &mut Frame<'_>) {
    let area = area.intersection(frame.area());
    let cut = line.width() > usize::from(area.width);
    frame.render_widget(line, area);
    if cut && !area.is_empty() {
        frame.buffer_mut()[(area.right() - 1, area.y)].set_symbol("…");
    }
}

/// The latest points, at the right end; what is not known has no bar.
fn spark(points: &[Option<u64>], area: Rect, frame: &mut Frame<'_>) {
    let area = area.intersection(frame.area());
    let width = usize::from(area.width);
    let missing = width.saturating_sub(points.len());
    let latest = points.iter().copied().skip(points.len().saturating_sub(width));
    let bars = std::iter::repeat_n(None, missing).chain(latest);
    frame.render_widget(Sparkline::default().data(bars), area);
}
