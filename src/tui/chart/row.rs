//! Which parts the cells of a row show.
//!
//! A cell has two colours, and more parts may meet in it; what is blank above the top is one of them. **Two are kept, and the
//! eighths of the others go to the one above them, so that what is lowest keeps its edge**; only what is blank is always kept and
//! takes none, so the top stays. Which two is decided for a whole row at once: those for which its columns together pay least. A
//! part that is hidden costs its eighths; more where its column then shows nothing of it ([`UNSEEN`]), and if it is the lowest of
//! all ([`LOWEST`]), which gives way only below what is blank. One that grows to more than twice its height costs twice what goes
//! beyond. Each that begins or ends in mid-row though its bytes go on costs [`CHANGE`]: it doesn't come and go with every column,
//! and yet gives way where it has become the smaller one for good. Of ways that cost the same the one is taken that hides fewer
//! bytes. What is left of short pieces is then shown as on both sides of it ([`ISLAND`]).

use std::ops::Range;

use super::ink::Ink;
use crate::units::Bytes;

/// What it costs, in eighths of one column, that a part which both of two neighbours hold is shown in one of them.
const CHANGE: usize = 3;
/// What it costs that a column shows nothing of a part.
const UNSEEN: usize = 2;
/// What it costs that the lowest part is not shown, where nothing is blank.
const LOWEST: usize = 2;

/// Columns from which on a part may be shown, or not, though it is otherwise on both sides.
const ISLAND: usize = 5;

/// What an eighth costs: more than the places of hidden parts in the order of their bytes come to.
const EIGHTH: usize = 64;

/// Where a part ends, in units from the bottom, how high it is, and what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub end: u64,
    pub height: Bytes,
    pub ink: Ink,
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackCell {
    pub lower: Ink,
    pub upper: Ink,
    /// How many eighths belong to the lower.
    pub eighths: usize,
}

impl StackCell {
    pub const fn whole(ink: Ink) -> Self {
        Self { lower: ink, upper: ink, eighths: 8 }
    }

    pub fn is_whole(self) -> bool {
        self.eighths == 8 || self.lower == self.upper
    }
}

/// What a row holds of a part.
#[derive(Clone, Copy, Debug)]
struct Part {
    ink: Ink,
    /// Its eighths in this row, and in all rows.
    here: usize,
    whole: usize,
    height: Bytes,
}

impl Part {
    fn is_blank(self) -> bool {
        self.ink == Ink::NOTHING
    }
}

/// What the rows of a column hold, from the bottom up.
pub(super) struct Column {
    parts: Vec<Part>,
    /// Where the parts of each row end.
    ends: Vec<usize>,
    at_floor: bool,
}

impl Column {
    /// `rows` of a column whose parts end there.
    pub fn new(edges: &[Edge], rows: Range<u64>) -> Self {
        let mut column = Self { parts: Vec::new(), ends: Vec::new(), at_floor: rows.start == 0 };
        for row in rows {
            column.add_row(edges, row);
        }
        column
    }

    /// The row of this number.
    pub fn row(&self, number: usize) -> RowParts<'_> {
        let first = number.checked_sub(1).map_or(0, |below| self.ends[below]);
        RowParts { parts: &self.parts[first..self.ends[number]], at_floor: self.at_floor && number == 0 }
    }

    fn add_row(&mut self, edges: &[Edge], row: u64) {
        let (from, to) = (row * 8, (row + 1) * 8);
        let parts = &mut self.parts;
        let first = parts.len();
        let (blank, mut begin) = (Edge { end: to, height: Bytes::ZERO, ink: Ink::NOTHING }, 0);
        for edge in edges.iter().chain([&blank]) {
            if edge.end <= from {
                begin = edge.end;
                continue;
            }
            if begin >= to && parts[first..].last().is_some_and(|last| last.ink != edge.ink) {
                break;
            }
            let whole = edge.end.saturating_sub(begin) as usize;
            let here = edge.end.min(to).saturating_sub(begin.max(from)) as usize;
            begin = edge.end.max(begin);
            match parts[first..].last_mut() {
                Some(last) if last.ink == edge.ink => (last.here, last.whole) = (last.here + here, last.whole + whole),
                _ if here > 0 => parts.push(Part { ink: edge.ink, here, whole, height: edge.height }),
                _ => {}
            }
        }
        self.ends.push(self.parts.len());
    }
}

