//! Encodes cells in as few bytes as possible.
//!
//! Ratatui's own backend repeats both colours in full whenever either changes; that was nearly half of a frame. This
//! backend sends only what changes, and no foreground for blanks. Cells of a row that look alike are drawn together,
//! because moving costs less than a colour. Runs of blanks are erased with one command, which leaves them in the
//! current colour on every terminal that [`erases_in_colour`] does not exclude. An area that fills many cells of a row
//! is erased in its colour.

use std::io::{self, Write};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::layout::{Position, Size};
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use vramlab_user_input::is_safe;

/// A backend that draws cells with few bytes and leaves the rest to [`CrosstermBackend`].
#[derive(Debug)]
pub struct WireBackend<W: Write> {
    inner: CrosstermBackend<W>,
    /// The current frame.
    out: Vec<u8>,
    /// True if blanks are erased with a command.
    erases: bool,
}

impl<W: Write> WireBackend<W> {
    /// Draws on `writer`, which should buffer a whole frame.
    pub fn new(writer: W) -> Self {
        Self { inner: CrosstermBackend::new(writer), out: Vec::new(), erases: true }
    }

    /// The same backend, which erases blanks or writes each of them.
    #[must_use]
    pub fn erasing(self, erases: bool) -> Self {
        Self { erases, ..self }
    }
}

impl<W: Write> Write for WireBackend<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Write::flush(&mut self.inner)
    }
}

impl<W: Write> Backend for WireBackend<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.out.clear();
        let mut pen = Pen::default();
        let (mut row, mut content) = (Vec::new(), content.peekable());
        while let Some((x, y, cell)) = content.next() {
            row.push((x, cell));
            if content.peek().is_none_or(|next| next.1 != y) {
                self.draw_row(y, &row, &mut pen);
                row.clear();
            }
        }
        if pen != (Pen { at: pen.at, ..Pen::default() }) {
            self.out.extend_from_slice(b"\x1b[m");
        }
        self.inner.write_all(&self.out)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.inner.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.inner.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.inner.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.inner.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.inner.clear()
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        self.inner.clear_region(clear_type)
    }

    fn append_lines(&mut self, n: u16) -> io::Result<()> {
        self.inner.append_lines(n)
    }

    fn size(&self) -> io::Result<Size> {
        self.inner.size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        self.inner.window_size()
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.inner)
    }
}

impl<W: Write> WireBackend<W> {
    /// Draws cells of one row. Cells that look alike are drawn together, because moving costs less than colours.
    fn draw_row(&mut self, y: u16, row: &[(u16, &Cell)], pen: &mut Pen) {
        let (erases, out) = (self.erases, &mut self.out);
        let follows =
            |a: &(u16, &Cell), b: &(u16, &Cell)| a.0.checked_add(1) == Some(b.0) && CellLook::are_one(a.1, b.1);
        let mut left: Vec<Option<CellRun<'_>>> = row.chunk_by(follows).map(CellRun::of).collect();
        loop {
            for index in 0..left.len() {
                let next = left.get(index + 1).copied().flatten();
                if let Some(run) = left[index].take_if(|run| run.is_due(pen, y, next.as_ref(), erases)) {
                    pen.move_to(run.x, y, out);
                    run.draw(pen, erases, out);
                }
            }
            let is_seen = |run: &Option<CellRun<'_>>| run.is_some_and(|run| run.look != CellLook::Blank);
            let Some(index) = left.iter().position(is_seen).or_else(|| left.iter().position(Option::is_some)) else {
                return;
            };
            let Some(next) = left[index] else { return };
            let before = index.checked_sub(1).and_then(|before| left[before]);
            let from = before.filter(|blank| blank.leads_to(&next) && blank.looks_like(&next)).unwrap_or(next);
            pen.move_to(from.x, y, out);
            next.take_style(pen, erases, out);
        }
    }
}

/// Which part of a pen's style is visible in a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CellLook {
    /// The whole style.
    Text,
    /// Only the background: the cell is blank.
    Blank,
    /// The foreground fills the cell, so it can be drawn as a background too.
    Filled,
}

impl CellLook {
    fn of(cell: &Cell) -> Self {
        if is_blank(cell) {
            return Self::Blank;
        }
        // The terminal's own text colour can't be a background.
        let filled = cell.symbol() == "█" && cell.modifier.is_empty() && cell.fg != Color::Reset;
        if filled { Self::Filled } else { Self::Text }
    }

