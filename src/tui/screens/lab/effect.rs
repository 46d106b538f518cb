//! The measured effect of the last flip: steps before and after, and whether they differ by more than noise.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Effect, EmptyCacheEffect, Figure, Measurement};
use crate::tui::action::Action;
use crate::tui::compared::{change, verdict};
use crate::tui::keys::Keymap;
use crate::tui::stage::{Stage, TimeSource};
use crate::tui::words;

/// The part of a title that its frame, blanks and the number of measured steps take.
const FRAMED: usize = 18;

/// How many rows the pane needs, with its frame.
pub(crate) fn wanted_rows(stage: &Stage<'_>) -> u16 {
    let Some(effect) = shown(stage) else {
        // For a run that is over, nothing more will be measured.
        return if stage.picture.is_live() { 5 } else { 0 };
    };
    if let (Some(before), Some(after), None) = (&effect.before, &effect.after, &effect.emptied)
        && is_nothing(before, after)
    {
        return 2 + 2 + u16::from(effect.flips.len() > 1);
    }
    let figures = 5 + u16::from(!stage.picture.known().steps.losses.is_empty());
    // Each two flips take a row of the pane, and so does the text about `empty_cache`.
    let told = match (effect.flips.len(), &effect.emptied) {
        (_, Some(_)) => 2,
        (0 | 1, None) => 0,
        (flips, None) => 1 + u16::try_from(flips.div_ceil(2)).unwrap_or(0),
    };
    2 + figures + told
}

/// True if there is an effect to show. In a lesson nothing else is shown in its place.
pub(crate) fn is_known(stage: &Stage<'_>) -> bool {
    shown(stage).is_some()
}

/// The effect to show; none while a question is open.
fn shown<'a>(stage: &'a Stage<'_>) -> Option<&'a Effect> {
    stage.picture.effect().filter(|_| !stage.hold.asks())
}

/// One compared figure.
struct EffectRow {
    label: &'static str,
    before: String,
    after: String,
    unit: String,
    change: String,
    verdict: Token,
}

/// Draws the pane.
pub(crate) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let Some(effect) = shown(stage) else {
        let title = vec![span(theme, Token::Title, "measured effect")];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
        let text = match stage.picture.is_live() {
            true => "Flip a switch: its effect on memory and time is measured here, from the steps before and after.",
            false => "No flip before this moment.",
        };
        let width = usize::from(inner.width.saturating_sub(2));
        for (y, line) in (0..inner.height).zip(pane::wrap(text, width)) {
            pane::put_at(inner, 1, y, vec![span(theme, Token::Dim, line)], buf);
        }
        return;
    };
    let loud = stage.loud;
    let border = theme.style(if loud { Token::Accent } else { Token::Border });
    let title = title(stage, effect, usize::from(area.width));
    let inner = pane::frame(Frame::Box, title, border, area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let mut y = 0;
    let tell = |text: &str, token: Token, y: &mut u16, buf: &mut Buffer| {
        for line in pane::wrap(text, usize::from(inner.width)) {
            put(inner, *y, vec![span(theme, token, line)], buf);
            *y += 1;
        }
    };
    if let Some(emptied) = &effect.emptied {
        tell(&emptying(emptied), Token::Text, &mut y, buf);
    }
    if effect.flips.len() > 1 {
        let flips: Vec<String> = effect.flips.iter().map(words::flip).collect();
        tell(&format!("{}: measured together.", flips.join(", ")), Token::Dim, &mut y, buf);
    }
    match (&effect.before, &effect.after) {
        (Some(before), Some(after)) if effect.emptied.is_none() && is_nothing(before, after) => {
            tell(&nothing(effect, after), Token::Text, &mut y, buf);
        }
        (Some(before), Some(after)) => {
            for row in rows(before, after, stage.clock(), stage.view().about.items.per_second()) {
                if y >= inner.height {
                    break;
                }
                draw_row(&row, loud, theme, inner, y, buf);
                y += 1;
            }
        }
        (None, _) => tell("No steps before the flip to compare with.", Token::Dim, &mut y, buf),
        (_, None) if effect.cut_short => {
            tell("Not measured: another change came before its steps.", Token::Dim, &mut y, buf);
        }
        (_, None) => tell("The first steps after a flip are not counted.", Token::Dim, &mut y, buf),
    }
}

