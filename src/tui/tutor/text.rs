//! What the pane of a lesson says, line by line.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::state::Tutor;
use crate::drawing::pane::{self, span};
use crate::drawing::theme::{Theme, Token};
use crate::guide::{self, Role};
use crate::lesson::{Answer, Asked, Form, Goal, Measured, Stage, Step, Told, Worth, letter, measured};
use crate::session::Switch;
use crate::tui::action::Action;
use crate::tui::hold::Hold;
use crate::tui::stage::Stage as Scene;

type Lines = Vec<Line<'static>>;

/// Longer lines are hard to read, from the back of a room the more.
const LONGEST_LINE: usize = 92;
const LONGEST_PRESENTED: usize = 66;

/// Cells of a line, of so many that there are.
pub(super) fn measure(scene: &Scene<'_>, width: u16) -> usize {
    usize::from(width).min(if scene.presenting { LONGEST_PRESENTED } else { LONGEST_LINE })
}

/// What is going on, in a line.
pub(super) fn doing(tutor: &Tutor) -> String {
    let course = tutor.course();
    match course.stage() {
        Stage::Introduction => course.lesson().front.title.clone(),
        Stage::Asking => "a question is open".to_owned(),
        Stage::Acting => "a goal is open".to_owned(),
        Stage::Explained => course.step().title.clone(),
        Stage::Over => "the lesson is over".to_owned(),
        Stage::Preparing | Stage::Trying => {
            let first = course.under_way().next().map_or_else(|| "…".to_owned(), ToString::to_string);
            format!("under way: {first}")
        }
    }
}

