//! Who trains what on which device, how it goes, and where the cursor is. It belongs to no screen.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use super::action::Action;
use super::hold::Hold;
use super::screens::SCREENS;
use super::stage::{Stage, Targets, TimeSource};
use super::waiting;
use super::when;
use crate::drawing::figures;
use crate::drawing::pane::{self, put, put_at, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{DeviceKind, RunState};
use crate::source::{Cursor, Moment, Picture, ReadingStage, ShownDevice, SourceKind};

/// From this width on one line holds all of it.
const ONE_LINE: u16 = 180;

/// From this width on every screen goes by its title, with air between them from the second on.
const TITLES: u16 = 112;
const AIR: u16 = 144;

/// An op of fewer cells says nothing.
const LEAST_OP: usize = 8;
/// Cells that a phase takes, and a phase with an op.
const PHASE: usize = 16;
const STILL: usize = 36;

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
        let fits = cells(&workload(picture, usize::MAX, theme)) + 2 + cells(&whole) <= usize::from(area.width);
        let edge = put_right(area, 0, if fits { whole } else { device(picture, true, theme) }, buf);
        let left = Rect { width: edge.saturating_sub(2), ..area };
        put(left, 0, workload(picture, usize::from(left.width), theme), buf);
        // Which moment all panels show matters more than the last of the figures: it is said in full.
        let place = when::place(stage);
        let [long, short] = &place.step;
        let whole =
            if area.width >= TITLES && moved_by_keeper(stage) { long.width().saturating_sub(short.width()) } else { 0 };
        let least = state(stage, 0).iter().map(Span::width).sum::<usize>() + whole;
        // What stands still says its phase and op; what goes on its phase, and is on the way to the next one.
        let wanted = least + if stage.is_still() { STILL } else { PHASE };
        let begin = tabs(theme, screen, wanted, area, buf, targets);
        let room = usize::from(area.width.saturating_sub(begin));
        // What is to be said of the moment at least, the figures, and of its op as much as there is room for.
        // Who stands somewhere looks at an op.
        let stands = picture.run == RunState::Paused || picture.moment() == Moment::Cursor;
        let wanted = least + if stands { STILL } else { PHASE };
        let with_phase: usize = state(stage, wanted.min(room)).iter().map(Span::width).sum();
        let figures = figures_of(stage, room.saturating_sub(with_phase + 1));
        let gap = usize::from(!figures.is_empty());
        let edge = put_right(area, 1, figures, buf);
        let room = usize::from(edge.saturating_sub(begin)).saturating_sub(gap);
        put_at(area, begin, 1, state(stage, room), buf);
    } else {
        let edge = put_right(area, 0, figures_of(stage, usize::from(area.width) / 2), buf);
        let left = Rect { width: edge.saturating_sub(2), ..area };
        let mut line = workload(picture, usize::MAX, theme);
        line.push(Span::raw("   "));
        line.extend(device(picture, false, theme));
        line.push(Span::raw("  "));
        line.extend(state(stage, usize::from(left.width)));
        put(left, 0, line, buf);
    }
}

/// The screens, where there is more than one, by their titles, with air in them or without, where those leave `least` cells for what else there is to say;
/// returns the column behind them.
fn tabs(theme: &Theme, screen: usize, least: usize, area: Rect, buf: &mut Buffer, targets: &mut Targets) -> u16 {
    let mut x = 0;
    if SCREENS.len() > 1 {
        let titles: usize = SCREENS.iter().map(|screen| screen.title.width() + 2).sum();
        let fits = titles + 2 + least <= usize::from(area.width);
        // The mark of the moment gives way to air between them.
        let apart = titles + SCREENS.len() + 2 + least <= usize::from(area.width) + when::MARK.width() + 1;
        for (index, known) in SCREENS.iter().enumerate() {
            let (key, title) = (known.key, known.title);
            let text = match (index == screen, area.width) {
                (true, AIR..) => format!(" [{key} {title}]"),
                (false, AIR..) => format!("  {key} {title} "),
                (true, TITLES..) => format!(" [{key} {title}]"),
                (false, TITLES..) => format!(" {key} {title}"),
                (true, _) if apart && index == 0 => format!("[{key} {title}]"),
                (true, _) if apart => format!(" [{key} {title}]"),
                (false, _) if apart => format!(" {key} {title}"),
                (true, _) if fits => format!("[{key}{title}]"),
                (false, _) if fits => format!(" {key}{title}"),
                (true, _) => format!(" [{key} {title}]"),
                (false, _) => format!(" {key}"),
            };
            let token = if index == screen { Token::Strong } else { Token::Dim };
            let end = put_at(area, x, 1, vec![span(theme, token, text)], buf);
            targets.push((Rect { x: area.x + x, y: area.y + 1, width: end - x, height: 1 }, Action::Screen(index)));
            x = end;
        }
    }
    x
}