/// True if no figure has changed.
fn is_nothing(before: &Measurement, after: &Measurement) -> bool {
    let is_same = |a: &Figure, b: &Figure, less_is_good| verdict(a, b, less_is_good) == Token::Dim;
    let both = |a: &Option<Figure>, b: &Option<Figure>| match (a, b) {
        (Some(a), Some(b)) => is_same(a, b, true),
        _ => true,
    };
    is_same(&before.peak_allocated, &after.peak_allocated, true)
        && is_same(&before.peak_reserved, &after.peak_reserved, true)
        && is_same(&before.throughput, &after.throughput, false)
        && both(&before.stranded, &after.stranded)
        && both(&before.step, &after.step)
}

/// A sentence for an effect without changes: allocator settings apply to memory taken from then on.
fn nothing(effect: &Effect, after: &Measurement) -> String {
    let held = figures::bytes(after.peak_reserved.bytes());
    match effect.flips.as_slice() {
        [flip] if &*flip.switch == "alloc-conf" => format!("Nothing yet: {held} are held, as before."),
        _ => format!("Nothing: {held} are held, as before."),
    }
}

/// What `empty_cache` did, and its cost.
fn emptying(emptied: &EmptyCacheEffect) -> String {
    let after = emptied.before.saturating_sub(emptied.released);
    let unit = ByteUnit::for_largest(emptied.before);
    let (before, after) = (unit.figure(emptied.before), unit.figure(after));
    let mut text =
        format!("reserved {before} → {after} {} in {}", unit.name(), figures::counted(emptied.frees, "cudaFree"));
    match emptied.allocs {
        Some(0) => text.push_str("; nothing was allocated again"),
        Some(allocs) => text.push_str(&format!("; allocated again with {}", figures::counted(allocs, "cudaMalloc"))),
        None => {}
    }
    text
}

/// The progress of the measurement. In a run that is over nothing more will come.
fn progress(stage: &Stage<'_>, effect: &Effect) -> Option<String> {
    let (done, wanted) = effect.measured;
    let goes_on = stage.picture.is_live() || stage.picture.extent.grows;
    (effect.is_under_way() && goes_on).then(|| format!("{done}/{wanted} steps"))
}

fn heading(keys: &Keymap, effect: &Effect) -> (String, String) {
    if effect.emptied.is_some() {
        return (keys.key_of(Action::EmptyCache).to_owned(), "empty_cache".to_owned());
    }
    let pressed: String = effect.flips.iter().map(|flip| words::key_of(keys, &flip.switch)).collect();
    let words: Vec<String> = effect.flips.iter().map(words::flip).collect();
    (pressed, words.join(", "))
}

fn title(stage: &Stage<'_>, effect: &Effect, width: usize) -> Vec<Span<'static>> {
    let theme = stage.theme;
    let token = if stage.loud { Token::Accent } else { Token::Title };
    let (keys, words) = heading(stage.keys, effect);
    // Several flips don't fit a title, so the pane names them.
    let words = if effect.flips.len() > 1 { figures::counted(effect.flips.len() as u64, "flip") } else { words };
    // If a value is long, the panel of switches has its name and its value before.
    let words = match &*effect.flips {
        [flip] if keys.width() + words.width() + FRAMED > width => words::value(&flip.to).into_owned(),
        _ => words,
    };
    let mut title = vec![span(theme, Token::Key, format!("{keys} ")), span(theme, token, words)];
    if let Some(progress) = progress(stage, effect) {
        title.push(span(theme, Token::Dim, format!(" · measuring {progress}")));
    } else if effect.after.is_some() && effect.before.is_some() {
        let steps = figures::counted(effect.measured.0 as u64, "step");
        title.push(span(theme, Token::Dim, format!(" · {steps}")));
    }
    title
}

fn rows(before: &Measurement, after: &Measurement, clock: TimeSource, items: &str) -> Vec<EffectRow> {
    let unit = ByteUnit::for_largest(before.peak_reserved.bytes().max(after.peak_reserved.bytes()));
    let row =
        |label, a: &Figure, b: &Figure, show: &dyn Fn(&Figure) -> String, unit: &str, less_is_good: bool| EffectRow {
            label,
            before: show(a),
            after: show(b),
            unit: unit.to_owned(),
            change: change(a, b),
            verdict: verdict(a, b, less_is_good),
        };
    let bytes = |figure: &Figure| unit.figure(figure.bytes());
    let time = |figure: &Figure| figures::milliseconds(figure.micros());
    let count = |figure: &Figure| figures::short_count(figure.median);
    let mut rows = vec![
        row("peak allocated", &before.peak_allocated, &after.peak_allocated, &bytes, unit.name(), true),
        row("peak reserved", &before.peak_reserved, &after.peak_reserved, &bytes, unit.name(), true),
    ];
    if let (Some(before), Some(after)) = (&before.stranded, &after.stranded) {
        rows.push(row("stranded after", before, after, &bytes, unit.name(), true));
    }
    if let (Some(before), Some(after)) = (&before.step, &after.step) {
        rows.push(row(clock.of("step", "step, sim"), before, after, &time, "ms", true));
    }
    if before.throughput.median > 0.0 || after.throughput.median > 0.0 {
        let label = clock.of("throughput", "throughput, sim");
        rows.push(row(label, &before.throughput, &after.throughput, &count, items, false));
    }
    if let (Some(before), Some(after)) = (&before.loss, &after.loss) {
        let loss = |figure: &Figure| format!("{:.3}", figure.median);
        rows.push(EffectRow { change: String::new(), ..row("loss", before, after, &loss, "", true) });
    }
    rows
}

fn draw_row(row: &EffectRow, loud: bool, theme: &Theme, area: Rect, y: u16, buf: &mut Buffer) {
    let figure = if loud { Token::Strong } else { Token::Text };
    let line = vec![
        span(theme, Token::Dim, format!("{:<15}", row.label)),
        span(theme, Token::Text, format!("{:>6}", row.before)),
        span(theme, Token::Dim, " → "),
        span(theme, figure, format!("{:>6}", row.after)),
        span(theme, Token::Dim, format!(" {}", row.unit)),
    ];
    let end = put(area, y, line, buf);
    let verdict = theme.style(row.verdict);
    let style = if loud { verdict.add_modifier(ratatui::style::Modifier::BOLD) } else { verdict };
    // If room is short, the change is written without the spread.
    let room = usize::from(area.width.saturating_sub(end));
    let short = row.change.split(" ±").next().unwrap_or_default();
    if let Some(change) = [row.change.as_str(), short].into_iter().find(|change| change.chars().count() < room) {
        put_right(area, y, vec![Span::styled(change.to_owned(), style)], buf);
    }
}

/// The names of figures that changed in the same way: `allocated, reserved and step`.
fn named<'a>(names: impl DoubleEndedIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.collect();
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        last => last.unwrap_or_default().to_owned(),
    }
}

