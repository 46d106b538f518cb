//! The visible rows of a map: labels, and the cells of every segment.

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};

use super::bar::{LABEL, bar, row_label};
use super::coloring::Coloring;
use super::plan::{Plan, RowStart};
use super::strip::Strip;
use crate::pane::{put_at, span};
use crate::theme::{Theme, Token};
use vramlab_model::{SegmentView, TouchedBlock};

/// The content and look of a map.
#[derive(Clone, Debug)]
pub struct Sheet<'a> {
    /// All segments, by address.
    pub segments: &'a [SegmentView],
    /// The places of the segments.
    pub plan: &'a Plan,
    /// The property by which blocks are coloured.
    pub coloring: Coloring,
    /// Blocks that the current op allocated or freed.
    pub touched: &'a [TouchedBlock],
    /// The selection: a segment's index, and bytes in it.
    pub picked: Option<(usize, Range<u64>)>,
    /// The colours.
    pub theme: &'a Theme,
}

/// The area of a map's cells: right of the labels, if there is room for labels.
pub fn cells(area: Rect) -> Rect {
    let label = if area.width > 3 * LABEL { LABEL } else { 0 };
    Rect { x: area.x + label, width: area.width - label, ..area }
}

impl Sheet<'_> {
    /// Draws the rows from `first` on. `divide` makes the strip for some cells of segments that are so many half cells long.
    pub fn draw(
        &self,
        first: usize,
        divide: impl Fn(&[&SegmentView], usize, Range<usize>) -> Strip,
        area: Rect,
        buf: &mut Buffer,
    ) {
        let (plan, theme, bars) = (self.plan, self.theme, cells(area));
        let rows = first..first + usize::from(area.height);
        let mut owners = Owners::of(bars);
        let mut labelled = None;
        let places = plan.places(&rows);
        for (number, &place) in places.iter().enumerate() {
            let members = plan.members(place);
            let segments: Vec<&SegmentView> = self.members(place).collect();
            let mut strip = divide(&segments, place.halves, place.cells_in(&rows, plan.width));
            strip.light(self.touched);
            let picked = self.picked.as_ref().filter(|(of, _)| members.iter().any(|(index, _)| index == of));
            if let Some((segment, bytes)) = picked.and_then(|(of, bytes)| Some((self.segments.get(*of)?, bytes))) {
                strip.pick(segment.address.0 + bytes.start, bytes.end - bytes.start);
            }
            for piece in plan.pieces(place, &rows) {
                let y = u16::try_from(piece.row - first).unwrap_or(u16::MAX);
                if bars.x > area.x && piece.from == 0 && labelled != Some(piece.row) {
                    let begun = places[number..].iter().take_while(|next| next.row == piece.row);
                    self.label(begun.flat_map(|next| self.members(*next)), place.leads, area, y, buf);
                }
                labelled = Some(piece.row);
                let x = u16::try_from(piece.x).unwrap_or(u16::MAX);
                let width = u16::try_from(piece.count).unwrap_or(u16::MAX).min(bars.width.saturating_sub(x));
                let at = Rect { x: bars.x.saturating_add(x), y: bars.y.saturating_add(y), width, height: 1 };
                let halves = strip.cells(piece.from, piece.count);
                bar(halves, self.coloring, theme, at, buf);
                owners.take(at, place.first());
                if bars.x > area.x && picked.is_some() && halves.iter().any(|half| half.picked) {
                    put_at(area, LABEL - 1, y, vec![span(theme, Token::Key, "▸")], buf);
                }
            }
        }
        owners.part(theme, buf);
        for note in plan.notes(&rows) {
            let x = u16::try_from(note.x).unwrap_or(u16::MAX);
            let y = u16::try_from(note.row - first).unwrap_or(u16::MAX);
            put_at(bars, x, y, vec![span(theme, Token::Dim, note.text.clone())], buf);
        }
    }

    fn members(&self, place: RowStart) -> impl Iterator<Item = &SegmentView> + Clone {
        self.plan.members(place).iter().filter_map(|(index, _)| self.segments.get(*index))
    }

    /// Labels a row with the size of the largest segment that begins in it.
    fn label<'a>(
        &self,
        begun: impl Iterator<Item = &'a SegmentView> + Clone,
        leads: bool,
        area: Rect,
        y: u16,
        buf: &mut Buffer,
    ) {
        let least = begun.clone().map(|segment| segment.size).min();
        let Some(largest) = begun.max_by_key(|segment| segment.size) else { return };
        row_label(largest, (leads, least < Some(largest.size)), self.theme, area, y, buf);
    }
}

