//! The five accounts in figures, in the colours of the charts.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use crate::drawing::figures::{self, ByteUnit};
use crate::drawing::legend::{Account, accounts, mark};
use crate::drawing::pane::{self, Frame, put, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Ledger, View};
use crate::tui::beside;
use crate::tui::ghost_table;
use crate::tui::stage::Stage;
use crate::tui::when;
use crate::units::Bytes;

/// How many rows the pane needs, with its frame. If there are more, it explains the accounts.
pub(super) fn wanted_rows(stage: &Stage<'_>) -> u16 {
    14 + if stage.picture.ghost.is_some() { 2 } else { 0 }
}

/// How many rows it needs with the explanations.
pub(super) fn most_rows(stage: &Stage<'_>) -> u16 {
    wanted_rows(stage) + 6
}

/// How many rows it needs as lines.
pub(super) fn line_rows(stage: &Stage<'_>) -> u16 {
    if stage.picture.ghost.is_some() { ghost_table::ROWS } else { 2 }
}

/// From this width on shares fit beside a ghost.
const WITH_SHARES: u16 = 50;

/// What each account is, in the same order.
const MEANINGS: [&str; 5] = [
    "live: requested and not yet freed",
    "rounding: size rounding of live blocks",
    "pending: freed, in use on another stream",
    "releasable: empty_cache returns it",
    "stranded: free inside held segments",
];

/// The ledger to compare with: that of the pinned step at its peak, otherwise that of the study's peak; and its name.
fn beside(stage: &Stage<'_>) -> Option<(Ledger, String)> {
    if let Some(pinned) = &stage.picture.pinned {
        return Some((pinned.view.ledger, format!("step {}", pinned.step.step)));
    }
    let study = stage.picture.study.as_deref()?;
    study.peak.map(|peak| (peak.ledger, "at peak".to_owned()))
}

/// A figure in a unit or a smaller one. Zero is left blank, because a dot would look like the mark of releasable bytes.
fn known(bytes: Bytes, unit: ByteUnit) -> String {
    if bytes == Bytes::ZERO { "0".to_owned() } else { unit.or_smaller(bytes) }
}

/// The limit of reserved bytes; in a snapshot without a limit, what is known of it.
fn limit(stage: &Stage<'_>, size: fn(Bytes) -> String) -> String {
    let between = stage.picture.autopsy().and_then(|autopsy| autopsy.unknown_limit());
    match (stage.shown.limit, between) {
        (Some(limit), _) => size(limit),
        (None, Some([least, most])) => {
            let unit = ByteUnit::for_largest(most);
            format!("{}–{} {}", unit.figure(least), unit.figure(most), unit.name())
        }
        (None, None) => "none".to_owned(),
    }
}

