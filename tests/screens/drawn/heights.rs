//! Measures the charts of whole screens: glyphs and colours of a frame, compared with the bytes that they represent.

use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Color;
use vramlab::drawing::theme::{ColorTier, Theme, ThemeCatalog, Token};
use vramlab::model::{Category, Grouping, Ledger};
use vramlab::source::Picture;
use vramlab::tui::{self, App, Chart, GlyphTier, Message};

use super::{SIZES, press};
use crate::lab_states;

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Painted themes, in which the colour of an area identifies it.
const THEMES: [&str; 8] =
    ["dark", "light", "contrast", "colorblind", "solarized-dark", "solarized-light", "gruvbox", "nord"];

/// The height in eighths up to which an area may be left out of a column.
const THIN: f64 = 2.5;

/// A part of a column: its colour and its bytes, from the bottom up.
type Parts = Vec<(Token, u64)>;

/// How high each colour of a column is, in eighths of a row. A column has a handful: a list is searched faster than a
/// map.
#[derive(Debug, Default)]
struct Heights(Vec<(Color, f64)>);

impl Heights {
    fn add(&mut self, color: Color, eighths: f64) {
        match self.0.iter_mut().find(|(known, _)| *known == color) {
            Some((_, height)) => *height += eighths,
            None => self.0.push((color, eighths)),
        }
    }

    fn of(&self, color: Color) -> Option<f64> {
        self.0.iter().find(|(known, _)| *known == color).map(|(_, height)| *height)
    }
}

struct Measured {
    buf: Buffer,
    charts: Vec<(Rect, Chart)>,
    theme: Theme,
}

impl Measured {
    fn new(theme: &str, tier: ColorTier, keys: &str, picture: &Picture, (width, height): (u16, u16)) -> Self {
        let catalog = ThemeCatalog::default();
        let (theme, _) = catalog.load(theme, tier).unwrap();
        let mut app = App::new(catalog, theme.clone(), GlyphTier::Unicode);
        press(&mut app, keys);
        app.update(Message::Picture(Arc::new(picture.clone())));
        loop {
            let mut buf = Buffer::empty(Rect::new(0, 0, width, height));
            let layout = tui::draw(&app, buf.area, &mut buf);
            let charts = layout.charts.clone();
            app.update(Message::Drawn(layout));
            if !app.needs_frame() {
                return Self { buf, charts, theme };
            }
        }
    }

    /// How many eighths of a plot's row one byte is high: computed from the labels of two ticks and the unit, or, if
    /// areas fill the plot, from their maximum.
    fn scale(&self, plot: Rect, most: u64) -> f64 {
        let label = |y: u16| -> String { (plot.x - 5..plot.x).map(|x| self.buf[(x, y)].symbol()).collect() };
        let ticks: Vec<(f64, f64)> = (0..plot.height)
            .filter_map(|row| Some((f64::from(row) * 8.0, label(plot.bottom() - 1 - row).trim().parse().ok()?)))
            .collect();
        let ground = [Color::Reset, self.theme.color(Token::Surface)];
        let is_full = |x: u16| {
            let cell = &self.buf[(x, plot.y)];
            cell.symbol() == "█" || !ground.contains(&cell.bg)
        };
        if (plot.left()..plot.right()).any(is_full) {
            let scale = f64::from(plot.height) * 8.0 / most as f64;
            for (at, known) in &ticks {
                let height = known * (1u64 << 20) as f64 * scale;
                // At the lower edge of a row, or in its middle.
                let is_near = |at: f64| (height - at).abs() <= 2.5;
                assert!(is_near(*at) || is_near(at + 4.0), "ticks stand near their height: {ticks:?}");
            }
            return scale;
        }
        let (height, value) = *ticks.last().unwrap();
        assert!(height > 0.0 && ticks[0] == (0.0, 0.0), "{ticks:?}");
        for (at, known) in &ticks {
            assert!((known / value * height - at).abs() < 0.05, "ticks stand at their height: {ticks:?}");
        }
        height / (value * (1u64 << 20) as f64)
    }

