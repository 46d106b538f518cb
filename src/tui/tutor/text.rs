//! The text in a lesson's pane, line by line.

use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::state::Tutor;
use super::verdict::came_out;
use crate::drawing::figures::ByteUnit;
use crate::drawing::pane::{self, span};
use crate::drawing::theme::{Theme, Token};
use crate::figures::{self, Amount, Figure, Moments};
use crate::guide::{self, Role};
use crate::lesson::{
    Answer, CourseStage, Form, Goal, LessonStep, MeasuredAnswer, QuestionText, StepText, Try, Worth, letter, measured,
};
use crate::session::Switch;
use crate::tui::action::Action;
use crate::tui::hold::Hold;
use crate::tui::stage::Stage;
use crate::units::Bytes;

type TextLines = Vec<Line<'static>>;

/// Longer lines are hard to read, especially from the back of a room.
const LONGEST_LINE: usize = 116;
const LONGEST_PRESENTED: usize = 66;

/// The width of a verdict, with the blank behind it.
const VERDICT: usize = 9;

/// The width of a line, given the available width.
pub(super) fn measure(stage: &Stage<'_>, width: u16) -> usize {
    usize::from(width).min(if stage.presenting { LONGEST_PRESENTED } else { LONGEST_LINE })
}

/// A line about what is going on.
pub(super) fn doing(tutor: &Tutor) -> String {
    let course = tutor.course();
    match course.stage() {
        CourseStage::Introduction => course.lesson().front.title.clone(),
        CourseStage::Asking => "a question is open".to_owned(),
        CourseStage::Acting => "a goal is open".to_owned(),
        CourseStage::Explained => course.step().title.clone(),
        CourseStage::Over => "the lesson is over".to_owned(),
        CourseStage::Preparing | CourseStage::Trying => {
            let first = course.under_way().next().map_or_else(|| "…".to_owned(), ToString::to_string);
            format!("under way: {first}")
        }
    }
}

/// The current text. The step's title is in the frame.
pub(super) fn lines(stage: &Stage<'_>, tutor: &Tutor, width: usize) -> TextLines {
    let (theme, course) = (stage.theme, tutor.course());
    let told = course.told();
    let mut out = TextLines::new();
    match course.stage() {
        _ if tutor.back.is_some() => {
            let place = tutor.back.unwrap_or_default();
            if let (Some(step), Some(told)) = (course.lesson().steps.get(place), course.all_told().get(place)) {
                out.extend(markdown(theme, &told.prose, width));
                explained(theme, tutor, (step, told), width, &mut out);
            }
        }
        CourseStage::Introduction => {
            if !course.counts() {
                let text = course.elsewhere();
                out.extend(plain(theme, Token::Warn, &text, width));
                out.push(Line::default());
            }
            if course.resumes() > 0 {
                let steps = course.lesson().steps.len();
                let anew = stage.keys.key_of(Action::LessonAnew);
                let place = course.resumes();
                let text = format!(
                    "You have done {place} of {steps} steps. The lab repeats them by itself, and you go on after them; {anew} begins again."
                );
                out.extend(plain(theme, Token::Accent, &text, width));
                out.push(Line::default());
            }
            out.extend(markdown(theme, course.introduction(), width));
        }
        CourseStage::Over => {
            over(stage, tutor, width, &mut out);
        }
        part => {
            if part != CourseStage::Explained || told.question.is_none() {
                out.extend(markdown(theme, &told.prose, width));
            }
            match part {
                CourseStage::Asking => question(stage, tutor, told, width, &mut out),
                CourseStage::Acting => goal(stage, tutor, told, width, &mut out),
                CourseStage::Trying => answered(theme, (course.step(), told), width, &mut out),
                CourseStage::Explained => explained(theme, tutor, (course.step(), told), width, &mut out),
                _ => {}
            }
        }
    }
    if stage.presenting {
        embolden(theme, &mut out);
    }
    out
}

