//! Where each segment is drawn: one scale for all, in rows of a given width. The area of a stream's pool is as large as
//! its bytes, to a cell. Segments smaller than a cell share a strip, which has a note with their number.

use std::ops::Range;

use unicode_width::UnicodeWidthStr;

use super::order::group;
use crate::figures;
use vramlab_allocator::units::Bytes;
use vramlab_model::SegmentView;

/// The finest scale: a cell is never less than the smallest block.
pub const FINEST: u64 = 1 << 9;

/// The places of all segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Bytes per cell.
    pub scale: u64,
    /// Cells per row.
    pub width: usize,
    /// The number of rows.
    pub rows: usize,
    /// Segments in drawing order, each with its first byte within its place.
    order: Vec<(usize, u64)>,
    /// The places, row by row from left to right.
    places: Vec<RowStart>,
    notes: Vec<StripNote>,
}

/// The place of a segment, or of several that share a strip. It may continue in the rows below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowStart {
    /// The first segment's position in drawing order, and the number of segments.
    first: usize,
    count: usize,
    /// The bytes of all its segments.
    pub bytes: u64,
    /// Its first row.
    pub row: usize,
    /// Its first column.
    pub x: usize,
    /// The number of half cells, and the number of cells that they take.
    pub halves: usize,
    pub cells: usize,
    /// True if it is the first place of its stream and pool.
    pub leads: bool,
}

/// A note behind a strip that says what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripNote {
    pub row: usize,
    pub x: usize,
    pub text: String,
}

/// A segment's cells in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The segment's place.
    pub place: RowStart,
    /// Its row.
    pub row: usize,
    /// Its first column.
    pub x: usize,
    /// The first of the segment's cells in this row.
    pub from: usize,
    /// How many of its cells are in this row.
    pub count: usize,
}

impl RowStart {
    /// The row and column of one of its cells, in rows of `width` cells.
    pub const fn at(&self, cell: usize, width: usize) -> (usize, usize) {
        let along = self.x + cell;
        (self.row + along / width, along % width)
    }

    /// The first segment's position in drawing order, which identifies the place.
    pub const fn first(&self) -> usize {
        self.first
    }

    /// True if several segments share the place.
    pub const fn is_shared(&self) -> bool {
        self.count > 1
    }

    /// The bytes that one of its cells shows.
    pub fn bytes_of(&self, cell: usize) -> Range<u64> {
        let edge =
            |half: usize| (half.min(self.halves) as u128 * u128::from(self.bytes)).div_ceil(self.halves as u128) as u64;
        edge(2 * cell)..edge(2 * cell + 2).max(edge(2 * cell) + 1)
    }

    fn last_row(&self, width: usize) -> usize {
        self.at(self.cells - 1, width).0
    }

    /// The range of its cells in some rows.
    pub fn cells_in(&self, rows: &Range<usize>, width: usize) -> Range<usize> {
        let before = |row: usize| (row.saturating_sub(self.row) * width).saturating_sub(self.x).min(self.cells);
        before(rows.start)..before(rows.end)
    }
}

/// Whether the next segment may begin in the last row of a segment of several rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tails {
    Shared,
    Own,
}

/// Which segments are followed by a blank row, if the next one begins with a row of its own.
#[derive(Clone, Copy)]
enum Gaps {
    /// Segments of several rows.
    Several,
    /// Segments of a whole row or more.
    Whole,
    /// All segments.
    Every,
}

/// From this number of rows on, no two segments in a map touch.
const ROWS_APART: usize = 14;

