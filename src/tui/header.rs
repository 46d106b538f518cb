//! Who trains what on which device, how it goes, and where the cursor is. It belongs to no screen.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use super::action::Action;
use super::figures;
use super::hold::Hold;
use super::pane::{put_at, put_cut, put_right, span};
use super::screens::SCREENS;
use super::stage::{Clock, Stage, Targets};
use super::theme::{Theme, Token};
use crate::model::{DeviceKind, RunState};
use crate::source::{Cursor, Doing, Kind, Picture, Shown};

/// From this width on one line holds all of it.
const ONE_LINE: u16 = 180;

/// From this width on every screen goes by its title.
const TITLES: u16 = 112;

/// Rows that the header takes.
pub(crate) const fn rows(area: Rect) -> u16 {
    if area.width >= ONE_LINE && SCREENS.len() == 1 { 1 } else { 2 }
}

/// Draws the header.
pub(crate) fn render(stage: &Stage<'_>, screen: usize, area: Rect, buf: &mut Buffer, targets: &mut Targets) {
    let area = Rect { width: area.width.saturating_sub(1), ..area };
    let (theme, picture) = (stage.theme, stage.picture);
    if area.height >= 2 {
        let cells = |line: &[Span<'static>]| line.iter().map(Span::width).sum::<usize>();
        let whole = device(picture, false, theme);
        let fits = cells(&workload(picture, theme)) + 2 + cells(&whole) <= usize::from(area.width);
        let edge = put_right(area, 0, if fits { whole } else { device(picture, true, theme) }, buf);
        put_cut(Rect { width: edge.saturating_sub(2), ..area }, 0, workload(picture, theme), buf);
        let begin = tabs(theme, screen, area, buf, targets);
        let room = usize::from(area.width.saturating_sub(begin));
        let state = state(picture, theme, room);
        let cells: usize = state.iter().map(Span::width).sum();
        let figures = figures_of(stage, room.saturating_sub(cells + 1));
        let edge = put_right(area, 1, figures, buf);
        put_at(Rect { width: edge.saturating_sub(1).max(begin), ..area }, begin, 1, state, buf);
    } else {
        let edge = put_right(area, 0, figures_of(stage, usize::from(area.width) / 2), buf);
        let left = Rect { width: edge.saturating_sub(2), ..area };
        let mut line = workload(picture, theme);
        line.push(Span::raw("   "));
        line.extend(device(picture, false, theme));
        line.push(Span::raw("  "));
        line.extend(state(picture, theme, usize::MAX));
        put_cut(left, 0, line, buf);
    }
}

/// The screens, where there is more than one; returns the column behind them.
fn tabs(theme: &Theme, screen: usize, area: Rect, buf: &mut Buffer, targets: &mut Targets) -> u16 {
    let mut x = 0;
    if SCREENS.len() > 1 {
        for (index, known) in SCREENS.iter().enumerate() {
            let text = match (index == screen, area.width >= TITLES) {
                (true, _) => format!(" [{} {}]", known.key, known.title),
                (false, true) => format!("  {} {} ", known.key, known.title),
                (false, false) => format!(" {}", known.key),
            };
            let token = if index == screen { Token::Strong } else { Token::Dim };
            let end = put_at(area, x, 1, vec![span(theme, token, text)], buf);
            targets.push((Rect { x: area.x + x, y: area.y + 1, width: end - x, height: 1 }, Action::Screen(index)));
            x = end;
        }
    }
    x
}

fn workload(picture: &Picture, theme: &Theme) -> Vec<Span<'static>> {
    let about = &picture.view.about;
    vec![
        span(theme, Token::Accent, " vramlab "),
        span(theme, Token::Strong, format!(" {}", about.workload)),
        span(theme, Token::Dim, format!("  {}", about.detail)),
    ]
}

/// The device (by its id where `short`), and next to it, in every picture that could be taken of the screen, whether its
/// figures are a GPU's.
fn device(picture: &Picture, short: bool, theme: &Theme) -> Vec<Span<'static>> {
    let about = &picture.view.about;
    let name = if short { about.device.split(" · ").next().unwrap_or_default() } else { &about.device };
    let mut line = vec![span(theme, Token::Text, name.to_owned())];
    let Shown { place, of } = picture.device;
    if of > 1 {
        line.push(span(theme, Token::Accent, format!(" ({} of {of})", place + 1)));
    }
    match about.kind {
        DeviceKind::Gpu => {}
        DeviceKind::Simulated => line.push(span(theme, Token::Warn, " · simulated")),
        DeviceKind::Processor => line.push(span(theme, Token::Warn, " · processor")),
    }
    line
}

