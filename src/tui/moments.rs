//! Charts whose columns are moments of a study: the moments of a column, and the time axis below.

use std::ops::Range;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Span;

use crate::drawing::legend;
use crate::drawing::pane::{put_at, put_right, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{OutlineMoment, Phase, Study};

/// The moments of a study in a chart's columns.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a> {
    study: &'a Study,
    width: u16,
}

impl<'a> Columns<'a> {
    pub const fn new(study: &'a Study, width: u16) -> Self {
        Self { study, width }
    }

    /// The indices of the moments that column `x` stands for: at least one, if there are any.
    pub fn moments_of(self, x: u16) -> Range<usize> {
        self.study.moments_in(usize::from(x), usize::from(self.width))
    }

    /// The moment in column `x` with the greatest value of `of`; the last of several.
    pub fn most<K: PartialOrd>(self, x: u16, of: impl Fn(&OutlineMoment) -> K) -> Option<&'a OutlineMoment> {
        let moments = self.study.moments.get(self.moments_of(x))?;
        moments.iter().reduce(|most, moment| if of(moment) >= of(most) { moment } else { most })
    }

    /// The column of a moment.
    pub fn column_of(self, moment: usize) -> u16 {
        u16::try_from(self.study.column_of(moment, usize::from(self.width))).unwrap_or(0)
    }

    /// Writes below the columns, in row `row` of `area`, where phases begin and end; for several steps, where steps
    /// begin. If nothing there has a name, writes the first event and the last.
    pub fn axis_of_time(self, theme: &Theme, area: Rect, row: u16, buf: &mut Buffer) {
        let study = self.study;
        let several = study.steps.len() > 1;
        let places: Vec<(u64, Option<AxisMark>)> = if several {
            study.steps.iter().map(|step| (step.event, Some(AxisMark::Step(step.what)))).collect()
        } else {
            study.phases.iter().map(|place| (place.event, place.what.map(AxisMark::Phase))).collect()
        };
        // Borders between unnamed parts are of no use.
        let places = if places.iter().any(|(_, mark)| mark.is_some()) { places } else { Vec::new() };
        let (mut end, mut named) = (0, false);
        for (index, (event, mark)) in places.iter().enumerate() {
            let x = self.column_of(study.moment_of(*event));
            let next = places.get(index + 1).map_or(self.width, |next| self.column_of(study.moment_of(next.0)));
            // The room up to the next mark. A step's number may extend over marks that are left out.
            let room = usize::from(if several { self.width } else { next }.saturating_sub(x));
            if x < end || room < 2 {
                continue;
            }
            let Some(mark) = mark else {
                // A named part ends here.
                if std::mem::take(&mut named) {
                    end = put_at(area, x, row, vec![span(theme, Token::Dim, "│")], buf);
                }
                continue;
            };
            let (text, style) = match mark {
                AxisMark::Step(step) => (step.to_string(), theme.style(Token::Dim)),
                AxisMark::Phase(phase) => {
                    let style = Style::new().fg(theme.color(Token::from(*phase)));
                    (legend::phase_label(*phase, room - 1).to_owned(), style)
                }
            };
            if text.len() >= room {
                continue;
            }
            end = put_at(area, x, row, vec![Span::styled(format!("│{text}"), style)], buf);
            end += u16::from(several);
            named = true;
        }
        if end == 0 {
            let below = Rect { y: area.y + row, height: 1, ..area };
            put_at(below, 0, 0, vec![span(theme, Token::Dim, format!("│event {}", study.begin))], buf);
            put_right(below, 0, vec![span(theme, Token::Dim, format!("{} │", study.end))], buf);
        }
    }
}

/// A mark on the time axis.
enum AxisMark {
    Step(u64),
    Phase(Phase),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Bytes;

    fn study(moments: u64) -> Study {
        let moment = |index| OutlineMoment { position: index, reserved: Bytes(index % 7), ..OutlineMoment::default() };
        let mut study = Study::default();
        study.moments = (0..moments).map(moment).collect();
        study
    }

    #[test]
    fn every_moment_has_a_column_that_stands_for_it() {
        for count in [1, 5, 80, 100, 1024] {
            let study = study(count);
            for width in [1, 3, 80, 200] {
                let columns = Columns::new(&study, width);
                let mut seen = 0;
                for x in 0..width {
                    let of = columns.moments_of(x);
                    assert!(!of.is_empty() && of.start <= seen, "{count} in {width}: {x} {of:?}");
                    seen = of.end;
                }
                assert_eq!(seen, study.moments.len());
                for moment in 0..study.moments.len() {
                    let column = columns.column_of(moment);
                    assert!(columns.moments_of(column).contains(&moment), "{count} in {width}: {moment} in {column}");
                }
            }
        }
        assert!(Columns::new(&study(0), 10).most(3, |moment| moment.reserved).is_none());
    }

    #[test]
    fn a_column_shows_the_moment_with_most() {
        let study = study(100);
        let most = Columns::new(&study, 10).most(2, |moment| moment.reserved).unwrap();
        assert_eq!((most.position, most.reserved), (27, Bytes(6)));
    }
}
