//! Chooses the parts that each cell of a row shows.
//!
//! A cell has two colours, but more than two parts may meet in it; the blank space above a column's top counts as a
//! part. **A cell keeps two of its parts. The share of every other part goes to the kept part above it, so that the
//! lowest part keeps its edge.** Blank space takes no share, and is hidden only if it is an eighth at most, so that the
//! top stays where it is.
//!
//! The choice is made for a whole row at once: the cells with the lowest total cost over all columns.
//!
//! * A hidden part costs its share of the cell, so that a single column hides its smallest parts. It costs more if its
//!   column then shows nothing of the part ([`UNSEEN`]), so that a part which gave way in the row below does not give
//!   way again.
//! * A part that grows to more than twice its height costs twice the excess. Hidden blank space costs [`RAISED`] times its share.
//! * A part that begins or ends within a row although its bytes go on costs [`CHANGE`]. So parts don't come and go with
//!   every column, but give way for good once they have become the smaller ones.
//! * A part of even height is shown in all columns or in none, if that costs little ([`UNEVEN`]). A thin part that most
//!   columns show is shown in all, if that costs little ([`SPARED`]).
//!
//! Short pieces that remain are then shown like the columns on both sides of them ([`ISLAND`]).
//!
//! **A part of constant height stays constant while the heights of columns vary**, because a floor that swells and
//! thins would mean that the parameters do. Drawing it at another height, or hiding it, costs [`CONSTANT`] times as
//! much, and a column's top may move by [`MOVED`] to avoid that.

use std::ops::Range;

use super::ink::Ink;

/// The unit in which parts are compared, as a fraction of an eighth: smaller differences can't be drawn.
pub(super) const FINE: u64 = 1024;
/// A cell in the same unit.
pub(super) const CELL: u64 = 8 * FINE;
/// A share of a cell below a quarter of an eighth is ignored.
const LEAST: u64 = FINE / 4;

/// The cost of showing a part in one of two neighbouring columns when both hold it.
const CHANGE: u64 = 3 * FINE;
/// The most that it costs if a column shows nothing of a part. It costs the part's height, up to this.
const UNSEEN: u64 = 3 * FINE;
/// The cost of each eighth by which an even floor grows.
const STAIR: u64 = 2;
/// The cost of each eighth by which a top is raised.
const RAISED: u64 = 2;
/// By which share more it costs to hide the lowest end of a part that goes on in the rows above.
const BEYOND: u64 = 4;
/// The cost of each eighth by which a part of constant height is drawn higher or lower than its neighbours.
const CONSTANT: u64 = 2;
/// How far the top of a column may move to keep a part constant.
const MOVED: u64 = 3 * FINE;
/// The cost per column that is acceptable to show a part of even height in all columns or in none, instead of in some.
const UNEVEN: u64 = 4 * FINE;
/// The cost per column that is acceptable to show a part, where it is thin, as in the other columns of its row.
const SPARED: u64 = 3 * FINE;
/// The same for a part that is higher than half a row in other columns.
const SPARED_ABOVE: u64 = 5 * FINE / 2;
/// A part that has this many times its share elsewhere can do without this row.
const TALL: u64 = 6;
/// The shortest run of columns in which a part may be shown, or hidden, unlike on both sides of the run.
const ISLAND: usize = 5;
/// The cost per column that is acceptable to remove a shorter run. A part that is much larger there is not an island.
const CALM: u64 = 10 * FINE;

/// Where a part ends, in fine units from the bottom, and its ink. The last edge lies on an eighth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub end: u64,
    pub ink: Ink,
}

/// One of the two sides of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
}

impl Side {
    pub const BOTH: [Self; 2] = [Self::Below, Self::Above];
}

/// What a cell shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StackCell {
    pub lower: Ink,
    pub upper: Ink,
    /// How many eighths belong to the lower part.
    pub eighths: usize,
}

impl StackCell {
    pub const fn whole(ink: Ink) -> Self {
        Self { lower: ink, upper: ink, eighths: 8 }
    }

    pub fn is_whole(self) -> bool {
        self.eighths == 8 || self.lower == self.upper
    }

    pub fn shows(self, ink: Ink) -> bool {
        self.lower == ink || self.upper == ink
    }

    /// How much of the cell this ink has, which it shows, in fine units.
    pub fn of(self, ink: Ink) -> u64 {
        let lower = if self.is_whole() { 8 } else { self.eighths as u64 };
        FINE * if self.lower == ink { lower } else { 8 - lower }
    }
}

