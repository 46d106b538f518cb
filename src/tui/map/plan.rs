//! Where each segment is drawn: one scale for all, in rows of so many cells.

use std::ops::Range;

use crate::allocator::PoolKind;
use crate::model::SegmentView;

/// The finest scale: a cell is no less than the smallest block.
pub(crate) const FINEST: u64 = 1 << 9;
/// The finest scale on which a map of everything begins: a page of the processor's.
const FINEST_OF_ALL: u64 = 1 << 12;

/// Where everything is drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Bytes of a cell.
    pub(crate) scale: u64,
    /// Cells of a row.
    pub(crate) width: usize,
    /// Rows in all.
    pub(crate) rows: usize,
    /// Segments, row by row from left to right.
    places: Vec<Place>,
}

/// Where a segment begins; it goes on over the rows below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Index of the segment.
    pub(crate) segment: usize,
    /// Its first row.
    pub(crate) row: usize,
    /// Its first column.
    pub(crate) x: usize,
    /// Its cells.
    pub(crate) cells: usize,
    /// The first of its stream and pool.
    pub(crate) leads: bool,
}

/// A segment, or the part of one that lies in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The segment's place.
    pub(crate) place: Place,
    /// Its row.
    pub(crate) row: usize,
    /// Its first column.
    pub(crate) x: usize,
    /// The first of the segment's cells that lies here.
    pub(crate) from: usize,
    /// How many of them lie here.
    pub(crate) count: usize,
}

impl Place {
    /// The row and the column of one of its cells, in rows of `width`.
    pub(crate) const fn at(&self, cell: usize, width: usize) -> (usize, usize) {
        let along = self.x + cell;
        (self.row + along / width, along % width)
    }

    fn last_row(&self, width: usize) -> usize {
        self.at(self.cells - 1, width).0
    }

    /// The cells that lie in some rows.
    pub(crate) fn cells_in(&self, rows: &Range<usize>, width: usize) -> Range<usize> {
        let before = |row: usize| (row.saturating_sub(self.row) * width).saturating_sub(self.x).min(self.cells);
        before(rows.start)..before(rows.end)
    }
}

/// Segments by stream and pool, and then by `key`.
pub(crate) fn grouped<K: Ord>(segments: &[SegmentView], key: impl Fn(usize, &SegmentView) -> K) -> Vec<usize> {
    let mut order: Vec<usize> = (0..segments.len()).collect();
    order.sort_by_cached_key(|&index| {
        let segment = &segments[index];
        (segment.stream, segment.pool == PoolKind::Small, segment.expandable, key(index, segment), segment.address)
    });
    order
}

impl Plan {
    /// All segments on the finest scale on which they fit into `height` rows of `width` cells; on the coarsest where none is
    /// coarse enough. A scale is a power of two, or, where so asked, three quarters of one.
    pub(crate) fn of_all(
        segments: &[SegmentView],
        order: &[usize],
        (width, height): (usize, usize),
        quarters: bool,
    ) -> Self {
        if width == 0 || order.is_empty() {
            return Self::default();
        }
        let largest = segments.iter().map(|segment| segment.size.get()).max().unwrap_or(1);
        let total: u128 = segments.iter().map(|segment| u128::from(segment.size.get())).sum();
        // On a finer scale there are more cells than the map has.
        let bound = total / (width as u128 * height.max(1) as u128);
        let finest = u64::try_from(bound).unwrap_or(u64::MAX >> 1).next_power_of_two().max(FINEST_OF_ALL);
        // Where even one cell each is too much, there is no air between them.
        for air in [1, 0] {
            let mut scale = finest;
            loop {
                let plan = Self::lay_out(segments, order, width, scale, air);
                if plan.rows <= height || (air == 0 && scale >= largest) {
                    return plan;
                }
                if scale >= largest {
                    break;
                }
                let three_quarters = scale / 2 * 3;
                if quarters {
                    let plan = Self::lay_out(segments, order, width, three_quarters, air);
                    if plan.rows <= height {
                        return plan;
                    }
                }
                scale = scale.saturating_mul(2);
            }
        }
        Self::default()
    }

    /// All segments on a scale of so many bytes to a cell.
    pub(crate) fn at_scale(segments: &[SegmentView], order: &[usize], width: usize, scale: u64) -> Self {
        if width == 0 || order.is_empty() {
            return Self::default();
        }
        Self::lay_out(segments, order, width, scale.max(1), 1)
    }

    fn lay_out(segments: &[SegmentView], order: &[usize], width: usize, scale: u64, air: usize) -> Self {
        let mut places = Vec::with_capacity(order.len());
        let (mut row, mut x) = (0, 0);
        let mut group = None;
        for &index in order {
            let segment = &segments[index];
            let cells = usize::try_from(segment.size.get().div_ceil(scale)).unwrap_or(usize::MAX).max(1);
            let own = (segment.stream, segment.pool, segment.expandable);
            let leads = group.replace(own) != Some(own);
            if x > 0 && (leads || cells > width - x) {
                (row, x) = (row + 1, 0);
            }
            let place = Place { segment: index, row, x, cells, leads };
            places.push(place);
            let (last, end) = place.at(cells - 1, width);
            (row, x) = (last, end + 1 + air);
            if x >= width {
                (row, x) = (row + 1, 0);
            }
        }
        let rows = places.last().map_or(0, |place| place.last_row(width) + 1);
        Self { scale, width, rows, places }
    }

