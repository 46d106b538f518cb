//! Lays out Markdown in lines of a given width. It knows what the guide uses: headings, paragraphs, lists, tables, code
//! blocks, and within a line code, emphasis and links. Comments and pictures are left out.

use unicode_width::UnicodeWidthChar;

/// The role of a piece of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Ordinary text.
    Text,
    /// A heading.
    Heading,
    /// Strong emphasis.
    Strong,
    /// Code: text to type, or printed text.
    Code,
    /// The target of a link.
    Link,
    /// The lines between the rows and columns of tables.
    Rule,
}

/// A line: its pieces in their order.
pub type Line = Vec<(Role, String)>;

/// Characters with their roles: a text that can be wrapped.
type RoleText = Vec<(char, Role)>;

/// The least width of a table's column.
const NARROWEST: usize = 8;
/// The space between two columns of a table.
const BETWEEN: &str = "  ";

/// A page in lines of at most `width` characters; only code can be longer.
#[must_use]
pub fn lines(text: &str, width: usize) -> Vec<Line> {
    let mut out: Vec<Line> = Vec::new();
    for block in blocks(text) {
        if !out.is_empty() {
            out.push(Line::new());
        }
        match block {
            MarkdownBlock::Heading(text) => out.extend(wrapped(&marked(&text, Role::Heading), width, "", "")),
            MarkdownBlock::Paragraph(text) => out.extend(wrapped(&marked(&text, Role::Text), width, "", "")),
            MarkdownBlock::Items(items) => {
                for (mark, text) in items {
                    let rest = " ".repeat(columns_of(&mark));
                    out.extend(wrapped(&marked(&text, Role::Text), width, &mark, &rest));
                }
            }
            MarkdownBlock::Code(lines) => {
                out.extend(lines.into_iter().map(|line| vec![(Role::Code, format!("    {line}"))]))
            }
            MarkdownBlock::Table(rows) => out.extend(table(&rows, width)),
        }
    }
    out
}

/// The lines as plain text, each with a line end.
#[must_use]
pub fn plain(lines: &[Line]) -> String {
    let line = |line: &Line| line.iter().map(|(_, text)| text.as_str()).chain(["\n"]).collect::<String>();
    lines.iter().map(line).collect()
}

/// A block of Markdown: in general, the lines between two empty lines.
enum MarkdownBlock {
    Heading(String),
    Paragraph(String),
    /// Items of a list, each with its indented mark.
    Items(Vec<(String, String)>),
    Code(Vec<String>),
    /// Rows of cells, the heading first.
    Table(Vec<Vec<String>>),
}

fn blocks(text: &str) -> Vec<MarkdownBlock> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let next = match line.trim_start() {
            "" => continue,
            start if start.starts_with("<!--") || start.starts_with("![") => continue,
            start if start.starts_with('#') => MarkdownBlock::Heading(start.trim_start_matches('#').trim().to_owned()),
            start if start.starts_with("```") => {
                let code = lines.by_ref().take_while(|line| !line.trim_start().starts_with("```"));
                MarkdownBlock::Code(code.map(str::to_owned).collect())
            }
            start if start.starts_with('|') => {
                let mut rows = vec![cells(line)];
                while let Some(line) = lines.next_if(|line| line.trim_start().starts_with('|')) {
                    rows.push(cells(line));
                }
                let is_rule = |row: &Vec<String>| {
                    row.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| "-: ".contains(c)))
                };
                rows.retain(|row| !is_rule(row));
                MarkdownBlock::Table(rows)
            }
            _ if line.starts_with("    ") => {
                let mut code = vec![line[4..].to_owned()];
                while let Some(line) = lines.next_if(|line| line.starts_with("    ") || line.is_empty()) {
                    code.push(line.get(4..).unwrap_or_default().to_owned());
                }
                while code.last().is_some_and(String::is_empty) {
                    code.pop();
                }
                MarkdownBlock::Code(code)
            }
            _ if item(line).is_some() => {
                let mut items: Vec<(String, String)> = item(line).into_iter().collect();
                while let Some(line) = lines.next_if(|line| item(line).is_some() || line.starts_with("  ")) {
                    match (item(line), items.last_mut()) {
                        (Some(item), _) => items.push(item),
                        (None, Some((_, text))) => append(text, line),
                        (None, None) => {}
                    }
                }
                MarkdownBlock::Items(items)
            }
            start => {
                let mut text = start.to_owned();
                let ends = |line: &str| {
                    line.trim().is_empty() || ["#", "|", "<!--", "```"].iter().any(|mark| line.starts_with(mark))
                };
                let goes_on = |line: &&str| !ends(line) && item(line).is_none();
                while let Some(line) = lines.next_if(goes_on) {
                    append(&mut text, line);
                }
                MarkdownBlock::Paragraph(text)
            }
        };
        blocks.push(next);
    }
    blocks
}

