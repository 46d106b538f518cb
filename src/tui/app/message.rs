//! The messages to the screen's state, and the effects that it asks of the shell.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::{Event, KeyEvent, MouseEvent};

use crate::source::{Picture, Request};
use crate::tui::completion::Completion;
use crate::tui::stage::FrameLayout;
use crate::tui::states::OtherFile;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Message {
    /// The time since the program began. Comes before messages of that time.
    Clock(Duration),
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// Text was pasted.
    Paste(String),
    /// The terminal was resized.
    Resized,
    /// The source published a picture.
    Picture(Arc<Picture>),
    /// Another file was read for the comparison.
    Compared(OtherFile),
    /// Completions of a path.
    Completed(Completion),
    /// The last lines that a watched program printed.
    Output(Vec<String>),
    /// Whether a watched program has loaded PyTorch, if the system says.
    Torch(Option<bool>),
    /// A frame was drawn, with its layout.
    Drawn(FrameLayout),
}

impl Message {
    /// The message for a terminal's event; `None` if the event does not matter here.
    #[must_use]
    pub fn of(event: Event) -> Option<Self> {
        match event {
            Event::Key(key) => Some(Self::Key(key)),
            Event::Mouse(mouse) => Some(Self::Mouse(mouse)),
            Event::Paste(text) => Some(Self::Paste(text)),
            Event::Resize(..) => Some(Self::Resized),
            Event::FocusGained | Event::FocusLost => None,
        }
    }
}

/// An effect that the shell performs.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Send a request to the source.
    Send(Request),
    /// Paint every cell with the next frame.
    Repaint,
    /// Stop the process until the shell brings it back.
    Suspend,
    /// Save what is on the screen as a picture and as text.
    SaveScreen,
    /// Read this file for the comparison.
    Compare(PathBuf),
    /// Find completions of a path.
    Complete(String),
    /// Copy a text to the terminal's clipboard.
    Copy(String),
    /// Use the theme with this name from now on, whenever the program starts.
    KeepTheme(String),
    /// Leave.
    Quit,
}

/// The effects that send these requests to the source.
pub(super) fn send(requests: impl IntoIterator<Item = Request>) -> Vec<Effect> {
    requests.into_iter().map(Effect::Send).collect()
}