/// The text as it stands now; the title of its step stands in the frame.
pub(super) fn lines(scene: &Scene<'_>, tutor: &Tutor, width: usize) -> Lines {
    let (theme, course) = (scene.theme, tutor.course());
    let told = course.told();
    let mut out = Lines::new();
    match course.stage() {
        _ if tutor.back.is_some() => {
            let place = tutor.back.unwrap_or_default();
            if let (Some(step), Some(told)) = (course.lesson().steps.get(place), course.all_told().get(place)) {
                out.extend(markdown(theme, &told.prose, width));
                explained(theme, tutor, (step, told), width, &mut out);
            }
        }
        Stage::Introduction => {
            if !course.counts() {
                let text = course.elsewhere();
                out.extend(plain(theme, Token::Warn, &text, width));
                out.push(Line::default());
            }
            if course.resumes() > 0 {
                let steps = course.lesson().steps.len();
                let anew = scene.keys.key_of(Action::LessonAnew);
                let place = course.resumes();
                let text = format!(
                    "You have done {place} of {steps} steps. The lab repeats them by itself, and you go on after them; {anew} begins again."
                );
                out.extend(plain(theme, Token::Accent, &text, width));
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
            let next = tutor.next_title().map(|title| format!(" The next lesson: **{title}**."));
            let text = format!(
                "The lab is yours: flip what you like. `vramlab lesson` lists all lessons.{}",
                next.unwrap_or_default()
            );
            out.extend(markdown(theme, &text, width));
        }
        stage => {
            if stage != Stage::Explained || told.question.is_none() {
                out.extend(markdown(theme, &told.prose, width));
            }
            match stage {
                Stage::Asking => question(scene, tutor, told, width, &mut out),
                Stage::Acting => goal(scene, tutor, told, width, &mut out),
                Stage::Trying => answered(theme, (course.step(), told), width, &mut out),
                Stage::Explained => explained(theme, tutor, (course.step(), told), width, &mut out),
                _ => {}
            }
        }
    }
    if scene.presenting {
        embolden(theme, &mut out);
    }
    out
}

/// What was read before the question that is open: the introduction, or why the step before came out as it did.
pub(super) fn recalled(theme: &Theme, tutor: &Tutor, width: usize) -> Lines {
    let course = tutor.course();
    let text = match course.place().checked_sub(1).and_then(|before| course.all_told().get(before)) {
        None => course.introduction().to_owned(),
        Some(told) => [told.why.as_deref().unwrap_or_default(), &told.after].join("\n\n"),
    };
    marked(theme, Token::Dim, text.trim(), width)
}

/// Ordinary text in bold.
fn embolden(theme: &Theme, lines: &mut Lines) {
    let (text, strong) = (theme.style(Token::Text), theme.style(Token::Strong));
    let spans = lines.iter_mut().flat_map(|line| &mut line.spans);
    spans.filter(|span| span.style == text).for_each(|span| span.style = strong);
}

fn question(scene: &Scene<'_>, tutor: &Tutor, told: &Told, width: usize, out: &mut Lines) {
    let theme = scene.theme;
    let Some(asked) = &told.question else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    answers(scene, tutor, asked, width, out);
    if let Some(wrong) = &tutor.wrong {
        out.extend(plain(theme, Token::Danger, wrong, width));
    }
    if tutor.hold() == Hold::Answer {
        gap(out);
        let text = "The lab would show the answer: it is hidden until you have given yours.";
        out.extend(plain(theme, Token::Dim, text, width));
    }
    hint(theme, tutor, asked, width, out);
}

/// What can be answered, in a frame of its own: choices with the one that is selected in a bar, or the number that is written.
fn answers(scene: &Scene<'_>, tutor: &Tutor, asked: &Asked, width: usize, out: &mut Lines) {
    let theme = scene.theme;
    let inside = width.saturating_sub(4);
    let edge = |left: &str, word: &str, right: &str| {
        let line = "─".repeat(width.saturating_sub(left.chars().count() + word.chars().count() + 1));
        Line::from(vec![
            span(theme, Token::Border, left.to_owned()),
            span(theme, Token::Dim, word.to_owned()),
            span(theme, Token::Border, format!("{line}{right}")),
        ])
    };
    let framed = |spans: Vec<Span<'static>>, filling: Style| {
        let cells: usize = spans.iter().map(Span::width).sum();
        let mut line = vec![span(theme, Token::Border, "│"), Span::styled(" ", filling)];
        line.extend(spans);
        line.push(Span::styled(" ".repeat(inside.saturating_sub(cells) + 1), filling));
        line.push(span(theme, Token::Border, "│"));
        Line::from(line)
    };
    let bar = theme.style(Token::Accent).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    out.push(edge("╭─", " your answer ", "╮"));
    for (place, choice) in asked.choices.iter().enumerate() {
        let is_chosen = tutor.chosen == Some(place);
        let lead = format!("{} {}. ", if is_chosen { "▸" } else { " " }, letter(place));
        if scene.presenting && place > 0 {
            out.push(framed(Vec::new(), Style::new()));
        }
        let lines = marked(theme, Token::Text, choice, inside.saturating_sub(5));
        for (row, mut line) in lines.into_iter().enumerate() {
            let lead = if row == 0 { lead.clone() } else { " ".repeat(5) };
            line.spans.insert(0, span(theme, Token::Key, lead));
            if is_chosen {
                line.spans.iter_mut().for_each(|span| span.style = bar);
            }
            out.push(framed(line.spans, if is_chosen { bar } else { Style::new() }));
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
        out.push(framed(written, Style::new()));
    }
    out.push(edge("╰", "", "╯"));
}

fn hint(theme: &Theme, tutor: &Tutor, asked: &Asked, width: usize, out: &mut Lines) {
    if let Some(hint) = asked.hint.as_ref().filter(|_| tutor.hinted) {
        out.extend(marked(theme, Token::Dim, &format!("Hint: {hint}"), width));
    }
}

/// What is to be reached, by which switches, and what came of the tries so far.
fn goal(scene: &Scene<'_>, tutor: &Tutor, told: &Told, width: usize, out: &mut Lines) {
    let (theme, course) = (scene.theme, tutor.course());
    let (Some(asked), Some(goal)) = (&told.question, course.goal()) else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    let switch = |switch: &Switch| format!("{} {}", scene.keys.key_of(Action::of_switch(*switch)), switch.label());
    let switches: Vec<String> = goal.allow.iter().map(switch).collect();
    out.extend(plain(theme, Token::Key, &format!("Yours: {}", switches.join(" · ")), width));
    let left = (goal.tries as usize).saturating_sub(told.tries.len());
    out.extend(plain(theme, Token::Text, &format!("{} left.", counted_try(left)), width));
    tries(theme, told, width, out);
    hint(theme, tutor, asked, width, out);
}

fn counted_try(left: usize) -> String {
    if left == 1 { "One try".to_owned() } else { format!("{left} tries") }
}

fn tries(theme: &Theme, told: &Told, width: usize, out: &mut Lines) {
    for tried in &told.tries {
        let text = format!("Tried {}: {}.", tried.settings, tried.outcome);
        out.extend(plain(theme, Token::Warn, &text, width));
    }
}

/// What was asked and answered.
fn answered(theme: &Theme, (step, told): (&Step, &Told), width: usize, out: &mut Lines) {
    let (Some(asked), Some(question)) = (&told.question, &step.question) else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    let answer = match told.answer {
        Some(Answer::Choice(place)) => measured(&question.form, asked, Measured::Choice(place)),
        Some(Answer::Amount(amount)) => measured(&question.form, asked, Measured::Amount(amount)),
        Some(Answer::Tried | Answer::Solution | Answer::Passed) | None => return tries(theme, told, width, out),
    };
    out.extend(marked(theme, Token::Text, &format!("You said: {answer}"), width));
}

fn explained(theme: &Theme, tutor: &Tutor, (step, told): (&Step, &Told), width: usize, out: &mut Lines) {
    answered(theme, (step, told), width, out);
    if let (Some(question), Some(asked), Some(came_out)) = (&step.question, &told.question, told.measured) {
        let (token, verdict) = match told.worth {
            _ if told.answer == Some(Answer::Passed) => (Token::Text, "Passed. "),
            Some(Worth::Right) => (Token::Ok, "Right. "),
            Some(Worth::Near) => (Token::Warn, "Near, half a point. "),
            Some(Worth::Wrong) => (Token::Danger, "Not so. "),
            None => (Token::Text, ""),
        };
        let text = match &question.form {
            Form::Goal(goal) if told.answer == Some(Answer::Passed) => {
                let way: Vec<String> = goal.solution.iter().map(ToString::to_string).collect();
                format!("One way: `{}`.", way.join("`, `"))
            }
            Form::Goal(goal) => reached(goal, told.worth, &measured(&question.form, asked, came_out)),
            form => format!("{verdict}Measured: {}", measured(form, asked, came_out)),
        };
        out.extend(marked(theme, token, &text, width));
    }
    if tutor.course().is_spoilt() && told.question.is_some() && told.worth.is_none() {
        let text = "The lab was changed by hand, so this answer does not count.";
        out.extend(plain(theme, Token::Warn, text, width));
    }
    if let Some(reply) = &told.reply {
        out.extend(marked(theme, Token::Text, reply, width));
    }
    for untrue in &told.untrue {
        let what = match (tutor.course().counts(), tutor.course().is_spoilt()) {
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

/// That a goal was reached, and what that is worth.
fn reached(goal: &Goal, worth: Option<Worth>, how: &str) -> String {
    let mut how = how.to_owned();
    how.get_mut(..1).map(str::make_ascii_uppercase);
    match (worth, &goal.cost) {
        (Some(Worth::Right), _) => format!("{how}: a point."),
        (Some(Worth::Near), Some(cost)) => format!("{how}: half a point. At {} or less it is a whole one.", cost.par),
        _ => format!("{how}."),
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
