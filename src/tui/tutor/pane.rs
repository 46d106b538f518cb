//! The pane of a lesson: beside the screen where there is room, else below it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Tutor;
use crate::guide::{self, Role};
use crate::lesson::{Answer, Form, Stage, Told, Worth, letter, measured};
use crate::tui::action::Action;
use crate::tui::figures::counted;
use crate::tui::hold::Hold;
use crate::tui::pane::{self, Frame, put_cut, span};
use crate::tui::stage::Stage as Scene;
use crate::tui::theme::{Theme, Token};

/// From this width on the pane stands beside the screen.
const WIDE: u16 = 150;
/// Cells of the pane there.
const BESIDE: (u16, u16) = (50, 64);
/// Rows of the pane below: what a question needs, and at most this part of the screen.
const BELOW: u16 = 9;
/// A body of fewer rows is small.
const SMALL: u16 = 30;
/// Longer lines are hard to read.
const LONGEST_LINE: usize = 96;

type Lines = Vec<Line<'static>>;

/// What is left of `body` for the screen, and where the pane lies.
pub(crate) fn beside(tutor: &Tutor, body: Rect) -> (Rect, Rect) {
    let below = |rows: u16| {
        let rows = rows.min(body.height * 3 / 5);
        let screen = Rect { height: body.height - rows, ..body };
        (screen, Rect { y: screen.bottom(), height: rows, ..body })
    };
    if Hold::of(tutor.course()) == Hold::Answer {
        return (Rect { height: 0, ..body }, body);
    }
    if tutor.folded {
        return below(2);
    }
    if body.width >= WIDE {
        let width = (body.width * 30 / 100).clamp(BESIDE.0, BESIDE.1);
        let screen = Rect { width: body.width - width, ..body };
        return (screen, Rect { x: screen.right(), width, ..body });
    }
    // On a small screen the text needs more of it: choices out of sight are no choice.
    below(if body.height < SMALL { body.height * 3 / 5 } else { BELOW.max(body.height * 2 / 5) })
}

