//! Draws a failed request on top of the memory that was allocated at that time.

use std::ops::RangeInclusive;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::chart::{Axis, EIGHTHS};
use crate::drawing::pane::{put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::Profile;
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// The fill for themes without colours.
const HATCH: &str = "╳";

/// The allocated bytes when a request failed, and the bytes it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RefusedRequest {
    allocated: Bytes,
    pub bytes: Bytes,
}

impl RefusedRequest {
    /// The request that failed after one of these events; `None` if none did.
    pub fn among(stage: &Stage<'_>, events: &RangeInclusive<u64>) -> Option<Self> {
        let autopsy = stage.picture.autopsy()?;
        let here = events.contains(&autopsy.position);
        here.then(|| Self { allocated: autopsy.ledger.allocated(), bytes: autopsy.request.rounded })
    }

    /// The request that failed in the step that is drawn.
    pub fn of(stage: &Stage<'_>, profile: &Profile) -> Option<Self> {
        let last = profile.samples.last()?.position + profile.stride() * 8;
        Self::among(stage, &(profile.position..=last))
    }

    /// The bytes that would have been allocated with it.
    pub fn top(self) -> Bytes {
        self.allocated + self.bytes
    }

    /// Draws the request in column `x` above the allocated bytes, to an eighth of a row. A small request is still visible.
    pub fn draw(self, axis: Axis, x: u16, theme: &Theme, plot: Rect, buf: &mut Buffer) {
        let full = u64::from(plot.height) * 8;
        let base = axis.eighths(self.allocated, plot.height).min(full.saturating_sub(1));
        let top = axis.eighths(self.top(), plot.height).clamp(base + 1, full.max(base + 1));
        let danger = theme.color(Token::Danger);
        for above in base / 8..top.div_ceil(8) {
            let Some(y) = u16::try_from(above).ok().and_then(|above| plot.height.checked_sub(1 + above)) else {
                continue;
            };
            // Eighths of this row below the request, and up to its end.
            let (below, end) = (base.saturating_sub(above * 8), (top - above * 8).min(8));
            if theme.is_colorless() {
                put_at(plot, x, y, vec![span(theme, Token::Danger, HATCH)], buf);
                continue;
            }
            let Some(cell) = buf.cell_mut((plot.x + x, plot.y + y)) else { continue };
            match (below, end) {
                (0, end) => {
                    cell.set_symbol(EIGHTHS[end as usize]).set_style(theme.style(Token::Danger));
                }
                // The area below keeps its part of the cell.
                _ if EIGHTHS[1..8].contains(&cell.symbol()) => {
                    cell.set_bg(danger);
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::figures::ByteUnit;
    use crate::drawing::theme::{ColorTier, ThemeCatalog};

    /// How many eighths of each row the request takes, from the bottom, and how many of the area below.
    fn drawn(allocated: u64, bytes: u64) -> Vec<usize> {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let plot = Rect::new(0, 0, 10, 10);
        let mut buf = Buffer::empty(plot);
        // The area's end and the request's beginning share a cell.
        let (base, eighths) = ((allocated / 800) as u16, (allocated % 800 / 100) as usize);
        buf[(9, plot.bottom() - 1 - base)].set_symbol(EIGHTHS[eighths]);
        let asked = RefusedRequest { allocated: Bytes(allocated), bytes: Bytes(bytes) };
        asked.draw(Axis::fitted(ByteUnit::KiB, Bytes(8000), 10), 9, &theme, plot, &mut buf);
        let danger = theme.color(Token::Danger);
        let taken = |row: u16| {
            let cell = &buf[(9, plot.bottom() - 1 - row)];
            let eighths = EIGHTHS.iter().position(|symbol| *symbol == cell.symbol()).unwrap();
            if cell.bg == danger {
                8 - eighths
            } else if cell.fg == danger {
                eighths
            } else {
                0
            }
        };
        (0..10).map(taken).collect()
    }

    #[test]
    fn a_request_stands_on_what_was_allocated_as_high_as_its_bytes() {
        assert_eq!(drawn(4000, 2400), [0, 0, 0, 0, 0, 8, 8, 8, 0, 0]);
        assert_eq!(drawn(4300, 2000), [0, 0, 0, 0, 0, 5, 8, 7, 0, 0], "the rest of the cell is its own");
        assert_eq!(drawn(4000, 1), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0], "one that is lower is seen");
        assert_eq!(drawn(7200, 5000), [0, 0, 0, 0, 0, 0, 0, 0, 0, 8], "no higher than the chart");
    }
}