/// What the run is doing, what is recorded, and where the cursor looks.
fn state(picture: &Picture, theme: &Theme, room: usize) -> Vec<Span<'static>> {
    let (word, token) = badge(picture);
    let style = theme.style(token).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let mut line = vec![Span::raw(" "), Span::styled(format!(" {word} "), style)];
    if picture.recording.is_some() {
        line.push(span(theme, Token::Danger, " ● rec"));
    }
    let view = &picture.view;
    let mut words: Vec<Span<'static>> = Vec::new();
    let looks = !picture.is_now();
    if looks {
        let behind = format!("  at step {} of {}", view.steps.finished, picture.extent.steps);
        words.push(span(theme, Token::Accent, behind));
    }
    let stopped = matches!(picture.run, RunState::Paused | RunState::OutOfMemory | RunState::StepFailed(_));
    if looks || stopped {
        if let Some(phase) = view.phase {
            words.push(span(theme, Token::Text, format!("  {}", phase.label())));
        }
        let op = view.names.get(view.op);
        if !op.is_empty() {
            words.push(span(theme, Token::Dim, format!(" · {op}")));
        }
    }
    for word in words {
        let cells: usize = line.iter().map(Span::width).sum();
        if cells + word.width() <= room {
            line.push(word);
        }
    }
    line
}

fn badge(picture: &Picture) -> (Cow<'static, str>, Token) {
    if let Some(reading) = &picture.reading {
        let token = if reading.doing == Doing::Failed { Token::Danger } else { Token::Warn };
        return (reading.words().to_uppercase().into(), token);
    }
    let (word, token) = still(picture);
    (Cow::Borrowed(word), token)
}

/// The badge of a source that is all there, or live.
fn still(picture: &Picture) -> (&'static str, Token) {
    if let Some(speed) = picture.playing {
        let word = if speed == 1.0 { "PLAYING" } else { "PLAYING FAST" };
        return (if speed < 1.0 { "PLAYING SLOW" } else { word }, Token::Ok);
    }
    if let (Cursor::At(_), true) = (picture.cursor, picture.view.autopsy.is_some()) {
        return ("OUT OF MEMORY", Token::Danger);
    }
    match (&picture.kind, picture.cursor) {
        (Kind::Live, Cursor::At(_)) if picture.run == RunState::Running => return ("LOOKING BACK", Token::Accent),
        (Kind::Recording(_), _) if picture.extent.grows => return ("FOLLOWING", Token::Ok),
        (Kind::Recording(_), _) => return ("RECORDING", Token::Accent),
        (Kind::Snapshot(_), _) => return ("SNAPSHOT", Token::Accent),
        (Kind::Watched(_), Cursor::At(_)) if picture.extent.grows => return ("LOOKING BACK", Token::Accent),
        (Kind::Watched(_), _) if picture.extent.grows => return ("WATCHING", Token::Ok),
        (Kind::Watched(_), _) => return ("ENDED", Token::Accent),
        (Kind::Live, _) => {}
    }
    match &picture.run {
        RunState::Starting => ("STARTING", Token::Dim),
        RunState::Running => ("RUNNING", Token::Ok),
        RunState::Paused => ("PAUSED", Token::Warn),
        RunState::OutOfMemory => ("OUT OF MEMORY", Token::Danger),
        RunState::StepFailed(_) => ("STEP FAILED", Token::Danger),
        RunState::Finished => ("FINISHED", Token::Ok),
        RunState::Lost(_) => ("DEVICE LOST", Token::Danger),
        RunState::Failed(_) => ("FAILED", Token::Danger),
    }
}

/// Step, time, throughput, loss: as many of them as there is room for.
fn figures_of(stage: &Stage<'_>, room: usize) -> Vec<Span<'static>> {
    let (theme, view) = (stage.theme, stage.view());
    let steps = &view.steps;
    // A snapshot knows no steps.
    if matches!(stage.picture.kind, Kind::Snapshot(_)) {
        return Vec::new();
    }
    let mut groups =
        vec![vec![span(theme, Token::Dim, "step "), span(theme, Token::Strong, format!("{:>5}", steps.finished))]];
    if steps.finished > 0 && stage.hold != Hold::Answer {
        let unit = stage.clock().of(" ms", " ms sim");
        groups.push(vec![
            span(theme, Token::Strong, format!("{:>9}", figures::milliseconds(steps.median))),
            span(theme, Token::Dim, unit),
        ]);
        if steps.throughput > 0.0 {
            groups.push(vec![
                span(theme, Token::Strong, format!("{:>8}", figures::short_count(steps.throughput))),
                span(theme, Token::Dim, format!(" {}", view.about.items.per_second())),
            ]);
        }
        match steps.last.as_ref().and_then(|last| last.loss) {
            Some(loss) => groups
                .push(vec![span(theme, Token::Dim, "   loss "), span(theme, Token::Strong, format!("{loss:>6.3}"))]),
            None if stage.clock() == Clock::Simulated => groups.push(vec![span(theme, Token::Dim, "   no loss")]),
            None => {}
        }
        if steps.skipped > 0 {
            groups.push(vec![span(theme, Token::Warn, format!("   {} skipped", steps.skipped))]);
        }
    }
    let mut line: Vec<Span<'static>> = Vec::new();
    for group in groups {
        let cells: usize = line.iter().chain(&group).map(Span::width).sum();
        if cells > room && !line.is_empty() {
            break;
        }
        line.extend(group);
    }
    line
}