/// What a row of a column holds: parts from the bottom up, each with its eighths, and what is blank above them.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowParts<'a> {
    parts: &'a [Part],
    /// The first of them is the lowest of its column.
    at_floor: bool,
}

impl RowParts<'_> {
    fn holds(&self, ink: Ink) -> bool {
        self.parts.iter().any(|held| held.ink == ink)
    }

    /// All of it, where it has two parts at most.
    const fn only_way(&self) -> Way {
        Way { low: 0, high: self.parts.len().saturating_sub(1), cost: 0 }
    }

    /// Adds the ways to show it: two of its parts by their places, or the only one twice, and what each costs.
    fn add_ways(&self, ways: &mut Vec<Way>) {
        let count = self.parts.len();
        if count <= 2 {
            ways.push(self.only_way());
            return;
        }
        let pairs = (0..count).flat_map(|low| (low + 1..count).map(move |high| (low, high)));
        ways.extend(pairs.filter_map(|(low, high)| Some(Way { low, high, cost: self.cost(low, high)? })));
    }

    /// Every way to show it where there is a choice, one of its parts alone among them.
    fn all_ways(&self) -> impl Iterator<Item = Way> {
        let count = if self.parts.len() > 2 { self.parts.len() } else { 0 };
        let pairs = (0..count).flat_map(move |low| (low..count).map(move |high| (low, high)));
        pairs.filter_map(|(low, high)| Some(Way { low, high, cost: self.cost(low, high)? }))
    }

    /// What it costs to show no others than these two; nothing where that may not be.
    fn cost(&self, low: usize, high: usize) -> Option<usize> {
        let has_blank = self.parts.last().is_some_and(|part| part.is_blank());
        let hidden = self.parts.iter().enumerate().filter(|(place, _)| *place != low && *place != high);
        let hidden = hidden.map(|(place, part)| {
            if part.is_blank() {
                return None;
            }
            // Below what is blank a thin lowest part would be as high as all of them.
            let is_lowest = place == 0 && self.at_floor;
            let unseen = if part.here == part.whole && !(is_lowest && has_blank) { UNSEEN } else { 0 };
            let lowest = if is_lowest && !has_blank { LOWEST } else { 0 };
            let place = self.parts.iter().filter(|other| other.height < part.height).count();
            Some((part.here + unseen + lowest) * EIGHTH + place)
        });
        let hidden: usize = hidden.sum::<Option<usize>>()?;
        let cell = self.cell(Way { low, high, cost: 0 });
        let grown = |place: usize, eighths: usize| {
            let part = self.parts[place];
            if part.is_blank() { 0 } else { 2 * eighths.saturating_sub(part.here + part.whole) * EIGHTH }
        };
        Some(hidden + grown(low, cell.eighths) + grown(high, 8 - cell.eighths))
    }

    /// What a cell shows that keeps these two.
    fn cell(&self, way: Way) -> StackCell {
        let (Some(lower), Some(upper)) = (self.parts.get(way.low), self.parts.get(way.high)) else {
            return StackCell::whole(Ink::NOTHING);
        };
        if way.low == way.high {
            return StackCell::whole(lower.ink);
        }
        let eighths =
            if upper.is_blank() { 8 - upper.here } else { self.parts[..=way.low].iter().map(|part| part.here).sum() };
        StackCell { lower: lower.ink, upper: upper.ink, eighths }
    }
}

/// One of the ways to show a cell.
#[derive(Clone, Copy, Debug)]
struct Way {
    low: usize,
    high: usize,
    cost: usize,
}

