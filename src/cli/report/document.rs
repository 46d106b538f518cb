//! A text of headings, sentences, lists and tables, written part by part as plain text, as Markdown or as a page.

use std::io::{self, Write};

use super::page;
use super::part::DocumentPart;
use crate::cli::columns::{Paper, Tone};

/// How a document is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// For a terminal.
    Text,
    /// For an issue tracker.
    Markdown,
    /// For a browser.
    Html,
}

/// Writes a document part by part, so that the first parts can be read while the rest is computed.
pub(super) struct Writer<W> {
    out: W,
    style: Style,
    paper: Paper,
    /// The kind of the previous part.
    before: PrecedingBlock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrecedingBlock {
    Nothing,
    Heading,
    Table,
    Other,
}

impl<W: Write> Writer<W> {
    /// Starts a document; text is fitted to the paper.
    pub fn new(mut out: W, style: Style, paper: Paper) -> io::Result<Self> {
        if style == Style::Html {
            page::begin(&mut out)?;
        }
        Ok(Self { out, style, paper, before: PrecedingBlock::Nothing })
    }

    /// Writes more parts.
    pub fn write(&mut self, parts: &[DocumentPart]) -> io::Result<()> {
        for part in parts {
            match self.style {
                Style::Text => self.text(part)?,
                Style::Markdown => markdown(&mut self.out, part)?,
                Style::Html => page::part(&mut self.out, part)?,
            }
            self.before = match part {
                DocumentPart::Title(_) | DocumentPart::Heading(_) => PrecedingBlock::Heading,
                DocumentPart::Table(_) => PrecedingBlock::Table,
                _ => PrecedingBlock::Other,
            };
        }
        self.out.flush()
    }

    /// Ends the document.
    pub fn finish(mut self) -> io::Result<()> {
        if self.style == Style::Html {
            page::end(&mut self.out)?;
        }
        self.out.flush()
    }

    fn text(&mut self, part: &DocumentPart) -> io::Result<()> {
        let (out, paper) = (&mut self.out, self.paper);
        let mut paragraph = |text: &str, tone| {
            if self.before == PrecedingBlock::Table {
                writeln!(out)?;
            }
            paper.paragraph(out, text, 0, tone)
        };
        match part {
            DocumentPart::Title(text) => paper.paragraph(out, text, 0, Tone::Strong),
            DocumentPart::Heading(text) => {
                writeln!(out)?;
                paper.paragraph(out, text, 0, Tone::Strong)?;
                let rule = "─".repeat(text.chars().count().min(paper.width));
                writeln!(out, "{}", paper.toned(&rule, Tone::Dim))
            }
            DocumentPart::Text(text) => paragraph(text, Tone::Plain),
            DocumentPart::Verdict(tone, text) => paragraph(text, *tone),
            DocumentPart::Items(items) => items.iter().try_for_each(|item| paper.item(out, item, Tone::Plain)),
            DocumentPart::Table(table) => {
                if self.before != PrecedingBlock::Heading && self.before != PrecedingBlock::Nothing {
                    writeln!(out)?;
                }
                table.print(out, paper)
            }
            DocumentPart::Code(text) => text.lines().enumerate().try_for_each(|(index, line)| {
                if index == 0 {
                    writeln!(out)?;
                }
                writeln!(out, "  {line}")
            }),
            DocumentPart::Curve(_) => Ok(()),
        }
    }
}

/// Writes a part as Markdown.
fn markdown(out: &mut impl Write, part: &DocumentPart) -> io::Result<()> {
    match part {
        DocumentPart::Title(text) => writeln!(out, "## {}\n", escaped(text)),
        DocumentPart::Heading(text) => writeln!(out, "### {}\n", escaped(text)),
        DocumentPart::Text(text) | DocumentPart::Verdict(_, text) => writeln!(out, "{}\n", escaped(text)),
        DocumentPart::Items(items) => {
            items.iter().try_for_each(|item| writeln!(out, "* {}", escaped(item)))?;
            writeln!(out)
        }
        DocumentPart::Table(table) => {
            for (index, line) in table.texts().enumerate() {
                let cells: Vec<String> = line.iter().map(|cell| escaped(cell)).collect();
                writeln!(out, "| {} |", cells.join(" | "))?;
                if index == 0 {
                    let ways = table.columns.iter().map(|column| if column.right { "--:|" } else { "---|" });
                    writeln!(out, "|{}", ways.collect::<String>())?;
                }
            }
            writeln!(out)
        }
        DocumentPart::Code(text) => writeln!(out, "```\n{text}\n```\n"),
        DocumentPart::Curve(_) => Ok(()),
    }
}

/// Escapes characters that Markdown would read as markup.
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
    use crate::cli::columns::{Column, Table};
    use crate::source::Curve;
    use crate::units::Bytes;

    fn written(style: Style, parts: &[DocumentPart]) -> String {
        let mut out = Vec::new();
        let paper = Paper { width: usize::MAX, colors: false };
        let mut writer = Writer::new(&mut out, style, paper).unwrap();
        // The result is the same whether the parts come at once or in pieces.
        parts.chunks(2).for_each(|parts| writer.write(parts).unwrap());
        writer.finish().unwrap();
        String::from_utf8(out).unwrap()
    }

    fn parts() -> Vec<DocumentPart> {
        let mut table = Table::new([Column::wraps(""), Column::right("bytes")]);
        table.row(vec!["blocks.*.fc".into(), "1 MiB".into()]);
        vec![
            DocumentPart::Title("Memory".into()),
            DocumentPart::Curve(Curve { columns: vec![(Bytes(1), Bytes(2)), (Bytes(2), Bytes(2))] }),
            DocumentPart::Heading("Peak".into()),
            DocumentPart::Table(table),
            DocumentPart::Items(vec!["a|b".into()]),
            DocumentPart::Code("export X=1".into()),
        ]
    }

    #[test]
    fn a_document_is_text_and_markdown() {
        let told = written(Style::Text, &parts());
        assert_eq!(told, "Memory\n\nPeak\n────\n             bytes\nblocks.*.fc  1 MiB\n• a|b\n\n  export X=1\n");
        let told = written(Style::Markdown, &parts());
        assert!(told.contains("|  | bytes |\n|---|--:|\n| blocks.\\*.fc | 1 MiB |\n"), "{told}");
        assert!(told.contains("* a\\|b\n") && told.contains("```\nexport X=1\n```"), "{told}");
    }

    #[test]
    fn a_page_stands_alone_and_holds_no_text_as_markup() {
        let mut parts = parts();
        parts.push(DocumentPart::Text("<script>alert('&')</script>".into()));
        let told = written(Style::Html, &parts);
        assert!(told.starts_with("<!doctype html>") && told.trim_end().ends_with("</html>"), "{told}");
        assert!(told.contains("<svg") && told.contains("prefers-color-scheme: dark"));
        assert!(told.contains("&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;"), "{told}");
        // The page loads nothing from elsewhere and runs no code.
        for foreign in ["<script", "http:", "https:", "src=", "@import", "url("] {
            assert!(!told.contains(foreign), "{foreign}");
        }
    }
}