    /// True if a pen draws both cells without a change.
    fn are_one(a: &Cell, b: &Cell) -> bool {
        let look = Self::of(a);
        look == Self::of(b) && (look == Self::Blank || a.fg == b.fg) && (a.bg, a.modifier) == (b.bg, b.modifier)
    }
}

/// Cells side by side that a pen draws without a change.
#[derive(Clone, Copy, Debug)]
struct CellRun<'a> {
    x: u16,
    count: u16,
    look: CellLook,
    cells: &'a [(u16, &'a Cell)],
    /// The first cell.
    cell: &'a Cell,
}

impl<'a> CellRun<'a> {
    /// Shorter runs of blanks are written: erasing them and moving behind them takes as many bytes.
    const ERASED: u16 = 12;
    /// Shorter areas are written: erasing them changes the background twice, and a written cell takes three bytes.
    const WIDE: u16 = 16;

    fn of(cells: &'a [(u16, &'a Cell)]) -> Option<Self> {
        let &(x, cell) = cells.first()?;
        Some(Self { x, count: u16::try_from(cells.len()).unwrap_or(u16::MAX), look: CellLook::of(cell), cells, cell })
    }

    /// True for an area that is drawn as a background.
    const fn is_wide(&self, erases: bool) -> bool {
        erases && self.count >= Self::WIDE
    }

    /// True if the pen's style is right for the run.
    fn fits(&self, pen: &Pen, erases: bool) -> bool {
        let cell = self.cell;
        match self.look {
            CellLook::Text => (pen.foreground, pen.background, pen.modifier) == (cell.fg, cell.bg, cell.modifier),
            CellLook::Blank => (pen.background, pen.modifier) == (cell.bg, cell.modifier),
            CellLook::Filled => {
                let written = (pen.foreground, pen.background) == (cell.fg, cell.bg) && !self.is_wide(erases);
                pen.modifier.is_empty() && (written || pen.background == cell.fg)
            }
        }
    }

    /// True if the pen should draw the run now. Blanks are drawn only where the pen is, or on its way.
    fn is_due(&self, pen: &Pen, y: u16, next: Option<&Self>, erases: bool) -> bool {
        let goes_on = || next.is_some_and(|next| self.leads_to(next) && next.fits(pen, erases));
        self.fits(pen, erases) && (self.look != CellLook::Blank || pen.at == Some((self.x, y)) || goes_on())
    }

    /// True for a few blanks just before `next`.
    fn leads_to(&self, next: &Self) -> bool {
        let follows = self.x.checked_add(self.count) == Some(next.x);
        self.look == CellLook::Blank && self.count < Self::ERASED && follows && next.look != CellLook::Blank
    }

    /// True if a pen that draws `next` can draw these blanks.
    fn looks_like(&self, next: &Self) -> bool {
        next.look == CellLook::Text && (self.cell.bg, self.cell.modifier) == (next.cell.bg, next.cell.modifier)
    }

    /// Gives the pen the run's style.
    fn take_style(&self, pen: &mut Pen, erases: bool, out: &mut Vec<u8>) {
        if self.look == CellLook::Filled && self.is_wide(erases) {
            let mut cell = Cell::EMPTY;
            cell.bg = self.cell.fg;
            pen.take_style(&cell, out);
        } else {
            pen.take_style(self.cell, out);
        }
    }

    /// Draws the run at the pen, whose style is right.
    fn draw(&self, pen: &mut Pen, erases: bool, out: &mut Vec<u8>) {
        let blank = self.look == CellLook::Blank || self.look == CellLook::Filled && pen.background == self.cell.fg;
        if blank && erases && self.count >= Self::ERASED {
            // The cursor does not move.
            let _ = write!(out, "\x1b[{}X", self.count);
            return;
        }
        for (_, cell) in self.cells {
            out.extend_from_slice(if blank { b" " } else { shown(cell.symbol()).as_bytes() });
        }
        // After a wide symbol the next cell is addressed explicitly.
        let is_wide = |(_, cell): &(u16, &Cell)| !cell.symbol().is_ascii() && cell.symbol().width() != 1;
        let follows = !self.cells.last().is_some_and(is_wide);
        pen.at = pen.at.filter(|_| follows).map(|(x, y)| (x.saturating_add(self.count), y));
    }
}

