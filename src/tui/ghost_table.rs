//! A table of the run, a ghost and their difference, one row each, with a column per account.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::beside;
use super::stage::Stage;
use crate::drawing::figures::{ByteUnit, short_bytes};
use crate::drawing::pane::{put, put_at, shortened, span};
use crate::drawing::theme::Token;
use crate::model::{BlockView, Ledger, Occupancy, SegmentView};
use crate::units::Bytes;

/// How many rows it takes: a heading, the run, the ghost, the difference.
pub(crate) const ROWS: u16 = 4;
/// The width of the rows' names in cells.
const NAMES: u16 = 6;
/// The greatest width of a column: wider columns separate the figures too far.
const WIDEST: u16 = 16;

/// A column's name, and its figure for a ledger and its largest hole.
type LedgerColumn = (&'static str, fn(&Ledger, Bytes) -> Bytes);

/// The columns in reading order. The last ones are dropped if there is no room.
const COLUMNS: [LedgerColumn; 7] = [
    ("reserved", |ledger, _| ledger.reserved()),
    ("stranded", |ledger, _| ledger.stranded),
    ("largest hole", |_, hole| hole),
    ("releasable", |ledger, _| ledger.releasable),
    ("live", |ledger, _| ledger.live),
    ("rounding", |ledger, _| ledger.rounding),
    ("pending", |ledger, _| ledger.pending),
];

/// Draws the table, with as many columns as fit. If the ghost is not there yet, says why.
pub(crate) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let Some(ghost) = stage.picture.ghost.as_deref() else { return };
    let theme = stage.theme;
    let Some(other) = stage.ghost else {
        let waits = beside::waits(ghost);
        put(area, 0, vec![span(theme, Token::Dim, format!("the ghost {waits}"))], buf);
        return;
    };
    let (own, hole) = (&stage.shown.ledger, stage.shown.largest_hole);
    let unit = ByteUnit::for_largest(own.reserved().max(other.ledger.reserved()));
    let (estimate, first) = if beside::is_estimate(ghost) { ("estimate", NAMES + 3) } else { ("ghost", NAMES) };
    let names = [(Token::Dim, unit.name()), (Token::Title, "run"), (Token::Ghost, estimate), (Token::Dim, "Δ")];
    for (y, (token, name)) in (0..area.height).zip(names) {
        put(area, y, vec![span(theme, token, name)], buf);
    }
    let room = area.width.saturating_sub(first);
    let heads = COLUMNS.iter().map(|(head, _)| head.width()).max().unwrap_or(0);
    let least = u16::try_from(heads + 1).unwrap_or(u16::MAX);
    // If there is room, every column is as wide as the widest head; otherwise each has its own width.
    let each = (room / COLUMNS.len() as u16).min(WIDEST);
    let mut end = first;
    for (head, of) in COLUMNS {
        let own_width = u16::try_from(head.width().max(8) + 2).unwrap_or(u16::MAX);
        end += if each >= least { each } else { own_width };
        if end > area.width {
            break;
        }
        let (run, theirs) = (of(own, hole), of(&other.ledger, other.largest_hole));
        let texts = [
            (Token::Dim, head.to_owned()),
            (Token::Text, figure(run, unit)),
            (Token::Strong, figure(theirs, unit)),
            difference(run, theirs, unit),
        ];
        for (y, (token, text)) in (0..area.height).zip(texts) {
            let width = u16::try_from(text.width()).unwrap_or(u16::MAX);
            put_at(area, end.saturating_sub(width), y, vec![span(theme, token, text)], buf);
        }
    }
}

fn figure(bytes: Bytes, unit: ByteUnit) -> String {
    if bytes == Bytes::ZERO { "·".to_owned() } else { unit.or_smaller(bytes) }
}

/// The difference between the ghost's figure and the run's. Less is good for every account, and live bytes are equal.
fn difference(run: Bytes, ghost: Bytes, unit: ByteUnit) -> (Token, String) {
    let by = unit.or_smaller(Bytes(ghost.get().abs_diff(run.get())));
    match ghost.cmp(&run) {
        std::cmp::Ordering::Less => (Token::Ok, format!("−{by}")),
        std::cmp::Ordering::Equal => (Token::Dim, "same".to_owned()),
        std::cmp::Ordering::Greater => (Token::Warn, format!("+{by}")),
    }
}

/// Lists where the largest blocks are in both, as many as fit: the run's segment, and the ghost's.
pub(crate) fn render_moves(stage: &Stage<'_>, other: &Occupancy, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let run = &stage.shown.segments;
    let mut blocks: Vec<(&SegmentView, &BlockView)> =
        run.iter().flat_map(|segment| segment.blocks.iter().map(move |block| (segment, block))).collect();
    blocks.sort_by_key(|(_, block)| std::cmp::Reverse(block.size));
    let unit = ByteUnit::for_largest(blocks.first().map_or(Bytes::ZERO, |(_, block)| block.size));
    // Both were allocated at the same event.
    let there = |block: &BlockView| {
        other.segments.iter().find_map(|segment| {
            let found = segment.blocks.iter().find(|one| one.born == block.born && block.born > 0)?;
            Some(place(segment, found.offset))
        })
    };
    let rows = usize::from(area.height.saturating_sub(1));
    let places: Vec<[String; 2]> = blocks
        .iter()
        .take(rows)
        .map(|(segment, block)| [place(segment, block.offset), there(block).unwrap_or_else(|| "not there".to_owned())])
        .collect();
    let heads = ["in the run", "in the ghost"];
    let widest = |column: usize| places.iter().map(|places| places[column].width()).max().unwrap_or(0);
    let [run, ghost] = [0, 1].map(|column| widest(column).max(heads[column].width()));
    let head = format!("{:>9}  {:<run$}  {:<ghost$}  largest blocks", unit.name(), heads[0], heads[1]);
    put(area, 0, vec![span(theme, Token::Dim, head)], buf);
    for ((y, (_, block)), [here, there]) in (1..area.height).zip(blocks).zip(places) {
        let name = stage.shown.names.get(block.name);
        let line = vec![
            span(theme, Token::Strong, format!("{:>9}", unit.or_smaller(block.size))),
            span(theme, Token::Text, format!("  {here:<run$}")),
            span(theme, Token::Ghost, format!("  {there:<ghost$}")),
            span(theme, Token::Dim, format!("  {}", if name.is_empty() { block.category.label() } else { name })),
        ];
        put(area, y, shortened(line, usize::from(area.width)), buf);
    }
}

/// The segment and the place in it: `3.1 GiB segment`, `expandable, at 11 GiB`.
fn place(segment: &SegmentView, offset: Bytes) -> String {
    match (segment.expandable, offset) {
        (true, _) => format!("expandable, at {}", short_bytes(offset)),
        (false, Bytes::ZERO) => format!("segment of {}", short_bytes(segment.size)),
        (false, _) => format!("{} segment, at {}", short_bytes(segment.size), short_bytes(offset)),
    }
}