/// The result of a lesson: every step with its verdict and answer in a line, the points, and what to do next.
fn over(stage: &Stage<'_>, tutor: &Tutor, width: usize, out: &mut TextLines) {
    let (theme, course) = (stage.theme, tutor.course());
    let lesson = course.lesson();
    let mut head = vec![span(theme, Token::Title, "That was the last step.")];
    if lesson.questions() > 0 {
        head.push(span(theme, Token::Strong, format!(" {} points.", course.score())));
    }
    out.extend([Line::from(head), Line::default()]);
    let titles = lesson.steps.iter().map(|step| step.title.width()).max().unwrap_or(0).min(width / 2);
    for (place, (step, told)) in lesson.steps.iter().zip(course.all_told()).enumerate() {
        let verdict = match came_out(theme, told).pop() {
            None if place < course.resumes() => span(theme, Token::Dim, "before"),
            verdict => verdict.unwrap_or_default(),
        };
        let padded = |text: &str, cells: usize| format!("{text}{}", " ".repeat(cells.saturating_sub(text.width())));
        let mut line = vec![
            span(theme, Token::Dim, format!("{:>2} ", place + 1)),
            span(theme, Token::Text, padded(&pane::cut(&step.title, titles), titles + 2)),
            Span::styled(padded(&verdict.content, VERDICT), verdict.style),
        ];
        let answer = match (&step.question, &told.question, told.measured) {
            (Some(question), Some(asked), Some(came_out)) => measured(&question.form, asked, came_out),
            _ => String::new(),
        };
        let room = width.saturating_sub(line.iter().map(Span::width).sum());
        line.push(span(theme, Token::Dim, pane::cut_sentence(&answer, room)));
        out.push(Line::from(line));
    }
    out.push(Line::default());
    let fold = stage.keys.key_of(Action::FoldLesson);
    let text = format!(
        "The lab is yours: {fold} shows it, and so does every key that does something in it. `vramlab lesson` lists all lessons."
    );
    out.extend(markdown(theme, &text, width));
}

/// The text before the open question: the introduction, or the explanation of the step before.
pub(super) fn read_before(tutor: &Tutor) -> String {
    let course = tutor.course();
    match course.place().checked_sub(1).and_then(|before| course.all_told().get(before)) {
        None => course.introduction().to_owned(),
        Some(told) => [told.why.as_deref().unwrap_or_default(), &told.after].join("\n\n"),
    }
}

/// The same as lines.
pub(super) fn recalled(theme: &Theme, tutor: &Tutor, width: usize) -> TextLines {
    marked(theme, Token::Dim, read_before(tutor).trim(), width)
}

/// Makes ordinary text bold.
fn embolden(theme: &Theme, lines: &mut TextLines) {
    let (text, strong) = (theme.style(Token::Text), theme.style(Token::Strong));
    let spans = lines.iter_mut().flat_map(|line| &mut line.spans);
    spans.filter(|span| span.style == text).for_each(|span| span.style = strong);
}

fn question(stage: &Stage<'_>, tutor: &Tutor, told: &StepText, width: usize, out: &mut TextLines) {
    let theme = stage.theme;
    let Some(asked) = &told.question else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    answers(stage, tutor, asked, width, out);
    if let Some(wrong) = &tutor.wrong {
        out.extend(plain(theme, Token::Danger, wrong, width));
    }
    // The frame of a sketch beside it says the same.
    let is_sketched = tutor.course().step().sketch.is_some() && stage.picture.shown_step().is_some();
    if tutor.hold() == Hold::Answer && !is_sketched {
        gap(out);
        let text = "The lab would show the answer: it is hidden until you have given yours.";
        out.extend(plain(theme, Token::Dim, text, width));
    }
    hint(theme, tutor, asked, width, out);
}