fn append(text: &mut String, line: &str) {
    text.push(' ');
    text.push_str(line.trim());
}

/// The mark of a list item, as it is shown, and the text after it.
fn item(line: &str) -> Option<(String, String)> {
    let start = line.trim_start();
    let indent = line.len() - start.len();
    let (mark, rest) = start.split_once(' ')?;
    let number =
        mark.strip_suffix('.').is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()));
    (number || mark == "*" || mark == "-").then(|| (format!("{:indent$}{mark} ", ""), rest.trim().to_owned()))
}

/// The cells of a table's row. A bar within code is part of its cell.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let mut cells = vec![String::new()];
    let (mut code, mut escaped) = (false, false);
    for symbol in inner.chars() {
        let ends = symbol == '|' && !code && !escaped;
        if escaped && symbol != '|' {
            push(&mut cells, '\\');
        }
        escaped = symbol == '\\' && !escaped;
        code ^= symbol == '`';
        if ends {
            cells.push(String::new());
        } else if !escaped {
            push(&mut cells, symbol);
        }
    }
    cells.iter().map(|cell| cell.trim().to_owned()).collect()
}

fn push(cells: &mut [String], symbol: char) {
    if let Some(cell) = cells.last_mut() {
        cell.push(symbol);
    }
}

/// A text without its Markdown marks; every character has its role.
fn marked(text: &str, base: Role) -> RoleText {
    let mut out = RoleText::new();
    let (mut rest, mut strong) = (text, false);
    let role = |strong: bool| if strong && base == Role::Text { Role::Strong } else { base };
    while let Some(symbol) = rest.chars().next() {
        if let Some((code, behind)) = rest.strip_prefix('`').and_then(|inner| inner.split_once('`')) {
            out.extend(code.chars().map(|symbol| (symbol, Role::Code)));
            rest = behind;
        } else if let Some(behind) = rest.strip_prefix("**") {
            strong = !strong;
            rest = behind;
        } else if let Some((label, target, behind)) = link(rest) {
            out.extend(marked(label, role(strong)));
            // A link that leads out of the guide can be followed only if its target is written out.
            let shown = if target.contains("://") { Some(target.to_owned()) } else { reference(label, target) };
            if let Some(shown) = shown {
                out.extend([(' ', base), ('(', base)]);
                out.extend(shown.chars().map(|symbol| (symbol, Role::Link)));
                out.push((')', base));
            }
            rest = behind;
        } else if let Some((inner, behind)) = emphasis(rest) {
            out.extend(inner.chars().map(|symbol| (symbol, Role::Strong)));
            rest = behind;
        } else {
            out.push((symbol, role(strong)));
            rest = &rest[symbol.len_utf8()..];
        }
    }
    out
}

/// Splits `[label](target)` off the beginning of a text.
fn link(text: &str) -> Option<(&str, &str, &str)> {
    let (label, rest) = text.strip_prefix('[')?.split_once("](")?;
    let (target, behind) = rest.split_once(')')?;
    (!label.contains('\n')).then_some((label, target, behind))
}

/// The command that opens the page to which a link leads, if the label doesn't say it.
fn reference(label: &str, target: &str) -> Option<String> {
    let name = target.split('#').next()?.strip_suffix(".md")?;
    let short = name.rsplit('/').next()?;
    (!short.is_empty() && label.trim_matches('`') != short && !name.starts_with("../.."))
        .then(|| format!("vramlab guide {short}"))
}

