//! The parts of a lesson's file: front matter, introduction, and steps with their blocks. Each part keeps its place in
//! the file, for error messages.

use std::ops::Range;

use super::error::{LessonError, LineIndex};
use crate::user_input::hint;

/// The parts of a file, as byte ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Document {
    /// Between the `+++` lines.
    pub front: Range<usize>,
    /// Before the first heading.
    pub introduction: Range<usize>,
    pub sections: Vec<Section>,
}

/// The text below a heading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Section {
    pub title: Range<usize>,
    /// The text before the block, or all of it if there is no block.
    pub before: Range<usize>,
    /// The block with actions and questions, without its fences.
    pub block: Option<Range<usize>>,
    /// The text after the block.
    pub after: Range<usize>,
}

impl Document {
    /// # Errors
    /// If the parts can't be told apart.
    pub fn split(source: &str) -> Result<Self, LessonError> {
        let places = LineIndex(source);
        let mut lines = lines(source);
        match lines.next() {
            Some((_, "+++")) => {}
            _ => return Err(places.wrong(0, "a lesson begins with a line of +++, front matter, and another such line")),
        }
        let front_start = lines.clone().next().map_or(source.len(), |(offset, _)| offset);
        let front_end = lines.find(|(_, line)| *line == "+++").map(|(offset, _)| offset);
        let front_end =
            front_end.ok_or_else(|| places.wrong(0, "the front matter has no end; put +++ on a line after it"))?;
        let body = lines.clone().next().map_or(source.len(), |(offset, _)| offset);
        let mut document =
            Self { front: front_start..front_end, introduction: body..source.len(), sections: Vec::new() };
        let mut fence: Option<Fence> = None;
        for (offset, line) in lines {
            let end = offset + line.len();
            match &fence {
                Some(open) if line.trim() == "```" => {
                    if let (true, Some(section)) = (open.is_step, document.sections.last_mut()) {
                        section.block = Some(open.inside..offset);
                        section.after = end..source.len();
                    }
                    fence = None;
                }
                Some(_) => {}
                None => match (line.strip_prefix("```"), line.strip_prefix("## ")) {
                    (Some(word), _) => {
                        let is_step = word.trim() == "step";
                        if !is_step && is_misspelt(word.trim()) {
                            let reason = format!("a block '{}' is only shown; did you mean \"step\"?", word.trim());
                            return Err(places.wrong(offset + 3, reason));
                        }
                        if is_step {
                            document.opens_block(offset).map_err(|reason| places.wrong(offset, reason))?;
                        }
                        let inside = source[offset..].find('\n').map_or(source.len(), |length| offset + length + 1);
                        fence = Some(Fence { begin: offset, inside, is_step });
                    }
                    (None, Some(_)) => document.begins_section(offset, offset + 3..end, source.len()),
                    (None, None) if line.starts_with("# ") => {
                        return Err(places.wrong(offset, "the title stands in the front matter; steps begin with ##"));
                    }
                    (None, None) => {}
                },
            }
        }
        if let Some(open) = fence {
            return Err(places.wrong(open.begin, "this block has no end; put ``` on a line after it"));
        }
        if document.sections.is_empty() {
            return Err(places.wrong(body, "a lesson has steps: headings that begin with ##"));
        }
        Ok(document)
    }

    /// Notes that a block of the last section begins at `offset`.
    fn opens_block(&mut self, offset: usize) -> Result<(), &'static str> {
        let section = self.sections.last_mut().ok_or("a step needs a heading before it: ## and its title")?;
        if section.block.is_some() {
            return Err("this step has a block already; begin another step with ##");
        }
        section.before.end = offset;
        Ok(())
    }

    fn begins_section(&mut self, offset: usize, title: Range<usize>, end: usize) {
        match self.sections.last_mut() {
            Some(last) if last.block.is_some() => last.after.end = offset,
            Some(last) => last.before.end = offset,
            None => self.introduction.end = offset,
        }
        let before = title.end..end;
        self.sections.push(Section { title, before, block: None, after: end..end });
    }
}

/// Whether the word after a fence looks like a misspelt "step".
fn is_misspelt(word: &str) -> bool {
    !word.is_empty() && !hint(&word.to_lowercase(), ["step"]).is_empty()
}

/// An open code block.
struct Fence {
    begin: usize,
    inside: usize,
    is_step: bool,
}

/// The lines of a text without their line ends, each with its offset.
fn lines(source: &str) -> impl Iterator<Item = (usize, &str)> + Clone {
    let starts = std::iter::once(0).chain(source.match_indices('\n').map(|(end, _)| end + 1));
    starts.filter(|start| *start < source.len()).map(|start| {
        let line = source[start..].split('\n').next().unwrap_or_default();
        (start, line.trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LESSON: &str = "+++\ntitle = 'a'\n+++\nHello.\n\n## One\ntext\n```step\nask = 'x'\n```\nafter\n## Two \nmore\n```\n## no\n```\n";

    #[test]
    fn a_file_is_told_apart() {
        for source in [LESSON.to_owned(), LESSON.replace('\n', "\r\n")] {
            let document = Document::split(&source).unwrap();
            let text = |range: &Range<usize>| source[range.clone()].trim().replace('\r', "");
            assert_eq!(text(&document.front), "title = 'a'");
            assert_eq!(text(&document.introduction), "Hello.");
            let [one, two] = &document.sections[..] else { panic!("{document:?}") };
            assert_eq!((text(&one.title).as_str(), text(&one.before).as_str()), ("One", "text"));
            assert_eq!(one.block.as_ref().map(text).as_deref(), Some("ask = 'x'"));
            assert_eq!(text(&one.after), "after");
            assert_eq!(text(&two.title), "Two");
            assert_eq!(text(&two.before), "more\n```\n## no\n```");
            assert_eq!(two.block, None);
        }
    }

    #[test]
    fn what_has_no_parts_is_told_where() {
        for (source, line, part) in [
            ("", 1, "begins with a line of +++"),
            ("# A lesson\n", 1, "begins with a line of +++"),
            ("+++\ntitle = 'a'\n", 1, "has no end"),
            ("+++\n+++\ntext\n", 3, "a lesson has steps"),
            ("+++\n+++\n```step\n```\n", 3, "needs a heading"),
            ("+++\n+++\n## a\n```step\n", 4, "this block has no end"),
            ("+++\n+++\n## a\n```step\n```\n```step\n```\n", 6, "has a block already"),
            ("+++\n+++\n# a\n", 3, "steps begin with ##"),
            ("+++\n+++\n## a\n```stepp\n```\n", 4, "did you mean \"step\"?"),
            ("+++\n+++\n## a\n```Step\n```\n", 4, "did you mean \"step\"?"),
        ] {
            let error = Document::split(source).unwrap_err();
            assert_eq!(error.line, line, "{source:?}: {error}");
            assert!(error.reason.contains(part), "{source:?}: {error}");
        }
    }
}
