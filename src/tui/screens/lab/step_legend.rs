//! The legend of a step's curve, with figures: in the title if there is room, otherwise in rows above the curve.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::earlier::{self, Earlier};
use crate::drawing::chart::{self, Areas, Axis, Ink};
use crate::drawing::figures::ByteUnit;
use crate::drawing::legend;
use crate::drawing::pane::{self, put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Category, Profile, Sample, View};
use crate::units::Bytes;

/// From this width on a title has room for all colours with their figures.
const ROOMY: u16 = 100;
/// The room that the other words of a title take.
const WORDS: usize = 30;
/// From this many rows of the curve on, the legend has a row, and from the next numbers on two and three rows.
const ROWS: [u16; 3] = [6, 13, 18];
/// The same for titles below this width, which don't even have room for the names.
const NARROW: (u16, [u16; 3]) = (64, [6, 7, 10]);

/// Categories that are drawn as one.
struct Band {
    ink: Ink,
    parts: Vec<Part>,
    /// True if any column shows them.
    is_drawn: bool,
}

/// One of the categories of a band.
struct Part {
    name: &'static str,
    /// Where it lies in the stack: 0 is the lowest.
    place: usize,
    /// Its bytes at the moment told, and the most in the step.
    bytes: Bytes,
    most: Bytes,
}

/// The colours of a curve, the one that ever has most bytes first.
pub(super) struct StepLegend {
    bands: Vec<Band>,
    unit: ByteUnit,
}

impl StepLegend {
    /// The legend of a step that peaks at `peak`. Figures are those of the moment `here`, if the user has stopped
    /// there.
    pub fn of(
        (profile, peak): (&Profile, &Sample),
        earlier: Option<&Earlier>,
        here: Option<&View>,
        unit: ByteUnit,
        areas: Option<&Areas>,
        rows: u16,
        theme: &Theme,
    ) -> Self {
        let band = |ink| Band { ink, parts: Vec::new(), is_drawn: true };
        let mut bands: Vec<Band> = Vec::new();
        if let Some(earlier) = earlier {
            let (bytes, most) = (earlier.bytes(), earlier.bytes());
            let parts = vec![Part { name: earlier::LABEL, place: 0, bytes, most }];
            bands.push(Band { parts, ..band(earlier.ink) });
        }
        let drawn_as = |ink: Ink| areas.map_or(Some(ink), |areas| areas.drawn_as(ink));
        let is_joint = |category| {
            let own = legend::ink(category, theme);
            drawn_as(own).is_some_and(|drawn| drawn != own)
        };
        for (category, at_peak, highest) in parts(profile, peak, earlier, rows, is_joint) {
            let own = legend::ink(category, theme);
            // A category that no cell has room for is part of the area below it. It is named there if the area grows by
            // at least an eighth of a row and a quarter of itself.
            let below = || {
                let lower = Category::STACKED.into_iter().take_while(|lower| *lower != category);
                let lower = lower.filter(|lower| drawn_as(legend::ink(*lower, theme)).is_some()).last()?;
                let grows = highest.get().saturating_mul(8 * u64::from(rows)) >= peak.allocated.get()
                    && highest.get().saturating_mul(4) >= most(profile, lower).get();
                drawn_as(legend::ink(lower, theme)).filter(|_| grows)
            };
            let bytes = here.map_or(at_peak, |here| match earlier {
                Some(earlier) => earlier.beyond(here.by_category, category),
                None => here.by_category[category as usize],
            });
            // Otherwise it is listed as unseen if it has 1/32 of the peak.
            let unseen = || (bytes.get().saturating_mul(32) >= peak.allocated.get()).then_some(own);
            let Some(drawn) = drawn_as(own).or_else(below).or_else(unseen) else { continue };
            let place = bands.iter().position(|band| band.ink == drawn).unwrap_or(bands.len());
            if place == bands.len() {
                bands.push(band(drawn));
            }
            let part = Part {
                name: legend::short_label(category),
                place: Category::STACKED.iter().position(|stacked| *stacked == category).unwrap_or_default(),
                bytes,
                most: highest,
            };
            bands[place].parts.push(part);
        }
        for band in &mut bands {
            // From the bottom up, so that a band has the same name everywhere.
            band.parts.sort_by_key(|part| part.place);
            band.is_drawn = areas.is_none_or(|areas| areas.shows(band.ink));
        }
        Self { bands, unit }
    }