impl Plan {
    /// Places all segments in `height` rows of `width` cells at the finest scale at which they fit. If there are more
    /// streams and pools than rows, each of these gets a row. If no scale is coarse enough, the coarsest one is used. A
    /// scale is a power of two; with `quarters` it may also lie a quarter, a half or three quarters of the way to the
    /// next power, or be the scale at which the largest segment fills whole rows.
    pub fn of_all(segments: &[SegmentView], order: &[usize], (width, height): (usize, usize), quarters: bool) -> Self {
        if width == 0 || order.is_empty() {
            return Self::default();
        }
        let largest = segments.iter().map(|segment| segment.size.get()).max().unwrap_or(1);
        let total: u128 = segments.iter().map(|segment| u128::from(segment.size.get())).sum();
        let mut sizes: Vec<u64> = segments.iter().map(|segment| segment.size.get()).collect();
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        let groups = order.chunk_by(|one, other| group(&segments[*one]) == group(&segments[*other])).count();
        // Each stream and pool takes a row, visible or not.
        let height = height.max(groups);
        // A finer scale would need more cells than the map has.
        let bound = total / (width as u128 * height as u128);
        let finest = u64::try_from(bound).unwrap_or(u64::MAX >> 1).next_power_of_two() / 2;
        let finest = finest.max(FINEST);
        // A scale that surely needs too many cells is not laid out. Rounding saves at most one cell per group, and a
        // row's end saves the blank.
        let room = (width as u128 + 1) * height as u128 + groups as u128;
        let fits = |scale: u64, air: usize| {
            // At least half a cell of air.
            let apart = sizes.partition_point(|size| *size >= scale) * air / 2;
            if total / u128::from(scale) + apart as u128 > room {
                return None;
            }
            Some(Self::lay_out(segments, order, width, scale, air, Tails::Shared)).filter(|plan| plan.rows <= height)
        };
        let done =
            |plan: Self, air: usize| plan.apart(segments, order, height, air).unwrap_or_else(|| plan.spread(height));
        // If even one cell per segment is too much, there is no air between them.
        for air in [1, 0] {
            let mut scale = finest;
            loop {
                if let Some(plan) = fits(scale, air) {
                    let plan = if quarters { plan.in_whole_rows(segments, order, height, air) } else { plan };
                    return done(plan, air);
                }
                if scale >= largest && air == 0 {
                    return Self::lay_out(segments, order, width, scale, air, Tails::Shared);
                }
                if scale >= largest {
                    break;
                }
                for quarter in if quarters { 5..8 } else { 0..0 } {
                    if let Some(plan) = fits(scale / 4 * quarter, air) {
                        return done(plan.in_whole_rows(segments, order, height, air), air);
                    }
                }
                scale = scale.saturating_mul(2);
            }
        }
        Self::default()
    }

    /// The same plan at a scale at which the largest segment ends at the end of a row, if it now ends within a row and
    /// that scale is not much coarser: the rest of that row would look like a gap.
    fn in_whole_rows(self, segments: &[SegmentView], order: &[usize], height: usize, air: usize) -> Self {
        let largest = segments.iter().map(|segment| segment.size.get()).max().unwrap_or(0);
        let full = usize::try_from(largest / self.scale).unwrap_or(usize::MAX) / self.width;
        // One cell is left for rounding, and for the air behind it.
        let Some(cells) = (full * self.width).checked_sub(1).filter(|cells| *cells > 0) else { return self };
        let scale = figures::scale_from(Bytes(largest.div_ceil(cells as u64))).get();
        if scale <= self.scale || scale > self.scale / 2 * 3 {
            return self;
        }
        let whole = Self::lay_out(segments, order, self.width, scale, air, Tails::Shared);
        if whole.rows <= height { whole } else { self }
    }

    /// In a map of many rows, a plan with a blank row between any two segments, in which no segment begins in another's
    /// last row: touching rows of one colour form a slab in which single segments can't be seen. The scale may be half
    /// as coarse again for that, or twice as coarse if the plan's rows are full.
    fn apart(&self, segments: &[SegmentView], order: &[usize], height: usize, air: usize) -> Option<Self> {
        if height < ROWS_APART {
            return None;
        }
        let coarser = |quarters: u64| figures::scale_from(Bytes(self.scale / 4 * quarters)).get().max(self.scale);
        let plan = |quarters: u64| Self::lay_out(segments, order, self.width, coarser(quarters), air, Tails::Own);
        let wanted = |plan: &Self, quarters: u64| quarters <= 6 || plan.is_full();
        (4..=8).find_map(|quarters| {
            Some(plan(quarters)).filter(|plan| wanted(plan, quarters))?.spread_behind(height, Gaps::Every)
        })
    }

    /// True if at least three quarters of the cells in its rows are drawn.
    fn is_full(&self) -> bool {
        let cells: usize = self.places.iter().map(|place| place.cells).sum();
        4 * cells >= 3 * self.rows * self.width
    }

    /// The same plan with a blank row behind each segment of a whole row or more, or at least behind those of several
    /// rows, if there are enough rows to spare: two segments of one colour would look like one.
    fn spread(self, height: usize) -> Self {
        let spread = [Gaps::Whole, Gaps::Several].into_iter().find_map(|gaps| self.spread_behind(height, gaps));
        spread.unwrap_or(self)
    }

