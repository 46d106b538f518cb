//! Tables fitted to a terminal: columns wrap by themselves, and what matters has a colour.

use std::io::{self, IsTerminal, StdoutLock, Write};

use unicode_width::UnicodeWidthStr;

use crate::drawing::pane::wrap;
use crate::user_input::safe;

/// Between two columns.
const GAP: usize = 2;
/// The fewest cells of a column that wraps.
const LEAST: usize = 12;
/// The narrowest and the widest paper, and one that no terminal bounds.
const WIDTHS: [usize; 3] = [40, 160, 100];
/// Wider than any line: nothing wraps.
const ENDLESS: usize = usize::MAX;
/// A space at which no line is broken: `amp\u{a0}bf16` stays together.
pub(super) const TIED: &str = "\u{a0}";

/// What stays on the line of its figure.
const UNITS: [&str; 10] = ["%", "B", "KiB", "MiB", "GiB", "KB", "MB", "GB", "ms", "s"];

/// How a text is coloured on a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// Not at all.
    #[default]
    Plain,
    /// A heading.
    Head,
    /// What matters most.
    Strong,
    /// What matters less.
    Dim,
    /// True, fitting, better.
    Good,
    /// It depends.
    Mixed,
    /// False, failing, worse.
    Bad,
}

/// What ends a colour.
const PLAIN: &str = "\x1b[0m";
/// Everything that colours.
const CODES: [&str; 7] = [PLAIN, "\x1b[1;4m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m", "\x1b[31m"];

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Head => "\x1b[1;4m",
            Self::Strong => "\x1b[1m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Mixed => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// What is printed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paper {
    /// Cells of a line.
    pub width: usize,
    /// Colours can be seen.
    pub colors: bool,
}

impl Paper {
    /// Standard output: as wide as the terminal, else as `COLUMNS` says; in colours on a terminal that has some, unless
    /// `NO_COLOR` is set.
    pub fn stdout() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal();
        let [least, most, usual] = WIDTHS;
        let columns = if terminal {
            crossterm::terminal::size().ok().map(|(columns, _)| usize::from(columns))
        } else {
            variable("COLUMNS").and_then(|columns| columns.parse().ok())
        };
        let dumb = variable("TERM").is_some_and(|term| term == "dumb");
        let colors = terminal && !dumb && variable("NO_COLOR").is_none();
        Self { width: columns.map_or(usual, |columns| columns.clamp(least, most)), colors }
    }

    /// Standard output, where only a terminal has an edge: a file or a pipe gets every paragraph and every row on one line, for
    /// who searches it or reads it elsewhere.
    pub fn terminal() -> Self {
        let paper = Self::stdout();
        if io::stdout().is_terminal() { paper } else { Self { width: ENDLESS, ..paper } }
    }

    /// Standard output, for text and its colours.
    pub fn out(self) -> TonedWriter<StdoutLock<'static>> {
        TonedWriter { inner: io::stdout().lock(), colors: self.colors }
    }

    /// `text` in a colour. Escape sequences in it don't reach the terminal.
    pub fn toned(self, text: &str, tone: Tone) -> String {
        let text = safe(text).replace(TIED, " ");
        if self.colors && tone != Tone::Plain { format!("{}{text}{PLAIN}", tone.code()) } else { text }
    }

    /// A paragraph, its lines so far to the right.
    pub fn paragraph(self, out: &mut impl Write, text: &str, indent: usize, tone: Tone) -> io::Result<()> {
        let room = self.width.saturating_sub(indent).max(20);
        wrap(&tied(text), room).iter().try_for_each(|line| writeln!(out, "{:indent$}{}", "", self.toned(line, tone)))
    }

    /// An item of a list: its lines stand behind the dot.
    pub fn item(self, out: &mut impl Write, text: &str, tone: Tone) -> io::Result<()> {
        const DOT: &str = "• ";
        let room = self.width.saturating_sub(DOT.width()).max(20);
        for (index, line) in wrap(&tied(text), room).iter().enumerate() {
            let head = if index == 0 { DOT } else { "  " };
            writeln!(out, "{head}{}", self.toned(line, tone))?;
        }
        Ok(())
    }

    /// A command for a shell, broken before its flags: what is copied runs.
    pub fn command(self, out: &mut impl Write, command: &str, indent: usize) -> io::Result<()> {
        let room = self.width.saturating_sub(indent + 2).max(20);
        let mut lines: Vec<String> = Vec::new();
        for part in command.replace(" --", "\n--").split('\n') {
            match lines.last_mut() {
                Some(line) if line.width() + 1 + part.width() <= room => line.push_str(&format!(" {part}")),
                Some(_) => lines.push(format!("  {part}")),
                None => lines.push(part.to_owned()),
            }
        }
        let last = lines.len().saturating_sub(1);
        for (index, line) in lines.iter().enumerate() {
            let more = if index < last { " \\" } else { "" };
            writeln!(out, "{:indent$}{}{more}", "", safe(line))?;
        }
        Ok(())
    }
}