    /// How many rows it takes: the fewest in which all names have their figures, if the curve has room for them.
    pub fn rows(&self, area: Rect, inner: Rect, rows: u16, theme: &Theme) -> u16 {
        let most = Self::rows_for(area).into_iter().take_while(|from| rows >= *from).count() as u16;
        if area.width >= ROOMY && self.whole(theme) + WORDS <= usize::from(area.width) {
            return 0;
        }
        let entries: Vec<_> = self.entries(theme).collect();
        (1..most).find(|count| pane::flows(&entries, Self::place(inner, *count))).unwrap_or(most)
    }

    /// From how many rows of a curve on the legend has one row, two, and three.
    const fn rows_for(area: Rect) -> [u16; 3] {
        if area.width < NARROW.0 { NARROW.1 } else { ROWS }
    }

    /// Draws it above a curve. In a row without room for all figures, every name comes first.
    pub fn draw(&self, inner: Rect, rows: u16, theme: &Theme, buf: &mut Buffer) {
        let place = Self::place(inner, rows);
        let cells: usize = self.entries(theme).map(|entry| width(&entry) + 2).sum();
        if rows == 1 && cells > usize::from(place.width) + 2 {
            let line = self.in_title(usize::from(place.width) + 1, theme);
            put_at(inner, place.x - inner.x, place.y - inner.y, line.into_iter().skip(1).collect(), buf);
            return;
        }
        // Every colour gets its name before all get figures.
        let entries: Vec<_> = self.entries(theme).collect();
        let figures =
            (0..=entries.len()).rev().find(|figures| pane::flows(&shortened(&entries, *figures), place)).unwrap_or(0);
        pane::flow(shortened(&entries, figures), place, inner, buf);
    }

    /// As many colours as fit in a title of `room` cells. Each gets its name before one gets its figure.
    pub fn in_title(&self, room: usize, theme: &Theme) -> Vec<Span<'static>> {
        let mut room = room;
        let mut spare = room.saturating_sub(self.names(theme));
        let mut title = Vec::new();
        for band in &self.bands {
            let mut entry = vec![Span::raw(" ")];
            entry.extend(band.name(theme));
            if width(&entry) > room {
                let Some(count) = band.count(theme) else { continue };
                entry.truncate(1);
                entry.extend(count);
            }
            if let Some(figure) = self.figure(band, theme).filter(|figure| figure.width() <= spare) {
                spare -= figure.width();
                entry.push(figure);
            }
            let Some(left) = room.checked_sub(width(&entry)) else { continue };
            room = left;
            title.extend(entry);
        }
        title
    }

    /// Writes names into areas if a title of `shown` has no room for them.
    pub fn name_areas(&self, shown: &[Span<'static>], theme: &Theme, plot: Rect, buf: &mut Buffer) {
        for band in &self.bands {
            let marked = band.name(theme);
            let Some(label) = marked.last() else { continue };
            if shown.iter().any(|span| span.content == label.content) {
                continue;
            }
            let label = label.content.trim_start();
            let with_figure = self.figure(band, theme).map(|figure| format!("{label}{}", figure.content));
            if !with_figure.is_some_and(|full| chart::name_within(band.ink, &full, theme, plot, buf)) {
                chart::name_within(band.ink, label, theme, plot, buf);
            }
        }
    }

    /// The width of all names in a title.
    pub fn names(&self, theme: &Theme) -> usize {
        self.bands.iter().map(|band| 1 + width(&band.name(theme))).sum()
    }

    /// The width of all names and figures in a title.
    pub fn whole(&self, theme: &Theme) -> usize {
        self.entries(theme).map(|entry| 1 + width(&entry)).sum()
    }

    fn entries(&self, theme: &Theme) -> impl Iterator<Item = Vec<Span<'static>>> {
        self.bands.iter().map(|band| {
            let mut entry = band.name(theme);
            entry.extend(self.figure(band, theme));
            entry
        })
    }

    fn figure(&self, band: &Band, theme: &Theme) -> Option<Span<'static>> {
        let bytes = band.bytes();
        if bytes > Bytes::ZERO {
            return Some(span(theme, Token::Text, format!(" {}", self.unit.or_smaller(bytes))));
        }
        // The category is visible elsewhere in the curve.
        let [part] = &band.parts[..] else { return None };
        Some(span(theme, Token::Dim, format!(" ≤{}", self.unit.or_smaller(part.most))))
    }

    fn place(inner: Rect, rows: u16) -> Rect {
        let margin = Axis::WIDTH.min(inner.width);
        Rect { x: inner.x + margin, width: inner.width - margin, height: rows.min(inner.height), ..inner }
    }
}

