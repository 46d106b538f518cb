//! Draws a lesson: its text in a frame, and the panes beside it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::place::{Companion, TutorLayout};
use super::state::Tutor;
use super::text::{doing, lines, measure};
use super::{sketch, way};
use crate::drawing::figures::counted;
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::lesson::{CourseStage, Sketch};
use crate::tui::action::Action;
use crate::tui::hold::Hold;
use crate::tui::holders;
use crate::tui::panel::Panel;
use crate::tui::screens::lab;
use crate::tui::stage::{FrameLayout, Stage};

/// Draws everything that has a place. Notes the number of lines, how many are visible, and the panels' areas.
pub(crate) fn render(
    stage: &Stage<'_>,
    tutor: &Tutor,
    places: &TutorLayout,
    buf: &mut Buffer,
    layout: &mut FrameLayout,
) {
    layout.lesson_rows = text(stage, tutor, places, buf);
    if !places.steps.is_empty() {
        way::render_steps(stage, tutor, places.frame, places.steps, buf);
    }
    match tutor.hold().asks() {
        _ if places.words.is_empty() => {}
        true => way::render_recalled(stage, tutor, places.words, buf),
        false => way::render_words(stage, "of this text", way::terms(tutor), places.words, buf),
    }
    if !places.known.is_empty() {
        way::render_words(stage, "of what was read before", way::known(tutor), places.known, buf);
    }
    if !places.keys.is_empty() {
        way::render_keys(stage, places.keys, buf);
    }
    if !places.held.is_empty() {
        holders::render(stage, places.frame, places.held, buf);
        layout.panels.push((places.held, Panel::Alive));
    }
    match places.beside.filter(|_| !places.picture.is_empty()) {
        None => {}
        Some(Companion::Map) => {
            lab::block_map(stage, places.frame, places.picture, buf, layout);
            layout.panels.push((places.picture, Panel::Map));
        }
        Some(Companion::Sketch(Sketch::Step)) => {
            lab::step_sketch(stage, places.frame, places.picture, buf);
        }
        Some(Companion::Sketch(Sketch::Segments)) => sketch::segments(stage, places.frame, places.picture, buf),
    }
}

