//! The GPU according to its driver: who holds its memory, and how busy it is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::drawing::figures::ByteUnit;
use crate::drawing::pane::{self, Frame, flow, put, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{MemoryShares, Reading};
use crate::units::Bytes;

/// The inner width of a pane that holds all figures in one row.
const ONE_ROW: u16 = 120;
/// The inner width of a pane that holds the legend in one row.
const ONE_LEGEND: u16 = 64;

/// How many rows the pane needs at this width, with its frame. They depend on nothing that changes by itself.
pub(crate) const fn wanted_rows(width: u16) -> u16 {
    match width.saturating_sub(4) {
        ONE_ROW.. => 5,
        ONE_LEGEND.. => 6,
        _ => 7,
    }
}

/// A part of the memory: its glyph (for themes without colours), colour, name and size.
struct GpuMemoryPart {
    glyph: &'static str,
    token: Token,
    label: &'static str,
    bytes: Bytes,
}

fn parts(shares: &MemoryShares) -> Vec<GpuMemoryPart> {
    let allocator =
        GpuMemoryPart { glyph: "█", token: Token::Allocated, label: "allocator", bytes: shares.allocator };
    let free = GpuMemoryPart { glyph: "·", token: Token::FreeMark, label: "free", bytes: shares.free };
    let others = |label| GpuMemoryPart { glyph: "▒", token: Token::Other, label, bytes: shares.others };
    match shares.context {
        Some(bytes) => {
            let context = GpuMemoryPart { glyph: "▓", token: Token::Workspaces, label: "context", bytes };
            vec![allocator, context, others("others"), free]
        }
        None => vec![allocator, others("context and others"), free],
    }
}

/// Draws the pane.
pub(crate) fn render(gpu: &Reading, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let shares = gpu.memory.map(|memory| memory.shares());
    let mut title = vec![span(theme, Token::Title, "GPU")];
    if let Some(shares) = shares {
        let unit = ByteUnit::for_largest(shares.total());
        title.push(span(theme, Token::Strong, format!(" {} {}", unit.figure(shares.total()), unit.name())));
    }
    match held_back(gpu) {
        Some(why) => title.push(span(theme, Token::Warn, format!(" · held back by {why}"))),
        None => title.push(span(theme, Token::Dim, " · as the driver sees it")),
    }
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let mut y = 0;
    if let Some(shares) = shares {
        let parts = parts(&shares);
        bar(&parts, theme, inner, buf);
        let unit = ByteUnit::for_largest(shares.total());
        let entry = |part: &GpuMemoryPart| {
            vec![
                Span::styled(part.glyph, Style::new().fg(theme.color(part.token))),
                span(theme, Token::Text, format!(" {} ", part.label)),
                span(theme, Token::Strong, unit.figure(part.bytes)),
            ]
        };
        let legend_rows = if inner.width >= ONE_LEGEND { 1 } else { 2 };
        flow(parts.iter().map(entry), Rect { y: inner.y + 1, height: legend_rows, ..inner }, inner, buf);
        y = 1 + legend_rows;
    }
    let rest = Rect { y: inner.y + y, height: inner.height.saturating_sub(y), ..inner };
    flow(load(gpu, theme), rest, inner, buf);
}

/// Draws the most important figures in one line.
pub(crate) fn render_line(gpu: &Reading, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut line = vec![span(theme, Token::Title, " GPU")];
    if let Some(shares) = gpu.memory.map(|memory| memory.shares()) {
        let unit = ByteUnit::for_largest(shares.total());
        let figure = |bytes: Bytes| format!("{:.1}", bytes.get() as f64 / unit.bytes() as f64);
        for part in parts(&shares).iter().filter(|part| part.label != "free") {
            line.push(span(theme, Token::Dim, format!(" {} ", part.label)));
            line.push(Span::styled(figure(part.bytes), Style::new().fg(theme.color(part.token))));
        }
        line.push(span(theme, Token::Dim, format!(" of {} {} ·", figure(shares.total()), unit.name())));
    }
    let mut room = usize::from(area.width).saturating_sub(line.iter().map(Span::width).sum());
    let words = [
        gpu.busy.map(|busy| (Token::Text, format!(" {busy} %"))),
        gpu.power.map(|watts| (Token::Text, format!(" {watts:.0} W"))),
        held_back(gpu).map(|why| (Token::Warn, format!(" {why}"))),
        gpu.temperature.map(|degrees| (Token::Text, format!(" {degrees} °C"))),
        gpu.sm_clock.map(|clock| (Token::Text, format!(" {clock} MHz"))),
    ];
    for (token, word) in words.into_iter().flatten() {
        let word = span(theme, token, word);
        if word.width() > room {
            break;
        }
        room -= word.width();
        line.push(word);
    }
    put(area, 0, line, buf);
}

/// The most important reason why clocks are lower than they could be, in words.
fn held_back(gpu: &Reading) -> Option<&'static str> {
    gpu.throttles.first().map(|reason| reason.label())
}