impl Band {
    /// Its bytes at the moment told.
    fn bytes(&self) -> Bytes {
        Bytes(self.parts.iter().map(|part| part.bytes.get()).sum())
    }

    /// Its mark and its names; an empty mark if no column shows it.
    fn name(&self, theme: &Theme) -> Vec<Span<'static>> {
        let labels: Vec<&str> = self.parts.iter().map(|part| part.name).collect();
        let mark = if self.is_drawn { legend::mark(self.ink, theme) } else { legend::unseen(self.ink, theme) };
        vec![mark, span(theme, Token::Dim, format!(" {}", labels.join("+")))]
    }

    /// Its mark and the number of categories, if there is no room for names.
    fn count(&self, theme: &Theme) -> Option<[Span<'static>; 2]> {
        let more = format!(" {} more", self.parts.len());
        (self.parts.len() > 1).then(|| [legend::mark(self.ink, theme), span(theme, Token::Dim, more)])
    }
}

/// The entries, of which the first `figures` have their figures.
fn shortened(entries: &[Vec<Span<'static>>], figures: usize) -> Vec<Vec<Span<'static>>> {
    let mut shortened = entries.to_vec();
    shortened.iter_mut().skip(figures).for_each(|entry| entry.truncate(2));
    shortened
}

fn width(spans: &[Span<'static>]) -> usize {
    spans.iter().map(Span::width).sum()
}

/// The categories that are visible anywhere in a curve of this many rows, by themselves or as a good part of a joint
/// area, with their bytes at the peak and at most. Those that ever have most come first.
fn parts(
    profile: &Profile,
    peak: &Sample,
    earlier: Option<&Earlier>,
    rows: u16,
    is_joint: impl Fn(Category) -> bool,
) -> Vec<(Category, Bytes, Bytes)> {
    let beyond = |bytes: [Bytes; Category::ALL.len()], category: Category| {
        earlier.map_or(bytes[category as usize], |earlier| earlier.beyond(bytes, category))
    };
    let most = |category| {
        let of = profile.samples.iter().map(|sample| beyond(sample.by_category, category));
        of.max().unwrap_or_default()
    };
    // Half an eighth of a row is drawn.
    let halves = 16 * u64::from(rows.max(1));
    let all = Category::STACKED.map(|category| (category, beyond(peak.by_category, category), most(category)));
    let joint = all.iter().filter(|part| is_joint(part.0)).map(|(.., highest)| *highest).max().unwrap_or_default();
    let is_seen = |(category, _, highest): &(Category, Bytes, Bytes)| {
        highest.get().saturating_mul(halves) >= peak.allocated.get().max(1)
            || is_joint(*category) && highest.get() >= joint.get() / 8
    };
    let mut parts: Vec<(Category, Bytes, Bytes)> = all.into_iter().filter(is_seen).collect();
    parts.sort_by_key(|(_, at_peak, highest)| std::cmp::Reverse((*highest, *at_peak)));
    parts
}

/// The most bytes that a category has in a step.
fn most(profile: &Profile, category: Category) -> Bytes {
    profile.samples.iter().map(|sample| sample.by_category[category as usize]).max().unwrap_or_default()
}