/// A row's share of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RowShare {
    ink: Ink,
    /// The part's height in this row, and in all rows. For blank space: as drawn, and by the bytes below it.
    here: u64,
    whole: u64,
    /// The part's height in the rows below, if none of them shows it.
    lost: u64,
}

impl RowShare {
    const fn new(ink: Ink, here: u64, whole: u64) -> Self {
        Self { ink, here, whole, lost: 0 }
    }

    fn is_blank(self) -> bool {
        self.ink == Ink::NOTHING
    }

    /// The cost of a cell that does not show the part; `None` if the cell must show it.
    fn hidden(self) -> Option<u64> {
        if self.is_blank() {
            // Blank space below an eighth may be hidden, because heights are rounded.
            return (self.whole < FINE).then_some(RAISED * self.here);
        }
        // If the column shows nothing else of the part, hiding it costs more.
        let unseen = if self.here + self.lost == self.whole { self.lost + self.whole.min(UNSEEN) } else { 0 };
        Some((self.here + unseen) * self.ink.weight())
    }
}

/// The parts in each row of a column, from the bottom up.
pub(super) struct Column {
    parts: Vec<RowShare>,
    /// The index in `parts` where each row's parts end.
    ends: Vec<usize>,
    at_floor: bool,
}

impl Column {
    /// The `rows` of a column whose parts end at `edges`, and whose bytes all end at `top`.
    pub fn new(edges: &[Edge], top: u64, rows: Range<u64>) -> Self {
        let count = usize::try_from(rows.end.saturating_sub(rows.start)).unwrap_or(0);
        // A part continues in every row above, and some rows begin another.
        let parts = Vec::with_capacity(count + 2 * edges.len());
        let mut column = Self { parts, ends: Vec::with_capacity(count), at_floor: rows.start == 0 };
        for row in rows {
            column.add_row(edges, top, row);
        }
        column
    }

    /// Tells the row above how much of a part that continues there has not been shown so far.
    pub fn pass_on(&mut self, number: usize, shown: StackCell) {
        let end = self.ends[number];
        let [.., last] = self.row(number).parts else { return };
        let (ink, lost) = (last.ink, last.here + last.lost);
        if let Some(above) = self.parts.get_mut(end).filter(|above| above.ink == ink && !shown.shows(ink)) {
            above.lost = lost;
        }
    }

    /// The parts of a row.
    pub fn row(&self, number: usize) -> RowParts<'_> {
        let first = number.checked_sub(1).map_or(0, |below| self.ends[below]);
        RowParts { parts: &self.parts[first..self.ends[number]], at_floor: self.at_floor && number == 0 }
    }

    /// The parts of at least half an eighth in crowded rows that none of the cells shows.
    pub fn hidden(&self, cells: &[StackCell]) -> impl Iterator<Item = Ink> {
        let crowded = (0..self.ends.len()).map(|row| self.row(row)).filter(RowParts::is_crowded);
        let parts = crowded.flat_map(|row| row.parts).filter(|part| !part.is_blank() && part.whole >= FINE / 2);
        let unseen = parts.filter(|part| !cells.iter().any(|cell| cell.shows(part.ink))).map(|part| part.ink);
        let mut inks: Vec<Ink> = unseen.collect();
        inks.dedup();
        inks.into_iter()
    }

    /// The full height of a part in this column.
    pub fn height_of(&self, ink: Ink) -> u64 {
        self.parts.iter().filter(|part| part.ink == ink).map(|part| part.whole).max().unwrap_or(0)
    }

    /// The part beside this one, and its full height.
    pub fn beside(&self, ink: Ink, side: Side) -> Option<(Ink, u64)> {
        let mut parts = self.parts.iter();
        let other = match side {
            Side::Below => {
                let place = parts.position(|part| part.ink == ink)?;
                self.parts[..place].last()
            }
            Side::Above => {
                let place = parts.rposition(|part| part.ink == ink)?;
                self.parts[place + 1..].first().filter(|part| !part.is_blank())
            }
        };
        other.map(|part| (part.ink, part.whole))
    }

    fn add_row(&mut self, edges: &[Edge], top: u64, row: u64) {
        let (from, to) = (row * CELL, (row + 1) * CELL);
        let first = self.parts.len();
        let (mut begin, mut left) = (0, 0);
        for edge in edges {
            if edge.end <= from {
                begin = edge.end.max(begin);
                continue;
            }
            if begin >= to {
                break;
            }
            let inside = begin.clamp(from, to)..edge.end.clamp(from, to);
            let (here, whole) = (inside.end - inside.start, edge.end.saturating_sub(begin));
            // A part that does not cover an eighth by itself is ignored, unless it is the lowest. Its share goes to the part above.
            let eighth = |end: u64| (end + FINE / 2) / FINE;
            let is_drawn = eighth(inside.end) > eighth(inside.start) || begin == 0 && from == 0;
            begin = edge.end.max(begin);
            match self.parts[first..].last_mut() {
                _ if here == 0 => {}
                Some(last) if last.ink == edge.ink => (last.here, last.whole) = (last.here + here, last.whole + whole),
                _ if here < LEAST || !is_drawn => left += here,
                _ => self.parts.push(RowShare::new(edge.ink, here + std::mem::take(&mut left), whole)),
            }
        }
        match self.parts[first..].last_mut() {
            Some(last) => last.here += left,
            // Every part is too small, so the highest one represents them all.
            None if left > 0 => {
                let ink = edges.iter().rev().find(|edge| edge.end > from).map_or(Ink::NOTHING, |edge| edge.ink);
                self.parts.push(RowShare::new(ink, left, left));
            }
            None => {}
        }
        if begin < to {
            let blank = |end: u64| to.saturating_sub(end.max(from));
            self.parts.push(RowShare::new(Ink::NOTHING, blank(begin), blank(top)));
        }
        if let [lowest, above, _, ..] = &mut self.parts[first..]
            && from == 0
            && lowest.here < FINE / 2
        {
            above.here += lowest.here;
            self.parts.remove(first);
        }
        self.ends.push(self.parts.len());
    }
}