    /// The same plan with these blank rows, if `height` rows have room for them.
    fn spread_behind(&self, height: usize, gaps: Gaps) -> Option<Self> {
        let gaps = self.gaps(gaps);
        if self.rows + gaps.len() > height {
            return None;
        }
        let mut spread = self.clone();
        let above = |row: usize| gaps.partition_point(|gap| *gap < row);
        spread.places.iter_mut().for_each(|place| place.row += above(place.row));
        spread.notes.iter_mut().for_each(|note| note.row += above(note.row));
        spread.rows += gaps.len();
        Some(spread)
    }

    /// The last rows of the places that get a blank row behind them.
    fn gaps(&self, gaps: Gaps) -> Vec<usize> {
        let pairs = self.places.iter().zip(self.places.iter().skip(1));
        let last = |place: &RowStart| place.last_row(self.width);
        let fills = |place: &RowStart| match gaps {
            Gaps::Several => last(place) > place.row,
            // Rounding and air may leave a tenth of the row blank.
            Gaps::Whole => last(place) > place.row || place.cells * 10 >= self.width * 9,
            Gaps::Every => true,
        };
        // A note below its strip occupies the gap.
        let noted = |row: usize| self.notes.iter().any(|note| note.row == row);
        let begins = |one: &RowStart, next: &RowStart| next.row > last(one) && !noted(last(one) + 1);
        pairs.filter(|(one, next)| fills(one) && begins(one, next)).map(|(one, _)| last(one)).collect()
    }

    /// Places all segments at `scale` bytes per cell, with blank rows between them if `height` has room.
    pub fn at_scale(segments: &[SegmentView], order: &[usize], (width, height): (usize, usize), scale: u64) -> Self {
        if width == 0 || order.is_empty() {
            return Self::default();
        }
        let plan = |tails| Self::lay_out(segments, order, width, scale.max(1), 1, tails);
        let apart = (height >= ROWS_APART).then(|| plan(Tails::Own).spread_behind(height, Gaps::Every)).flatten();
        apart.unwrap_or_else(|| plan(Tails::Shared))
    }

    fn lay_out(segments: &[SegmentView], order: &[usize], width: usize, scale: u64, air: usize, tails: Tails) -> Self {
        let mut plan = Self { scale, width, order: Vec::with_capacity(order.len()), ..Self::default() };
        let (mut row, mut x) = (0, 0);
        for alike in order.chunk_by(|one, other| group(&segments[*one]) == group(&segments[*other])) {
            if x > 0 {
                (row, x) = (row + 1, 0);
            }
            let size = |index: &usize| segments[*index].size.get();
            let (large, small): (Vec<usize>, Vec<usize>) = alike.iter().partition(|index| size(index) >= scale);
            let small_bytes: u64 = small.iter().map(size).fold(0, u64::saturating_add);
            let strip = if small.is_empty() { 0 } else { halves(i128::from(small_bytes), scale).max(1) };
            // The strip's rounding is taken from the other segments, so that the whole group is as large as its bytes.
            let beyond = (strip as i128 * i128::from(scale)).div_euclid(2) - i128::from(small_bytes);
            let (mut sum, mut end) = (-beyond, 0);
            for (number, index) in large.iter().enumerate() {
                let bytes = size(index);
                sum += i128::from(bytes);
                let begin = end;
                end = halves(sum, scale).max(begin + 2);
                let (halves, count) = (end - begin, (end - begin).div_ceil(2));
                let behind_tail = plan.places.last().is_some_and(|before| before.last_row(width) > before.row);
                if x > 0 && (count > width - x || tails == Tails::Own && behind_tail) {
                    (row, x) = (row + 1, 0);
                }
                let first = plan.order.len();
                plan.order.push((*index, 0));
                let place = RowStart { first, count: 1, bytes, row, x, halves, cells: count, leads: number == 0 };
                (row, x) = plan.push(place, air);
            }
            if strip > 0 {
                let (halves, strip) = (strip, strip.div_ceil(2));
                let text = note(small.iter().map(size));
                let room = if small.len() > 1 { text.width() + 1 } else { 0 };
                if x > 0 && (strip > width - x || strip + room > width - x && strip + room <= width) {
                    (row, x) = (row + 1, 0);
                }
                let first = plan.order.len();
                let mut base = 0;
                for index in &small {
                    plan.order.push((*index, base));
                    base += size(index);
                }
                let leads = large.is_empty();
                let count = small.len();
                let place = RowStart { first, count, bytes: small_bytes, row, x, halves, cells: strip, leads };
                let last = place.at(strip - 1, width);
                (row, x) = plan.push(place, air);
                if small.len() > 1 {
                    let (at, from) = if last.1 + 1 + room <= width { (last.0, last.1 + 2) } else { (last.0 + 1, 0) };
                    (row, x) = (at, from + text.width());
                    plan.notes.push(StripNote { row: at, x: from, text });
                }
            }
        }
        let noted = plan.notes.last().map_or(0, |note| note.row + 1);
        plan.rows = plan.places.last().map_or(0, |place| place.last_row(width) + 1).max(noted);
        plan
    }

