//! Screens of a file without a terminal: a drawing, text, or a film for players.

use std::io::Write;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use color_eyre::eyre::{Result, eyre};

use super::Usage;
use super::config::GlyphArg;
use super::spec::themes;
use crate::drawing::theme::ColorTier;
use crate::export::Cast;
use crate::recording::RecordingError;
use crate::source::{Move, Picture, Request, Source, Whole};
use crate::tui::{self, Film, GlyphTier, TuiError};
use crate::user_input::SafeWriter;

/// After this time, nothing on a screen changes by itself any more.
const SETTLED: Duration = Duration::from_secs(10);

/// The form in which screens are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shot {
    /// A drawing of one moment.
    Svg,
    /// The characters of one moment.
    Text,
    /// All moments up to one, as a film.
    Cast,
}

impl Shot {
    /// All forms, in the order in which help lists them.
    pub const ALL: [Self; 3] = [Self::Cast, Self::Svg, Self::Text];

    /// The form's word on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Text => "text",
            Self::Cast => "cast",
        }
    }

    /// What the form is, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Svg => "a screen at a moment, as a drawing: for slides, papers and bug reports",
            Self::Text => "a screen at a moment, as text",
            Self::Cast => "a screen as a film of the whole run: for asciinema and its players",
        }
    }
}

/// Columns and rows of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size(u16, u16);

impl FromStr for Size {
    type Err = String;

    /// Reads `120x40`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once(['x', '×']).and_then(|(columns, rows)| Some((columns.parse().ok()?, rows.parse().ok()?)));
        match parts {
            Some((columns @ 40..=500, rows @ 12..=200)) => Ok(Self(columns, rows)),
            _ => Err("a size is columns and rows, such as 120x40: from 40x12 to 500x200".to_owned()),
        }
    }
}

/// The index of a screen in the list.
fn screen(name: &str) -> Result<usize, String> {
    let names = tui::screen_names();
    names.iter().position(|one| one == name).ok_or_else(|| format!("a screen is {}", names.join(", ")))
}

/// Parses a rate: a number such as frames per second.
fn rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (1e-3..=1e4).contains(&rate) => Ok(rate),
        _ => Err("a number from 0.001 to 10000".to_owned()),
    }
}

/// How a screen is drawn without a terminal.
#[derive(Debug, Args)]
#[command(next_help_heading = "Screen (of svg, text and cast)")]
pub(super) struct FilmArgs {
    /// The screen to draw [default: lab].
    #[arg(long, value_name = "lab|blocks|step|ops|compare|ledger|stacks", value_parser = screen)]
    screen: Option<usize>,
    /// Size of the screen in columns and rows [default: 120x40].
    #[arg(long, value_name = "COLSxROWS")]
    size: Option<Size>,
    /// Name of a theme: see `vramlab list` [default: dark].
    #[arg(long, value_name = "NAME")]
    theme: Option<String>,
    /// Which characters to draw with [default: unicode].
    #[arg(long, value_enum)]
    glyphs: Option<GlyphArg>,
    /// Frames per second of a film [default: 10].
    #[arg(long, value_name = "N", value_parser = rate)]
    fps: Option<f64>,
    /// Speed of a film: 2 plays twice as fast [default: 1].
    #[arg(long, value_name = "N", value_parser = rate)]
    speed: Option<f64>,
    /// The longest pause in a film, in seconds [default: 2].
    #[arg(long, value_name = "SECONDS", value_parser = rate)]
    idle: Option<f64>,
}

