//! A line to write a value: a memory limit or allocator settings, with values to choose from.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::leaves;
use super::low_box;
use super::offers::{EditResult, Offers};
use super::pressed::LayerResponse;
use crate::drawing::figures;
use crate::drawing::pane::span;
use crate::drawing::theme::Token;
use crate::session::{Command, Setup, Switch};
use crate::source::{Picture, Request};
use crate::train::Config;
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;
use crate::tui::words;
use crate::units::{Bytes, GIB, MIB};

/// Longer lines are not settings.
const LONGEST: usize = 400;
/// The greatest width of the box.
const WIDTH: u16 = 90;
/// Cards whose memory is offered as a limit, in GiB.
const CARDS: [u64; 6] = [8, 16, 24, 40, 80, 141];

/// The line with its offers, and the error in it.
#[derive(Clone, Debug)]
pub(crate) struct Editor {
    switch: Switch,
    offers: Offers,
    error: Option<String>,
}

impl Editor {
    /// An editor that begins with the value in force.
    pub fn new(switch: Switch, picture: &Picture) -> Self {
        let value = picture.switches().get(switch.word()).map_or("", |setting| &*setting.value);
        let usual = switch.usual().is_some_and(|usual| usual == value);
        let values = if switch.word() == "limit" { limits(picture) } else { settings() };
        // A limit is shown rounded, so the value in force can't be edited.
        let text = if usual || switch.word() == "limit" { String::new() } else { value.to_owned() };
        Self { switch, offers: Offers::new(values, text, LONGEST), error: None }
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> LayerResponse {
        if leaves(key) {
            return LayerResponse::Leave;
        }
        if self.offers.press(key, keys) == EditResult::Changed {
            self.error = None;
            return LayerResponse::Taken;
        }
        match keys.dialog_action(key) {
            Some(DialogAction::Cancel) => return LayerResponse::Closed,
            Some(DialogAction::Apply) => match self.command() {
                Ok(command) => return LayerResponse::Done(vec![Request::Lab(command)]),
                Err(error) => self.error = Some(error),
            },
            _ => {}
        }
        LayerResponse::Taken
    }

    /// Inserts text, without characters that don't belong in a line.
    pub fn insert(&mut self, text: &str) {
        self.offers.insert(text);
        self.error = None;
    }

    /// The command that sets the switch, if the value is valid.
    fn command(&self) -> Result<Command, String> {
        let text = self.offers.text();
        // Whether a value is valid does not depend on other switches.
        self.switch.set(&mut Setup::new(Config::new(1)), text)?;
        Ok(Command::Set(self.switch, text.into()))
    }

    /// Draws the line in a box over the lower part of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let title = vec![
            span(theme, Token::Title, self.switch.label()),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "sets it from the next step on", "cancels")),
        ];
        let said = self.error.as_deref().ok_or(self.switch.hint());
        low_box::with_offers(theme, title, area.width.min(WIDTH), &self.offers, said, area, buf);
    }
}

/// Limits worth a try: some below the reserved bytes, and the memory of smaller cards.
fn limits(picture: &Picture) -> Vec<(String, String)> {
    let peak = picture.view.peak_reserved;
    let mut values = vec![(String::new(), "no limit".to_owned())];
    if peak >= Bytes(4 * MIB) {
        let of = figures::short_bytes(peak);
        values.push((figures::typed(Bytes(peak.get() / 10 * 9)), format!("90 % of peak reserved ({of})")));
        values.push((figures::typed(Bytes(peak.get() / 4 * 3)), format!("75 % of peak reserved ({of})")));
    }
    let total = picture.memory.map(|memory| memory.total);
    let fits = |card: &&u64| total.is_none_or(|total| Bytes(**card * GIB) < total);
    values.extend(CARDS.iter().filter(fits).map(|card| (format!("{card}GiB"), format!("a card of {card} GiB"))));
    values
}

/// Allocator settings worth a try.
fn settings() -> Vec<(String, String)> {
    let offers = [
        ("", "the defaults"),
        ("expandable_segments:True", "segments grow page by page"),
        ("max_split_size_mb:128", "blocks over 128 MiB are never split"),
        ("roundup_power2_divisions:4", "rounds sizes to quarters of a power of two"),
        ("garbage_collection_threshold:0.8", "frees early, from 80 % of the limit on"),
    ];
    offers.map(|(value, words)| (value.to_owned(), words.to_owned())).into()
}