    /// Adds a place, and returns the row and column behind it.
    fn push(&mut self, place: RowStart, air: usize) -> (usize, usize) {
        let (row, last) = place.at(place.cells - 1, self.width);
        self.places.push(place);
        // A half-filled last cell already has half a cell of air.
        let air = if place.halves.is_multiple_of(2) || place.is_shared() { air } else { 0 };
        let x = last + 1 + air;
        if x >= self.width { (row + 1, 0) } else { (row, x) }
    }

    /// The indices of the segments, in drawing order.
    pub fn order(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.order.iter().map(|(index, _)| *index)
    }

    /// The segments of a place, each with its first byte within the place.
    pub fn members(&self, place: RowStart) -> &[(usize, u64)] {
        self.order.get(place.first..place.first + place.count).unwrap_or_default()
    }

    /// The notes in some rows.
    pub fn notes(&self, rows: &Range<usize>) -> impl Iterator<Item = &StripNote> {
        self.notes.iter().filter(|note| rows.contains(&note.row))
    }

    /// The places that have cells in some rows.
    pub fn places(&self, rows: &Range<usize>) -> &[RowStart] {
        let first = self.places.partition_point(|place| place.last_row(self.width) < rows.start);
        let end = self.places.partition_point(|place| place.row < rows.end);
        self.places.get(first..end).unwrap_or_default()
    }

    /// The pieces of a place in some rows, row by row.
    pub fn pieces(&self, place: RowStart, rows: &Range<usize>) -> impl Iterator<Item = Piece> + use<> {
        let (width, cells) = (self.width, place.cells_in(rows, self.width));
        let mut from = cells.start;
        std::iter::from_fn(move || {
            if from >= cells.end {
                return None;
            }
            let (row, x) = place.at(from, width);
            let count = (width - x).min(cells.end - from);
            from += count;
            Some(Piece { place, row, x, from: from - count, count })
        })
    }

    /// A segment's place and its first byte there, by the segment's index.
    pub fn place_of(&self, segment: usize) -> Option<(RowStart, u64)> {
        let at = self.order.iter().position(|(index, _)| *index == segment)?;
        let behind = self.places.partition_point(|place| place.first <= at);
        Some((*self.places.get(behind.checked_sub(1)?)?, self.order[at].1))
    }

    /// The place at a row and column, and the index of its cell there.
    pub fn at(&self, row: usize, x: usize) -> Option<(RowStart, usize)> {
        let found = self.places(&(row..row + 1)).iter().find_map(|place| {
            let mut pieces = self.pieces(*place, &(row..row + 1));
            pieces.find(|piece| (piece.x..piece.x + piece.count).contains(&x))
        })?;
        Some((found.place, found.from + x - found.x))
    }

    /// The row in which a byte of a segment is drawn.
    pub fn row_of(&self, segment: usize, offset: u64) -> Option<usize> {
        let (place, base) = self.place_of(segment)?;
        let half = u128::from(base + offset) * place.halves as u128 / u128::from(place.bytes.max(1));
        let cell = usize::try_from(half / 2).unwrap_or(usize::MAX).min(place.cells - 1);
        Some(place.at(cell, self.width).0)
    }

    /// The segment at a byte of a place, and the byte's offset in the segment.
    pub fn segment_at(&self, place: RowStart, byte: u64) -> Option<(usize, u64)> {
        let members = self.members(place);
        let behind = members.partition_point(|(_, base)| *base <= byte);
        let (segment, base) = *members.get(behind.checked_sub(1)?)?;
        Some((segment, byte - base))
    }
}

