//! Chooses the conditions of a ghost: some to choose from, and a line to write others.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::line::leaves;
use super::low_box;
use super::offers::{EditResult, Offers};
use super::pressed::LayerResponse;
use crate::allocator::{DeviceMemory, TorchVersion};
use crate::drawing::figures;
use crate::drawing::pane::span;
use crate::drawing::theme::Token;
use crate::source::{Picture, Request};
use crate::tui::dialog::DialogAction;
use crate::tui::keys::Keymap;
use crate::tui::stage::Stage;
use crate::tui::words;
use crate::units::Bytes;
use crate::whatif::Conditions;

/// Longer lines are not conditions.
const LONGEST: usize = 400;
/// The greatest width of the box.
const WIDTH: u16 = 78;
/// What can be written; shown while the line has no error.
const HINT: &str = "PyTorch's syntax, and limit:6GiB, empty_cache_every:10; empty: no ghost";

/// The line with its offers, and the error in it.
#[derive(Clone, Debug)]
pub(crate) struct GhostEditor {
    offers: Offers,
    error: Option<String>,
    memory: Option<DeviceMemory>,
    /// The version of the run's allocator.
    torch: TorchVersion,
}

impl GhostEditor {
    /// Begins with the current ghost, or else with the first offer.
    pub fn new(picture: &Picture) -> Self {
        let peak = picture.view.peak_reserved;
        let collecting = match picture.view.limit {
            Some(_) => "garbage_collection_threshold:0.8".to_owned(),
            None => format!("garbage_collection_threshold:0.8,limit:{}", figures::typed(peak)),
        };
        let mut values = vec![
            ("expandable_segments:True".to_owned(), "segments grow page by page".to_owned()),
            ("max_split_size_mb:128".to_owned(), "blocks over 128 MiB are never split".to_owned()),
            (collecting, "frees unused segments early".to_owned()),
            ("roundup_power2_divisions:4".to_owned(), "rounds sizes to quarters of a power of two".to_owned()),
            (format!("limit:{}", figures::typed(Bytes(peak.get() / 4 * 3))), "75 % of peak reserved".to_owned()),
        ];
        let text = match &picture.ghost {
            Some(ghost) => {
                values.push((String::new(), "no ghost".to_owned()));
                ghost.conditions.text().to_owned()
            }
            None => values.first().map(|(value, _)| value.clone()).unwrap_or_default(),
        };
        let offers = Offers::new(values, text, LONGEST);
        Self { offers, error: None, memory: picture.memory, torch: picture.view.about.torch }
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
            Some(DialogAction::Apply) => match self.request() {
                Ok(request) => return LayerResponse::Done(vec![request]),
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

    /// The request for a ghost, or for none, if the line is valid.
    fn request(&self) -> Result<Request, String> {
        let text = self.offers.text();
        if text.is_empty() {
            return Ok(Request::Ghost(None));
        }
        let conditions = Conditions::parse_for(self.torch, text, self.memory).map_err(|error| error.to_string())?;
        Ok(Request::Ghost(Some(conditions.into())))
    }

    /// Draws it in a box over the lower part of the screen.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let width = area.width.min(WIDTH);
        let title = vec![
            span(theme, Token::Title, "ghost"),
            span(theme, Token::Dim, " · other allocator settings"),
            span(theme, Token::Dim, words::in_dialog(stage.keys, "starts it", "cancels")),
        ];
        low_box::with_offers(theme, title, width, &self.offers, self.error.as_deref().ok_or(HINT), area, buf);
    }
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyCode, KeyModifiers};

    use super::*;
    use crate::tui::keymap;

    fn press(editor: &mut GhostEditor, code: KeyCode) -> LayerResponse {
        editor.press(KeyEvent::new(code, KeyModifiers::NONE), keymap::standard())
    }

    fn asked(pressed: LayerResponse) -> Option<Request> {
        match pressed {
            LayerResponse::Done(mut requests) => requests.pop(),
            _ => None,
        }
    }

    #[test]
    fn a_choice_can_be_taken_as_it_is_or_written_on() {
        let mut editor = GhostEditor::new(&Picture::default());
        let taken = asked(press(&mut editor.clone(), KeyCode::Enter));
        let expandable = Conditions::parse("expandable_segments:True", None).unwrap();
        assert_eq!(taken, Some(Request::Ghost(Some(expandable.into()))));
        press(&mut editor, KeyCode::Down);
        press(&mut editor, KeyCode::End);
        editor.insert(",limit:2GiB");
        let Some(Request::Ghost(Some(conditions))) = asked(press(&mut editor, KeyCode::Enter)) else { panic!() };
        assert_eq!(conditions.text(), "max_split_size_mb:128,limit:2GiB");
        assert_eq!(conditions.limit, Some(Bytes::gib(2)));
    }

    #[test]
    fn what_is_no_setting_is_told_and_an_empty_line_asks_for_none() {
        let mut editor = GhostEditor::new(&Picture::default());
        editor.insert("x");
        assert!(asked(press(&mut editor, KeyCode::Enter)).is_none());
        assert!(editor.error.is_some());
        editor.press(KeyEvent::new(KeyCode::Char('u'), KeyModifiers::CONTROL), keymap::standard());
        assert_eq!(editor.error, None);
        assert_eq!(asked(press(&mut editor, KeyCode::Enter)), Some(Request::Ghost(None)));
    }
}