/// Hands on what is written as safe text, in which only the colours of [`Tone`] are left, and those only where they can be seen.
#[derive(Debug)]
pub(super) struct TonedWriter<W> {
    inner: W,
    colors: bool,
}

impl<W: Write> Write for TonedWriter<W> {
    /// Takes all of it: formatted text comes in whole characters.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        let mut rest = &*text;
        while let Some(at) = rest.find('\x1b').filter(|_| self.colors) {
            let (before, behind) = rest.split_at(at);
            let code = CODES.iter().find(|code| behind.starts_with(**code)).copied().unwrap_or_default();
            self.inner.write_all(safe(before).as_bytes())?;
            self.inner.write_all(if code.is_empty() { safe("\x1b") } else { code.into() }.as_bytes())?;
            rest = &behind[code.len().max(1)..];
        }
        self.inner.write_all(safe(rest).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The same with every figure tied to its unit.
fn tied(text: &str) -> String {
    let mut words = text.split(' ').peekable();
    let mut tied = String::with_capacity(text.len() + 16);
    while let Some(word) = words.next() {
        tied.push_str(word);
        let Some(next) = words.peek() else { break };
        let unit = next.trim_end_matches(['.', ',', ';', ':', ')']);
        let is_figure = word.ends_with(|symbol: char| symbol.is_ascii_digit());
        tied.push_str(if is_figure && UNITS.contains(&unit) { TIED } else { " " });
    }
    tied
}

/// A cell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// What it says.
    pub text: String,
    /// How.
    pub tone: Tone,
}

impl Cell {
    pub fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, tone: Tone::Plain }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// A column: its heading, of one line or several, and how its cells lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub heading: &'static str,
    /// Its cells stand at the right edge, as figures do.
    pub right: bool,
    wraps: bool,
    /// It may be left out where there is no room, the largest first.
    spare: u8,
}

impl Column {
    /// Words, to the left, on one line.
    pub const fn left(heading: &'static str) -> Self {
        Self { heading, right: false, wraps: false, spare: 0 }
    }

    /// Figures, to the right.
    pub const fn right(heading: &'static str) -> Self {
        Self { right: true, ..Self::left(heading) }
    }

    /// Words that wrap.
    pub const fn wraps(heading: &'static str) -> Self {
        Self { wraps: true, ..Self::left(heading) }
    }

    /// The same, left out where there is no room: what has the largest number goes first.
    pub const fn spare(self, spare: u8) -> Self {
        Self { spare, ..self }
    }
}