/// Draws the effect in one line.
pub(crate) fn render_line(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let Some(effect) = shown(stage) else {
        let text = match stage.picture.is_live() {
            true if area.width < 46 => " flip a switch to measure its effect",
            true => " flip a switch: its effect is measured here",
            false => " no flip before this moment",
        };
        put(area, 0, vec![span(theme, Token::Dim, text)], buf);
        return;
    };
    let token = if stage.loud { Token::Accent } else { Token::Text };
    let (keys, words) = heading(stage.keys, effect);
    let mut figures: Vec<Vec<Span<'static>>> = Vec::new();
    if let Some(emptied) = &effect.emptied {
        figures.push(vec![span(theme, token, format!("{} returned  ", figures::bytes(emptied.released)))]);
    }
    let measured = effect.before.as_ref().zip(effect.after.as_ref());
    if let Some((_, after)) = measured.filter(|(before, after)| effect.emptied.is_none() && is_nothing(before, after)) {
        figures.push(vec![span(theme, Token::Dim, format!("{}  ", nothing(effect, after)))]);
    } else if let Some((before, after)) = measured {
        let all = rows(before, after, stage.clock(), "");
        let told = [(0, "allocated"), (1, "reserved"), (3, stage.clock().of("step", "sim step"))];
        let told: Vec<_> = told.into_iter().filter_map(|(index, name)| Some((name, all.get(index)?))).collect();
        for alike in told.chunk_by(|(_, a), (_, b)| (&a.change, a.verdict) == (&b.change, b.verdict)) {
            let EffectRow { change, verdict, .. } = alike[0].1;
            let change = span(theme, *verdict, format!("{change}  "));
            figures.push(vec![
                span(theme, Token::Dim, format!("{} ", named(alike.iter().map(|(name, _)| *name)))),
                change,
            ]);
        }
    }
    if let Some(progress) = progress(stage, effect) {
        figures.push(vec![span(theme, Token::Dim, format!("measuring {progress}"))]);
    }
    let cells = |spans: &[Span<'static>]| spans.iter().map(Span::width).sum::<usize>();
    let room = usize::from(area.width);
    let wanted: usize = figures.iter().map(|figure| cells(figure)).sum();
    let named = vec![span(theme, Token::Key, format!(" {keys} ")), span(theme, token, format!("{words}: "))];
    // If the figures need the room, only the keys of the flips are named.
    let mut line =
        if cells(&named) + wanted <= room { named } else { vec![span(theme, Token::Key, format!(" {keys}: "))] };
    for figure in figures {
        if cells(&line) + cells(&figure) <= room + 2 {
            line.extend(figure);
        }
    }
    put(area, 0, line, buf);
}