/// The half cells that `bytes` take, rounded to the nearest.
fn halves(bytes: i128, scale: u64) -> usize {
    let scale = i128::from(scale);
    usize::try_from((2 * bytes + scale / 2).div_euclid(scale)).unwrap_or(0)
}

/// A note of how many segments there are, and of their sizes.
fn note(sizes: impl Iterator<Item = u64> + Clone) -> String {
    let (least, most) = (sizes.clone().min().unwrap_or(0), sizes.clone().max().unwrap_or(0));
    let most_text = figures::short_bytes(Bytes(most));
    let count = sizes.count();
    if least == most {
        return format!("{most_text} ×{count}");
    }
    let least_text = figures::short_bytes(Bytes(least));
    match (least_text.split_once(' '), most_text.split_once(' ')) {
        (Some((least, unit)), Some((_, same))) if unit == same => format!("{least}–{most_text} ×{count}"),
        _ => format!("{least_text}–{most_text} ×{count}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::map::order::DrawOrder;
    use vramlab_allocator::PoolKind;
    use vramlab_allocator::units::MIB;
    use vramlab_allocator::units::{Address, StreamId};

    fn segment(size: u64, pool: PoolKind) -> SegmentView {
        SegmentView {
            address: Address(0),
            size: Bytes(size),
            pool,
            stream: StreamId::DEFAULT,
            expandable: false,
            page: None,
            blocks: Arc::default(),
        }
    }

    fn by_size(segments: &[SegmentView]) -> Vec<usize> {
        DrawOrder::new(segments, |_, segment| u64::MAX - segment.size.get()).drawn().to_vec()
    }

    fn places(plan: &Plan, rows: usize) -> Vec<(Vec<usize>, usize, usize, usize)> {
        let of = |place: &RowStart| plan.members(*place).iter().map(|(index, _)| *index).collect();
        plan.places(&(0..rows)).iter().map(|place| (of(place), place.row, place.x, place.cells)).collect()
    }

    #[test]
    fn all_segments_are_drawn_on_one_scale() {
        let segments =
            [segment(20 * MIB, PoolKind::Large), segment(40 * MIB, PoolKind::Large), segment(2 * MIB, PoolKind::Small)];
        let order = by_size(&segments);
        let plan = Plan::of_all(&segments, &order, (45, 3), false);
        assert_eq!(plan.scale, MIB);
        assert_eq!(places(&plan, 3), [(vec![1], 0, 0, 40), (vec![0], 1, 0, 20), (vec![2], 2, 0, 2)]);
        assert!(plan.places(&(0..3)).iter().map(|place| place.leads).eq([true, false, true]));
        assert!(Plan::of_all(&segments, &order, (45, 30), false).scale < MIB, "more rows show more");
        assert_eq!(Plan::of_all(&segments, &order, (30, 3), false).scale, 2 * MIB);
        let quarters = [41, 34, 30, 26, 23, 20].map(|width| Plan::of_all(&segments, &order, (width, 3), true));
        let quarters: Vec<u64> = quarters.iter().map(|plan| plan.scale / (MIB / 4)).collect();
        assert!(
            quarters.is_sorted() && quarters.contains(&5) && quarters.iter().all(|quarters| *quarters <= 8),
            "{quarters:?}"
        );
    }

    #[test]
    fn segments_smaller_than_a_cell_share_a_strip_that_says_how_many_they_are() {
        let sizes = [48, 2, 48, 300, 48, 2, 48];
        let segments = sizes.map(|mib| segment(mib * MIB, PoolKind::Large));
        let order: Vec<usize> = (0..7).collect();
        let plan = Plan::at_scale(&segments, &order, (40, 0), 100 * MIB);
        // The small segments: 196 MiB are two cells, 300 MiB are three.
        assert_eq!(places(&plan, 9), [(vec![3], 0, 0, 3), (vec![0, 1, 2, 4, 5, 6], 0, 4, 2)]);
        assert_eq!(plan.notes, [StripNote { row: 0, x: 7, text: "2–48 MiB ×6".into() }]);
        assert_eq!(plan.order().collect::<Vec<_>>(), [3, 0, 1, 2, 4, 5, 6]);
        let (strip, _) = plan.at(0, 5).unwrap();
        assert_eq!(plan.segment_at(strip, 49 * MIB), Some((1, MIB)));
        assert_eq!(plan.place_of(4), Some((strip, 98 * MIB)));
        let same = [2, 2, 2].map(|mib| segment(mib * MIB, PoolKind::Small));
        let plan = Plan::at_scale(&same, &[0, 1, 2], (40, 0), 100 * MIB);
        assert_eq!((plan.notes[0].text.as_str(), plan.rows), ("2 MiB ×3", 1));
        let narrow = Plan::at_scale(&same, &[0, 1, 2], (6, 0), MIB * 3);
        assert_eq!((narrow.notes[0].row, narrow.rows), (1, 2), "in a row of its own where it has no room");
    }

    #[test]
    fn segments_of_a_language_model_look_different() {
        // GPT-2 at 120×40: 25 GiB in segments of 48, 144 and 192 MiB, in 11 rows of 52 cells.
        let sizes = [(48, 60), (144, 40), (192, 90)].into_iter().flat_map(|(mib, count)| vec![mib; count]);
        let segments: Vec<SegmentView> = sizes.map(|mib| segment(mib * MIB, PoolKind::Large)).collect();
        let plan = Plan::of_all(&segments, &by_size(&segments), (52, 11), true);
        let cells = |index: usize| {
            let (place, _) = plan.place_of(index).unwrap();
            if place.is_shared() { 0 } else { place.halves }
        };
        let kinds = [0, 60, 100].map(cells);
        assert!(kinds[0] != kinds[1] && kinds[1] != kinds[2], "{kinds:?} on {}", plan.scale / MIB);
    }

    /// At 2.5 MiB per cell, the finest scale, a segment of 270 MiB would continue for a few cells in a second row, and
    /// the rest of that row would look like a hole.
    #[test]
    fn the_largest_segment_ends_with_its_row() {
        let segments: Vec<SegmentView> = [270, 230, 230, 230].map(|mib| segment(mib * MIB, PoolKind::Large)).into();
        for (width, cells) in [(100, 99), (120, 119), (80, 79)] {
            let plan = Plan::of_all(&segments, &by_size(&segments), (width, 5), true);
            let largest = plan.place_of(0).unwrap().0;
            assert_eq!(largest.cells, cells, "{width} on {}", figures::scale(Bytes(plan.scale)));
        }
    }

    #[test]
    fn segments_of_several_rows_are_apart_where_there_is_room() {
        let segments: Vec<SegmentView> = [100, 100, 100, 20].map(|mib| segment(mib * MIB, PoolKind::Large)).into();
        let order = by_size(&segments);
        let rows = |height: usize| {
            let plan = Plan::of_all(&segments, &order, (51, height), true);
            (plan.places.iter().map(|place| place.row).collect::<Vec<_>>(), plan.rows)
        };
        assert_eq!(rows(9), (vec![0, 2, 4, 6], 7));
        assert_eq!(rows(10), (vec![0, 3, 6, 9], 10));
    }

    #[test]
    fn in_many_rows_no_two_segments_touch_and_none_begins_where_another_ends() {
        for (sizes, height) in [(vec![300; 9], 34), (vec![192; 60], 30), ([3100, 192, 192, 144].repeat(5), 20)] {
            let segments: Vec<SegmentView> = sizes.iter().map(|mib| segment(mib * MIB, PoolKind::Large)).collect();
            let plan = Plan::of_all(&segments, &by_size(&segments), (60, height), true);
            assert!(plan.rows <= height, "{} rows", plan.rows);
            for pair in plan.places.windows(2) {
                let end = pair[0].last_row(60);
                let beside = pair[1].row == end && pair[0].row == end;
                assert!(beside || pair[1].row >= end + 2, "{pair:?}");
            }
        }
        // In few rows segments may touch: otherwise half of the rows would be blank.
        let segments: Vec<SegmentView> = [300; 9].map(|mib| segment(mib * MIB, PoolKind::Large)).into();
        let plan = Plan::of_all(&segments, &by_size(&segments), (60, 10), true);
        assert!(plan.places.windows(2).any(|pair| pair[1].row == pair[0].last_row(60) + 1), "{:?}", plan.places);
    }

    #[test]
    fn a_cell_of_the_finest_scale_is_found_however_many_rows_there_are() {
        let segments = [segment(1 << 40, PoolKind::Large), segment(2 * MIB, PoolKind::Small)];
        let plan = Plan::at_scale(&segments, &by_size(&segments), (100, 0), FINEST);
        assert_eq!(plan.rows, (1 << 31) / 100 + 1 + 41);
        let row = plan.row_of(0, 1 << 39).unwrap();
        assert_eq!(row, (1 << 30) / 100);
        let (place, cell) = plan.at(row, 24).unwrap();
        assert_eq!((plan.members(place), cell), (&[(0, 0)][..], 1 << 30));
        assert_eq!(plan.at(plan.rows - 1, 99), None, "nothing lies behind the last segment");
        assert_eq!(plan.at(plan.rows - 1, 0).map(|(place, _)| plan.members(place)[0].0), Some(1));
    }

    prop_compose! {
        fn any_segments()(parts in prop::collection::vec((0u64..3, any::<bool>(), prop_oneof![Just(2 * MIB), (1u64..200).prop_map(|n| n * 2 * MIB), 1u64..1 << 34]), 0..80)) -> Vec<SegmentView> {
            parts
                .into_iter()
                .map(|(stream, small, size)| {
                    let pool = if small { PoolKind::Small } else { PoolKind::Large };
                    SegmentView { stream: StreamId(stream), ..segment(size, pool) }
                })
                .collect()
        }
    }

    proptest! {
        #[test]
        fn every_segment_has_its_place(quarters: bool, segments in any_segments(), width in 1usize..200, height in 0usize..60) {
            let plan = Plan::of_all(&segments, &by_size(&segments), (width, height), quarters);
            let mut drawn: Vec<usize> = plan.order().collect();
            drawn.sort_unstable();
            prop_assert!(drawn.into_iter().eq(0..segments.len()));
            let mut taken = HashSet::new();
            let mut seen: Vec<(usize, usize)> = Vec::new();
            for row in 0..plan.rows {
                let rows = row..row + 1;
                for piece in plan.places(&rows).iter().flat_map(|place| plan.pieces(*place, &rows)) {
                    prop_assert!(piece.count > 0 && piece.x + piece.count <= width && piece.row == row);
                    match seen.last_mut().filter(|(first, _)| *first == piece.place.first) {
                        Some((_, cells)) => {
                            prop_assert_eq!(piece.from, *cells);
                            *cells += piece.count;
                        }
                        None => {
                            prop_assert_eq!(piece.from, 0);
                            seen.push((piece.place.first, piece.count));
                        }
                    }
                    for x in piece.x..piece.x + piece.count {
                        prop_assert!(taken.insert((piece.row, x)), "two at {} in row {}", x, piece.row);
                        prop_assert_eq!(plan.at(row, x), Some((piece.place, piece.from + x - piece.x)));
                    }
                }
            }
            for note in &plan.notes {
                prop_assert!((note.x..(note.x + note.text.width()).min(width)).all(|x| !taken.contains(&(note.row, x))));
            }
            prop_assert_eq!(plan.places.iter().map(|place| place.count).sum::<usize>(), segments.len());
        }

        #[test]
        fn what_is_drawn_of_a_pool_is_as_large_as_its_bytes(segments in any_segments(), width in 1usize..200, height in 0usize..60, closer in 0u32..3) {
            let plan = Plan::of_all(&segments, &by_size(&segments), (width, height), true);
            let plan = Plan::at_scale(&segments, &by_size(&segments), (width, height), plan.scale >> closer);
            let own = |index: usize| (segments[index].stream, segments[index].pool == PoolKind::Small);
            let mut groups: HashMap<_, (usize, u128)> = HashMap::new();
            for place in &plan.places {
                let members = plan.members(*place);
                let group = groups.entry(own(members[0].0)).or_default();
                prop_assert_eq!(place.cells, place.halves.div_ceil(2));
                group.0 += place.halves;
                for (index, base) in members {
                    prop_assert_eq!(own(*index), own(members[0].0));
                    prop_assert!(base + segments[*index].size.get() <= place.bytes);
                    group.1 += u128::from(segments[*index].size.get());
                }
            }
            for (cells, bytes) in groups.into_values() {
                let exact = bytes as f64 / plan.scale as f64;
                prop_assert!((cells as f64 / 2.0 - exact).abs() <= 1.0, "{} halves for {} cells", cells, exact);
            }
        }
    }
}
