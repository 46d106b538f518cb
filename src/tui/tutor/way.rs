//! The panes beside a lesson's text: its steps so far, and the meanings of the text's words.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::state::Tutor;
use super::text;
use super::verdict::came_out;
use crate::drawing::figures::counted;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::Token;
use crate::lesson::CourseStage;
use crate::tui::action::Action;
use crate::tui::glossary::{self, GlossaryEntry};
use crate::tui::stage::Stage;

/// The fewest letters of a word that counts without being set apart: `step`, `large` and `before` are also everyday words.
const LEAST_LETTERS: usize = 7;

/// How many steps have been reached, so that their titles may be shown. Later titles could reveal an answer.
fn reached(tutor: &Tutor) -> usize {
    let course = tutor.course();
    match course.stage() {
        CourseStage::Introduction => 0,
        _ => course.place() + 1,
    }
}

/// How many rows the steps take, with their frame.
pub(super) fn rows(tutor: &Tutor) -> u16 {
    let (all, reached) = (tutor.course().lesson().steps.len(), reached(tutor));
    u16::try_from(reached + usize::from(reached < all) + 2).unwrap_or(u16::MAX)
}

/// Draws the steps.
pub(super) fn render_steps(stage: &Stage<'_>, tutor: &Tutor, kind: Frame, area: Rect, buf: &mut Buffer) {
    let (theme, course) = (stage.theme, tutor.course());
    let lesson = course.lesson();
    let minutes = format!(" · about {}", counted(u64::from(lesson.front.minutes), "minute"));
    let title = vec![span(theme, Token::Title, "steps"), span(theme, Token::Dim, minutes)];
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let (all, reached) = (lesson.steps.len(), reached(tutor));
    let left = all - reached;
    let to_come = match (reached, left) {
        (_, 0) => String::new(),
        (0, _) => format!("{}, {}", counted(left as u64, "step"), counted(lesson.questions() as u64, "question")),
        _ => format!("{} to come", counted(left as u64, "step")),
    };
    // The last steps, if there is no room for all.
    let room = usize::from(inner.height).saturating_sub(usize::from(!to_come.is_empty()));
    let first = reached.saturating_sub(room);
    let mut y = 0;
    let is_over = course.stage() == CourseStage::Over;
    for (place, (step, told)) in lesson.steps.iter().zip(course.all_told()).enumerate().take(reached).skip(first) {
        let here = tutor.back.unwrap_or(course.place()) == place && !is_over;
        let (mark, token) = if here { ("●", Token::Strong) } else { (" ", Token::Text) };
        let edge = put_right(inner, y, came_out(theme, told), buf);
        let room = usize::from(edge.saturating_sub(6));
        let line = vec![
            span(theme, Token::Key, format!("{mark} ")),
            span(theme, Token::Dim, format!("{} ", place + 1)),
            span(theme, token, pane::cut(&step.title, room)),
        ];
        put(inner, y, line, buf);
        y += 1;
    }
    if !to_come.is_empty() {
        put(inner, y, vec![span(theme, Token::Dim, format!("  {to_come}"))], buf);
    }
}

/// The glossary entries for words in the text, in order of appearance. None while a question is open, because they
/// could contain its answer.
pub(super) fn terms(tutor: &Tutor) -> Vec<&'static GlossaryEntry> {
    let course = tutor.course();
    let text = match course.stage() {
        CourseStage::Introduction => course.introduction().to_owned(),
        CourseStage::Explained => {
            let told = course.told();
            let ask = told.question.as_ref().map_or("", |asked| asked.ask.as_str());
            [ask, told.why.as_deref().unwrap_or_default(), &told.after, &told.prose].join(" ")
        }
        _ => return Vec::new(),
    };
    terms_in(&text)
}

/// The entries for the text before the open question, which were shown beside that text.
pub(super) fn known(tutor: &Tutor) -> Vec<&'static GlossaryEntry> {
    terms_in(&text::read_before(tutor))
}

fn terms_in(text: &str) -> Vec<&'static GlossaryEntry> {
    let text = text.to_lowercase();
    let mut found: Vec<(usize, &'static GlossaryEntry)> =
        glossary::all().filter_map(|entry| Some((first_place(entry, &text)?, entry))).collect();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, entry)| entry).collect()
}