/// Which place each cell of a map shows, to separate neighbours.
struct Owners {
    area: Rect,
    /// The first segment of each cell's place.
    cells: Vec<Option<usize>>,
}

impl Owners {
    fn of(area: Rect) -> Self {
        Self { area, cells: vec![None; usize::from(area.width) * usize::from(area.height)] }
    }

    /// Notes that the cells of `at` show the place of this first segment.
    fn take(&mut self, at: Rect, first: usize) {
        for position in at.intersection(self.area).positions() {
            let cell = self.number(position);
            self.cells[cell] = Some(first);
        }
    }

    fn number(&self, position: Position) -> usize {
        usize::from(position.y - self.area.y) * usize::from(self.area.width) + usize::from(position.x - self.area.x)
    }

    /// Draws a line above cells that have the same colour as the cells above them but belong to another segment.
    /// Otherwise two would look like one.
    fn part(&self, theme: &Theme, buf: &mut Buffer) {
        if theme.is_colorless() {
            return;
        }
        let area = self.area.intersection(buf.area);
        for y in area.top() + 1..area.bottom().max(area.top() + 1) {
            let touches: Vec<bool> = (area.left()..area.right()).map(|x| self.touch(x, y, buf)).collect();
            let mut x = area.left();
            for run in touches.chunk_by(|one, next| one == next) {
                for x in x..x + run.len() as u16 {
                    // A cell that contains the end of a block already has an edge.
                    if run[0] && run.len() >= LONG && buf[(x, y)].symbol() == WHOLE {
                        buf[(x, y)].set_symbol(PARTED);
                    }
                }
                x += run.len() as u16;
            }
        }
    }

    /// True if a cell and the one above it have one colour but belong to two places.
    fn touch(&self, x: u16, y: u16, buf: &Buffer) -> bool {
        let [above, below] = [y - 1, y].map(|y| Position { x, y });
        let [one, other] = [above, below].map(|position| self.cells[self.number(position)]);
        let colored = [above, below].iter().all(|at| matches!(buf[*at].symbol(), WHOLE | PARTED | ENDING));
        one.is_some() && other.is_some() && one != other && colored && buf[above].fg == buf[below].fg
    }
}

/// A cell of one colour, a cell with a line of the ground at its top, and a cell in which a block ends.
const WHOLE: &str = "█";
const PARTED: &str = "▇";
const ENDING: &str = "▉";
/// Lines separate at least this many cells side by side. Shorter segments have gaps between them.
const LONG: usize = 6;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::map::coloring::Tone;
    use crate::theme::{ColorTier, ThemeCatalog};
    use vramlab_allocator::PoolKind;
    use vramlab_allocator::units::{Address, Bytes, StreamId};
    use vramlab_model::{BlockView, Category, NameId};

    fn segment(number: u64, mebibytes: u64) -> SegmentView {
        let size = Bytes::mib(mebibytes);
        let block = BlockView {
            offset: Bytes::ZERO,
            size,
            requested: size,
            pending: false,
            category: Category::Activation,
            name: NameId::NONE,
            op: NameId::NONE,
            born: 0,
        };
        SegmentView {
            address: Address(number << 40),
            size,
            pool: PoolKind::Large,
            stream: StreamId::DEFAULT,
            expandable: false,
            page: None,
            blocks: Arc::new(vec![block]),
        }
    }

    #[test]
    fn a_segment_is_told_from_the_one_above_it_and_is_in_one_piece() {
        let segments = [segment(0, 80), segment(1, 40)];
        // In rows of 40 cells: two rows of the first segment, one of the second.
        let plan = Plan::at_scale(&segments, &[0, 1], (40, 3), 1 << 20);
        for (tier, symbols) in [(ColorTier::True, ["█", "█", "▇"]), (ColorTier::None, ["A", "A", "A"])] {
            let (theme, _) = ThemeCatalog::default().load("dark", tier).unwrap();
            let sheet = Sheet {
                segments: &segments,
                plan: &plan,
                coloring: Coloring::Category,
                touched: &[],
                picked: None,
                theme: &theme,
            };
            let mut buf = Buffer::empty(Rect::new(0, 0, 40, 3));
            let tone = |_: &SegmentView, block: &BlockView| Some(Tone::of(block.category));
            let divide = |of: &[&SegmentView], count, cells| Strip::new(of.iter().copied(), count, cells, tone);
            sheet.draw(0, divide, buf.area, &mut buf);
            let drawn: Vec<&str> = (0..3).map(|y| buf[(10, y)].symbol()).collect();
            assert_eq!(drawn, symbols, "{tier:?}");
        }
    }
}