    /// Eighths of each colour in a column.
    fn column(&self, plot: Rect, x: u16) -> Heights {
        let ground = [Color::Reset, self.theme.color(Token::Surface)];
        let grid = self.theme.color(Token::Border);
        let mut heights = Heights::default();
        for y in plot.top()..plot.bottom() {
            let cell = &self.buf[(plot.x + x, y)];
            let over = !ground.contains(&cell.bg);
            let lower = EIGHTHS.iter().position(|glyph| *glyph == cell.symbol()).map(|eighths| eighths as f64);
            let line = lower == Some(1.0) && (cell.fg == grid || ground.contains(&cell.fg));
            match lower.filter(|_| !line) {
                Some(lower) => {
                    heights.add(cell.fg, lower);
                    if over {
                        heights.add(cell.bg, 8.0 - lower);
                    }
                }
                // Something drawn over a whole cell.
                None if over => heights.add(cell.bg, 8.0),
                None => {}
            }
        }
        heights
    }

    /// Compares a chart with what it represents, column by column. An area that is nowhere two eighths high may be
    /// missing in every column, and an area of at most [`THIN`] eighths in some: then its neighbour has its height.
    fn check(&self, plot: Rect, parts: impl Fn(u16) -> Parts, about: &str) {
        let highest = (0..plot.width).map(|x| parts(x).iter().map(|(_, bytes)| bytes).sum()).max();
        let scale = self.scale(plot, highest.unwrap());
        let columns: Vec<_> = (0..plot.width).map(|x| self.column(plot, x)).collect();
        let mut anywhere = Heights::default();
        columns.iter().flat_map(|drawn| &drawn.0).for_each(|(color, height)| anywhere.add(*color, *height));
        let is_seen = |token: Token| anywhere.of(self.theme.color(token)).is_some_and(|height| height > 0.0);
        // Areas on top of each other that can nowhere be seen separately may be one band.
        let alike = parts(0);
        let of_band = |index: usize| {
            let unseen = |at: usize| alike.get(at).is_some_and(|(token, _)| !is_seen(*token));
            is_seen(Token::Several) && unseen(index) && (unseen(index + 1) || index > 0 && unseen(index - 1))
        };
        for (x, drawn) in (0..plot.width).zip(&columns) {
            let parts = parts(x);
            let mut edges = vec![0.0];
            for (_, bytes) in &parts {
                edges.push(edges.last().unwrap() + *bytes as f64 * scale);
            }
            let top = *edges.last().unwrap();
            let tokens = parts.iter().map(|(token, _)| *token).chain([Token::Several]);
            let sum: f64 = tokens.filter_map(|token| drawn.of(self.theme.color(token))).sum();
            // A cell can show two things: if more areas meet in it, the smallest gives way.
            let ends: Vec<f64> = edges.iter().map(|edge| edge.round()).collect();
            let crowded = |row: f64| {
                let inside = ends.windows(2).filter(|pair| pair[0] < (row + 1.0) * 8.0 && pair[1] > row * 8.0);
                let parts = inside.filter(|pair| pair[1] > pair[0]).count();
                parts + usize::from(ends[ends.len() - 1] < (row + 1.0) * 8.0) > 2
            };
            // If two areas meet in the cell in which a column ends, the area that goes on keeps its height, and the end
            // gives way.
            let in_end = crowded((top / 8.0).floor()) || crowded((sum / 8.0).floor());
            let most = if in_end { 3.6 } else { 1.1 };
            assert!((sum - top).abs() <= most, "{about}, column {x}: {sum} for {top}: {parts:?} {drawn:?}");
            let height = |index: usize| edges[index + 1] - edges[index];
            let unseen = |index: &usize| !is_seen(parts[*index].0);
            let band: f64 = (0..parts.len()).filter(|index| of_band(*index)).map(height).sum();
            let drawn_band = drawn.of(self.theme.color(Token::Several)).unwrap_or(0.0);
            let is_crowded = (0..u64::from(plot.height)).any(|row| crowded(row as f64));
            assert!(is_crowded || (drawn_band - band).abs() <= 2.1, "{about}, column {x}: {drawn_band} for {band}");
            for (index, (token, _)) in parts.iter().enumerate() {
                let exact = height(index);
                if of_band(index) {
                    continue;
                }
                if unseen(&index) {
                    assert!(exact < 2.0, "{about}, column {x}, {token:?}: nothing for {exact}");
                    continue;
                }
                let rows = (ends[index] / 8.0).floor() as u16..=(ends[index + 1] / 8.0).ceil() as u16;
                if rows.into_iter().any(|row| crowded(f64::from(row))) {
                    continue;
                }
                let of = |index: usize| drawn.of(self.theme.color(parts[index].0)).unwrap_or(0.0);
                let missing = |index: &usize| unseen(index) || of(*index) == 0.0 && height(*index) <= THIN;
                if missing(&index) {
                    continue;
                }
                let beside = (0..index).rev().take_while(missing).chain((index + 1..parts.len()).take_while(missing));
                let allowed = 1.1 + beside.map(height).sum::<f64>();
                let drawn = of(index);
                assert!((drawn - exact).abs() <= allowed, "{about}, column {x}, {token:?}: {drawn} for {exact}");
            }
        }
    }
}