/// Whether panels show a moment that the keeper chose, not a person.
fn moved_by_keeper(stage: &Stage<'_>) -> bool {
    matches!(stage.picture.moment(), Moment::StepPeak | Moment::RunPeak)
}

/// What is trained, and as many words of how as `room` cells hold.
fn workload(picture: &Picture, room: usize, theme: &Theme) -> Vec<Span<'static>> {
    let mut line =
        vec![span(theme, Token::Accent, " vramlab "), span(theme, Token::Strong, format!(" {}", named(picture)))];
    // Beside the learner's own lab stands the lesson itself.
    if let Some(note) = picture.view.lesson.as_ref().filter(|_| !picture.is_live()) {
        let (who, lesson) = (&note.learner, &note.lesson);
        let place = format!("step {} of {}, {}", note.step, note.steps, note.doing.label());
        line.insert(1, span(theme, Token::Strong, format!(" {who} · {lesson} · {place} ·")));
    }
    let left = room.saturating_sub(line.iter().map(Span::width).sum::<usize>() + 2);
    line.push(span(theme, Token::Dim, format!("  {}", detail(picture, left))));
    line
}

/// Its details, whole ones: the last give way first. The badge says that a snapshot is one, so its first gives way before
/// the word that its categories are guessed.
fn detail(picture: &Picture, room: usize) -> String {
    let mut parts: Vec<&str> = picture.view.about.detail.split(" · ").collect();
    let cells = |parts: &[&str]| parts.iter().map(|part| part.width() + 3).sum::<usize>().saturating_sub(3);
    while parts.len() > 1 && cells(&parts) > room {
        let snapshot = matches!(picture.kind, SourceKind::Snapshot(_));
        parts.remove(if snapshot && parts.len() == 2 { 0 } else { parts.len() - 1 });
    }
    parts.join(" · ")
}

/// What is trained; of a program that has said nothing yet, and of a file whose beginning is not read, its name.
fn named(picture: &Picture) -> &str {
    match &picture.kind {
        SourceKind::Recording(name) | SourceKind::Snapshot(name) | SourceKind::Watched(name)
            if picture.view.about.workload.is_empty() =>
        {
            name
        }
        _ => &picture.view.about.workload,
    }
}

/// The device (by its id where `short`), and next to it, in every picture that could be taken of the screen, whether its
/// figures are a GPU's.
fn device(picture: &Picture, short: bool, theme: &Theme) -> Vec<Span<'static>> {
    let about = &picture.view.about;
    let name = if short { about.device.split(" · ").next().unwrap_or_default() } else { &about.device };
    let mut line = vec![span(theme, Token::Text, name.to_owned())];
    let ShownDevice { place, of } = picture.device;
    // Which rank it is stands with the model.
    if of > 1 && picture.ranks.is_empty() {
        line.push(span(theme, Token::Accent, format!(" ({} of {of})", place + 1)));
    }
    match about.kind {
        DeviceKind::Gpu => {}
        DeviceKind::Simulated => line.push(span(theme, Token::Warn, " · simulated")),
        DeviceKind::Absent => line.push(span(theme, Token::Warn, " · not there, no arithmetic")),
        // Of a program that has said nothing yet no device is known.
        DeviceKind::Processor if about.device.is_empty() => {}
        DeviceKind::Processor => line.push(span(theme, Token::Warn, " · processor")),
    }
    line
}