/// True if a terminal of this name erases in the current colour. GNU screen does so only if it was configured to; tmux,
/// which uses the same name, does.
#[must_use]
pub fn erases_in_colour(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name| variable(name).is_some_and(|value| !value.is_empty());
    let term = variable("TERM").unwrap_or_default();
    let is_screen = term.starts_with("screen") && !is_set("TMUX");
    !is_screen && !is_set("STY") && !term.starts_with("vt") && term != "dumb"
}

/// True if only the background of a cell is visible.
fn is_blank(cell: &Cell) -> bool {
    cell.symbol() == " " && !cell.modifier.intersects(VISIBLE_ON_BLANKS)
}

/// The symbol as it may be sent to a terminal. A symbol from a file that would be a terminal command is not shown.
fn shown(symbol: &str) -> &str {
    if symbol.chars().all(is_safe) { symbol } else { "?" }
}

/// The position of the terminal's cursor and its current style. Each frame begins and ends with the default style.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pen {
    at: Option<(u16, u16)>,
    foreground: Color,
    background: Color,
    modifier: Modifier,
}

/// A text in a style, for output without a screen. The style ends with the text.
#[must_use]
pub fn dressed(text: &str, style: Style) -> String {
    let mut cell = Cell::new("x");
    cell.set_style(style);
    let (mut pen, mut out) = (Pen::default(), Vec::new());
    pen.take_style(&cell, &mut out);
    let mut out = String::from_utf8_lossy(&out).into_owned();
    let ends = if out.is_empty() { "" } else { "\x1b[m" };
    out.extend(text.chars().filter(|symbol| is_safe(*symbol)));
    out + ends
}

/// Modifiers with the codes that switch them on and off.
const MODIFIERS: [(Modifier, u8, u8); 5] = [
    (Modifier::BOLD, 1, 22),
    (Modifier::DIM, 2, 22),
    (Modifier::ITALIC, 3, 23),
    (Modifier::UNDERLINED, 4, 24),
    (Modifier::REVERSED, 7, 27),
];
/// Modifiers that show the foreground even on blanks.
const VISIBLE_ON_BLANKS: Modifier = Modifier::UNDERLINED.union(Modifier::REVERSED).union(Modifier::CROSSED_OUT);

impl Pen {
    fn move_to(&mut self, x: u16, y: u16, out: &mut Vec<u8>) {
        // Writing to a vector can't fail.
        let _ = match self.at {
            Some(at) if at == (x, y) => Ok(()),
            Some((_, row)) if row == y => write!(out, "\x1b[{}G", u32::from(x) + 1),
            Some((_, row)) if x == 0 && row.checked_add(1) == Some(y) => write!(out, "\r\n"),
            _ => write!(out, "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1),
        };
        self.at = Some((x, y));
    }

    fn take_style(&mut self, cell: &Cell, out: &mut Vec<u8>) {
        let mut codes = Codes::default();
        let gone = self.modifier.difference(cell.modifier);
        if gone.intersects(Modifier::BOLD | Modifier::DIM) {
            // One code ends both bold and dim.
            self.modifier.remove(Modifier::BOLD | Modifier::DIM);
        }
        for (modifier, _, off) in MODIFIERS {
            if gone.contains(modifier) {
                codes.push(off);
                self.modifier.remove(modifier);
            }
        }
        for (modifier, on, _) in MODIFIERS {
            if cell.modifier.difference(self.modifier).contains(modifier) {
                codes.push(on);
            }
        }
        self.modifier = cell.modifier;
        if cell.fg != self.foreground && !is_blank(cell) {
            codes.color(cell.fg, 30);
            self.foreground = cell.fg;
        }
        if cell.bg != self.background {
            codes.color(cell.bg, 40);
            self.background = cell.bg;
        }
        codes.finish(out);
    }
}

/// The parameters of one "select graphic rendition" sequence.
#[derive(Debug, Default)]
struct Codes(String);

impl Codes {
    fn push(&mut self, code: u8) {
        self.text(&code.to_string());
    }

    fn text(&mut self, code: &str) {
        if !self.0.is_empty() {
            self.0.push(';');
        }
        self.0.push_str(code);
    }