/// The parts of a column in one row, from the bottom up, with the blank space above them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowParts<'a> {
    parts: &'a [RowShare],
    /// True if the first part is the lowest of its column.
    at_floor: bool,
}

impl RowParts<'_> {
    /// True if more parts meet in the row than a cell shows.
    pub fn is_crowded(&self) -> bool {
        self.parts.len() > 2
    }

    fn holds(&self, ink: Ink) -> bool {
        self.parts.iter().any(|held| held.ink == ink)
    }

    /// The full height of a part of this row.
    fn height_of(&self, ink: Ink) -> u64 {
        self.parts.iter().filter(|part| part.ink == ink).map(|part| part.whole).max().unwrap_or(0)
    }

    /// The only cell of a row with at most two parts.
    pub fn only_cell(&self) -> StackCell {
        self.cell(0, self.parts.len().saturating_sub(1))
    }

    /// Adds all choices for the cell: two of its parts, or its only part, each with the cost.
    fn add_ways(&self, heights: &Heights, ways: &mut Vec<CellChoice>) {
        let count = self.parts.len();
        if count <= 2 {
            ways.push(CellChoice { cell: self.only_cell(), cost: 0 });
            return;
        }
        let pairs = (0..count).flat_map(|low| (low + 1..count).map(move |high| (low, high)));
        ways.extend(pairs.filter_map(|(low, high)| self.way(low, high, heights)));
        ways.extend(self.top_ways(heights));
    }

    /// All choices if there is more than one, including each part alone.
    fn all_ways(&self, heights: &Heights) -> impl Iterator<Item = CellChoice> {
        let count = if self.parts.len() > 2 { self.parts.len() } else { 0 };
        let pairs = (0..count).flat_map(move |low| (low..count).map(move |high| (low, high)));
        pairs.filter(|(low, _)| !self.parts[*low].is_blank()).filter_map(|(low, high)| self.way(low, high, heights))
    }

    /// Choices for a column that ends in this row which keep a part below the top at the height that it has in
    /// neighbouring columns. Either the largest part above it fills the rest of the row, or nothing above it is shown.
    /// The top is then off by [`MOVED`] at most.
    fn top_ways(&self, heights: &Heights) -> impl Iterator<Item = CellChoice> + use<> {
        let mut ways = Vec::new();
        let last = self.parts.len() - 1;
        if self.parts[last].is_blank() && heights.tops_differ {
            for low in 0..last.saturating_sub(1) {
                let (kept, on_it, blank) = (self.parts[low], &self.parts[low + 1..last], self.parts[last]);
                let Some(most) = on_it.iter().max_by_key(|part| part.here) else { continue };
                let lower: u64 = self.parts[..low].iter().map(|part| part.here).sum();
                let eighths = (lower + kept.here + FINE / 2) / FINE;
                let eighths = eighths.max(u64::from(low == 0 && self.at_floor)) as usize;
                if !heights.is_constant(kept.ink) || !(1..8).contains(&eighths) {
                    continue;
                }
                let hidden = |part: &RowShare| {
                    part.hidden().unwrap_or(0) * if heights.is_constant(part.ink) { CONSTANT } else { 1 }
                };
                let below: u64 = self.parts[..low].iter().map(hidden).sum();
                let cell = |upper| StackCell { lower: kept.ink, upper, eighths };
                let grown = CONSTANT * cell(Ink::NOTHING).of(kept.ink).abs_diff(kept.here).saturating_sub(FINE / 2);
                let others: u64 = on_it.iter().filter(|part| part.ink != most.ink).map(hidden).sum();
                if blank.here <= MOVED {
                    ways.push(CellChoice { cell: cell(most.ink), cost: below + grown + others + RAISED * blank.here });
                }
                let off: u64 = on_it.iter().map(|part| part.here).sum();
                if off <= MOVED {
                    let all: u64 = on_it.iter().map(hidden).sum();
                    ways.push(CellChoice { cell: cell(Ink::NOTHING), cost: below + grown + all + off });
                }
            }
        }
        ways.into_iter()
    }

    /// The choice to show only these two parts; `None` if that is not allowed.
    fn way(&self, low: usize, high: usize, heights: &Heights) -> Option<CellChoice> {
        let cell = self.cell(low, high);
        let costs = self.parts.iter().enumerate().map(|(place, part)| match (part.is_blank(), cell.shows(part.ink)) {
            (true, true) => Some(0),
            (false, true) => {
                let stair = STAIR * self.stair(cell, heights);
                let grown = 2 * cell.of(part.ink).saturating_sub(part.here + part.whole);
                let grown = if heights.is_constant(part.ink) {
                    CONSTANT * cell.of(part.ink).abs_diff(part.here).saturating_sub(FINE / 2)
                } else {
                    grown
                };
                Some(if place == 0 { grown.max(stair) } else { grown })
            }
            (false, false) if heights.is_constant(part.ink) => part.hidden().map(|cost| CONSTANT * cost),
            // The part is much higher in the rows above and is seen there, so everything below it would look too high.
            (false, false) if place > high && heights.are_beyond(*part) => {
                part.hidden().map(|cost| cost + cost / BEYOND)
            }
            (_, false) => part.hidden(),
        });
        Some(CellChoice { cell, cost: costs.sum::<Option<u64>>()? })
    }

    /// By how much a cell draws its column's floor as a stair.
    fn stair(&self, cell: StackCell, heights: &Heights) -> u64 {
        let floor = self.parts.first().filter(|floor| self.at_floor && cell.shows(floor.ink));
        floor.map_or(0, |floor| heights.stair(*floor, cell.of(floor.ink)))
    }

    /// The cell that keeps these two parts, if each has an eighth.
    fn cell(&self, low: usize, high: usize) -> StackCell {
        let (Some(lower), Some(upper)) = (self.parts.get(low), self.parts.get(high)) else {
            return StackCell::whole(Ink::NOTHING);
        };
        let eighths = if upper.is_blank() {
            8 - upper.here / FINE
        } else {
            let below: u64 = self.parts[..=low].iter().map(|part| part.here).sum();
            // The lowest part gets an eighth as soon as it is not ignored.
            ((below + FINE / 2) / FINE).max(u64::from(low == 0 && self.at_floor))
        };
        match eighths {
            _ if low == high => StackCell::whole(lower.ink),
            0 => StackCell::whole(upper.ink),
            8.. => StackCell::whole(lower.ink),
            eighths => StackCell { lower: lower.ink, upper: upper.ink, eighths: eighths as usize },
        }
    }
}