/// Figures of activity, the most important first. Their widths don't change.
fn load(gpu: &Reading, theme: &Theme) -> Vec<Vec<Span<'static>>> {
    let entry = |label: &str, figure: String, unit: &str| {
        let label = if label.is_empty() { String::new() } else { format!("{label} ") };
        let unit = format!(" {unit}");
        vec![span(theme, Token::Dim, label), span(theme, Token::Strong, figure), span(theme, Token::Dim, unit)]
    };
    let percent = |label: &str, share: f32| entry(label, format!("{share:>3.0}"), "%");
    let activity = gpu.activity.unwrap_or_default();
    let clock = |label: &str, clock: u32| entry(label, format!("{clock:>4}"), "MHz");
    let gigabytes = |bytes: Bytes| format!("{:>4.1}", bytes.get() as f64 / 1e9);
    let power = gpu.power.map(|watts| match gpu.power_limit {
        Some(limit) => entry("", format!("{watts:>3.0}"), &format!("of {limit:.0} W")),
        None => entry("", format!("{watts:>3.0}"), "W"),
    });
    let figures = [
        gpu.busy.map(|busy| percent("busy", busy as f32)),
        power,
        gpu.temperature.map(|degrees| entry("", degrees.to_string(), "°C")),
        gpu.sm_clock.map(|mhz| clock("SM", mhz)),
        activity.tensor.map(|share| percent("tensor", share)),
        activity.dram.map(|share| percent("DRAM", share)),
        activity.occupancy.map(|share| percent("occupancy", share)),
        gpu.memory_clock.map(|mhz| clock("memory", mhz)),
        gpu.pcie.map(|pcie| {
            entry("PCIe", format!("{} in {} out", gigabytes(pcie.to_device), gigabytes(pcie.to_host)), "GB/s")
        }),
    ];
    figures.into_iter().flatten().collect()
}

/// Draws a bar of all memory. Every part takes at least a cell, at the expense of free memory.
fn bar(parts: &[GpuMemoryPart], theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut x = 0;
    for (part, cells) in parts.iter().zip(cells(parts, area.width)) {
        let text = part.glyph.repeat(usize::from(cells));
        put_at(area, x, 0, vec![Span::styled(text, Style::new().fg(theme.color(part.token)))], buf);
        x += cells;
    }
}

/// The width of each part. The last part takes the rest.
fn cells(parts: &[GpuMemoryPart], width: u16) -> Vec<u16> {
    let total: u128 = parts.iter().map(|part| u128::from(part.bytes.get())).sum::<u128>().max(1);
    let mut left = width;
    let last = parts.len().saturating_sub(1);
    let cells = parts.iter().enumerate().map(|(index, part)| {
        let rounded = (u128::from(part.bytes.get()) * u128::from(width) + total / 2) / total;
        let wanted = u16::try_from(rounded).unwrap_or(width).max(u16::from(part.bytes > Bytes::ZERO));
        let given = if index == last { left } else { wanted.min(left) };
        left -= given;
        given
    });
    cells.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_and_shows_every_part() {
        let shares = |allocator, context, others, free| {
            let context = Some(Bytes(context));
            MemoryShares { allocator: Bytes(allocator), context, others: Bytes(others), free: Bytes(free) }
        };
        assert_eq!(cells(&parts(&shares(1, 1, 0, 1_000_000)), 40), [1, 1, 0, 38]);
        assert_eq!(cells(&parts(&shares(500, 10, 490, 0)), 40), [20, 1, 19, 0]);
        assert_eq!(cells(&parts(&shares(250, 250, 250, 250)), 40), [10, 10, 10, 10]);
        assert_eq!(cells(&parts(&shares(9, 9, 9, 9)), 2).iter().sum::<u16>(), 2);
        assert_eq!(cells(&parts(&shares(0, 0, 0, 0)), 7), [0, 0, 0, 7]);
    }
}
