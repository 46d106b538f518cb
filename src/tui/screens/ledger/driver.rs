//! The driver's view: who holds the GPU's memory, or why that is unknown.

use std::borrow::Cow;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::Token;
use crate::model::{DeviceKind, DriverMemory, Reading};
use crate::source::SourceKind;
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// Why nothing is known, in one line.
fn unknown(stage: &Stage<'_>) -> Cow<'static, str> {
    match (&stage.picture.kind, stage.view().about.kind) {
        (SourceKind::Snapshot(_), _) => "a snapshot does not say what else was on the GPU".into(),
        (_, DeviceKind::Processor) => "no GPU here: no context, no other processes".into(),
        (_, DeviceKind::Simulated) => match stage.picture.memory {
            Some(memory) => {
                let beside = memory.total.saturating_sub(memory.free);
                let nccl =
                    if stage.picture.ranks.is_empty() { "" } else { " with NCCL's where the card's file has it" };
                format!("a simulated GPU: context {beside}{nccl}, no other process").into()
            }
            None => "a simulated GPU: no other process uses it".into(),
        },
        (_, DeviceKind::Absent) => "a card that is not there: no other process uses it".into(),
        (_, DeviceKind::Gpu) => "the driver has not been read yet: context and others unknown".into(),
    }
}

/// A part of the GPU's memory.
struct DriverPart {
    name: String,
    token: Token,
    fill: &'static str,
    bytes: Bytes,
}

/// The parts. Ranks exchange through NCCL, whose buffers are in addition to the context.
fn parts(reading: &Reading, memory: &DriverMemory, ranks: bool) -> Vec<DriverPart> {
    let shares = memory.shares();
    let part = |name: &str, token, fill, bytes| DriverPart { name: name.to_owned(), token, fill, bytes };
    let strangers = reading.processes.iter().filter(|process| !process.own).count();
    let others = match strangers {
        0 => "other processes".to_owned(),
        1 => "1 other process".to_owned(),
        count => format!("{count} other processes"),
    };
    let mut all = vec![part("allocator (reserved)", Token::Allocated, "█", shares.allocator)];
    match shares.context {
        Some(context) => {
            let name = if ranks { "context and NCCL" } else { "context and libraries" };
            all.push(part(name, Token::Workspaces, "▓", context));
            all.push(part(&others, Token::Other, "▒", shares.others));
        }
        None if ranks => all.push(part("context, NCCL, others", Token::Other, "▒", shares.others)),
        None => all.push(part("context, libraries, others", Token::Other, "▒", shares.others)),
    }
    all.push(part("free", Token::FreeMark, "·", shares.free));
    all
}

/// How many rows the pane needs at this width, with its frame.
pub(super) fn wanted_rows(stage: &Stage<'_>, width: u16) -> u16 {
    if stage.view().gpu.as_deref().is_some_and(|reading| reading.memory.is_some()) {
        return 8;
    }
    let lines = pane::wrap(&unknown(stage), usize::from(width.saturating_sub(4))).len();
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2)
}

/// Draws the pane.
pub(super) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let title = vec![span(theme, Token::Title, "the driver's view")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let read = stage.view().gpu.as_deref().and_then(|reading| Some((reading, reading.memory?)));
    let Some((reading, memory)) = read else {
        for (y, line) in (0..inner.height).zip(pane::wrap(&unknown(stage), usize::from(inner.width))) {
            put(inner, y, vec![span(theme, Token::Dim, line)], buf);
        }
        return;
    };
    let total = memory.shares().total();
    let unit = ByteUnit::for_largest(total);
    let mut y = 0;
    let mut row = |mark: Option<(Token, &str)>, name: &str, bytes: Bytes, share: bool| {
        let mark = mark.map(|(token, fill)| Span::styled(format!("{fill} "), Style::new().fg(theme.color(token))));
        let name = span(theme, Token::Text, name.to_owned());
        put(inner, y, mark.into_iter().chain([name]).collect(), buf);
        let share = if share { figures::percent(bytes.get(), total.get()) } else { String::new() };
        let figures = vec![
            span(theme, Token::Strong, unit.figure(bytes)),
            span(theme, Token::Dim, format!(" {} {share:>6}", unit.name())),
        ];
        put_right(inner, y, figures, buf);
        y += 1;
    };
    for part in parts(reading, &memory, !stage.picture.ranks.is_empty()) {
        row(Some((part.token, part.fill)), &part.name, part.bytes, true);
    }
    row(None, "in all", total, false);
    if let Some(kept) = memory.kept_by_driver {
        row(None, "kept by the driver", kept, false);
    }
}

/// Draws the most important figures in one line.
pub(super) fn render_line(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let mut line = vec![span(theme, Token::Title, " driver ")];
    match stage.view().gpu.as_deref().and_then(|reading| Some((reading, reading.memory?))) {
        None => line.push(span(theme, Token::Dim, unknown(stage))),
        Some((reading, memory)) => {
            let unit = ByteUnit::for_largest(memory.shares().total());
            for part in parts(reading, &memory, !stage.picture.ranks.is_empty()) {
                let name = part.name.split(" (").next().unwrap_or_default().replace("context and libraries", "context");
                line.push(span(theme, Token::Dim, format!("{name} ")));
                line.push(span(theme, Token::Text, format!("{}  ", unit.figure(part.bytes))));
            }
            line.push(span(theme, Token::Dim, unit.name()));
        }
    }
    put(area, 0, line, buf);
}
