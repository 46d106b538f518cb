//! The header: who trains what on which device, the run's progress, and the cursor. It belongs to no screen.

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

/// From this width on one line holds everything.
const ONE_LINE: u16 = 180;

/// From this width on every screen is named by its title, with space between titles from the second constant on.
const TITLES: u16 = 112;
const AIR: u16 = 144;

/// The shortest cut name of an op that is shown.
const LEAST_OP: usize = 8;
/// The width of a phase in cells, and of a phase with an op.
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
        // The moment of all panels is more important than the last figures, so it is written in full.
        let place = when::place(stage);
        let [long, short] = &place.step;
        let whole =
            if area.width >= TITLES && moved_by_keeper(stage) { long.width().saturating_sub(short.width()) } else { 0 };
        let least = state(stage, 0).iter().map(Span::width).sum::<usize>() + whole;
        // A run that stands still shows its phase and op; one that goes on only its phase, which changes soon.
        let wanted = least + if stage.is_still() { STILL } else { PHASE };
        let begin = tabs(theme, screen, wanted, area, buf, targets);
        let room = usize::from(area.width.saturating_sub(begin));
        // First the shortest form of the moment, then the figures, then as much of its op as fits. A person who stopped
        // somewhere looks at an op.
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

/// Draws the screens' titles, if there is more than one screen, with or without space between them, so that `least`
/// cells are left for the rest. Returns the column behind them.
fn tabs(theme: &Theme, screen: usize, least: usize, area: Rect, buf: &mut Buffer, targets: &mut Targets) -> u16 {
    let mut x = 0;
    if SCREENS.len() > 1 {
        let titles: usize = SCREENS.iter().map(|screen| screen.title.width() + 2).sum();
        let fits = titles + 2 + least <= usize::from(area.width);
        // The mark of the moment is dropped in favour of space between the titles.
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

/// True if panels show a moment that the keeper chose, and not a person.
fn moved_by_keeper(stage: &Stage<'_>) -> bool {
    matches!(stage.picture.moment(), Moment::StepPeak | Moment::RunPeak)
}

/// The workload, with as many details as fit in `room` cells.
fn workload(picture: &Picture, room: usize, theme: &Theme) -> Vec<Span<'static>> {
    let mut line =
        vec![span(theme, Token::Accent, " vramlab "), span(theme, Token::Strong, format!(" {}", named(picture)))];
    // Beside the learner's own lab the lesson itself is visible.
    if let Some(note) = picture.view.lesson.as_ref().filter(|_| !picture.is_live()) {
        let (who, lesson) = (&note.learner, &note.lesson);
        let place = format!("step {} of {}, {}", note.step, note.steps, note.doing.label());
        line.insert(1, span(theme, Token::Strong, format!(" {who} · {lesson} · {place} ·")));
    }
    let left = room.saturating_sub(line.iter().map(Span::width).sum::<usize>() + 2);
    line.push(span(theme, Token::Dim, format!("  {}", detail(picture, left))));
    line
}

/// Its details, without cutting any; the last are dropped first. In a snapshot the first detail repeats the badge, so
/// it is dropped before the word that categories are guessed.
fn detail(picture: &Picture, room: usize) -> String {
    let mut parts: Vec<&str> = picture.view.about.detail.split(" · ").collect();
    let cells = |parts: &[&str]| parts.iter().map(|part| part.width() + 3).sum::<usize>().saturating_sub(3);
    while parts.len() > 1 && cells(&parts) > room {
        let snapshot = matches!(picture.kind, SourceKind::Snapshot(_));
        parts.remove(if snapshot && parts.len() == 2 { 0 } else { parts.len() - 1 });
    }
    parts.join(" · ")
}

/// The workload's name; for a program that has said nothing yet, or a file whose beginning has not been read, the source's name.
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

/// The device (its id if `short`), always with the remark whether its figures are a GPU's, so that no picture of the
/// screen can mislead.
fn device(picture: &Picture, short: bool, theme: &Theme) -> Vec<Span<'static>> {
    let about = &picture.view.about;
    let name = if short { about.device.split(" · ").next().unwrap_or_default() } else { &about.device };
    let mut line = vec![span(theme, Token::Text, name.to_owned())];
    let ShownDevice { place, of } = picture.device;
    // The rank is mentioned with the model.
    if of > 1 && picture.ranks.is_empty() {
        line.push(span(theme, Token::Accent, format!(" ({} of {of})", place + 1)));
    }
    match about.kind {
        DeviceKind::Gpu => {}
        DeviceKind::Simulated => line.push(span(theme, Token::Warn, " · simulated")),
        DeviceKind::Absent => line.push(span(theme, Token::Warn, " · not there, no arithmetic")),
        // The device of a program that has said nothing yet is unknown.
        DeviceKind::Processor if about.device.is_empty() => {}
        DeviceKind::Processor => line.push(span(theme, Token::Warn, " · processor")),
    }
    line
}

/// The run's state, the recording, and the moment shown: step and phase, and as much of the op as fits in `room` cells.
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
    // The op is dropped first, then the phase, then words about the moment.
    let after = if phase.is_empty() { 0 } else { phase.width() + 3 };
    let step = if cells(&line) + 2 + long.width() + after <= room { long } else { short };
    let moved = picture.moment() != Moment::Now;
    // A number that is cut would be another number.
    let fits = |step: &str| room == 0 || cells(&line) + step.width() <= room;
    let bare = step.trim_end_matches(when::MARK).trim_end().to_owned();
    // Blanks are dropped before the mark.
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

/// The badge of a source that is complete or live.
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

/// Step, time, throughput, loss: as many as fit.
fn figures_of(stage: &Stage<'_>, room: usize) -> Vec<Span<'static>> {
    let (theme, view) = (stage.theme, stage.view());
    let steps = &view.steps;
    // Not every snapshot has steps, and neither has a program that has said nothing yet.
    let without = matches!(stage.picture.kind, SourceKind::Snapshot(_)) && steps.finished == 0;
    if without || waiting::is_shown(stage.picture) {
        return Vec::new();
    }
    let mut groups = Vec::new();
    // The moment already says which step it is, if the cursor was moved or a lab stands still.
    if !stage.is_still() || matches!(stage.picture.moment(), Moment::RunPeak | Moment::StepPeak) {
        let word = if steps.finished == 1 { " step" } else { " steps" };
        groups.push(vec![span(theme, Token::Strong, format!("{:>5}", steps.finished)), span(theme, Token::Dim, word)]);
    }
    // Their number is that of the run, their times are of the moment.
    let steps = &stage.picture.known().steps;
    // A workload of bare allocations takes no simulated time.
    let timed = steps.median.0 > 0 || stage.clock() != TimeSource::Simulated;
    // In a file the time is that of the step shown.
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