/// A table's lines, those of a row together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableLines {
    /// Of the headings; none where no column has one.
    pub head: Vec<String>,
    /// Of each row, in the order of the table's rows.
    pub rows: Vec<Vec<String>>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new(columns: impl Into<Vec<Column>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new() }
    }

    pub fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// A row without colours.
    pub fn words(&mut self, cells: Vec<String>) {
        self.row(cells.into_iter().map(Cell::from).collect());
    }

    /// The headings, and the cells of each row, where they are not printed.
    pub fn texts(&self) -> impl Iterator<Item = Vec<&str>> {
        let head = self.columns.iter().map(|column| column.heading).collect();
        let body = self.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
        std::iter::once(head).chain(body)
    }

    /// The columns that there is room for, by their places, and how wide each is.
    fn fitted(&self, rows: &[Vec<Cell>], width: usize) -> Vec<(usize, usize)> {
        let natural = |place: usize| {
            let cells = rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.text.width());
            let heading = self.columns[place].heading.split('\n').map(UnicodeWidthStr::width);
            cells.chain(heading).max().unwrap_or(0)
        };
        // A column in which no row has anything says nothing.
        let is_empty = |place: usize| {
            let mut cells = rows.iter().filter_map(|row| row.get(place));
            !rows.is_empty() && cells.all(|cell| cell.text.is_empty())
        };
        let told = (0..self.columns.len()).filter(|place| !is_empty(*place));
        let mut kept: Vec<(usize, usize)> = told.map(|place| (place, natural(place))).collect();
        let least = |(place, natural): (usize, usize)| {
            if !self.columns[place].wraps {
                return natural;
            }
            // No word of it is broken.
            let words = rows.iter().filter_map(|row| row.get(place)).flat_map(|cell| cell.text.split(' '));
            words.map(|word| word.width()).max().unwrap_or(0).max(LEAST).min(natural)
        };
        let gaps = |kept: &[(usize, usize)]| GAP * kept.len().saturating_sub(1);
        loop {
            let needed: usize = kept.iter().map(|column| least(*column)).sum::<usize>() + gaps(&kept);
            let spare = kept.iter().map(|(place, _)| self.columns[*place].spare).max().unwrap_or(0);
            if needed <= width || spare == 0 {
                break;
            }
            kept.retain(|(place, _)| self.columns[*place].spare < spare);
        }
        // What wraps shares what is over, the widest giving most. Words are broken only where nothing else makes it fit: a path is
        // one long word.
        let short = |(place, _): (usize, usize)| if self.columns[place].wraps { LEAST } else { usize::MAX };
        for broken in [false, true] {
            loop {
                let over = (kept.iter().map(|(_, width)| width).sum::<usize>() + gaps(&kept)).saturating_sub(width);
                let least = |column: (usize, usize)| if broken { short(column) } else { least(column) };
                let widest = kept.iter_mut().filter(|column| column.1 > least(**column)).max_by_key(|column| column.1);
                let Some((_, cells)) = widest.filter(|_| over > 0) else { break };
                *cells -= 1;
            }
        }
        kept
    }

    /// Prints it as wide as the paper.
    pub fn print(&self, out: &mut impl Write, paper: Paper) -> io::Result<()> {
        self.lines(paper).iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// Its lines.
    pub fn lines(&self, paper: Paper) -> Vec<String> {
        let TableLines { head, rows } = self.laid_out(paper);
        head.into_iter().chain(rows.into_iter().flatten()).collect()
    }

    /// Its lines by row, for who puts something between rows: a row may take several.
    pub fn laid_out(&self, paper: Paper) -> TableLines {
        let whole = |cell: &Cell| Cell { text: tied(&safe(&cell.text)), ..cell.clone() };
        let rows: Vec<Vec<Cell>> = self.rows.iter().map(|row| row.iter().map(whole).collect()).collect();
        let columns = self.fitted(&rows, paper.width);
        let head: Vec<Cell> =
            columns.iter().map(|(place, _)| Cell::toned(self.columns[*place].heading, Tone::Head)).collect();
        let has_head = self.columns.iter().any(|column| !column.heading.is_empty());
        let body = rows.iter().map(|row| {
            let cells: Vec<Cell> =
                columns.iter().map(|(place, _)| row.get(*place).cloned().unwrap_or_default()).collect();
            self.row_lines(&cells, &columns, paper)
        });
        let rows = body.collect();
        TableLines { head: if has_head { self.row_lines(&head, &columns, paper) } else { Vec::new() }, rows }
    }

    /// The lines of a row whose cells stand in `columns`, by their places and widths.
    fn row_lines(&self, cells: &[Cell], columns: &[(usize, usize)], paper: Paper) -> Vec<String> {
        let wrapped: Vec<Vec<String>> = cells
            .iter()
            .zip(columns)
            .map(|(cell, (place, width))| {
                let lines = cell.text.split('\n').map(str::to_owned);
                if self.columns[*place].wraps { wrap(&cell.text, *width) } else { lines.collect() }
            })
            .collect();
        let rows = wrapped.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let line = |row: usize| {
            let mut line = String::new();
            let mut spaces = 0;
            for ((texts, cell), (place, width)) in wrapped.iter().zip(cells).zip(columns) {
                let text = texts.get(row).map_or("", |text| text.as_str());
                let pad = width.saturating_sub(text.width());
                let (before, behind) = if self.columns[*place].right { (pad, 0) } else { (0, pad) };
                spaces += before;
                if !text.is_empty() {
                    line.push_str(&" ".repeat(std::mem::take(&mut spaces)));
                    line.push_str(&paper.toned(text, cell.tone));
                }
                spaces += behind + GAP;
            }
            line
        };
        (0..rows).map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = [
            Column::wraps("switches"),
            Column::right("peak reserved"),
            Column::right(""),
            Column::right("step"),
            Column::left("remark").spare(1),
        ];
        let mut table = Table::new(columns);
        let tied = |text: &str| text.replace(' ', TIED).replace(",\u{a0}", ", ");
        table.row(vec![
            tied("amp bf16, ckpt on, alloc-conf expandable_segments:True").into(),
            "12.38 GiB".into(),
            Cell::toned("−87.2 %", Tone::Good),
            "107.4 ms".into(),
            "cheapest".into(),
        ]);
        table.row(vec!["as it stands".into(), "1.38 GiB".into(), "".into(), "7.4 ms".into(), "\x1b[31mred".into()]);
        table
    }

    #[test]
    fn columns_wrap_by_themselves_and_no_figure_or_flag_is_broken() {
        for width in [72, 80, 100, 120, 160] {
            let lines = table().lines(Paper { width, colors: false });
            let text = lines.join("\n");
            assert!(lines.iter().all(|line| line.width() <= width), "{width}:\n{text}");
            for whole in ["12.38 GiB", "−87.2 %", "amp bf16", "ckpt on", "alloc-conf expandable_segments:True"] {
                assert!(text.contains(whole), "{whole} at {width}:\n{text}");
            }
            assert!(!text.contains('\x1b'), "{text}");
            let end = |what: &str| lines.iter().find(|line| line.contains(what)).and_then(|line| line.find("GiB"));
            assert_eq!(end("1.38 GiB").is_some(), end("12.38 GiB").is_some());
        }
        assert_eq!(table().lines(Paper { width: 160, colors: false }).len(), 3, "there is room for all");
        assert!(!table().lines(Paper { width: 75, colors: false })[0].contains("remark"), "what is spare is left out");
    }

    #[test]
    fn a_column_that_is_empty_in_every_row_is_left_out() {
        let heading = |filled: &str| {
            let mut table = Table::new([Column::left("batch"), Column::right("change"), Column::right("step")]);
            table.words(vec!["1".into(), filled.into(), "1.0 ms".into()]);
            table.words(vec!["2".into(), String::new(), "2.0 ms".into()]);
            table.lines(Paper { width: 80, colors: false }).swap_remove(0)
        };
        assert_eq!(heading("−1.0 %").split_whitespace().collect::<Vec<_>>(), ["batch", "change", "step"]);
        assert_eq!(heading("").split_whitespace().collect::<Vec<_>>(), ["batch", "step"]);
    }

    #[test]
    fn the_lines_of_a_row_are_known_as_such() {
        for width in [72, 80, 160] {
            let paper = Paper { width, colors: false };
            let TableLines { head, rows } = table().laid_out(paper);
            assert_eq!((head.len(), rows.len()), (1, 2), "{width}");
            assert!(rows[0][0].contains("12.38 GiB") && rows[1][0].starts_with("as it stands"), "{rows:?}");
            assert_eq!(table().lines(paper), [&[head][..], &rows].concat().concat());
        }
    }

    #[test]
    fn colours_take_no_cells_and_no_cell_commands_the_terminal() {
        let [plain, coloured] = [false, true].map(|colors| table().lines(Paper { width: 100, colors }));
        assert!(coloured.join("").contains("\x1b[32m−87.2 %\x1b[0m"));
        assert!(!coloured.join("").contains("\x1b[31m"), "what a cell holds is text");
        let bare = |line: &String| {
            let codes = ["\x1b[32m", "\x1b[1;4m", "\x1b[0m"];
            codes.iter().fold(line.clone(), |line, code| line.replace(code, ""))
        };
        assert_eq!(coloured.iter().map(bare).collect::<Vec<_>>(), plain);
    }

    #[test]
    fn nothing_but_colours_reaches_the_terminal() {
        let text = "a\x1b[32mgreen\x1b[0m \x1b]0;title\x07 \x1b[2J";
        let written = |colors| {
            let mut inked = TonedWriter { inner: Vec::new(), colors };
            write!(inked, "{text}").unwrap();
            String::from_utf8(inked.inner).unwrap()
        };
        assert_eq!(written(true), "a\x1b[32mgreen\x1b[0m \\u001b]0;title\\u0007 \\u001b[2J");
        assert!(!written(false).contains('\x1b'));
        for tone in [Tone::Head, Tone::Strong, Tone::Dim, Tone::Good, Tone::Mixed, Tone::Bad] {
            assert!(CODES.contains(&tone.code()));
        }
    }

    #[test]
    fn a_long_word_breaks_between_its_parts_where_nothing_else_makes_a_row_fit() {
        let mut table = Table::new([
            Column::wraps("name"),
            Column::left("for"),
            Column::right("peak\nreserved"),
            Column::wraps("in"),
        ]);
        let path = "train_(/home/somebody/projects/a_model/training/loop.py:1234)";
        table.words([path, "activations", "12.38 GiB", "modeling_gpt2.py:304"].map(str::to_owned).to_vec());
        for width in [60, 80, 100] {
            let lines = table.lines(Paper { width, colors: false });
            let text = lines.join("\n");
            assert!(lines.iter().all(|line| line.width() <= width), "{width}:\n{text}");
            assert!(text.contains("12.38 GiB") && text.contains("activations"), "{width}:\n{text}");
            let peak = lines[1].find("reserved").map(|at| at + "reserved".len());
            assert_eq!(
                peak,
                lines[0].find("peak").map(|at| at + "peak".len()),
                "a heading of two lines is one:\n{text}"
            );
        }
        let lines = table.lines(Paper { width: ENDLESS, colors: false });
        assert_eq!(lines.len(), 3, "what is piped has its rows whole");
        assert!(lines[2].starts_with(path) && lines[2].ends_with("modeling_gpt2.py:304"), "{lines:?}");
    }

    #[test]
    fn a_figure_stays_with_its_unit() {
        assert_eq!(
            tied("30 %, 12.38 GiB (of 40 GiB) in 3 steps"),
            "30\u{a0}%, 12.38\u{a0}GiB (of 40\u{a0}GiB) in 3 steps"
        );
        assert_eq!(tied("no unit  here "), "no unit  here ");
    }

    #[test]
    fn a_command_is_broken_before_a_flag_and_still_runs() {
        let command = "vramlab run gpt2 --batch 16 --amp bf16 --alloc-conf expandable_segments:True --device sim:h200";
        let mut out = Vec::new();
        Paper { width: 60, colors: false }.command(&mut out, command, 2).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.width() <= 60), "{text}");
        let joined: Vec<&str> = text.split_whitespace().filter(|word| *word != "\\").collect();
        assert_eq!(joined.join(" "), command);
        assert!(text.lines().rev().skip(1).all(|line| line.ends_with(" \\")), "{text}");
    }
}