/// A choice of what a cell shows, and its cost.
#[derive(Clone, Copy, Debug)]
struct CellChoice {
    cell: StackCell,
    cost: u64,
}

/// The cost of showing two neighbouring columns in these ways.
fn changes(one: (RowParts<'_>, StackCell), other: (RowParts<'_>, StackCell)) -> u64 {
    if one.1.lower == other.1.lower && one.1.upper == other.1.upper {
        return 0;
    }
    let only = |one: (RowParts<'_>, StackCell), other: (RowParts<'_>, StackCell)| {
        let inks = [one.1.lower, one.1.upper];
        let inks = &inks[usize::from(inks[0] == inks[1])..];
        inks.iter().filter(|ink| other.0.holds(**ink) && !other.1.shows(**ink)).count() as u64
    };
    CHANGE * (only(one, other) + only(other, one))
}

/// The cells of a row, column by column, with the lowest total cost.
pub(super) fn row_cells(columns: &[RowParts<'_>]) -> Vec<StackCell> {
    // Most rows leave nothing to choose.
    if !columns.iter().any(RowParts::is_crowded) {
        return columns.iter().map(RowParts::only_cell).collect();
    }
    let heights = Heights::of(columns);
    let Some((mut chosen, mut cost)) = cheapest(columns, &heights, None) else {
        return columns.iter().map(RowParts::only_cell).collect();
    };
    for ink in heights.even() {
        let holding = columns.iter().filter(|parts| parts.holds(ink)).count() as u64;
        let shown = |cells: &[StackCell]| {
            let both = columns.iter().zip(cells).filter(|(parts, cell)| parts.holds(ink) && cell.shows(ink));
            both.count() as u64
        };
        let mixed = shown(&chosen).min(holding - shown(&chosen));
        let ways = [true, false].into_iter().filter(|_| mixed > 0);
        let ways = ways.filter_map(|all| cheapest(columns, &heights, Some((ink, all))));
        // Columns of two parts always show both.
        let alike =
            ways.filter(|(cells, _)| shown(cells) == 0 || shown(cells) == holding).min_by_key(|(_, cost)| *cost);
        if let Some(alike) = alike.filter(|(_, alike)| *alike <= cost + UNEVEN * mixed) {
            (chosen, cost) = alike;
        }
    }
    for (ink, most) in heights.above_floor() {
        let holding = columns.iter().zip(&chosen).filter(|(parts, _)| parts.holds(ink));
        let (seen, unseen): (Vec<_>, Vec<_>) = holding.partition(|(_, cell)| cell.shows(ink));
        let are_thin = unseen.iter().all(|(parts, _)| parts.height_of(ink) <= CELL / 2);
        if unseen.is_empty() || !are_thin || unseen.len() > 2 * seen.len() {
            continue;
        }
        let spared = if most <= CELL / 2 { SPARED } else { SPARED_ABOVE };
        let most = cost + spared * unseen.len() as u64;
        let floors = |cells: &[StackCell]| {
            let shown = columns.iter().zip(cells).filter(|(parts, cell)| parts.at_floor && heights.is_floor(**cell));
            shown.count()
        };
        let everywhere = cheapest(columns, &heights, Some((ink, true)));
        let everywhere = everywhere.filter(|(cells, cost)| *cost <= most && floors(cells) >= floors(&chosen));
        if let Some(everywhere) = everywhere {
            (chosen, cost) = everywhere;
        }
    }
    for x in 1..columns.len() {
        settle(columns, &heights, &mut chosen, x);
    }
    chosen
}

/// The lowest and highest height of each part over the columns of a row, so that the whole row is treated alike.
struct Heights {
    of: Vec<(Ink, u64, u64)>,
    /// True if columns end at different heights in the row, or some end in it and others above.
    tops_differ: bool,
    /// The lowest part of all columns, if it is the same in all.
    floor: Option<Ink>,
}

impl Heights {
    fn of(columns: &[RowParts<'_>]) -> Self {
        let mut heights: Vec<(Ink, u64, u64)> = Vec::with_capacity(8);
        for part in columns.iter().flat_map(|parts| parts.parts).filter(|part| !part.is_blank()) {
            match heights.iter_mut().find(|(ink, ..)| *ink == part.ink) {
                Some((_, least, most)) => (*least, *most) = (part.whole.min(*least), part.whole.max(*most)),
                None => heights.push((part.ink, part.whole, part.whole)),
            }
        }
        let blank =
            |parts: &RowParts<'_>| parts.parts.last().filter(|part| part.is_blank()).map_or(0, |part| part.here);
        let blanks = || columns.iter().map(blank);
        let tops_differ = blanks().max() > blanks().min().map(|least| least + FINE);
        let floors = || columns.iter().filter(|parts| parts.at_floor).filter_map(|parts| parts.parts.first());
        let floor = floors().find(|part| !part.is_blank()).map(|part| part.ink);
        let floor = floor.filter(|ink| floors().all(|part| part.is_blank() || part.ink == *ink));
        Self { of: heights, tops_differ, floor }
    }

    /// True if the part is about as high in every column although the columns are not: it continues unchanged below
    /// parts that come and go.
    fn is_constant(&self, ink: Ink) -> bool {
        self.tops_differ && self.of.iter().any(|part| part.0 == ink && self.is_even(part))
    }

    /// Thin parts that are about as high in all columns.
    fn even(&self) -> impl Iterator<Item = Ink> {
        let is_thin =
            |&&(ink, _, most): &&(Ink, u64, u64)| most <= if self.floor == Some(ink) { CELL / 2 } else { 2 * FINE };
        self.of.iter().filter(is_thin).filter(|part| self.is_even(part)).map(|(ink, ..)| *ink)
    }

    /// All parts but the floor, and the height of each where it is highest.
    fn above_floor(&self) -> impl Iterator<Item = (Ink, u64)> {
        self.of.iter().map(|(ink, _, most)| (*ink, *most)).filter(|(ink, _)| self.floor != Some(*ink))
    }

    /// True if the cell shows the floor.
    fn is_floor(&self, cell: StackCell) -> bool {
        self.floor.is_some_and(|floor| cell.shows(floor))
    }

    /// True if heights differ by at most a quarter, or by half for a floor of at most a row, which may include gradients.
    fn is_even(&self, &(ink, least, most): &(Ink, u64, u64)) -> bool {
        let is_floor = self.floor == Some(ink) && most <= CELL;
        most - least <= if is_floor { most / 2 } else { most / 4 }
    }

    /// By how much more than an eighth an even floor is drawn above its height: a stair, where another part climbs on it.
    fn stair(&self, floor: RowShare, drawn: u64) -> u64 {
        let is_even = |&(ink, least, most): &(Ink, u64, u64)| ink == floor.ink && most <= CELL && 2 * least >= most;
        if self.of.iter().any(is_even) { drawn.saturating_sub(floor.here + FINE) } else { 0 }
    }

    /// True if the part is much higher in other rows than in this one.
    fn are_beyond(&self, part: RowShare) -> bool {
        self.of.iter().any(|(ink, _, most)| *ink == part.ink && *most > TALL * part.here)
    }
}

/// The cells of all columns with the lowest total cost, and that cost. `alike` may demand that a part is shown, or not,
/// wherever there is a choice. `None` if there are no columns.
fn cheapest(columns: &[RowParts<'_>], heights: &Heights, alike: Option<(Ink, bool)>) -> Option<(Vec<StackCell>, u64)> {
    let (mut ways, mut of_column) = (Vec::with_capacity(2 * columns.len()), Vec::with_capacity(columns.len()));
    for parts in columns {
        let first = ways.len();
        parts.add_ways(heights, &mut ways);
        if let Some((ink, shown)) = alike.filter(|(ink, _)| parts.holds(*ink)) {
            let wanted = |way: &CellChoice| way.cell.shows(ink) == shown && parts.stair(way.cell, heights) == 0;
            let kept: Vec<CellChoice> = ways[first..].iter().copied().filter(wanted).collect();
            // A column of two parts always shows both.
            if !kept.is_empty() {
                ways.truncate(first);
                ways.extend(kept);
            }
        }
        of_column.push(first..ways.len());
    }
    // For each choice, its lowest cost together with all columns before it, and the choice in the column before that leads to it.
    let mut costs: Vec<(u64, usize)> = Vec::with_capacity(ways.len());
    for (x, &parts) in columns.iter().enumerate() {
        for (place, way) in ways[of_column[x].clone()].iter().enumerate() {
            let Some(before) = x.checked_sub(1) else {
                costs.push((way.cost, 0));
                continue;
            };
            let first = of_column[before].start;
            let through = of_column[before].clone().map(|from| {
                let all = costs[from].0 + changes((columns[before], ways[from].cell), (parts, way.cell));
                // Among equal costs, prefer the choice at the same place.
                (all, from - first != place, from)
            });
            let (cost, _, from) = through.min().unwrap_or_default();
            costs.push((cost + way.cost, from));
        }
    }
    let mut way = of_column.last()?.clone().min_by_key(|way| costs[*way].0)?;
    let cost = costs[way].0;
    let mut chosen = Vec::with_capacity(columns.len());
    for _ in columns {
        chosen.push(ways[way].cell);
        way = costs[way].1;
    }
    chosen.reverse();
    Some((chosen, cost))
}

/// If a part begins or ends at column `x` although its bytes go on, and does the opposite fewer than [`ISLAND`] columns
/// later, shows these columns like their neighbours on both sides: a few columns with a part, or without it, look as if
/// something had happened there.
fn settle(columns: &[RowParts<'_>], heights: &Heights, chosen: &mut [StackCell], x: usize) {
    for part in columns[x].parts.iter().filter(|part| !part.is_blank()) {
        let ink = part.ink;
        let here = chosen[x].shows(ink);
        if !columns[x - 1].holds(ink) || chosen[x - 1].shows(ink) == here {
            continue;
        }
        let end = (x + 1..columns.len()).take(ISLAND - 1).find(|at| chosen[*at].shows(ink) != here);
        let Some(end) = end.filter(|end| columns[x..=*end].iter().all(|parts| parts.holds(ink))) else { continue };
        let beside = |ink: Ink| chosen[x - 1].shows(ink) || chosen[end].shows(ink);
        let as_beside = |(parts, chosen): (&RowParts<'_>, &StackCell)| {
            let cost = parts.all_ways(heights).find(|way| way.cell == *chosen).map_or(0, |way| way.cost);
            let fits = |way: &CellChoice| {
                let is_stair = parts.stair(way.cell, heights) > 0;
                way.cell.shows(ink) != here && !is_stair && beside(way.cell.lower) && beside(way.cell.upper)
            };
            let least = parts.all_ways(heights).filter(fits).min_by_key(|way| way.cost);
            least.filter(|way| way.cost <= cost + CALM).map(|way| way.cell)
        };
        if let Some(cells) = columns[x..end].iter().zip(&chosen[x..end]).map(as_beside).collect::<Option<Vec<_>>>() {
            chosen[x..end].copy_from_slice(&cells);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::theme::Token;

    const LOW: Ink = Ink { token: Token::Allocated, fill: "█" };
    const THIN: Ink = Ink { token: Token::Stranded, fill: "█" };
    const HIGH: Ink = Ink { token: Token::AllocatedSwing, fill: "█" };

    /// A row of a column whose parts end at these eighths.
    fn row(row: u64, ends: &[(u64, Ink)]) -> Column {
        column(row, &ends.iter().map(|&(end, ink)| Edge { end: end * FINE, ink }).collect::<Vec<_>>())
    }

    fn column(row: u64, edges: &[Edge]) -> Column {
        Column::new(edges, edges.last().map_or(0, |edge| edge.end), row..row + 1)
    }

    fn alone(column: &Column) -> StackCell {
        row_cells(&[column.row(0)])[0]
    }

    #[test]
    fn the_least_gives_way_to_the_part_above_it() {
        let cell = alone(&row(1, &[(11, LOW), (12, THIN), (30, HIGH)]));
        assert_eq!(cell, StackCell { lower: LOW, upper: HIGH, eighths: 3 });
        // Not if a part would hardly be seen and hiding it costs little: the upper part has other rows.
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
    fn the_lowest_part_has_an_eighth_where_there_is_room_and_gives_way_where_it_is_the_least() {
        let of = |ends: &[(u64, Ink)]| {
            column(0, &ends.iter().map(|&(end, ink)| Edge { end: end * FINE / 16, ink }).collect::<Vec<_>>())
        };
        assert_eq!(alone(&of(&[(5, LOW), (200, HIGH)])), StackCell { lower: LOW, upper: HIGH, eighths: 1 });
        assert_eq!(
            alone(&row(0, &[(1, LOW), (3, THIN), (30, HIGH)])),
            StackCell { lower: THIN, upper: HIGH, eighths: 3 }
        );
        // A floor, the swing above it, and reserved memory above that. The peak is what the row should show.
        assert_eq!(
            alone(&row(0, &[(1, LOW), (4, THIN), (16, HIGH)])),
            StackCell { lower: THIN, upper: HIGH, eighths: 4 }
        );
    }

    #[test]
    fn of_parts_that_are_drawn_alike_that_of_more_bytes_is_seen() {
        // Sixteenths of an eighth, below blank space.
        let edges = |ends: [u64; 3]| {
            ends.into_iter()
                .zip([LOW, THIN, HIGH])
                .map(|(end, ink)| Edge { end: end * FINE / 16, ink })
                .collect::<Vec<_>>()
        };
        for (ends, seen) in [([7, 23, 32], THIN), ([7, 15, 32], HIGH), ([17, 24, 32], LOW)] {
            let cell = alone(&column(0, &edges(ends)));
            assert_eq!(cell, StackCell { lower: seen, upper: Ink::NOTHING, eighths: 2 }, "{ends:?}");
        }
    }

    #[test]
    fn a_floor_goes_on_below_columns_that_end_in_its_row() {
        let tall = row(0, &[(2, LOW), (30, HIGH)]);
        let low = [6, 4, 3].map(|end| row(0, &[(2, LOW), (end, HIGH)]));
        let columns: Vec<&Column> = low.iter().chain([&tall; 12]).chain(&low).collect();
        let cells = row_cells(&columns.iter().map(|column| column.row(0)).collect::<Vec<_>>());
        let is_floor = |cell: &StackCell| cell.lower == LOW && (2..=3).contains(&cell.eighths);
        assert!(cells.iter().all(is_floor), "{cells:?}");
        assert_eq!(
            [0, 1, 2].map(|x| cells[x].upper),
            [HIGH, Ink::NOTHING, Ink::NOTHING],
            "as near as a cell with a floor can be"
        );
    }

    #[test]
    fn what_has_no_say_takes_nothing_from_its_neighbours() {
        // A part of a fiftieth of an eighth that crosses an eighth's edge.
        let edges =
            [(20, LOW), (21, THIN), (90, HIGH), (128, LOW)].map(|(end, ink)| Edge { end: end * FINE / 16, ink });
        let cells: Vec<StackCell> = (0..20).map(|_| alone(&column(0, &edges))).collect();
        assert!(cells.iter().all(|cell| !cell.shows(THIN)), "{cells:?}");
    }

    #[test]
    fn a_part_that_has_no_room_on_both_sides_is_no_island_between() {
        // Three parts meet, and two fit. The top is in the row above, or below blank space. The parts of constant
        // height are shown in all columns.
        let edges = |top: u64| [(2, LOW), (5, THIN), (top, HIGH)];
        let [low, high] = [6, 10].map(|top| row(0, &edges(top)));
        for between in [1, 2, 4, 9] {
            let mut columns = vec![&low; 6];
            columns.extend(vec![&high; between]);
            columns.extend([&low; 6]);
            let cells = row_cells(&columns.iter().map(|column| column.row(0)).collect::<Vec<_>>());
            let seen: Vec<Ink> =
                [LOW, THIN, HIGH].into_iter().filter(|ink| [cells[0].lower, cells[0].upper].contains(ink)).collect();
            let others = cells
                .iter()
                .filter(|cell| [cell.lower, cell.upper].iter().any(|ink| *ink != Ink::NOTHING && !seen.contains(ink)));
            assert_eq!(others.count(), 0, "{between} columns: {cells:?}");
        }
    }

    #[test]
    fn an_even_part_is_seen_all_along_or_nowhere() {
        const ABOVE: Ink = Ink { token: Token::Reserved, fill: "█" };
        const MIDDLE: Ink = Ink { token: Token::Gradients, fill: "█" };
        // A floor of two parts, a part that grows on it, and a high part above.
        let ends = |grown: u64| [(30, LOW), (90, THIN), (90 + grown, MIDDLE), (900 - grown, ABOVE)];
        let of = |ends: [(u64, Ink); 4]| column(0, &ends.map(|(end, ink)| Edge { end: end * FINE / 16, ink }));
        let columns: Vec<Column> = (0..40).map(|x| of(ends(x))).collect();
        let cells = row_cells(&columns.iter().map(|column| column.row(0)).collect::<Vec<_>>());
        let shown = cells.iter().filter(|cell| cell.shows(LOW)).count();
        assert!(shown == 0 || shown == cells.len(), "{cells:?}");
    }

    #[test]
    fn one_way_is_kept_until_another_is_better_for_good() {
        let [one, other] = [12, 14].map(|end| row(1, &[(11, LOW), (end, THIN), (20, HIGH)]));
        assert_ne!(alone(&one), alone(&other));
        let shown = |columns: &[&Column]| {
            let cells = row_cells(&columns.iter().map(|column| column.row(0)).collect::<Vec<_>>());
            cells.iter().filter(|cell| [cell.lower, cell.upper].contains(&THIN)).count()
        };
        let few = [&one, &one, &one, &other, &one, &one, &one];
        assert_eq!(shown(&few), 0, "not for a column");
        let with = |others: usize| {
            let mut columns = vec![&one; 12];
            columns.extend(vec![&other; others]);
            shown(&columns)
        };
        assert_eq!(with(5), 5, "for good");
        assert_eq!(with(12), 24, "and in all columns, if half of them show it");
    }
}
