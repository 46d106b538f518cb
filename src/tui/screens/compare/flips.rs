//! What flips would do to the step's peak of the only configuration. Each was tried on a simulated device beside the run.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::ComparisonFrame;
use super::bar::bar;
use super::rows::unit;
use crate::drawing::figures;
use crate::drawing::pane::{put, put_at, put_right, span};
use crate::drawing::theme::Token;
use crate::model::FlipTrials;
use crate::tui::words;
use crate::units::Bytes;

/// The width of a figure and its change, behind the bar.
const FIGURE: u16 = 18;
/// The greatest width of a bar.
const BAR: u16 = 60;

/// The trials, if there is nothing else to compare with and no lesson leaves this to the learner.
fn weighed<'a>(compared: &ComparisonFrame<'a>) -> Option<&'a FlipTrials> {
    let stage = compared.stage;
    let weighed = stage.view().weighed.as_deref().filter(|weighed| !weighed.flips.is_empty())?;
    (compared.is_one() && stage.hold.advises()).then_some(weighed)
}

/// How many rows it needs: a heading, the current run, and each flip.
pub(super) fn wanted(compared: &ComparisonFrame<'_>) -> Option<u16> {
    u16::try_from(weighed(compared)?.flips.len() + 2).ok()
}

/// Draws a row for the current run, and below it one for each flip, the one that saves most first.
pub(super) fn render(compared: &ComparisonFrame<'_>, area: Rect, buf: &mut Buffer) {
    let Some(weighed) = weighed(compared) else { return };
    let (stage, unit) = (compared.stage, unit(compared));
    let theme = stage.theme;
    let heading = format!("peak of a step after a flip, {}, simulated", unit.name());
    put(area, 0, vec![span(theme, Token::Dim, heading)], buf);
    let mut flips: Vec<(String, Bytes)> =
        weighed.flips.iter().map(|(remedy, peak)| (words::remedy(stage, remedy), *peak)).collect();
    flips.sort_by_key(|(_, peak)| *peak);
    let names = flips.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let head = u16::try_from(names).unwrap_or(u16::MAX).clamp(10, area.width.saturating_sub(FIGURE + 10).max(10)) + 2;
    let most = flips.iter().map(|(_, peak)| *peak).max().unwrap_or_default().max(weighed.peak);
    let cells = area.width.saturating_sub(head + FIGURE).min(BAR);
    let more = (flips.len() + 2).saturating_sub(usize::from(area.height));
    if more > 0 {
        put_right(area, 0, vec![span(theme, Token::Dim, format!("{more} more"))], buf);
    }
    let now = std::iter::once(("as it is".to_owned(), weighed.peak));
    for ((name, peak), y) in now.chain(flips).zip(1..area.height) {
        let is_now = y == 1;
        let row = Rect { y: area.y + y, height: 1, width: (head + cells + FIGURE).min(area.width), ..area };
        put(row, 0, vec![span(theme, if is_now { Token::Dim } else { Token::Key }, name)], buf);
        let token = if is_now { Token::Activations } else { Token::Optimizer };
        let share = peak.get() as f64 / most.get().max(1) as f64;
        put_at(row, head, 0, bar(share, cells, theme, token), buf);
        let (token, change) = match figures::change(weighed.peak.get() as f64, peak.get() as f64) {
            Some(change) if !is_now && peak != weighed.peak => {
                (if peak < weighed.peak { Token::Ok } else { Token::Warn }, change)
            }
            _ => (Token::Dim, String::new()),
        };
        let figure = vec![span(theme, Token::Strong, unit.figure(peak)), span(theme, token, format!("{change:>9}"))];
        put_right(row, 0, figure, buf);
    }
}