/// What the run is doing, what is recorded, and which moment is shown: step and phase, and as much of the op as `room` cells
/// hold.
fn state(stage: &Stage<'_>, room: usize) -> Vec<Span<'static>> {
    let (picture, theme) = (stage.picture, stage.theme);
    let (word, token) = badge(picture);
    let style = theme.style(token).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let mut line = vec![Span::raw(" "), Span::styled(format!(" {word} "), style)];
    if picture.recording.is_some() {
        line.push(span(theme, Token::Danger, " ● rec"));
    }
    if picture.reading.is_some() || picture.view.run == RunState::Starting {
        return line;
    }
    let when::RunPosition { step: [long, short], phase, op } = when::place(stage);
    let cells = |line: &[Span<'static>]| line.iter().map(Span::width).sum::<usize>();
    // The op goes first, then the phase, then words of the moment.
    let after = if phase.is_empty() { 0 } else { phase.width() + 3 };
    let step = if cells(&line) + 2 + long.width() + after <= room { long } else { short };
    let moved = picture.moment() != Moment::Now;
    // A number that is cut is another number.
    let fits = |step: &str| room == 0 || cells(&line) + step.width() <= room;
    let bare = step.trim_end_matches(when::MARK).trim_end().to_owned();
    // Blanks give way before the mark does.
    let mark = if bare == step { "" } else { when::MARK };
    let steps = [format!("  {step}"), format!(" {step}"), format!(" {bare}{mark}"), format!(" {bare}")];
    let step = steps.into_iter().find(|step| fits(step)).unwrap_or_default();
    line.push(span(theme, if moved { Token::Accent } else { Token::Text }, step.clone()));
    let mut between = if step.is_empty() { "" } else { " · " };
    if !phase.is_empty() && cells(&line) + between.width() + phase.width() <= room {
        line.push(span(theme, Token::Text, format!("{between}{phase}")));
        between = " · ";
    }
    let left = room.saturating_sub(cells(&line) + between.width());
    if !op.is_empty() && left >= LEAST_OP.min(op.width()) {
        line.push(span(theme, Token::Dim, format!("{between}{}", pane::cut(&op, left))));
    }
    line
}

fn badge(picture: &Picture) -> (Cow<'static, str>, Token) {
    if let Some(reading) = &picture.reading {
        let token = if reading.doing == ReadingStage::Failed { Token::Danger } else { Token::Warn };
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
    if picture.moment() != Moment::Now && picture.shown().autopsy.is_some() {
        return ("OUT OF MEMORY", Token::Danger);
    }
    match (&picture.kind, picture.cursor) {
        (SourceKind::Live, Cursor::At(_)) if picture.run == RunState::Running => {
            return ("LOOKING BACK", Token::Accent);
        }
        (SourceKind::Recording(_), _) if picture.extent.grows => return ("FOLLOWING", Token::Ok),
        (SourceKind::Recording(_), _) => return ("RECORDING", Token::Accent),
        (SourceKind::Snapshot(_), _) => return ("SNAPSHOT", Token::Accent),
        (SourceKind::Watched(_), Cursor::At(_)) if picture.extent.grows => return ("LOOKING BACK", Token::Accent),
        (SourceKind::Watched(_), _) if picture.extent.grows && waiting::is_shown(picture) => {
            return ("WAITING", Token::Warn);
        }
        (SourceKind::Watched(_), _) if picture.extent.grows => return ("WATCHING", Token::Ok),
        (SourceKind::Watched(_), _) => return ("ENDED", Token::Accent),
        (SourceKind::Live, _) => {}
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
    // Not every snapshot knows steps, nor does what has not said anything.
    let without = matches!(stage.picture.kind, SourceKind::Snapshot(_)) && steps.finished == 0;
    if without || waiting::is_shown(stage.picture) {
        return Vec::new();
    }
    let mut groups = Vec::new();
    // Where the cursor is, or a lab stands, the moment says which step that is.
    if !stage.is_still() || matches!(stage.picture.moment(), Moment::RunPeak | Moment::StepPeak) {
        let word = if steps.finished == 1 { " step" } else { " steps" };
        groups.push(vec![span(theme, Token::Strong, format!("{:>5}", steps.finished)), span(theme, Token::Dim, word)]);
    }
    // How many there are is of the run, what they took is of the moment.
    let steps = &stage.picture.known().steps;
    // What only asks for memory takes no simulated time.
    let timed = steps.median.0 > 0 || stage.clock() != TimeSource::Simulated;
    // A file's time is that of the step shown.
    let of_snapshot = matches!(stage.picture.kind, SourceKind::Snapshot(_));
    let time = if of_snapshot { when::took(stage.picture).filter(|time| time.0 > 0) } else { Some(steps.median) };
    if let Some(time) = time.filter(|_| steps.finished > 0 && timed && stage.hold != Hold::Answer) {
        let unit = match stage.clock() {
            TimeSource::Real => " ms",
            TimeSource::Simulated => " ms sim",
            TimeSource::Host => " ms host",
        };
        groups.push(vec![
            span(theme, Token::Strong, format!("{:>9}", figures::milliseconds(time))),
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
            None if stage.clock() == TimeSource::Simulated => {
                groups.push(vec![span(theme, Token::Dim, "   no loss, simulated")])
            }
            None => {}
        }
        if steps.skipped > 0 {
            groups.push(vec![span(theme, Token::Warn, format!("   {} skipped", steps.skipped))]);
        }
    }
    let mut line: Vec<Span<'static>> = Vec::new();
    for group in groups {
        let cells: usize = line.iter().chain(&group).map(Span::width).sum();
        if cells > room {
            break;
        }
        line.extend(group);
    }
    line
}