    /// `base` is 30 for the foreground, 40 for the background.
    fn color(&mut self, color: Color, base: u8) {
        const NAMED: [Color; 8] = [
            Color::Black,
            Color::Red,
            Color::Green,
            Color::Yellow,
            Color::Blue,
            Color::Magenta,
            Color::Cyan,
            Color::Gray,
        ];
        const BRIGHT: [Color; 8] = [
            Color::DarkGray,
            Color::LightRed,
            Color::LightGreen,
            Color::LightYellow,
            Color::LightBlue,
            Color::LightMagenta,
            Color::LightCyan,
            Color::White,
        ];
        let index =
            |palette: [Color; 8]| (base..).zip(palette).find(|(_, named)| *named == color).map(|(code, _)| code);
        match color {
            Color::Reset => self.push(base + 9),
            Color::Rgb(r, g, b) => self.text(&format!("{};2;{r};{g};{b}", base + 8)),
            Color::Indexed(n) => self.text(&format!("{};5;{n}", base + 8)),
            _ => {
                if let Some(code) = index(NAMED).or_else(|| index(BRIGHT).map(|code| code + 60)) {
                    self.push(code);
                }
            }
        }
    }

    fn finish(self, out: &mut Vec<u8>) {
        if !self.0.is_empty() {
            out.extend_from_slice(b"\x1b[");
            out.extend_from_slice(self.0.as_bytes());
            out.push(b'm');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::buffer::Buffer;
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    fn bytes_of(from: &Buffer, to: &Buffer) -> Vec<u8> {
        let mut out = Vec::new();
        WireBackend::new(&mut out).draw(from.diff(to).into_iter()).unwrap();
        out
    }

    fn parsed(color: Color) -> vt100::Color {
        match color {
            Color::Rgb(r, g, b) => vt100::Color::Rgb(r, g, b),
            Color::Indexed(n) => vt100::Color::Idx(n),
            Color::Red => vt100::Color::Idx(1),
            Color::LightCyan => vt100::Color::Idx(14),
            _ => vt100::Color::Default,
        }
    }

    fn any_cell() -> impl Strategy<Value = (char, Color, Color, Modifier)> {
        let color = || {
            prop::sample::select(vec![
                Color::Reset,
                Color::Red,
                Color::LightCyan,
                Color::Indexed(200),
                Color::Rgb(1, 2, 3),
                Color::Rgb(4, 5, 6),
            ])
        };
        let modifier = (0u8..16).prop_map(|bits| {
            let all = [Modifier::BOLD, Modifier::ITALIC, Modifier::UNDERLINED, Modifier::REVERSED];
            all.into_iter().enumerate().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, m)| m).collect()
        });
        (prop::sample::select(vec![' ', 'a', '█', 'z']), color(), color(), modifier)
    }

    fn any_buffer() -> impl Strategy<Value = Buffer> {
        // Single cells, and rows of cells that are erased.
        let run = (any_cell(), prop_oneof![Just(1), 1usize..40]);
        prop::collection::vec(run, 160).prop_map(|runs| {
            let mut buf = Buffer::empty(Rect::new(0, 0, 40, 4));
            let cells = runs.into_iter().flat_map(|(cell, count)| std::iter::repeat_n(cell, count));
            for (cell, (symbol, fg, bg, modifier)) in buf.content.iter_mut().zip(cells) {
                cell.set_char(symbol).set_style(Style::new().fg(fg).bg(bg).add_modifier(modifier));
            }
            buf
        })
    }

    proptest! {
        /// A terminal that reads the bytes of two frames shows the second frame.
        #[test]
        fn the_terminal_shows_the_buffer(first in any_buffer(), second in any_buffer()) {
            let mut parser = vt100::Parser::new(4, 40, 0);
            parser.process(&bytes_of(&Buffer::empty(first.area), &first));
            parser.process(&bytes_of(&first, &second));
            for position in second.area.positions() {
                let wanted = &second[position];
                let cell = parser.screen().cell(position.y, position.x).unwrap();
                let shown = if cell.contents().is_empty() { " " } else { cell.contents() };
                if shown == " " && wanted.symbol() == "█" {
                    prop_assert_eq!(cell.bgcolor(), parsed(wanted.fg));
                    continue;
                }
                prop_assert_eq!(shown, wanted.symbol());
                prop_assert_eq!(cell.bgcolor(), parsed(wanted.bg));
                prop_assert_eq!(cell.bold(), wanted.modifier.contains(Modifier::BOLD));
                prop_assert_eq!(cell.italic(), wanted.modifier.contains(Modifier::ITALIC));
                prop_assert_eq!(cell.underline(), wanted.modifier.contains(Modifier::UNDERLINED));
                prop_assert_eq!(cell.inverse(), wanted.modifier.contains(Modifier::REVERSED));
                if wanted.symbol() != " " || wanted.modifier.intersects(VISIBLE_ON_BLANKS) {
                    prop_assert_eq!(cell.fgcolor(), parsed(wanted.fg));
                }
            }
        }
    }

