//! Tables fitted to a terminal: columns wrap by themselves, and important cells have a colour.

use std::io::{self, IsTerminal, StdoutLock, Write};

use unicode_width::UnicodeWidthStr;

use crate::drawing::pane::wrap;
use crate::user_input::safe;

/// Cells between two columns.
const GAP: usize = 2;
/// The fewest cells of a column that wraps.
const LEAST: usize = 12;
/// The narrowest and the widest paper, and the width when no terminal bounds it.
const WIDTHS: [usize; 3] = [40, 160, 100];
/// Wider than any line, so that nothing wraps.
const ENDLESS: usize = usize::MAX;
/// A space at which no line is broken: `amp\u{a0}bf16` stays together.
pub(super) const TIED: &str = "\u{a0}";

/// Units that stay on the line of their figure.
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

/// The escape sequence that ends a colour.
const PLAIN: &str = "\x1b[0m";
/// All escape sequences that set a colour or end it.
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

/// The surface that text is printed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Paper {
    /// Cells in a line.
    pub width: usize,
    /// Whether the surface shows colours.
    pub colors: bool,
}

impl Paper {
    /// Standard output: as wide as the terminal, else as wide as `COLUMNS` says. It has colours if the terminal has
    /// some and `NO_COLOR` is not set.
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

    /// Standard output that wraps on a terminal only: a file or a pipe gets every paragraph and every row on one line,
    /// so that it can be searched or read elsewhere.
    pub fn terminal() -> Self {
        let paper = Self::stdout();
        if io::stdout().is_terminal() { paper } else { Self { width: ENDLESS, ..paper } }
    }

    /// A writer to standard output for coloured text.
    pub fn out(self) -> TonedWriter<StdoutLock<'static>> {
        TonedWriter { inner: io::stdout().lock(), colors: self.colors }
    }

    /// `text` in a colour. Escape sequences in it don't reach the terminal.
    pub fn toned(self, text: &str, tone: Tone) -> String {
        let text = safe(text).replace(TIED, " ");
        if self.colors && tone != Tone::Plain { format!("{}{text}{PLAIN}", tone.code()) } else { text }
    }

    /// Prints a paragraph, each line indented by `indent` cells.
    pub fn paragraph(self, out: &mut impl Write, text: &str, indent: usize, tone: Tone) -> io::Result<()> {
        let room = self.width.saturating_sub(indent).max(20);
        wrap(&tied(text), room).iter().try_for_each(|line| writeln!(out, "{:indent$}{}", "", self.toned(line, tone)))
    }

    /// Prints an item of a list; the lines are indented past the dot.
    pub fn item(self, out: &mut impl Write, text: &str, tone: Tone) -> io::Result<()> {
        const DOT: &str = "• ";
        let room = self.width.saturating_sub(DOT.width()).max(20);
        for (index, line) in wrap(&tied(text), room).iter().enumerate() {
            let head = if index == 0 { DOT } else { "  " };
            writeln!(out, "{head}{}", self.toned(line, tone))?;
        }
        Ok(())
    }

    /// Prints a shell command, broken before its flags so that a copy of it still runs.
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

/// Passes text on as safe text: keeps only the colours of [`Tone`], and those only if the surface shows colours.
#[derive(Debug)]
pub(super) struct TonedWriter<W> {
    inner: W,
    colors: bool,
}

impl<W: Write> Write for TonedWriter<W> {
    /// Writes the whole buffer: formatted text arrives in whole characters.
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

/// The same text with every figure tied to its unit.
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

/// A cell of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    /// The cell's text.
    pub text: String,
    /// The cell's colour.
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

/// A column: its heading, of one line or several, and how its cells are aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub heading: &'static str,
    /// Whether the cells are aligned right, as figures are.
    pub right: bool,
    wraps: bool,
    /// Whether the column may be left out if there is no room: 0 never; the largest number goes first.
    spare: u8,
}

impl Column {
    /// A column of words, aligned left, on one line.
    pub const fn left(heading: &'static str) -> Self {
        Self { heading, right: false, wraps: false, spare: 0 }
    }

    /// A column of figures, aligned right.
    pub const fn right(heading: &'static str) -> Self {
        Self { right: true, ..Self::left(heading) }
    }

    /// A column of words that wrap.
    pub const fn wraps(heading: &'static str) -> Self {
        Self { wraps: true, ..Self::left(heading) }
    }

    /// The same column, left out if there is no room: the column with the largest number goes first.
    pub const fn spare(self, spare: u8) -> Self {
        Self { spare, ..self }
    }
}

/// A table's lines, grouped by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableLines {
    /// Lines of the headings; empty if no column has a heading.
    pub head: Vec<String>,
    /// Lines of each row, in the order of the table's rows.
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

    /// Adds a row without colours.
    pub fn words(&mut self, cells: Vec<String>) {
        self.row(cells.into_iter().map(Cell::from).collect());
    }

    /// The headings and then the cells of each row, for output other than a printed table.
    pub fn texts(&self) -> impl Iterator<Item = Vec<&str>> {
        let head = self.columns.iter().map(|column| column.heading).collect();
        let body = self.rows.iter().map(|row| row.iter().map(|cell| cell.text.as_str()).collect());
        std::iter::once(head).chain(body)
    }

    /// The columns that fit, as pairs of index and width.
    fn fitted(&self, rows: &[Vec<Cell>], width: usize) -> Vec<(usize, usize)> {
        let natural = |place: usize| {
            let cells = rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.text.width());
            let heading = self.columns[place].heading.split('\n').map(UnicodeWidthStr::width);
            cells.chain(heading).max().unwrap_or(0)
        };
        // A column whose cells are all empty is left out.
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
            // The column is wide enough for its longest word.
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
        // The columns that wrap give up the cells that are too many, the widest giving most. A word is broken only if
        // nothing else makes the table fit: a path is one long word.
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

    /// Prints the table as wide as the paper.
    pub fn print(&self, out: &mut impl Write, paper: Paper) -> io::Result<()> {
        self.lines(paper).iter().try_for_each(|line| writeln!(out, "{line}"))
    }

    /// The table's lines.
    pub fn lines(&self, paper: Paper) -> Vec<String> {
        let TableLines { head, rows } = self.laid_out(paper);
        head.into_iter().chain(rows.into_iter().flatten()).collect()
    }

    /// The table's lines grouped by row, for callers that print something between rows: a row may take several lines.
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

    /// The lines of a row; `columns` gives the index and the width of each column shown.
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