/// Splits `*word*` off the beginning of a text.
fn emphasis(text: &str) -> Option<(&str, &str)> {
    let (inner, behind) = text.strip_prefix('*')?.split_once('*')?;
    let is_word = !inner.is_empty() && !inner.starts_with(' ') && !inner.ends_with(' ');
    is_word.then_some((inner, behind))
}

fn columns_of(text: &str) -> usize {
    text.chars().map(|symbol| symbol.width().unwrap_or(0)).sum()
}

fn columns(text: &[(char, Role)]) -> usize {
    text.iter().map(|(symbol, _)| symbol.width().unwrap_or(0)).sum()
}

/// Lines of at most `width`; the first begins with `first`, the others with `rest`.
fn wrapped(text: &[(char, Role)], width: usize, first: &str, rest: &str) -> Vec<Line> {
    let room = width.saturating_sub(columns_of(first)).max(1);
    let lines = broken(text, room);
    let before = |index: usize| (Role::Text, if index == 0 { first } else { rest }.to_owned());
    let line = |(index, line): (usize, &RoleText)| {
        std::iter::once(before(index)).filter(|(_, text)| !text.is_empty()).chain(pieces(line)).collect()
    };
    lines.iter().enumerate().map(line).collect()
}

/// A text in lines of at most `width`: broken at spaces; a longer word is broken anywhere.
fn broken(text: &[(char, Role)], width: usize) -> Vec<RoleText> {
    let mut lines = vec![RoleText::new()];
    for word in text.split(|(symbol, _)| *symbol == ' ').filter(|word| !word.is_empty()) {
        let used = lines.last().map_or(0, |line| columns(line));
        if used > 0 && used + 1 + columns(word) > width {
            lines.push(RoleText::new());
        }
        for (index, piece) in cut(word, width).into_iter().enumerate() {
            if index > 0 {
                lines.push(RoleText::new());
            }
            if let Some(line) = lines.last_mut() {
                if let Some((_, role)) = line.last().copied() {
                    // A space within code has the role of code.
                    line.push((
                        ' ',
                        if piece.first().is_some_and(|(_, next)| *next == role) { role } else { Role::Text },
                    ));
                }
                line.extend(piece);
            }
        }
    }
    lines
}

/// A word in pieces that fit.
fn cut(word: &[(char, Role)], width: usize) -> Vec<RoleText> {
    let mut pieces = vec![RoleText::new()];
    for symbol in word {
        let cells = symbol.0.width().unwrap_or(0);
        if pieces.last().is_some_and(|piece| !piece.is_empty() && columns(piece) + cells > width) {
            pieces.push(RoleText::new());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(*symbol);
        }
    }
    pieces
}

/// Joins neighbouring characters of the same role.
fn pieces(text: &[(char, Role)]) -> impl Iterator<Item = (Role, String)> {
    text.chunk_by(|a, b| a.1 == b.1).map(|piece| (piece[0].1, piece.iter().map(|(symbol, _)| *symbol).collect()))
}