/// Draws the pane.
pub(super) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let view: &View = stage.shown;
    let ledger = &view.ledger;
    // At the same moment the two columns would be equal.
    let beside = beside(stage).filter(|(beside, _)| stage.picture.pinned.is_some() || beside != ledger);
    let (peak, name) = beside.map_or((None, String::new()), |(ledger, name)| (Some(ledger), name));
    let largest = ledger.reserved().max(peak.map_or(Bytes::ZERO, |peak| peak.reserved()));
    let unit = ByteUnit::for_largest(largest);
    let title = vec![
        span(theme, Token::Title, "accounts"),
        span(theme, Token::Dim, format!(" · {}", when::words(stage.picture))),
    ];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let ghost = stage.picture.ghost.as_deref();
    let with_shares = ghost.is_none() || inner.width >= WITH_SHARES;
    // The run's figure, its share, the ghost's figure, the run's at its peak: as many columns as fit.
    let columns = |own: Span<'static>, share: &str, other: &str, at_peak: &str| {
        let mut columns = vec![own];
        if with_shares {
            columns.push(span(theme, Token::Dim, format!(" {share:>6}")));
        }
        if ghost.is_some() {
            columns.push(span(theme, Token::Text, format!(" {other:>9}")));
        }
        if peak.is_some() {
            columns.push(span(theme, Token::Dim, format!(" {at_peak:>9}")));
        }
        columns
    };
    let head = span(theme, Token::Dim, format!("{:>9}", unit.name()));
    put_right(inner, 0, columns(head, "of it", "ghost", &name), buf);
    let reserved = ledger.reserved();
    let figures = |bytes: Bytes, other: Option<Bytes>, at_peak: Option<Bytes>| {
        let known = |bytes: Bytes| known(bytes, unit);
        let figure = |bytes: Option<Bytes>| bytes.map_or_else(String::new, known);
        let own = span(theme, Token::Strong, format!("{:>9}", known(bytes)));
        columns(own, &figures::percent(bytes.get(), reserved.get()), &figure(other), &figure(at_peak))
    };
    let other = stage.ghost.map(|ghost| &ghost.ledger);
    let others = other.map(|other| accounts(other, theme));
    let mut y = 1;
    let mut row = |name: Vec<Span<'static>>, figures: Vec<Span<'static>>| {
        put(inner, y, name, buf);
        put_right(inner, y, figures, buf);
        y += 1;
    };
    let then = peak.as_ref().map(|peak| accounts(peak, theme));
    // In the order in which the chart stacks them.
    for (index, account) in accounts(ledger, theme).into_iter().enumerate().rev() {
        let mark = mark(account.ink, theme);
        let at_peak = then.as_ref().map(|then| then[index].bytes);
        let other = others.as_ref().map(|others| others[index].bytes);
        let name = vec![mark, span(theme, Token::Text, format!(" {}", account.name))];
        row(name, figures(account.bytes, other, at_peak));
    }
    let name = |text: &str| vec![span(theme, Token::Text, text.to_owned())];
    row(name("reserved"), figures(reserved, other.map(Ledger::reserved), peak.map(|peak| peak.reserved())));
    row(
        name("allocated"),
        figures(ledger.allocated(), other.map(Ledger::allocated), peak.map(|peak| peak.allocated())),
    );
    let alarm = if ledger.fragmentation() >= 0.25 { Token::Warn } else { Token::Strong };
    let size: fn(Bytes) -> String = if ghost.is_some() { figures::short_bytes } else { figures::bytes };
    let lost = |ledger: &Ledger| figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let hole = stage.ghost.map(|ghost| size(ghost.largest_hole));
    let free = other.map(|other| size(other.largest_free));
    let limit = limit(stage, size);
    for (long, short, token, figure, theirs) in [
        ("limit of reserved", "limit", Token::Strong, limit, None),
        ("fragmentation: stranded of reserved", "fragmentation", alarm, lost(ledger), other.map(lost)),
        ("largest hole", "largest hole", Token::Strong, size(view.largest_hole), hole),
        ("largest free block", "largest free", Token::Strong, size(ledger.largest_free), free),
    ] {
        let (word, figures) = if ghost.is_some() {
            let own = span(theme, token, format!("{figure:>9}"));
            (short, columns(own, "", &theirs.unwrap_or_default(), ""))
        } else {
            (long, vec![span(theme, token, figure)])
        };
        row(vec![span(theme, Token::Dim, word)], figures);
    }
    if let Some(ghost) = ghost {
        let said = stage.ghost.map_or_else(|| beside::waits(ghost), |_| beside::certainty(ghost).to_owned());
        let name = pane::cut(&ghost.conditions.to_string(), usize::from(inner.width).saturating_sub(8));
        row(
            vec![
                span(theme, Token::Ghost, beside::MARK),
                span(theme, Token::Dim, " ghost "),
                span(theme, Token::Text, name),
            ],
            Vec::new(),
        );
        row(vec![span(theme, Token::Dim, format!("  {said}"))], Vec::new());
    }
    if area.height >= most_rows(stage) {
        row(Vec::new(), Vec::new());
        for meaning in MEANINGS.iter().rev() {
            row(vec![span(theme, Token::Dim, *meaning)], Vec::new());
        }
    }
}

/// Draws the accounts in a line or two, or beside those of a ghost.
pub(super) fn render_lines(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let when = when::words(stage.picture);
    let area = Rect { x: area.x + 1.min(area.width), width: area.width.saturating_sub(1), ..area };
    // The ghost's figures are below the run's, column by column.
    if stage.picture.ghost.is_some() {
        return ghost_table::render(stage, area, buf);
    }
    let unit = ByteUnit::for_largest(stage.shown.ledger.reserved());
    let head = vec![span(theme, Token::Title, format!("{when}, {}", unit.name()))];
    pane::flow(lines(head, &stage.shown.ledger, stage.shown.largest_hole, unit, theme), area, area, buf);
}

/// The accounts of a ledger, its stranded share, and its largest hole.
fn lines(
    head: Vec<Span<'static>>,
    ledger: &Ledger,
    hole: Bytes,
    unit: ByteUnit,
    theme: &Theme,
) -> Vec<Vec<Span<'static>>> {
    let entry = |account: Account| {
        vec![
            mark(account.ink, theme),
            span(theme, Token::Dim, format!(" {} ", account.name)),
            span(theme, Token::Text, format!("{:<5}", known(account.bytes, unit))),
        ]
    };
    let share = figures::percent(ledger.stranded.get(), ledger.reserved().get());
    let words = [("stranded of reserved", share), ("largest hole", figures::bytes(hole))];
    let word = |(word, figure): (&str, String)| {
        vec![span(theme, Token::Dim, format!("{word} ")), span(theme, Token::Text, format!("{figure:<4}"))]
    };
    [head].into_iter().chain(accounts(ledger, theme).map(entry)).chain(words.map(word)).collect()
}
