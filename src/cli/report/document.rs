//! A text of headings, sentences, lists and tables, as plain text and as Markdown.

use std::io::{self, Write};

use crate::cli::table;

/// One part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Its title.
    Title(String),
    /// Begins a section.
    Heading(String),
    /// A paragraph.
    Text(String),
    /// A list.
    Items(Vec<String>),
    /// A table; its first line names the columns.
    Table(Vec<Vec<String>>),
    /// Something to paste.
    Code(String),
}

/// Writes it for a terminal.
pub(super) fn text(out: &mut impl Write, parts: &[Part]) -> io::Result<()> {
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Title(text) => writeln!(out, "{text}")?,
            Part::Heading(text) => writeln!(out, "\n{text}\n{}", "─".repeat(text.chars().count()))?,
            Part::Text(text) => {
                if index > 0 && matches!(parts[index - 1], Part::Table(_)) {
                    writeln!(out)?;
                }
                writeln!(out, "{text}")?;
            }
            Part::Items(items) => items.iter().try_for_each(|item| writeln!(out, "• {item}"))?,
            Part::Table(lines) => {
                if index > 0 && !matches!(parts[index - 1], Part::Heading(_)) {
                    writeln!(out)?;
                }
                table::print(out, lines)?;
            }
            Part::Code(text) => writeln!(out, "\n  {text}")?,
        }
    }
    Ok(())
}

/// Writes it for an issue tracker.
pub(super) fn markdown(out: &mut impl Write, parts: &[Part]) -> io::Result<()> {
    for part in parts {
        match part {
            Part::Title(text) => writeln!(out, "## {}\n", escaped(text))?,
            Part::Heading(text) => writeln!(out, "### {}\n", escaped(text))?,
            Part::Text(text) => writeln!(out, "{}\n", escaped(text))?,
            Part::Items(items) => {
                items.iter().try_for_each(|item| writeln!(out, "* {}", escaped(item)))?;
                writeln!(out)?;
            }
            Part::Table(lines) => {
                for (index, line) in lines.iter().enumerate() {
                    let cells: Vec<String> = line.iter().map(|cell| escaped(cell)).collect();
                    writeln!(out, "| {} |", cells.join(" | "))?;
                    if index == 0 {
                        writeln!(out, "|---|{}", "--:|".repeat(line.len().saturating_sub(1)))?;
                    }
                }
                writeln!(out)?;
            }
            Part::Code(text) => writeln!(out, "```\n{text}\n```\n")?,
        }
    }
    Ok(())
}

/// What Markdown would read as marks stands for itself.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '_' | '`' | '|' | '<' | '>' | '[' | ']' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_text_and_markdown() {
        let cells = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let parts = [
            Part::Title("Memory".into()),
            Part::Heading("Peak".into()),
            Part::Table(vec![cells(["", "bytes"]), cells(["blocks.*.fc", "1 MiB"])]),
            Part::Items(vec!["a|b".into()]),
            Part::Code("export X=1".into()),
        ];
        let mut out = Vec::new();
        text(&mut out, &parts).unwrap();
        let told = String::from_utf8(out).unwrap();
        assert_eq!(told, "Memory\n\nPeak\n────\n             bytes\nblocks.*.fc  1 MiB\n• a|b\n\n  export X=1\n");
        let mut out = Vec::new();
        markdown(&mut out, &parts).unwrap();
        let told = String::from_utf8(out).unwrap();
        assert!(told.contains("|  | bytes |\n|---|--:|\n| blocks.\\*.fc | 1 MiB |\n"), "{told}");
        assert!(told.contains("* a\\|b\n") && told.contains("```\nexport X=1\n```"), "{told}");
    }
}
