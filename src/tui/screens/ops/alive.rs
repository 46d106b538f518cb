//! Live blocks by name: at the peak, or since a tag.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use unicode_width::UnicodeWidthStr;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend;
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::Token;
use crate::model::{Study, Survivor};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// From this width on a list has shares.
const WITH_SHARES: u16 = 44;

/// Lists what was alive at the peak, by name.
pub(super) fn at_peak(stage: &Stage<'_>, study: &Study, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let peak = study.peak.map_or(Bytes::ZERO, |peak| peak.allocated);
    let unit = unit_of(&study.at_peak);
    let title =
        vec![span(theme, Token::Title, "alive at the peak"), span(theme, Token::Dim, format!(" · {}", unit.name()))];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    names(stage, &study.at_peak, peak, inner, 0, buf);
}

/// Lists names with their bytes and number of blocks, from `first` on.
fn names(stage: &Stage<'_>, of: &[Survivor], whole: Bytes, area: Rect, first: usize, buf: &mut Buffer) {
    let theme = stage.theme;
    let unit = unit_of(of);
    let seen = &of[first.min(of.len())..];
    let count = |survivor: &Survivor| match survivor.blocks {
        0 | 1 => String::new(),
        blocks => format!(" {blocks}×"),
    };
    // Figures are as wide as the widest of them; the rest is for names.
    let widest =
        |cells: &dyn Fn(&Survivor) -> usize| seen.iter().take(usize::from(area.height)).map(cells).max().unwrap_or(0);
    let (counts, bytes) = (widest(&|one| count(one).width()), widest(&|one| unit.or_smaller(one.bytes).width()) + 1);
    for (y, survivor) in (0..area.height).zip(seen) {
        // In a narrow list names come before shares.
        let shares = if area.width >= WITH_SHARES { 6 } else { 0 };
        let room = usize::from(area.width.saturating_sub(2 + shares as u16)).saturating_sub(counts + bytes);
        let line = vec![
            legend::legend_of(survivor.category, theme),
            span(theme, Token::Text, format!(" {}", pane::cut_name(&survivor.name, room))),
        ];
        put(area, y, line, buf);
        // The style changes twice per row, as in the list of holders, because each change costs bytes.
        let share = figures::percent(survivor.bytes.get(), whole.get());
        let share = if shares > 0 { format!("{share:>shares$}") } else { String::new() };
        let figures = vec![
            span(theme, Token::Text, format!("{:>bytes$}", unit.or_smaller(survivor.bytes))),
            span(theme, Token::Dim, format!("{:>counts$}{share}", count(survivor))),
        ];
        put_right(area, y, figures, buf);
    }
}

/// The unit of a list, chosen by its largest entry.
fn unit_of(names: &[Survivor]) -> ByteUnit {
    ByteUnit::for_largest(names.first().map_or(Bytes::ZERO, |survivor| survivor.bytes))
}

/// Lists what was allocated since the tag and is still alive, and what existed then and is gone.
pub(super) fn since_tag(stage: &Stage<'_>, study: &Study, tag: u64, area: Rect, buf: &mut Buffer) -> (usize, usize) {
    let theme = stage.theme;
    let (survived, gone) = (study.survivors(), study.departed());
    let sum = |of: &[Survivor]| of.iter().map(|survivor| survivor.bytes).sum::<Bytes>();
    let [top, bottom] = area.layout::<2>(&Split::vertical([Constraint::Fill(1), Constraint::Fill(1)]));
    let here = stage.position().map_or_else(|| "now".to_owned(), |position| format!("event {position}"));
    let later = study.end > tag || study.begin == tag;
    let between = if later { format!("event {tag} and {here}") } else { format!("{here} and event {tag}") };
    let mut half = |title: &str, of: &[Survivor], area: Rect, first: usize| {
        let title = vec![
            span(theme, Token::Title, title.to_owned()),
            span(theme, Token::Strong, format!(" {}", figures::bytes(sum(of)))),
            span(theme, Token::Dim, format!(" · {} · between {between}", unit_of(of).name())),
        ];
        let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
        let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
        if of.is_empty() {
            put(inner, 0, vec![span(theme, Token::Dim, "nothing")], buf);
        }
        names(stage, of, sum(of), inner, first, buf);
        usize::from(inner.height)
    };
    let seen = half("allocated since, still alive", &survived, top, stage.scroll.min(survived.len()));
    half("alive before, now gone", &gone, bottom, 0);
    (survived.len(), seen)
}
