//! A report as one page: no scripts, no fonts, no external files; readable in light and dark, on paper and on a phone.

use std::io::{self, Write};

use super::part::DocumentPart;
use crate::cli::columns::Column;
use crate::source::Curve;
use crate::units::Bytes;

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Device memory</title>
<style>
:root { color-scheme: light dark; --ink: #1c2330; --dim: #5b6472; --paper: #ffffff; --line: #d9dee5; --soft: #f3f5f8; --allocated: #2f6fb0; --reserved: #9aa7b5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --dim: #9aa5b3; --paper: #14181e; --line: #323a45; --soft: #1d232b; --allocated: #6aa9e4; --reserved: #5f6b79; } }
body { margin: 2rem auto; max-width: 62rem; padding: 0 1rem; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2rem; border-bottom: 1px solid var(--line); }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .8rem; border-bottom: 1px solid var(--line); white-space: nowrap; } th { color: var(--dim); font-weight: 600; }
.word { text-align: left; } th:first-child, td:first-child { padding-left: 0; }
pre { background: var(--soft); padding: .6rem .8rem; overflow-x: auto; font: 14px/1.5 ui-monospace, monospace; }
figure { margin: 1rem 0; } figcaption { color: var(--dim); } svg { width: 100%; height: auto; display: block; }
.allocated { fill: var(--allocated); } .reserved { fill: var(--reserved); } .axis { stroke: var(--line); } text { fill: var(--dim); font: 12px system-ui, sans-serif; }
</style>
</head>
<body>
"#;

/// Starts a page.
pub(super) fn begin(out: &mut impl Write) -> io::Result<()> {
    out.write_all(HEAD.as_bytes())
}

/// Ends the page.
pub(super) fn end(out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "</body>\n</html>")
}

/// Writes one part of the page.
pub(super) fn part(out: &mut impl Write, part: &DocumentPart) -> io::Result<()> {
    match part {
        DocumentPart::Title(text) => writeln!(out, "<h1>{}</h1>", escaped(text)),
        DocumentPart::Heading(text) => writeln!(out, "<h2>{}</h2>", escaped(text)),
        DocumentPart::Text(text) | DocumentPart::Verdict(_, text) => writeln!(out, "<p>{}</p>", escaped(text)),
        DocumentPart::Items(items) => {
            writeln!(out, "<ul>")?;
            items.iter().try_for_each(|item| writeln!(out, "<li>{}</li>", escaped(item)))?;
            writeln!(out, "</ul>")
        }
        DocumentPart::Table(table) => {
            writeln!(out, "<div class=\"wide\"><table>")?;
            for (index, line) in table.texts().enumerate() {
                let tag = if index == 0 { "th" } else { "td" };
                let class = |column: &Column| if column.right { "" } else { " class=\"word\"" };
                let cells = line.iter().zip(&table.columns);
                let cells: String =
                    cells.map(|(cell, column)| format!("<{tag}{}>{}</{tag}>", class(column), escaped(cell))).collect();
                writeln!(out, "<tr>{cells}</tr>")?;
            }
            writeln!(out, "</table></div>")
        }
        DocumentPart::Code(text) => writeln!(out, "<pre>{}</pre>", escaped(text)),
        DocumentPart::Curve(curve) => draw(out, curve),
    }
}

/// Escapes characters that HTML would read as markup.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 240.0;

/// Draws allocated memory in front of reserved memory, from the first event to the last.
fn draw(out: &mut impl Write, curve: &Curve) -> io::Result<()> {
    let top = curve.columns.iter().map(|(_, reserved)| *reserved).max().unwrap_or_default();
    if top == Bytes::ZERO {
        return Ok(());
    }
    writeln!(
        out,
        "<figure><svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"allocated and reserved, event by event\">",
        HEIGHT + 4.0
    )?;
    let columns = curve.columns.len() as f64;
    for (class, of) in [("reserved", 1), ("allocated", 0)] {
        write!(out, "<path class=\"{class}\" d=\"M0 {HEIGHT}")?;
        for (index, column) in curve.columns.iter().enumerate() {
            let bytes = if of == 0 { column.0 } else { column.1 };
            let y = HEIGHT - bytes.get() as f64 / top.get() as f64 * (HEIGHT - 16.0);
            let (left, right) = (index as f64 / columns * WIDTH, (index + 1) as f64 / columns * WIDTH);
            write!(out, "L{left:.1} {y:.1}L{right:.1} {y:.1}")?;
        }
        writeln!(out, "L{WIDTH} {HEIGHT}Z\"/>")?;
    }
    writeln!(out, "<line class=\"axis\" x1=\"0\" x2=\"{WIDTH}\" y1=\"16\" y2=\"16\"/>")?;
    writeln!(out, "<text x=\"0\" y=\"12\">{top}</text></svg>")?;
    writeln!(
        out,
        "<figcaption>Allocated (blue) before reserved (grey), from the first event to the last.</figcaption></figure>"
    )
}