/// What it costs that two neighbours are shown in these ways.
fn changes(one: (RowParts<'_>, Way), other: (RowParts<'_>, Way)) -> usize {
    let shown =
        |(parts, way): (RowParts<'_>, Way), ink| parts.parts[way.low].ink == ink || parts.parts[way.high].ink == ink;
    let only = |one: (RowParts<'_>, Way), other: (RowParts<'_>, Way)| {
        let inks = [one.1.low, one.1.high].map(|place| one.0.parts[place].ink);
        let inks = &inks[usize::from(inks[0] == inks[1])..];
        inks.iter().filter(|ink| other.0.holds(**ink) && !shown(other, **ink)).count()
    };
    CHANGE * EIGHTH * (only(one, other) + only(other, one))
}

/// The cells of a row, column by column: the cheapest way through all of them.
pub(super) fn row_cells(columns: &[RowParts<'_>]) -> Vec<StackCell> {
    // Most rows have nothing to choose.
    if columns.iter().all(|parts| parts.parts.len() <= 2) {
        return columns.iter().map(|parts| parts.cell(parts.only_way())).collect();
    }
    let (mut ways, mut of_column) = (Vec::with_capacity(2 * columns.len()), Vec::with_capacity(columns.len()));
    for parts in columns {
        let first = ways.len();
        parts.add_ways(&mut ways);
        of_column.push(first..ways.len());
    }
    // The least that each way costs with all columns before it, and through which way of the column before.
    let mut costs: Vec<(usize, usize)> = Vec::with_capacity(ways.len());
    for (x, &parts) in columns.iter().enumerate() {
        for (place, way) in ways[of_column[x].clone()].iter().enumerate() {
            let Some(before) = x.checked_sub(1) else {
                costs.push((way.cost, 0));
                continue;
            };
            let first = of_column[before].start;
            let through = of_column[before].clone().map(|from| {
                let all = costs[from].0 + changes((columns[before], ways[from]), (parts, *way));
                // Of ways that cost the same the one that goes straight on.
                (all, from - first != place, from)
            });
            let (cost, _, from) = through.min().unwrap_or_default();
            costs.push((cost + way.cost, from));
        }
    }
    let mut way = of_column.last().and_then(|of_last| of_last.clone().min_by_key(|way| costs[*way].0)).unwrap_or(0);
    let mut chosen = Vec::with_capacity(columns.len());
    for _ in columns {
        chosen.push(ways[way]);
        way = costs[way].1;
    }
    chosen.reverse();
    for x in 1..columns.len() {
        settle(columns, &mut chosen, x);
    }
    columns.iter().zip(chosen).map(|(parts, way)| parts.cell(way)).collect()
}

/// Where a part begins or ends at column `x` though its bytes go on, and does the opposite in fewer than [`ISLAND`] columns, those are
/// shown as their neighbours are on both sides: a few columns of a part, or without it, look as if something had happened there.
fn settle(columns: &[RowParts<'_>], chosen: &mut [Way], x: usize) {
    let shown = |chosen: &[Way], at: usize, ink: Ink| {
        [chosen[at].low, chosen[at].high].iter().any(|place| columns[at].parts[*place].ink == ink)
    };
    for part in columns[x].parts.iter().filter(|part| !part.is_blank()) {
        let ink = part.ink;
        let here = shown(chosen, x, ink);
        if !columns[x - 1].holds(ink) || shown(chosen, x - 1, ink) == here {
            continue;
        }
        let end = (x + 1..columns.len()).take(ISLAND - 1).find(|at| shown(chosen, *at, ink) != here);
        let Some(end) = end.filter(|end| columns[x..=*end].iter().all(|parts| parts.holds(ink))) else { continue };
        let beside = |ink: Ink| shown(chosen, x - 1, ink) || shown(chosen, end, ink);
        let as_beside = |parts: &RowParts<'_>| {
            let fits = |way: &Way| {
                let inks = [way.low, way.high].map(|place| parts.parts[place].ink);
                inks.contains(&ink) != here && inks.into_iter().all(beside)
            };
            parts.all_ways().filter(fits).min_by_key(|way| way.cost)
        };
        if let Some(ways) = columns[x..end].iter().map(as_beside).collect::<Option<Vec<_>>>() {
            chosen[x..end].copy_from_slice(&ways);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::theme::Token;

    const LOW: Ink = Ink { token: Token::Allocated, fill: "█" };
    const THIN: Ink = Ink { token: Token::Stranded, fill: "█" };
    const HIGH: Ink = Ink { token: Token::AllocatedSwing, fill: "█" };

    /// A row of a column whose parts end there.
    fn row(row: u64, ends: &[(u64, Ink)]) -> Column {
        let mut below = 0;
        let edge = |&(end, ink)| Edge { end, height: Bytes(end - std::mem::replace(&mut below, end)), ink };
        Column::new(&ends.iter().map(edge).collect::<Vec<_>>(), row..row + 1)
    }

    fn alone(column: &Column) -> StackCell {
        row_cells(&[column.row(0)])[0]
    }

    #[test]
    fn the_least_gives_way_to_the_part_above_it() {
        let cell = alone(&row(1, &[(11, LOW), (12, THIN), (30, HIGH)]));
        assert_eq!(cell, StackCell { lower: LOW, upper: HIGH, eighths: 3 });
        // Not where nothing of it would be seen at little cost: the upper one has other rows.
        let cell = alone(&row(1, &[(9, LOW), (14, THIN), (30, HIGH)]));
        assert_eq!(cell, StackCell { lower: THIN, upper: HIGH, eighths: 6 });
    }

    #[test]
    fn the_top_stays_and_nothing_grows_to_more_than_twice_its_height_for_a_little() {
        let cell = alone(&row(1, &[(13, LOW), (14, THIN)]));
        assert_eq!(cell, StackCell { lower: LOW, upper: Ink::NOTHING, eighths: 6 });
        let cell = alone(&row(1, &[(11, LOW), (14, THIN)]));
        assert_eq!(cell, StackCell { lower: THIN, upper: Ink::NOTHING, eighths: 6 });
    }

    #[test]
    fn the_lowest_part_is_seen_even_if_it_is_thin() {
        let cell = alone(&row(0, &[(1, LOW), (3, THIN), (30, HIGH)]));
        assert_eq!(cell, StackCell { lower: LOW, upper: HIGH, eighths: 1 });
    }

    #[test]
    fn of_parts_as_high_that_of_more_bytes_is_seen() {
        let edges = |middle| {
            [(1, 3, LOW), (2, middle, THIN), (3, 5, HIGH)].map(|(end, height, ink)| Edge {
                end,
                height: Bytes(height),
                ink,
            })
        };
        for (middle, seen) in [(4, HIGH), (6, THIN)] {
            assert_eq!(alone(&Column::new(&edges(middle), 0..1)).lower, seen, "{middle}");
        }
    }

    #[test]
    fn a_part_that_has_no_room_on_both_sides_is_no_island_between() {
        // What is blank keeps its place, so that one part is left; where the top is in the row above, two could be.
        let edges = |top: u64| [(2, LOW), (5, THIN), (top, HIGH)];
        let [low, high] = [7, 10].map(|top| row(0, &edges(top)));
        for (between, wanted) in [(1, 0), (2, 0), (4, 0), (9, 9)] {
            let mut columns = vec![&low; 6];
            columns.extend(vec![&high; between]);
            columns.extend([&low; 6]);
            let cells = row_cells(&columns.iter().map(|column| column.row(0)).collect::<Vec<_>>());
            let seen: Vec<Ink> =
                [LOW, THIN, HIGH].into_iter().filter(|ink| [cells[0].lower, cells[0].upper].contains(ink)).collect();
            let others = cells
                .iter()
                .filter(|cell| [cell.lower, cell.upper].iter().any(|ink| *ink != Ink::NOTHING && !seen.contains(ink)));
            assert_eq!(others.count(), wanted, "{between} columns: {cells:?}");
        }
    }

    #[test]
    fn one_way_is_kept_until_another_is_better_for_good() {
        let [one, other] = [12, 14].map(|end| row(1, &[(11, LOW), (end, THIN), (20, HIGH)]));
        assert_ne!(alone(&one), alone(&other));
        let shows = |count: usize, columns: &[&Column]| {
            let cells = row_cells(&columns.iter().map(|column| column.row(0)).collect::<Vec<_>>());
            cells.iter().filter(|cell| [cell.lower, cell.upper].contains(&THIN)).count() == count
        };
        let few = [&one, &one, &one, &other, &one, &one, &one];
        assert!(shows(0, &few), "not for a column");
        let mut many = vec![&one; 10];
        many.extend([&other; 10]);
        assert!(shows(10, &many), "for good");
    }
}
