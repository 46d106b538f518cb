//! Converts a frame to a picture (SVG) and to text, for slides and bug reports.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{fs, io};

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};

/// A cell, in pixels.
const CELL: (u32, u32) = (9, 20);
/// The terminal's default colours: text and background.
const DEFAULT: (&str, &str) = ("#d3dbe5", "#0e131a");

/// Writes `stem.svg` and `stem.txt` into `folder`, under names that don't exist yet. Returns the path of the picture.
///
/// # Errors
/// The system's error.
pub(super) fn save(buf: &Buffer, folder: &Path, stem: &str) -> io::Result<PathBuf> {
    let name = |n: u32| if n == 0 { stem.to_owned() } else { format!("{stem}-{n}") };
    let free = |n: &u32| ["svg", "txt"].iter().all(|kind| !folder.join(format!("{}.{kind}", name(*n))).exists());
    let name = name((0..10_000).find(free).unwrap_or_default());
    let picture = folder.join(format!("{name}.svg"));
    fs::write(&picture, svg(buf))?;
    fs::write(folder.join(format!("{name}.txt")), text(buf))?;
    Ok(picture)
}

/// The characters of a frame, one line per row.
pub(super) fn text(buf: &Buffer) -> String {
    let mut text = String::new();
    for row in buf.area.rows() {
        let line: String = row.columns().map(|cell| buf[(cell.x, cell.y)].symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A frame as a picture for browsers and slides. Blocks are drawn as areas, so that no font leaves gaps between them.
pub(super) fn svg(buf: &Buffer) -> String {
    let (width, height) = (u32::from(buf.area.width) * CELL.0, u32::from(buf.area.height) * CELL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"15\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
        DEFAULT.1
    );
    for y in 0..buf.area.height {
        let row: Vec<&Cell> = (0..buf.area.width).map(|x| &buf[(buf.area.x + x, buf.area.y + y)]).collect();
        let top = u32::from(y) * CELL.1;
        for (x, count, ground) in runs(&row, |cell| colours(cell).1) {
            if ground != DEFAULT.1 {
                rect(&mut out, (x * CELL.0, top), (count * CELL.0, CELL.1), &ground);
            }
        }
        for (x, count, (ink, area)) in runs(&row, |cell| (colours(cell).0, area_of(cell.symbol()))) {
            if let Some((from, to)) = area {
                let px = |eighths: (u32, u32)| (eighths.0 * CELL.0 / 8, eighths.1 * CELL.1 / 8);
                let (from, to) = (px(from), px(to));
                // Adjacent whole cells form one area.
                let step = if (from.0, to.0) == (0, CELL.0) { count } else { 1 };
                for cell in (x..x + count).step_by(step.max(1) as usize) {
                    let size = ((step - 1) * CELL.0 + to.0 - from.0, to.1 - from.1);
                    rect(&mut out, (cell * CELL.0 + from.0, top + from.1), size, &ink);
                }
            }
        }
        let written = |cell: &Cell| cell.symbol().trim().is_empty() || area_of(cell.symbol()).is_some();
        for (x, count, style) in runs(&row, |cell| (!written(cell)).then(|| (colours(cell).0, weight(cell)))) {
            let Some((ink, weight)) = style else { continue };
            let from = x as usize;
            let words: String = row[from..from + count as usize].iter().map(|cell| escaped(cell.symbol())).collect();
            let (x, y, length) = (x * CELL.0, top + CELL.1 - 5, count * CELL.0);
            let _ = writeln!(
                out,
                "<text x=\"{x}\" y=\"{y}\" fill=\"{ink}\"{weight} textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\" \
                 xml:space=\"preserve\">{words}</text>"
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Runs of adjacent cells with a common property: the first cell, their number, and the property.
fn runs<T: PartialEq>(row: &[&Cell], of: impl Fn(&Cell) -> T) -> Vec<(u32, u32, T)> {
    let mut runs: Vec<(u32, u32, T)> = Vec::new();
    for (x, cell) in (0..).zip(row) {
        let of = of(cell);
        match runs.last_mut() {
            Some((_, count, known)) if *known == of => *count += 1,
            _ => runs.push((x, 1, of)),
        }
    }
    runs
}

fn rect(out: &mut String, (x, y): (u32, u32), (width, height): (u32, u32), fill: &str) {
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>");
}

/// The part of a cell that a block character covers, in eighths from the upper left corner.
fn area_of(symbol: &str) -> Option<((u32, u32), (u32, u32))> {
    let lower = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let left = ["▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if let Some(height) = lower.iter().position(|block| *block == symbol) {
        return Some(((0, 7 - height as u32), (8, 8)));
    }
    if let Some(width) = left.iter().position(|block| *block == symbol) {
        return Some(((0, 0), (width as u32 + 1, 8)));
    }
    match symbol {
        "▔" => Some(((0, 0), (8, 1))),
        "▐" => Some(((4, 0), (8, 8))),
        _ => None,
    }
}

/// The text and background colours of a cell.
fn colours(cell: &Cell) -> (String, String) {
    let (ink, ground) = (hex(cell.fg, DEFAULT.0), hex(cell.bg, DEFAULT.1));
    if cell.modifier.contains(Modifier::REVERSED) { (ground, ink) } else { (ink, ground) }
}

fn weight(cell: &Cell) -> &'static str {
    if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" }
}

fn escaped(symbol: &str) -> String {
    match symbol {
        "&" => "&amp;".to_owned(),
        "<" => "&lt;".to_owned(),
        ">" => "&gt;".to_owned(),
        symbol => symbol.chars().filter(|symbol| !symbol.is_control()).collect(),
    }
}

/// A colour in the notation of pictures; the terminal's own colours as in xterm.
fn hex(color: Color, default: &str) -> String {
    const ANSI: [&str; 16] = [
        "#000000", "#cd3131", "#0dbc79", "#e5e510", "#2472c8", "#bc3fbc", "#11a8cd", "#e5e5e5", "#666666", "#f14c4c",
        "#23d18b", "#f5f543", "#3b8eea", "#d670d6", "#29b8db", "#ffffff",
    ];
    let ansi = |index: u8| ANSI[usize::from(index) % ANSI.len()].to_owned();
    match color {
        Color::Reset => default.to_owned(),
        Color::Rgb(red, green, blue) => format!("#{red:02x}{green:02x}{blue:02x}"),
        Color::Indexed(index @ 0..16) => ansi(index),
        Color::Indexed(index @ 16..232) => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let index = index - 16;
            format!("#{:02x}{:02x}{:02x}", level(index / 36), level(index / 6 % 6), level(index % 6))
        }
        Color::Indexed(index) => format!("#{0:02x}{0:02x}{0:02x}", 8 + 10 * (index - 232)),
        Color::Black => ansi(0),
        Color::Red => ansi(1),
        Color::Green => ansi(2),
        Color::Yellow => ansi(3),
        Color::Blue => ansi(4),
        Color::Magenta => ansi(5),
        Color::Cyan => ansi(6),
        Color::Gray => ansi(7),
        Color::DarkGray => ansi(8),
        Color::LightRed => ansi(9),
        Color::LightGreen => ansi(10),
        Color::LightYellow => ansi(11),
        Color::LightBlue => ansi(12),
        Color::LightMagenta => ansi(13),
        Color::LightCyan => ansi(14),
        Color::White => ansi(15),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Rect;
    use ratatui::style::Style;

    use super::*;

    #[test]
    fn a_frame_becomes_areas_and_words_with_their_colours() {
        let mut buf = Buffer::empty(Rect::new(0, 0, 6, 2));
        buf.set_string(0, 0, "a<b", Style::new().fg(Color::Rgb(1, 2, 3)).add_modifier(Modifier::BOLD));
        buf.set_string(0, 1, "██▄", Style::new().fg(Color::Red).bg(Color::Indexed(232)));
        let picture = svg(&buf);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("fill=\"#010203\" font-weight=\"bold\" textLength=\"27\""), "{picture}");
        assert!(picture.contains(">a&lt;b</text>"), "{picture}");
        assert!(
            picture.contains("<rect x=\"0\" y=\"20\" width=\"27\" height=\"20\" fill=\"#080808\"/>"),
            "the ground: {picture}"
        );
        assert!(
            picture.contains("<rect x=\"0\" y=\"20\" width=\"18\" height=\"20\" fill=\"#cd3131\"/>"),
            "two whole cells: {picture}"
        );
        assert!(
            picture.contains("<rect x=\"18\" y=\"30\" width=\"9\" height=\"10\" fill=\"#cd3131\"/>"),
            "half a cell: {picture}"
        );
        assert_eq!(text(&buf), "a<b\n██▄\n");
    }

    #[test]
    fn nothing_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let buf = Buffer::empty(Rect::new(0, 0, 2, 1));
        let names = [0, 1, 2].map(|_| save(&buf, folder.path(), "lab").unwrap());
        assert_eq!(names, ["lab.svg", "lab-1.svg", "lab-2.svg"].map(|name| folder.path().join(name)));
        assert!(save(&buf, &folder.path().join("none"), "lab").is_err());
    }
}
