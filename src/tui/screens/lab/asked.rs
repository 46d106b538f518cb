//! The request that failed, hatched on top of what was allocated when it did.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::chart::Axis;
use crate::drawing::pane::{put_at, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::Profile;
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// What fills it.
const HATCH: &str = "╳";
/// Cells of it.
const WIDTH: u16 = 2;

/// What was allocated when a request failed, and how much it asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    allocated: Bytes,
    pub bytes: Bytes,
}

impl Asked {
    /// The request that failed in the step that is drawn; `None` where none did.
    pub fn of(stage: &Stage<'_>, profile: &Profile) -> Option<Self> {
        let autopsy = stage.picture.autopsy()?;
        let last = profile.samples.last()?.position + profile.stride() * 8;
        let here = (profile.position..=last).contains(&autopsy.position);
        here.then(|| Self { allocated: autopsy.ledger.allocated(), bytes: autopsy.request.rounded })
    }

    /// How high it would have come.
    pub fn top(self) -> Bytes {
        self.allocated + self.bytes
    }

    /// Draws it at the right end of the step, from what was allocated on: the rest of a cell that this takes in part is filled.
    pub fn draw(self, axis: Axis, theme: &Theme, plot: Rect, buf: &mut Buffer) {
        let row = |eighths: u64| u16::try_from(eighths.div_ceil(8)).unwrap_or(u16::MAX).min(plot.height);
        let base = axis.eighths(self.allocated, plot.height);
        let from = row(base);
        // One that is lower than a row is seen all the same.
        let to = row(axis.eighths(self.top(), plot.height)).max(from + 1).min(plot.height);
        let width = WIDTH.min(plot.width);
        let columns = if theme.paints() && !base.is_multiple_of(8) { plot.width - width..plot.width } else { 0..0 };
        for x in columns {
            let cell = &mut buf[(plot.x + x, plot.bottom() - from)];
            if matches!(cell.symbol(), "▁" | "▂" | "▃" | "▄" | "▅" | "▆" | "▇") {
                cell.set_bg(theme.color(Token::Danger));
            }
        }
        for above in from..to {
            for x in plot.width - width..plot.width {
                put_at(plot, x, plot.height - 1 - above, vec![span(theme, Token::Danger, HATCH)], buf);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::figures::Unit;
    use crate::drawing::theme::{Catalog, ColorTier};

    /// Rows that are hatched, from the bottom, and whether the cell that the base takes in part is filled.
    fn drawn(allocated: u64, bytes: u64) -> (Vec<u16>, bool) {
        let (theme, _) = Catalog::default().load("dark", ColorTier::True).unwrap();
        let plot = Rect::new(0, 0, 10, 10);
        let mut buf = Buffer::empty(plot);
        // A cell that an area ends in, where the request begins.
        let base = plot.bottom() - 1 - (allocated / 100) as u16;
        buf[(9, base)].set_symbol("▄");
        let asked = Asked { allocated: Bytes(allocated), bytes: Bytes(bytes) };
        asked.draw(Axis::fitted(Unit::KiB, Bytes(1000), 10), &theme, plot, &mut buf);
        let hatched = (0..10).filter(|row| buf[(9, plot.bottom() - 1 - row)].symbol() == HATCH).collect();
        (hatched, buf[(9, base)].bg == theme.color(Token::Danger))
    }

    #[test]
    fn a_request_stands_on_what_was_allocated_as_high_as_its_bytes() {
        assert_eq!(drawn(500, 300), (vec![5, 6, 7], false));
        assert_eq!(drawn(450, 350), (vec![5, 6, 7], true), "the rest of the cell is its own");
        assert_eq!(drawn(500, 1), (vec![5], false), "one that is lower than a row is seen");
        assert_eq!(drawn(900, 5000), (vec![9], false), "no higher than the chart");
    }
}