    #[test]
    fn blanks_in_a_row_are_erased_where_that_leaves_their_colour() {
        let area = Rect::new(0, 0, 40, 2);
        let mut buf = Buffer::empty(area);
        buf.set_style(area, Style::new().bg(Color::Rgb(1, 2, 3)));
        buf.set_string(30, 0, "end", Style::new());
        let bytes = |erases| {
            let mut out = Vec::new();
            let diff = Buffer::empty(area).diff(&buf);
            WireBackend::new(&mut out).erasing(erases).draw(diff.into_iter()).unwrap();
            out
        };
        let erased = String::from_utf8(bytes(true)).unwrap();
        assert_eq!(erased, "\x1b[1;31H\x1b[48;2;1;2;3mend       \x1b[1G\x1b[30X\r\n\x1b[40X\x1b[m");
        let seen = |bytes: &[u8]| {
            let mut parser = vt100::Parser::new(2, 40, 0);
            parser.process(bytes);
            let cell = |at: ratatui::layout::Position| {
                let cell = parser.screen().cell(at.y, at.x).unwrap();
                (cell.contents().trim().to_owned(), cell.bgcolor())
            };
            area.positions().map(cell).collect::<Vec<_>>()
        };
        assert_eq!(seen(&bytes(false)), seen(erased.as_bytes()));
        assert!(!String::from_utf8(bytes(false)).unwrap().contains('X'));
    }

    #[test]
    fn an_area_is_erased_in_its_colour_where_it_is_wide() {
        let area = Rect::new(0, 0, 40, 1);
        let bytes = |wide: usize, color: Color| {
            let mut buf = Buffer::empty(area);
            buf.set_style(area, Style::new().bg(Color::Indexed(7)));
            buf.set_string(0, 0, "█".repeat(wide), Style::new().fg(color));
            String::from_utf8(bytes_of(&Buffer::empty(area), &buf)).unwrap()
        };
        let rest = |cells: u32| format!("\x1b[48;5;7m\x1b[{cells}X\x1b[m");
        assert_eq!(bytes(24, Color::Rgb(1, 2, 3)), format!("\x1b[1;1H\x1b[48;2;1;2;3m\x1b[24X\x1b[25G{}", rest(16)));
        assert!(bytes(8, Color::Rgb(1, 2, 3)).contains(&"█".repeat(8)));
        assert!(bytes(24, Color::Reset).contains(&"█".repeat(24)), "the colour of text is not known");
    }

    #[test]
    fn screen_is_not_trusted_with_colours_of_what_is_erased() {
        let of = |set: &'static [(&'static str, &'static str)]| {
            erases_in_colour(|name| set.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned()))
        };
        assert!(of(&[("TERM", "xterm-256color")]) && of(&[("TERM", "screen-256color"), ("TMUX", "/tmp/x")]));
        assert!(of(&[("TERM", "tmux-256color"), ("TMUX", "/tmp/x")]));
        assert!(!of(&[("TERM", "screen.xterm-256color")]) && !of(&[("TERM", "xterm"), ("STY", "1.tty")]));
        assert!(!of(&[("TERM", "vt100")]));
    }

    #[test]
    fn no_cell_commands_the_terminal() {
        let cells = ["\x1b[2J", "a\u{202e}", "\u{9b}", "\r", "é", "漢"].map(Cell::new);
        let mut out = Vec::new();
        WireBackend::new(&mut out).draw((0..).zip(&cells).map(|(x, cell)| (x, 0, cell))).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\x1b[1;1H????é漢");
    }

    #[test]
    fn only_what_changes_is_said() {
        let area = Rect::new(0, 0, 6, 1);
        let mut buf = Buffer::empty(area);
        buf.set_string(0, 0, "ab cd", Style::new().fg(Color::Red).bg(Color::Indexed(7)));
        buf.set_style(Rect::new(3, 0, 2, 1), Style::new().fg(Color::LightCyan).add_modifier(Modifier::BOLD));
        let out = bytes_of(&Buffer::empty(area), &buf);
        assert_eq!(String::from_utf8(out).unwrap(), "\x1b[1;1H\x1b[31;48;5;7mab \x1b[1;96mcd\x1b[m");
    }
}