/// Draws it; returns the lines there are, and how many of them are seen.
pub(crate) fn render(scene: &Scene<'_>, tutor: &Tutor, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let (theme, course) = (scene.theme, tutor.course());
    let frame = if area.width < scene_width(buf) { Frame::Box } else { Frame::Rule };
    let steps = course.lesson().steps.len();
    let place = match course.stage() {
        Stage::Introduction => course.lesson().front.title.clone(),
        Stage::Over => format!("{} · over", course.lesson().front.title),
        _ => format!("step {} of {steps}", course.place() + 1),
    };
    let score = course.score();
    let score = if score.of > 0 { format!("{score} points") } else { String::new() };
    let covers = Hold::of(course) == Hold::Answer;
    let fold = if covers { String::new() } else { format!("{} folds", scene.keys.key_of(Action::FoldLesson)) };
    let words = [(Token::Accent, place), (Token::Dim, score), (Token::Dim, fold)];
    let title = pane::title("lesson", words, usize::from(area.width.saturating_sub(6)), theme);
    let inner = pane::frame(frame, title, theme.style(Token::Accent), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    if tutor.folded && !covers {
        put_cut(inner, 0, vec![span(theme, Token::Strong, doing(tutor))], buf);
        return (0, 0);
    }
    let lines = lines(scene, tutor, usize::from(inner.width).min(LONGEST_LINE));
    let rows = inner.height.saturating_sub(1);
    // Where there is room to spare what can be done stands below the text, not at the far end.
    let rows =
        if covers || frame == Frame::Box { rows.min(u16::try_from(lines.len() + 1).unwrap_or(u16::MAX)) } else { rows };
    let text = Rect { height: rows, ..inner };
    let (all, seen) = (lines.len(), usize::from(rows));
    let first = tutor.first.min(all.saturating_sub(seen));
    for (y, line) in (0..rows).zip(lines.into_iter().skip(first)) {
        pane::put(text, y, line.spans, buf);
    }
    let more = all.saturating_sub(first + seen);
    pane::put(inner, rows, prompt(scene, tutor, more), buf);
    (all, seen)
}

fn scene_width(buf: &Buffer) -> u16 {
    buf.area.width
}

/// What a person can do now.
fn prompt(scene: &Scene<'_>, tutor: &Tutor, more: usize) -> Vec<Span<'static>> {
    let theme = scene.theme;
    let key = |key: &str| span(theme, Token::Key, key.to_owned());
    let says = |text: &str| span(theme, Token::Dim, text.to_owned());
    let anew = scene.keys.key_of(Action::LessonAnew);
    let mut line = match tutor.course().stage() {
        _ if more > 0 => vec![key("Enter"), says(&format!(" reads on, {}", counted(more as u64, "more line")))],
        Stage::Introduction if !tutor.course().has_begun() => vec![says("the model is being made …")],
        Stage::Introduction => vec![key("Enter"), says(" begins")],
        Stage::Explained => vec![key("Enter"), says(" goes on")],
        Stage::Asking => {
            let is_number = tutor.course().told().question.as_ref().is_some_and(|asked| asked.choices.is_empty());
            let mut line = match (is_number, tutor.chosen) {
                (true, _) => vec![key("Enter"), says(" takes the number")],
                (false, None) => vec![key("↑ ↓"), says(" or its letter choose")],
                (false, Some(_)) => vec![key("↑ ↓"), says(" choose · "), key("Enter"), says(" takes it")],
            };
            let pass = scene.keys.key_of(Action::PassQuestion);
            if !pass.is_empty() {
                line.extend([says(" · "), key(pass), says(" passes")]);
            }
            line
        }
        Stage::Preparing | Stage::Trying => vec![span(theme, Token::Accent, doing(tutor))],
        Stage::Over => vec![key(scene.keys.key_of(Action::Quit)), says(" leaves")],
    };
    line.extend([says(" · "), key(anew), says(" begins anew")]);
    line
}

/// What is going on, in a line.
fn doing(tutor: &Tutor) -> String {
    let course = tutor.course();
    match course.stage() {
        Stage::Introduction => course.lesson().front.title.clone(),
        Stage::Asking => "a question is open".to_owned(),
        Stage::Explained => course.step().title.clone(),
        Stage::Over => "the lesson is over".to_owned(),
        Stage::Preparing | Stage::Trying => {
            let first = course.under_way().next().map_or_else(|| "…".to_owned(), ToString::to_string);
            format!("under way: {first}")
        }
    }
}

fn lines(scene: &Scene<'_>, tutor: &Tutor, width: usize) -> Lines {
    let (theme, course) = (scene.theme, tutor.course());
    let told = course.told();
    let mut out = Lines::new();
    match course.stage() {
        Stage::Introduction => {
            if !course.counts() {
                let text = format!(
                    "The figures of this lesson hold on {}; here they may differ.",
                    course.lesson().front.device()
                );
                out.extend(plain(theme, Token::Warn, &text, width));
                out.push(Line::default());
            }
            out.extend(markdown(theme, course.introduction(), width));
        }
        Stage::Over => {
            out.extend(plain(theme, Token::Title, "That was the last step.", width));
            if course.lesson().questions() > 0 {
                out.extend(plain(theme, Token::Strong, &format!("{} points.", course.score()), width));
            }
            out.push(Line::default());
            let text = "The lab is yours: everything can be flipped. `vramlab lesson` lists the other lessons.";
            out.extend(markdown(theme, text, width));
        }
        stage => {
            out.extend(plain(theme, Token::Title, &course.step().title, width));
            out.push(Line::default());
            if stage != Stage::Explained || told.question.is_none() {
                out.extend(markdown(theme, &told.prose, width));
            }
            match stage {
                Stage::Asking => question(theme, tutor, told, width, &mut out),
                Stage::Trying => answered(theme, tutor, told, width, &mut out),
                Stage::Explained => explained(theme, tutor, told, width, &mut out),
                _ => {}
            }
        }
    }
    out
}

fn question(theme: &Theme, tutor: &Tutor, told: &Told, width: usize, out: &mut Lines) {
    let Some(asked) = &told.question else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    for (place, choice) in asked.choices.iter().enumerate() {
        let is_chosen = tutor.chosen == Some(place);
        let (mark, token) = if is_chosen { ("▸", Token::Strong) } else { (" ", Token::Text) };
        let lead = format!("{mark} {}. ", letter(place));
        for (row, mut line) in marked(theme, token, choice, width.saturating_sub(5)).into_iter().enumerate() {
            let lead = if row == 0 { lead.clone() } else { " ".repeat(5) };
            line.spans.insert(0, span(theme, Token::Key, lead));
            out.push(line);
        }
    }
    if asked.choices.is_empty() {
        let unit = match tutor.course().step().question.as_ref().map(|question| &question.form) {
            Some(Form::Number { unit, .. }) => unit.to_string(),
            _ => String::new(),
        };
        let written = vec![
            span(theme, Token::Key, "> "),
            span(theme, Token::Strong, tutor.written.clone()),
            span(theme, Token::Key, "▏"),
            span(theme, Token::Dim, unit),
        ];
        out.push(Line::from(written));
    }
    if let Some(wrong) = &tutor.wrong {
        out.extend(plain(theme, Token::Danger, wrong, width));
    }
    if Hold::of(tutor.course()) == Hold::Answer {
        gap(out);
        let text = "The lab shows the answer already, so it is out of sight until you have said yours.";
        out.extend(plain(theme, Token::Dim, text, width));
    }
    if let Some(hint) = &asked.hint {
        out.extend(marked(theme, Token::Dim, &format!("Hint: {hint}"), width));
    }
}

/// What was asked and answered.
fn answered(theme: &Theme, tutor: &Tutor, told: &Told, width: usize, out: &mut Lines) {
    let (Some(asked), Some(question)) = (&told.question, &tutor.course().step().question) else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    let answer = match told.answer {
        Some(Answer::Choice(place)) => measured(&question.form, asked, crate::lesson::Measured::Choice(place)),
        Some(Answer::Amount(amount)) => measured(&question.form, asked, crate::lesson::Measured::Amount(amount)),
        Some(Answer::Passed) | None => return,
    };
    out.extend(marked(theme, Token::Text, &format!("You said: {answer}"), width));
}

fn explained(theme: &Theme, tutor: &Tutor, told: &Told, width: usize, out: &mut Lines) {
    answered(theme, tutor, told, width, out);
    if let (Some(question), Some(asked), Some(came_out)) =
        (&tutor.course().step().question, &told.question, told.measured)
    {
        let (token, verdict) = match told.worth {
            _ if told.answer == Some(Answer::Passed) => (Token::Text, "Passed. "),
            Some(Worth::Right) => (Token::Ok, "Right. "),
            Some(Worth::Near) => (Token::Warn, "Near, half a point. "),
            Some(Worth::Wrong) => (Token::Danger, "Not so. "),
            None => (Token::Text, ""),
        };
        let text = format!("{verdict}Measured: {}", measured(&question.form, asked, came_out));
        out.extend(marked(theme, token, &text, width));
    }
    for untrue in &told.untrue {
        let what = match (tutor.course().counts(), tutor.meddled) {
            (_, true) => "The lab was changed by hand, so this need not hold",
            (true, false) => "This lesson is not true here",
            (false, false) => "Not so on this device",
        };
        out.extend(plain(theme, Token::Warn, &format!("{what}: {untrue}."), width));
    }
    for text in told.why.iter().chain([&told.after]).filter(|text| !text.is_empty()) {
        gap(out);
        out.extend(markdown(theme, text, width));
    }
}

fn gap(out: &mut Lines) {
    if out.last().is_some_and(|line| !line.spans.is_empty()) {
        out.push(Line::default());
    }
}

fn plain(theme: &Theme, token: Token, text: &str, width: usize) -> Lines {
    pane::wrap(text, width).into_iter().map(|line| Line::from(span(theme, token, line))).collect()
}

fn markdown(theme: &Theme, text: &str, width: usize) -> Lines {
    marked(theme, Token::Text, text, width)
}

/// Markdown whose ordinary text looks like `plain`.
fn marked(theme: &Theme, plain: Token, text: &str, width: usize) -> Lines {
    let look = |role| if role == Role::Text { plain } else { token(role) };
    let piece = |(role, text): (Role, String)| span(theme, look(role), text);
    guide::lines(text, width).into_iter().map(|line| line.into_iter().map(piece).collect()).collect()
}

const fn token(role: Role) -> Token {
    match role {
        Role::Text => Token::Text,
        Role::Heading => Token::Title,
        Role::Strong => Token::Strong,
        Role::Code => Token::Key,
        Role::Link => Token::Accent,
        Role::Rule => Token::Border,
    }
}