/// The first position of an entry's word as a whole word in `text`.
fn first_place(entry: &GlossaryEntry, text: &str) -> Option<usize> {
    let names = entry.also.iter().chain([&entry.word]).map(|name| name.to_lowercase());
    let is_letter = |symbol: char| symbol.is_alphanumeric() || symbol == '_';
    let in_text = |name: String| {
        let places = text.match_indices(name.as_str()).map(|(at, _)| at).collect::<Vec<_>>();
        places.into_iter().find(|at| {
            let (before, behind) = (&text[..*at], &text[at + name.len()..]);
            // A plural is the same word.
            let ends = behind.strip_prefix('s').unwrap_or(behind);
            let is_whole = !before.ends_with(is_letter) && !ends.starts_with(is_letter);
            is_whole && (name.len() >= LEAST_LETTERS || before.ends_with("**"))
        })
    };
    names.filter_map(in_text).min()
}

/// The lines of the entries at this width: each word with its meaning beside it; the words' column is as wide as the widest.
fn lines_of_words(stage: &Stage<'_>, terms: &[&'static GlossaryEntry], width: usize) -> Vec<Vec<Vec<Span<'static>>>> {
    let theme = stage.theme;
    let names = terms.iter().map(|entry| entry.word.width()).max().unwrap_or(0) + 2;
    let entry = |entry: &&GlossaryEntry| {
        let meaning = pane::wrap(entry.meaning, width.saturating_sub(names));
        let line = |(row, line): (usize, String)| {
            let word = if row == 0 { entry.word } else { "" };
            vec![span(theme, Token::Strong, format!("{word:<names$}")), span(theme, Token::Dim, line)]
        };
        meaning.into_iter().enumerate().map(line).collect()
    };
    terms.iter().map(entry).collect()
}

/// How many rows the words take with their frame, or the text before while a question is open; two if there is nothing.
pub(super) fn rows_of_words(stage: &Stage<'_>, tutor: &Tutor, width: u16) -> u16 {
    let inside = usize::from(width.saturating_sub(4));
    let lines: usize = match tutor.hold().asks() {
        true => text::recalled(stage.theme, tutor, inside).len(),
        false => lines_of_words(stage, &terms(tutor), inside).iter().map(Vec::len).sum(),
    };
    u16::try_from(lines + 2).unwrap_or(u16::MAX)
}

/// How many rows the words of the text before take, with their frame.
pub(super) fn rows_of_known(stage: &Stage<'_>, tutor: &Tutor, width: u16) -> u16 {
    let lines: usize =
        lines_of_words(stage, &known(tutor), usize::from(width.saturating_sub(4))).iter().map(Vec::len).sum();
    u16::try_from(lines + 2).unwrap_or(u16::MAX)
}

/// Draws the text before a question.
pub(super) fn render_recalled(stage: &Stage<'_>, tutor: &Tutor, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let title = vec![span(theme, Token::Title, "read before")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    for (y, line) in (0..inner.height).zip(text::recalled(theme, tutor, usize::from(inner.width))) {
        put(inner, y, line.spans, buf);
    }
}

/// Draws the entries, without cutting any.
pub(super) fn render_words(
    stage: &Stage<'_>,
    whose: &'static str,
    words: Vec<&'static GlossaryEntry>,
    area: Rect,
    buf: &mut Buffer,
) {
    let theme = stage.theme;
    let title = vec![span(theme, Token::Title, "words"), span(theme, Token::Dim, format!(" {whose}"))];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let mut y = 0;
    for entry in lines_of_words(stage, &words, usize::from(inner.width)) {
        if usize::from(inner.height - y) < entry.len() {
            break;
        }
        for line in entry {
            put(inner, y, line, buf);
            y += 1;
        }
    }
}

/// What can be done in a lesson besides answering.
const KEYS: [Action; 5] =
    [Action::PassQuestion, Action::LessonBack, Action::TakeLab, Action::FoldLesson, Action::LessonAnew];
/// How many rows these keys take, with everything around them.
pub(super) const ROWS_OF_KEYS: u16 = KEYS.len() as u16 + 4;

/// Draws how a lesson goes.
pub(super) fn render_keys(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let title = vec![span(theme, Token::Title, "keys of a lesson")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let of = |action: Action| stage.keys.bindings().iter().find(|binding| binding.action == action);
    let own = KEYS.into_iter().filter_map(of).map(|binding| (binding.first_label().to_owned(), binding.help.clone()));
    let hint = (stage.keys.key_of(Action::ToggleHelp).to_owned(), "a hint, where a question has one".to_owned());
    let quit =
        (stage.keys.key_of(Action::Quit).to_owned(), "leave; the lesson goes on from here another time".to_owned());
    let all = [hint].into_iter().chain(own).chain([quit]).filter(|(key, _)| !key.is_empty());
    for (y, (key, what)) in (0..inner.height).zip(all) {
        put(inner, y, vec![span(theme, Token::Key, format!("{key:<8}")), span(theme, Token::Text, what)], buf);
    }
}