/// Draws the text. Returns the number of lines, and how many are visible.
fn text(stage: &Stage<'_>, tutor: &Tutor, places: &TutorLayout, buf: &mut Buffer) -> (usize, usize) {
    let (theme, course) = (stage.theme, tutor.course());
    let (area, frame) = (places.text, places.frame);
    let steps = course.lesson().steps.len();
    let place = match course.stage() {
        CourseStage::Introduction => course.lesson().front.title.clone(),
        CourseStage::Over => format!("{} · over", course.lesson().front.title),
        _ => format!("step {} of {steps}", tutor.back.unwrap_or(course.place()) + 1),
    };
    let title = match course.stage() {
        CourseStage::Introduction | CourseStage::Over if tutor.back.is_none() => "",
        _ => course.lesson().steps.get(tutor.back.unwrap_or(course.place())).map_or("", |step| &step.title),
    };
    let score = course.score();
    let score = if score.of > 0 { format!("{score} points") } else { String::new() };
    let covers = places.lab.is_empty();
    let fold = if covers { String::new() } else { format!("{} folds", stage.keys.key_of(Action::FoldLesson)) };
    let words = [(Token::Accent, place), (Token::Dim, score), (Token::Strong, title.to_owned()), (Token::Dim, fold)];
    let title = pane::title("lesson", words, usize::from(area.width.saturating_sub(6)), theme);
    let inner = pane::frame(frame, title, theme.style(Token::Accent), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    if tutor.folded && !covers {
        put(inner, 0, vec![span(theme, Token::Strong, doing(tutor))], buf);
        return (0, 0);
    }
    let lines = lines(stage, tutor, measure(stage, inner.width));
    let rows = inner.height.saturating_sub(1);
    // If there is room to spare, the prompt is right below the text, not at the far end.
    let rows =
        if covers || frame == Frame::Box { rows.min(u16::try_from(lines.len() + 1).unwrap_or(u16::MAX)) } else { rows };
    let text = Rect { height: rows, ..inner };
    let (all, seen) = (lines.len(), usize::from(rows));
    let first = tutor.first.min(all.saturating_sub(seen));
    for (y, line) in (0..rows).zip(lines.into_iter().skip(first)) {
        pane::put(text, y, line.spans, buf);
    }
    let more = all.saturating_sub(first + seen);
    pane::put(inner, rows, prompt(stage, tutor, more), buf);
    (all, seen)
}

/// What the learner can do now.
fn prompt(stage: &Stage<'_>, tutor: &Tutor, more: usize) -> Vec<Span<'static>> {
    let theme = stage.theme;
    let key = |key: &str| span(theme, Token::Key, key.to_owned());
    let says = |text: &str| span(theme, Token::Dim, text.to_owned());
    let of = |action| stage.keys.key_of(action);
    let course = tutor.course();
    let asked = course.told().question.as_ref();
    let mut line = match course.stage() {
        _ if more > 0 => vec![key("Enter"), says(&format!(" reads on, {}", counted(more as u64, "more line")))],
        _ if tutor.back.is_some() => vec![key("Enter"), says(" returns")],
        CourseStage::Introduction if !course.has_begun() => vec![says("building the model …")],
        CourseStage::Introduction => {
            vec![key("Enter"), says(if course.resumes() > 0 { " goes on there" } else { " begins" })]
        }
        CourseStage::Explained if tutor.hold() == Hold::Nothing => {
            vec![says("the lab is yours · "), key("Enter"), says(" goes on with the lesson")]
        }
        CourseStage::Explained => vec![key("Enter"), says(" goes on")],
        CourseStage::Asking => {
            let is_number = asked.is_some_and(|asked| asked.choices.is_empty());
            match (is_number, tutor.chosen) {
                (true, _) => vec![key("Enter"), says(" confirms")],
                (false, None) => vec![key("↑ ↓"), says(" or a letter chooses")],
                (false, Some(_)) => vec![key("↑ ↓"), says(" choose · "), key("Enter"), says(" confirms")],
            }
        }
        CourseStage::Acting => vec![key("Enter"), says(" tries it")],
        CourseStage::Preparing | CourseStage::Trying => vec![span(theme, Token::Accent, doing(tutor))],
        CourseStage::Over => {
            let next = tutor.next_title();
            let mut line = next.map_or_else(Vec::new, |next| vec![key("Enter"), says(&format!(" next: {next} · "))]);
            let way = if tutor.folded { " what came of it" } else { " shows the lab" };
            line.extend([key(of(Action::FoldLesson)), says(way), says(" · "), key(of(Action::Quit)), says(" leaves")]);
            line
        }
    };
    if more > 0 && course.stage() == CourseStage::Asking && asked.is_some_and(|asked| !asked.choices.is_empty()) {
        line.extend([says(" · "), key("↑ ↓"), says(" or a letter chooses")]);
    }
    let mut offer = |action, text: &str| {
        let name = of(action);
        if !name.is_empty() {
            line.extend([says(" · "), key(name), says(text)]);
        }
    };
    let asks = matches!(course.stage(), CourseStage::Asking | CourseStage::Acting) && tutor.back.is_none();
    if asks && !tutor.hinted && asked.is_some_and(|asked| asked.hint.is_some()) {
        offer(Action::ToggleHelp, " hint");
    }
    if asks {
        offer(Action::PassQuestion, " passes");
    }
    if course.stage() == CourseStage::Explained && tutor.hold() != Hold::Nothing && tutor.back.is_none() {
        offer(Action::TakeLab, " takes the lab");
    }
    offer(Action::LessonAnew, " begins again");
    line
}