/// The possible answers in a frame: choices with the selected one in a bar, or the number that is being written.
fn answers(stage: &Stage<'_>, tutor: &Tutor, asked: &QuestionText, width: usize, out: &mut TextLines) {
    let theme = stage.theme;
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
        if stage.presenting && place > 0 {
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

fn hint(theme: &Theme, tutor: &Tutor, asked: &QuestionText, width: usize, out: &mut TextLines) {
    if let Some(hint) = asked.hint.as_ref().filter(|_| tutor.hinted) {
        out.extend(marked(theme, Token::Dim, &format!("Hint: {hint}"), width));
    }
}

/// The goal, its switches, and the results of the attempts so far.
fn goal(stage: &Stage<'_>, tutor: &Tutor, told: &StepText, width: usize, out: &mut TextLines) {
    let (theme, course) = (stage.theme, tutor.course());
    let (Some(asked), Some(goal)) = (&told.question, course.goal()) else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    let switch = |switch: &Switch| format!("{} {}", stage.keys.key_of(Action::of_switch(*switch)), switch.label());
    let switches: Vec<String> = goal.allow.iter().map(switch).collect();
    out.extend(plain(theme, Token::Key, &format!("Yours: {}", switches.join(" · ")), width));
    let left = (goal.tries as usize).saturating_sub(told.tries.len());
    let left = [format!("{} left.", counted_try(left))].into_iter().chain(to_go(goal, course.moments()));
    out.extend(plain(theme, Token::Text, &left.collect::<Vec<_>>().join(" "), width));
    tries(theme, &told.tries, width, out);
    hint(theme, tutor, asked, width, out);
}

fn counted_try(left: usize) -> String {
    if left == 1 { "One try".to_owned() } else { format!("{left} tries") }
}

/// How far every figure of a goal is from it: `12.14 → 8 GiB: 4.14 to go.`
fn to_go(goal: &Goal, moments: &Moments) -> Vec<String> {
    let words = |(figure, most): (Figure, Amount)| {
        let now = moments.now.get(figure)?;
        let over = Amount { value: now.value - most.value, ..now };
        if over.value <= 0.0 {
            return None;
        }
        if now.unit != figures::FigureUnit::Bytes {
            return Some(format!("{now} → {most}: {over} to go."));
        }
        let bytes = [now, most, over].map(bytes);
        let unit = ByteUnit::for_largest(bytes[1]);
        let [now, most, over] = bytes.map(|bytes| unit.figure(bytes));
        // A round goal is written as it was set.
        let most = most.strip_suffix(".00").or(most.strip_suffix(".0")).unwrap_or(&most);
        Some(format!("{now} → {most} {}: {over} to go.", unit.name()))
    };
    goal.when.most(moments).into_iter().filter_map(words).collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes are whole, and none is less than 0")]
const fn bytes(amount: Amount) -> Bytes {
    Bytes(amount.value as u64)
}

fn tries(theme: &Theme, tries: &[Try], width: usize, out: &mut TextLines) {
    for tried in tries {
        let text = format!("Tried {}: {}.", tried.settings, tried.outcome);
        out.extend(plain(theme, Token::Warn, &text, width));
    }
}

/// The question and its answer.
fn answered(theme: &Theme, (step, told): (&LessonStep, &StepText), width: usize, out: &mut TextLines) {
    let (Some(asked), Some(question)) = (&told.question, &step.question) else { return };
    gap(out);
    out.extend(marked(theme, Token::Accent, &asked.ask, width));
    let answer = match told.answer {
        Some(Answer::Choice(place)) => measured(&question.form, asked, MeasuredAnswer::Choice(place)),
        Some(Answer::Amount(amount)) => measured(&question.form, asked, MeasuredAnswer::Amount(amount)),
        // It is said below that the last attempt reached a goal.
        Some(Answer::Tried) if matches!(told.measured, Some(MeasuredAnswer::Reached { .. })) => {
            return tries(theme, told.tries.split_last().map_or(&[], |(_, before)| before), width, out);
        }
        Some(Answer::Tried | Answer::Solution | Answer::Passed) | None => return tries(theme, &told.tries, width, out),
    };
    out.extend(marked(theme, Token::Text, &format!("You said: {answer}"), width));
}

fn explained(theme: &Theme, tutor: &Tutor, (step, told): (&LessonStep, &StepText), width: usize, out: &mut TextLines) {
    answered(theme, (step, told), width, out);
    if let (Some(question), Some(asked), Some(came_out)) = (&step.question, &told.question, told.measured) {
        let (token, verdict) = match told.worth {
            _ if told.answer == Some(Answer::Passed) => (Token::Text, "Passed: it is"),
            Some(Worth::Right) => (Token::Ok, "Right: it is"),
            Some(Worth::Near) => (Token::Warn, "Near, half a point: it is"),
            Some(Worth::Wrong) => (Token::Danger, "Wrong: it is"),
            None => (Token::Text, "Measured:"),
        };
        let text = match &question.form {
            Form::Goal(goal) if told.answer == Some(Answer::Passed) => {
                let way: Vec<String> = goal.solution.iter().map(ToString::to_string).collect();
                format!("One way: `{}`.", way.join("`, `"))
            }
            Form::Goal(goal) => {
                let how = reached(goal, told.worth, &measured(&question.form, asked, came_out));
                let by = told.tries.last().filter(|_| told.answer == Some(Answer::Tried));
                by.map_or_else(|| how.clone(), |by| format!("{}: {}", by.settings, how))
            }
            form => format!("{verdict} {}", measured(form, asked, came_out)),
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

/// A sentence that a goal was reached, with its points.
fn reached(goal: &Goal, worth: Option<Worth>, how: &str) -> String {
    match (worth, &goal.cost) {
        (Some(Worth::Right), _) => format!("{how}: a point."),
        (Some(Worth::Near), Some(cost)) => format!("{how}: half a point. At {} or less it is a whole one.", cost.par),
        _ => format!("{how}."),
    }
}

fn gap(out: &mut TextLines) {
    if out.last().is_some_and(|line| !line.spans.is_empty()) {
        out.push(Line::default());
    }
}

fn plain(theme: &Theme, token: Token, text: &str, width: usize) -> TextLines {
    pane::wrap(text, width).into_iter().map(|line| Line::from(span(theme, token, line))).collect()
}

fn markdown(theme: &Theme, text: &str, width: usize) -> TextLines {
    marked(theme, Token::Text, text, width)
}

/// Markdown whose ordinary text has the style `plain`.
fn marked(theme: &Theme, plain: Token, text: &str, width: usize) -> TextLines {
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