/// A table; if it is too wide, its cells wrap, those of the widest columns first.
fn table(rows: &[Vec<String>], width: usize) -> Vec<Line> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell =
        |row: &[String], column: usize, role| row.get(column).map_or_else(RoleText::new, |text| marked(text, role));
    let role = |index: usize| if index == 0 { Role::Heading } else { Role::Text };
    let rows: Vec<Vec<RoleText>> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| (0..count).map(|column| cell(row, column, role(index))).collect())
        .collect();
    let mut widths: Vec<usize> =
        (0..count).map(|column| rows.iter().map(|row| columns(&row[column])).max().unwrap_or(0)).collect();
    let between = BETWEEN.len() * count.saturating_sub(1);
    while widths.iter().sum::<usize>() + between > width {
        match widths.iter_mut().max() {
            Some(widest) if *widest > NARROWEST => *widest -= 1,
            _ => break,
        }
    }
    // Columns of figures are right-aligned.
    let is_figure =
        |text: &RoleText| text.iter().all(|(symbol, _)| !symbol.is_alphabetic() || "eMGKiBbytsm".contains(*symbol));
    let right: Vec<bool> = (0..count)
        .map(|column| column > 0 && rows.len() > 1 && rows[1..].iter().all(|row| is_figure(&row[column])))
        .collect();
    let mut out = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<Vec<RoleText>> = row.iter().zip(&widths).map(|(cell, width)| broken(cell, *width)).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut pieces_of_line = Line::new();
            for (column, cell) in cells.iter().enumerate() {
                if column > 0 {
                    pieces_of_line.push((Role::Text, BETWEEN.to_owned()));
                }
                let text = cell.get(line).map_or(&[][..], Vec::as_slice);
                let spare = " ".repeat(widths[column].saturating_sub(columns(text)));
                let (before, behind) = if right[column] { (spare, String::new()) } else { (String::new(), spare) };
                pieces_of_line.push((Role::Text, before));
                pieces_of_line.extend(pieces(text));
                pieces_of_line.push((Role::Text, behind));
            }
            out.push(trimmed(pieces_of_line));
        }
        if index == 0 {
            let all = widths.iter().sum::<usize>() + between;
            out.push(vec![(Role::Rule, "─".repeat(all.min(width)))]);
        }
    }
    out
}

/// The line without spaces at its end.
fn trimmed(mut line: Line) -> Line {
    line.retain(|(_, text)| !text.is_empty());
    while let Some((_, text)) = line.last_mut() {
        text.truncate(text.trim_end().len());
        if !text.is_empty() {
            break;
        }
        line.pop();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(page: &str, width: usize) -> Vec<String> {
        lines(page, width).iter().map(|line| line.iter().map(|(_, text)| text.as_str()).collect()).collect()
    }

    #[test]
    fn paragraphs_are_filled_and_lists_hang() {
        let page = "# Title\n\nOne two\nthree four.\n\n* first item\n  goes on\n* second\n\n1. *one*\n";
        assert_eq!(
            text(page, 12),
            ["Title", "", "One two", "three four.", "", "* first item", "  goes on", "* second", "", "1. one"]
        );
    }

    #[test]
    fn pieces_have_their_roles() {
        let line = &lines("a **b** `c d` [e](https://f.g) [keys](keys.md)", 80)[0];
        let roles: Vec<(Role, &str)> = line.iter().map(|(role, text)| (*role, text.as_str())).collect();
        let wanted = [
            (Role::Text, "a "),
            (Role::Strong, "b"),
            (Role::Text, " "),
            (Role::Code, "c d"),
            (Role::Text, " e ("),
            (Role::Link, "https://f.g"),
            (Role::Text, ") keys"),
        ];
        assert_eq!(roles, wanted);
    }

    #[test]
    fn code_stays_as_it_is_and_comments_go() {
        let page = "<!-- made -->\n    $ a  b\n\n    c\n\n```toml\nx = 1\n```\n<!-- /made -->\nend\n";
        assert_eq!(text(page, 5), ["    $ a  b", "    ", "    c", "", "    x = 1", "", "end"]);
    }

    #[test]
    fn tables_have_columns_and_wrap() {
        let page = "| key | what it does |\n|---|--:|\n| `m` | one two three four five |\n| `a\\|b` | six |\n";
        assert_eq!(
            text(page, 20),
            ["key  what it does", "────────────────────", "m    one two three", "     four five", "a|b  six"]
        );
        let figures = text("| of | GiB |\n|---|--:|\n| a | 1.5 |\n| b | 10.25 |\n", 40);
        assert_eq!(figures[2..], ["a     1.5", "b   10.25"]);
    }

    #[test]
    fn nothing_but_code_is_wider_than_asked() {
        for page in crate::guide::pages() {
            for width in [40, 80, 110] {
                for line in lines(page.text, width) {
                    let is_code = line.len() == 1 && line[0].0 == Role::Code;
                    let cells: usize = line.iter().map(|(_, text)| columns_of(text)).sum();
                    let many = page.text.contains("|---|--:|--:|--:|--:|");
                    assert!(is_code || cells <= width || (many && width == 40), "{}: {line:?}", page.name);
                }
            }
        }
    }
}