    /// The segments that have cells in some rows.
    pub(crate) fn places(&self, rows: &Range<usize>) -> &[Place] {
        let first = self.places.partition_point(|place| place.last_row(self.width) < rows.start);
        let end = self.places.partition_point(|place| place.row < rows.end);
        self.places.get(first..end).unwrap_or_default()
    }

    /// What lies in some rows of a segment's place, row by row.
    pub(crate) fn pieces(&self, place: Place, rows: &Range<usize>) -> impl Iterator<Item = Piece> + use<> {
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

    /// Where a segment is, by its index.
    pub(crate) fn place_of(&self, segment: usize) -> Option<&Place> {
        self.places.iter().find(|place| place.segment == segment)
    }

    /// What is drawn in a cell: the segment's place, and which of its cells.
    pub(crate) fn at(&self, row: usize, x: usize) -> Option<(Place, usize)> {
        let found = self.places(&(row..row + 1)).iter().find_map(|place| {
            let mut pieces = self.pieces(*place, &(row..row + 1));
            pieces.find(|piece| (piece.x..piece.x + piece.count).contains(&x))
        })?;
        Some((found.place, found.from + x - found.x))
    }

    /// The row in which a byte of a segment is drawn.
    pub(crate) fn row_of(&self, segment: usize, size: u64, offset: u64) -> Option<usize> {
        let place = self.place_of(segment)?;
        let cell = u128::from(offset) * place.cells as u128 / u128::from(size.max(1));
        let cell = usize::try_from(cell).unwrap_or(usize::MAX).min(place.cells - 1);
        Some(place.at(cell, self.width).0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::units::{Address, Bytes, MIB, StreamId};

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
        grouped(segments, |_, segment| std::cmp::Reverse(segment.size))
    }

    #[test]
    fn all_segments_are_drawn_on_one_scale() {
        let segments =
            [segment(20 * MIB, PoolKind::Large), segment(40 * MIB, PoolKind::Large), segment(2 * MIB, PoolKind::Small)];
        let order = by_size(&segments);
        let plan = Plan::of_all(&segments, &order, (45, 3), false);
        assert_eq!(plan.scale, MIB);
        let places: Vec<_> = plan.places(&(0..3)).iter().map(|p| (p.segment, p.row, p.x, p.cells, p.leads)).collect();
        assert_eq!(places, [(1, 0, 0, 40, true), (0, 1, 0, 20, false), (2, 2, 0, 2, true)]);
        assert!(Plan::of_all(&segments, &order, (45, 30), false).scale < MIB, "more rows show more");
        assert_eq!(Plan::of_all(&segments, &order, (30, 3), false).scale, 2 * MIB);
        assert_eq!(Plan::of_all(&segments, &order, (30, 3), true).scale, MIB / 2 * 3, "between powers of two");
    }

    #[test]
    fn a_cell_of_the_finest_scale_is_found_however_many_rows_there_are() {
        let segments = [segment(1 << 40, PoolKind::Large), segment(2 * MIB, PoolKind::Small)];
        let plan = Plan::at_scale(&segments, &by_size(&segments), 100, FINEST);
        assert_eq!(plan.rows, (1 << 31) / 100 + 1 + 41);
        let row = plan.row_of(0, 1 << 40, 1 << 39).unwrap();
        assert_eq!(row, (1 << 30) / 100);
        let (place, cell) = plan.at(row, 24).unwrap();
        assert_eq!((place.segment, cell), (0, 1 << 30));
        assert_eq!(plan.at(plan.rows - 1, 99), None, "nothing lies behind the last segment");
        assert_eq!(plan.at(plan.rows - 1, 0).map(|(place, _)| place.segment), Some(1));
    }

    proptest! {
        #[test]
        fn every_segment_has_its_place(quarters: bool, sizes in prop::collection::vec((any::<bool>(), 1u64..200), 0..80), width in 1usize..200, height in 0usize..60) {
            let segments: Vec<SegmentView> = sizes
                .into_iter()
                .map(|(small, n)| if small { segment(2 * MIB, PoolKind::Small) } else { segment(n * 2 * MIB, PoolKind::Large) })
                .collect();
            let plan = Plan::of_all(&segments, &by_size(&segments), (width, height), quarters);
            let mut shown = vec![0; segments.len()];
            let mut taken = HashSet::new();
            for row in 0..plan.rows {
                let rows = row..row + 1;
                for piece in plan.places(&rows).iter().flat_map(|place| plan.pieces(*place, &rows)) {
                    prop_assert!(piece.count > 0 && piece.x + piece.count <= width && piece.row == row);
                    prop_assert_eq!(piece.from, shown[piece.place.segment]);
                    shown[piece.place.segment] += piece.count;
                    for x in piece.x..piece.x + piece.count {
                        prop_assert!(taken.insert((piece.row, x)), "two at {} in row {}", x, piece.row);
                        prop_assert_eq!(plan.at(row, x), Some((piece.place, piece.from + x - piece.x)));
                    }
                }
            }
            for (segment, cells) in segments.iter().zip(shown) {
                prop_assert_eq!(cells as u64, segment.size.get().div_ceil(plan.scale));
            }
        }
    }
}
