//! A terminal's screen as a picture: SVG that needs no font of its own, on a dark ground in any theme of the page that
//! shows it.

use std::fmt::Write as _;
use vt100::{Cell, Color, Screen};

/// Of one cell and of the margin, in tenths of a pixel. A font of 13.3 pixels is 8 wide.
const CELL: (usize, usize) = (80, 180);
const MARGIN: usize = 120;
/// From the top of a cell to the base line.
const BASE: usize = 135;

/// Classes of the 8 colours; bright ones look the same.
const COLOURS: [&str; 8] = ["k", "r", "g", "y", "u", "m", "c", "w"];
/// The ground.
const GROUND: &str = "d";

const STYLE: &str = "text{font:133px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#e4e7eb}\
.b{font-weight:700}.f{opacity:.75}.d{fill:#14171b}.k{fill:#8b96a2}.r{fill:#ff8b83}.g{fill:#7ee787}.y{fill:#f2cc60}\
.u{fill:#8ab8ff}.m{fill:#d2a8ff}.c{fill:#76e3ea}.w{fill:#e4e7eb}";

/// How a cell is drawn.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Look {
    ink: Option<&'static str>,
    ground: Option<&'static str>,
    bold: bool,
    faint: bool,
}

/// Neighbouring cells of one look.
struct Run {
    column: usize,
    text: Vec<String>,
    look: Look,
}

/// The screen without what is empty below and at the right. `title` is read out in place of the picture.
pub fn svg(screen: &Screen, title: &str) -> String {
    let (rows, columns) = screen.size();
    let rows: Vec<Vec<Run>> = (0..rows.get()).map(|row| runs(screen, row, columns.get())).collect();
    let shown = rows.iter().rposition(|row| row.iter().any(|run| run.end() > 0)).map_or(0, |last| last + 1);
    let columns = rows.iter().flatten().map(Run::end).max().unwrap_or(0);
    let (width, height) = (columns * CELL.0 + 2 * MARGIN, shown * CELL.1 + 2 * MARGIN);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"{GROUND}\" width=\"{width}\" height=\"{height}\" rx=\"60\"/>\n",
        width / 10,
        height / 10,
        escaped(title)
    );
    for (row, runs) in rows.iter().take(shown).enumerate() {
        let top = MARGIN + row * CELL.1;
        runs.iter().for_each(|run| run.draw(top, &mut out));
    }
    out + "</svg>\n"
}

fn runs(screen: &Screen, row: u16, columns: u16) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for column in 0..columns {
        let Some(cell) = screen.cell(row, column) else { continue };
        let look = Look::of(cell);
        let text = if cell.has_contents() { cell.contents() } else { " " }.to_owned();
        match runs.last_mut() {
            Some(run) if run.look == look => run.text.push(text),
            _ => runs.push(Run { column: column.into(), text: vec![text], look }),
        }
    }
    runs
}

impl Look {
    fn of(cell: &Cell) -> Self {
        let (ink, ground) = (class(cell.fgcolor()), class(cell.bgcolor()));
        let (ink, ground) = match cell.inverse() {
            true => (ground.or(Some(GROUND)), ink.or(Some("w"))),
            false => (ink, ground),
        };
        Look { ink, ground, bold: cell.bold(), faint: cell.dim() }
    }

    fn classes(self) -> String {
        let words = [self.ink, self.bold.then_some("b"), self.faint.then_some("f")];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// Programs of ours use the terminal's 16 colours; of others only the text is kept.
fn class(colour: Color) -> Option<&'static str> {
    match colour {
        Color::Idx(index @ 0..16) => Some(COLOURS[usize::from(index) % COLOURS.len()]),
        _ => None,
    }
}

impl Run {
    /// The column after the last one where anything is seen; 0 if nothing is.
    fn end(&self) -> usize {
        let seen = |text: &String| self.look.ground.is_some() || text != " ";
        self.text.iter().rposition(seen).map_or(0, |last| self.column + last + 1)
    }

    /// Words that are far apart are placed each by itself: a viewer's font may have other widths.
    fn draw(&self, top: usize, out: &mut String) {
        let x = |cell: usize| MARGIN + (self.column + cell) * CELL.0;
        let wide = |cells: usize| cells * CELL.0;
        if let Some(ground) = self.look.ground {
            let (x, width, height) = (x(0), wide(self.text.len()), CELL.1);
            let _ = writeln!(
                out,
                "<rect class=\"{ground}\" x=\"{x}\" y=\"{top}\" width=\"{width}\" height=\"{height}\"/>"
            );
        }
        let class = match self.look.classes() {
            none if none.is_empty() => none,
            classes => format!(" class=\"{classes}\""),
        };
        let blank = |text: &String| text == " ";
        let mut at = 0;
        while let Some(first) = self.text[at..].iter().position(|text| !blank(text)) {
            at += first;
            let rest = &self.text[at..];
            let apart = rest.windows(2).position(|pair| pair.iter().all(blank));
            let end = apart
                .unwrap_or_else(|| rest.iter().rposition(|text| !blank(text)).map_or(0, |last| last + 1));
            let (x, y, length) = (x(at), top + BASE, wide(end));
            let words = escaped(&rest[..end].concat());
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\"{class}>{words}</text>");
            at += end;
        }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::svg;
    use std::num::NonZero;
    use vt100::Parser;

    fn picture(bytes: &str) -> String {
        let [rows, columns] = [5, 20].map(|cells| NonZero::new(cells).unwrap());
        let mut parser = Parser::new(rows, columns, 0);
        parser.process(bytes.as_bytes());
        svg(parser.screen(), "a <title>")
    }

    #[test]
    fn words_are_where_the_terminal_has_them() {
        let made = picture("one two   three\r\n");
        assert!(made.contains("<text x=\"120\" y=\"255\" textLength=\"560\">one two</text>"), "{made}");
        assert!(made.contains("<text x=\"920\" y=\"255\" textLength=\"400\">three</text>"), "{made}");
        assert!(
            picture("  a ,").contains("<text x=\"280\" y=\"255\" textLength=\"240\">a ,<"),
            "no space is first"
        );
        assert!(made.contains("width=\"144\" height=\"42\" viewBox=\"0 0 1440 420\""), "one line: {made}");
    }

    #[test]
    fn colours_are_kept_and_markup_is_text() {
        let made = picture("\x1b[1;31ma&b\x1b[0m \x1b[2m<svg>\x1b[0m\x1b[7m in\x1b[0m");
        assert!(
            made.contains("class=\"r b\">a&amp;b<") && made.contains("class=\"f\">&lt;svg&gt;<"),
            "{made}"
        );
        assert!(made.contains("<rect class=\"w\" x=\"840\"") && made.contains("class=\"d\">in<"), "{made}");
        assert!(made.contains("<title>a &lt;title&gt;</title>"), "{made}");
    }

    #[test]
    fn each_picture_closes_what_it_opens() {
        let made = picture("\x1b[44mx\x1b[0m");
        assert_eq!(made.matches("<text").count(), made.matches("</text>").count());
        assert!(made.starts_with("<svg ") && made.ends_with("</svg>\n"));
    }
}