impl FilmArgs {
    /// Rejects flags that don't apply to `shot`; if the export is no screen, none of them apply.
    pub fn check(&self, shot: Option<Shot>) -> Result<(), Usage> {
        let screen = [
            ("--screen", self.screen.is_some()),
            ("--size", self.size.is_some()),
            ("--theme", self.theme.is_some()),
            ("--glyphs", self.glyphs.is_some()),
        ];
        let film = [("--fps", self.fps.is_some()), ("--speed", self.speed.is_some()), ("--idle", self.idle.is_some())];
        let given = |flags: &[(&'static str, bool)]| flags.iter().find(|(_, given)| *given).map(|(flag, _)| *flag);
        let wrong = match shot {
            None => given(&screen).map(|flag| (flag, "svg, text or cast")).or(given(&film).map(|flag| (flag, "cast"))),
            Some(Shot::Svg | Shot::Text) => given(&film).map(|flag| (flag, "cast")),
            Some(Shot::Cast) => None,
        };
        wrong.map_or(Ok(()), |(flag, to)| Err(Usage(format!("{flag} does not apply to this format; give --to {to}"))))
    }

    /// Draws the first `end` events and writes the result.
    ///
    /// # Errors
    /// [`Usage`] for a theme that is not available; other errors if the file can't be read or written.
    pub fn write(
        &self,
        shot: Shot,
        whole: &Whole,
        end: u64,
        out: &mut dyn Write,
        look: &mut dyn FnMut(u64, u64),
    ) -> Result<()> {
        let Size(columns, rows) = self.size.unwrap_or(Size(120, 40));
        let themes = themes();
        let name = self.theme.as_deref().filter(|name| *name != "auto").unwrap_or("dark");
        let (theme, _) =
            themes.load(name, ColorTier::True).map_err(|error| Usage(TuiError::from(error).to_string()))?;
        let glyphs = self.glyphs.and_then(GlyphArg::tier).unwrap_or(GlyphTier::Unicode);
        let film = Film::new(themes, theme, glyphs, self.screen.unwrap_or(0), (columns, rows));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let mut projector = Projector { film, source: whole.source()?, asked: 0, end: whole.end() };
        runtime.block_on(projector.load())?;
        match shot {
            Shot::Svg | Shot::Text => {
                runtime.block_on(projector.show(end, Duration::ZERO))?;
                projector.film.draw(SETTLED);
                let text = if shot == Shot::Svg { projector.film.svg() } else { projector.film.text() };
                SafeWriter::new(&mut *out).write_all(text.as_bytes())?;
                out.flush()?;
            }
            Shot::Cast => {
                let mut cast = Cast::new(out, (columns, rows), "vramlab")?;
                let mut last = Duration::ZERO;
                for (at, position) in self.moments(whole, end)? {
                    runtime.block_on(projector.show(position, at))?;
                    projector.film.draw(at);
                    let bytes = projector.film.bytes();
                    if !bytes.is_empty() {
                        cast.show(at, &bytes)?;
                    }
                    look(position, end);
                    last = at;
                }
                // Highlights and messages fade, so that the film ends with a screen at rest.
                projector.film.draw(last + SETTLED);
                let bytes = projector.film.bytes();
                if !bytes.is_empty() {
                    cast.show(last + Duration::from_secs_f64(self.idle.unwrap_or(IDLE)), &bytes)?;
                }
                cast.finish()?;
            }
        }
        Ok(())
    }

    /// The times of the film's frames, each with how many events it shows: one frame for each time at which something
    /// had happened since the previous frame.
    fn moments(&self, whole: &Whole, end: u64) -> Result<Vec<(Duration, u64)>, RecordingError> {
        let (speed, idle) = (self.speed.unwrap_or(1.0), self.idle.unwrap_or(IDLE));
        let frame = 1.0 / self.fps.unwrap_or(10.0);
        let (mut moments, mut before, mut now) = (Vec::new(), None, 0.0);
        whole.each(0..end, |index, event| {
            let passed = event.time.0.saturating_sub(before.unwrap_or(event.time.0)) as f64 / 1e6;
            before = Some(event.time.0.max(before.unwrap_or(0)));
            let next: f64 = now + (passed / speed).min(idle);
            // The frame that is due before this event shows all events before it.
            if (next / frame).floor() > (now / frame).floor() && index > 0 {
                moments.push((Duration::from_secs_f64(now), index));
            }
            now = next;
            Ok::<_, RecordingError>(())
        })?;
        moments.push((Duration::from_secs_f64(now), end));
        Ok(moments)
    }
}

/// The longest pause of a film in seconds, by default.
const IDLE: f64 = 2.0;

/// Draws moments of a source on a screen.
struct Projector {
    film: Film,
    source: Source,
    /// Requests so far.
    asked: u64,
    /// Events in all.
    end: u64,
}

impl Projector {
    /// Waits until the whole file is loaded.
    async fn load(&mut self) -> Result<()> {
        self.wait(|picture| !picture.extent.grows).await.map(drop)
    }

    /// Shows the state after `position` events, with everything that the screen requests about it.
    async fn show(&mut self, position: u64, now: Duration) -> Result<()> {
        self.ask(Request::Move(if position >= self.end { Move::Now } else { Move::To(position) }));
        loop {
            let asked = self.asked;
            let picture = self.wait(|picture| picture.answered >= asked && picture.studying.is_none()).await?;
            let requests = self.film.take(picture, now);
            if requests.is_empty() {
                return Ok(());
            }
            requests.into_iter().for_each(|request| self.ask(request));
        }
    }

    fn ask(&mut self, request: Request) {
        self.asked += 1;
        self.source.request(request);
    }

    async fn wait(&mut self, is: impl Fn(&Picture) -> bool) -> Result<std::sync::Arc<Picture>> {
        let gone = |_| eyre!("the file is not shown to its end: its reader stopped; report what file it was");
        Ok(self.source.pictures.wait_for(|picture| is(picture)).await.map_err(gone)?.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_bounded() {
        assert_eq!("120x40".parse(), Ok(Size(120, 40)));
        for wrong in ["", "120", "x40", "39x40", "120x11", "9999x9999", "120x40x2"] {
            assert!(wrong.parse::<Size>().unwrap_err().contains("120x40"), "{wrong}");
        }
    }
}