fn accounts(ledger: &Ledger) -> Parts {
    let accounts = [
        (Token::Allocated, ledger.live),
        (Token::Rounding, ledger.rounding),
        (Token::Pending, ledger.pending),
        (Token::Reserved, ledger.releasable),
        (Token::Stranded, ledger.stranded),
    ];
    accounts.map(|(token, bytes)| (token, bytes.get())).into()
}

/// The moments that a column represents.
fn moments(count: usize, width: u16, x: u16) -> std::ops::Range<usize> {
    let (width, x) = (usize::from(width), usize::from(x));
    let from = (x * count / width).min(count - 1);
    from..((x + 1) * count / width).max(from + 1).min(count)
}

#[test]
fn charts_of_whole_screens_are_as_high_as_their_bytes_in_every_theme_and_size() {
    let step = lab_states::with_study(lab_states::running(), Grouping::Category, false);
    let run = lab_states::with_study(lab_states::running(), Grouping::Category, true);
    for (theme, size) in THEMES.into_iter().flat_map(|theme| SIZES.map(|size| (theme, size))) {
        let about = |screen: &str| format!("{theme}, {screen} at {size:?}");
        // The Lab's curve of a step.
        let measured = Measured::new(theme, ColorTier::True, "1", &step, size);
        let (plot, _) = *measured.charts.iter().find(|(_, chart)| *chart == Chart::Step).unwrap();
        let samples: Vec<_> = step.shown_step().unwrap().in_columns(plot.width).collect();
        let parts = |x: u16| {
            let sample = &samples[usize::from(x)];
            Category::STACKED.map(|category| (category.into(), sample.by_category[category as usize].get())).into()
        };
        measured.check(plot, parts, &about("the Lab"));
        for (picture, name) in [(&step, "a step"), (&run, "the run")] {
            let study = picture.study.as_deref().unwrap();
            let of = |plot: Rect, x: u16| moments(study.moments.len(), plot.width, x);
            // The Step screen: by category, and by account below.
            let measured = Measured::new(theme, ColorTier::True, "3", picture, size);
            let fullest = |plot, x| of(plot, x).rev().max_by_key(|index| study.moments[*index].allocated).unwrap();
            let windows: Vec<Rect> = measured.charts.iter().map(|(plot, _)| *plot).collect();
            let parts = |x: u16| {
                let index = fullest(windows[0], x);
                study.groups.iter().map(|group| (group.category.into(), group.bytes[index].get())).collect()
            };
            measured.check(windows[0], parts, &about(&format!("Step, {name}")));
            if let Some(plot) = windows.get(1) {
                let parts = |x: u16| accounts(&study.moments[fullest(*plot, x)].ledger);
                measured.check(*plot, parts, &about(&format!("reserved of {name}")));
            }
            // The Ledger.
            let measured = Measured::new(theme, ColorTier::True, "6", picture, size);
            let plot = measured.charts[0].0;
            let parts = |x: u16| {
                let moments = &study.moments[of(plot, x)];
                let most = moments.iter().reduce(|most, moment| {
                    let key = |moment: &vramlab::model::OutlineMoment| (moment.reserved, moment.allocated);
                    if key(moment) >= key(most) { moment } else { most }
                });
                accounts(&most.unwrap().ledger)
            };
            measured.check(plot, parts, &about(&format!("Ledger, {name}")));
        }
    }
}
