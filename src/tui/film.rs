//! Screens without a terminal: one picture after the other, as a drawing, as text, or as a terminal's bytes.

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use ratatui::backend::Backend;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::app::{App, Effect, Message};
use super::glyphs::GlyphTier;
use super::screens::SCREENS;
use super::{screen, svg};
use crate::drawing::theme::{Theme, ThemeCatalog};
use crate::drawing::wire::WireBackend;
use crate::source::{Picture, Request};

/// The bytes for a terminal before the first frame.
const BEGIN: &[u8] = b"\x1b[?25l\x1b[m\x1b[2J";

/// The names of all screens, in the order of their tabs: `lab`, `blocks` …
#[must_use]
pub fn screen_names() -> Vec<String> {
    SCREENS.iter().map(|screen| screen.title.to_lowercase()).collect()
}

/// A screen of a fixed size, without a terminal.
#[derive(Debug)]
pub struct Film {
    app: App,
    /// The last frame.
    shown: Buffer,
    /// The frame that the terminal shows; `None` before the first.
    sent: Option<Buffer>,
}

impl Film {
    /// The screen with this index in the list, with this many columns and rows.
    #[must_use]
    pub fn new(
        themes: ThemeCatalog,
        theme: Theme,
        glyphs: GlyphTier,
        screen: usize,
        (columns, rows): (u16, u16),
    ) -> Self {
        let app = App::new(themes, theme, glyphs).with_screen(screen);
        Self { app, shown: Buffer::empty(Rect::new(0, 0, columns, rows)), sent: None }
    }

    /// Shows `picture` at `now`. Returns requests for what the screen needs to show everything.
    pub fn take(&mut self, picture: Arc<Picture>, now: Duration) -> Vec<Request> {
        // What a screen wanted of an unknown run, it may want of this one.
        let mut effects = self.app.update(Message::Clock(now));
        effects.extend(self.app.update(Message::Picture(picture)));
        let study = |effect| match effect {
            Effect::Send(request @ Request::Study(_)) => Some(request),
            _ => None,
        };
        effects.into_iter().filter_map(study).collect()
    }

    /// Draws the screen at this time.
    pub fn draw(&mut self, now: Duration) {
        self.app.update(Message::Clock(now));
        // The layout (how far a list scrolls, for instance) may change what is drawn.
        for _ in 0..2 {
            let mut frame = Buffer::empty(self.shown.area);
            let layout = screen::draw(&self.app, frame.area, &mut frame);
            self.shown = frame;
            self.app.update(Message::Drawn(layout));
        }
    }

    /// The frame as a drawing (SVG).
    #[must_use]
    pub fn svg(&self) -> String {
        svg::svg(&self.shown)
    }

    /// The frame as text, one line per row.
    #[must_use]
    pub fn text(&self) -> String {
        svg::text(&self.shown)
    }

    /// The bytes that make a terminal show the frame; empty if it does already.
    pub fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let before = self.sent.take().unwrap_or_else(|| {
            bytes.extend_from_slice(BEGIN);
            Buffer::empty(self.shown.area)
        });
        let mut backend = WireBackend::new(&mut bytes);
        // Writing to a vector can't fail.
        let _ = backend.draw(before.diff(&self.shown).into_iter()).and_then(|()| Write::flush(&mut backend));
        self.sent = Some(self.shown.clone());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::theme::ColorTier;
    use crate::model::{EventKind, Lab};
    use crate::synthetic;

    #[test]
    fn a_terminal_that_got_all_bytes_shows_the_last_frame() {
        let themes = ThemeCatalog::default();
        let (theme, _) = themes.load("dark", ColorTier::True).unwrap();
        let mut film = Film::new(themes, theme, GlyphTier::Unicode, 0, (100, 30));
        let mut terminal = vt100::Parser::new(30, 100, 0);
        let (mut lab, mut frames) = (Lab::new(), 0);
        for event in synthetic::training_run() {
            lab.apply(&event);
            if !matches!(event.kind, EventKind::StepEnd(_)) {
                continue;
            }
            let now = Duration::from_micros(event.time.0);
            let picture =
                Picture { view: Arc::new(lab.view()), history: Arc::new(lab.history().clone()), ..Picture::default() };
            assert_eq!(film.take(Arc::new(picture), now), [], "the Lab wants nothing studied");
            film.draw(now);
            terminal.process(&film.bytes());
            assert!(film.bytes().is_empty(), "it shows that already");
            frames += 1;
            // A wide area is erased in its colour.
            let told = |row: &str| row.replace('█', " ").trim_end().to_owned();
            let shown: Vec<String> = film.text().lines().map(told).collect();
            let seen: Vec<String> = terminal.screen().rows(0, 100).map(|row| told(&row)).collect();
            assert_eq!(seen, shown, "frame {frames}");
        }
        assert!(frames > 5);
        assert!(film.svg().starts_with("<svg "));
        assert_eq!(screen_names(), ["lab", "blocks", "step", "ops", "compare", "ledger", "stacks"]);
    }
}
