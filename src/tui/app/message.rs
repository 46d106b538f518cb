//! What the state of the screen hears, and what it asks the shell to do.

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
    /// The clock, since the program began. Comes before what happened at that time.
    Clock(Duration),
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
    /// Text was pasted.
    Paste(String),
    /// The terminal has another size.
    Resized,
    /// The source published a picture.
    Picture(Arc<Picture>),
    /// Another file was read, to be compared with.
    Compared(OtherFile),
    /// What may follow the beginning of a path.
    Completed(Completion),
    /// The last lines of what a watched program prints.
    Output(Vec<String>),
    /// Whether a watched program has loaded PyTorch, where the system says.
    Torch(Option<bool>),
    /// A frame was drawn; what it learnt about the layout.
    Drawn(FrameLayout),
}

impl Message {
    /// What a terminal's event says, if anything that matters here.
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

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the source for something.
    Send(Request),
    /// Paint every cell with the next frame.
    Repaint,
    /// Stop the process until the shell brings it back.
    Suspend,
    /// Save what is on the screen as a picture and as text.
    SaveScreen,
    /// Read this file, to compare with it.
    Compare(PathBuf),
    /// Find out what may follow the beginning of a path.
    Complete(String),
    /// Put a text on the clipboard of the terminal.
    Copy(String),
    /// Wear the theme of this name from now on, whenever the program starts.
    KeepTheme(String),
    /// Leave.
    Quit,
}

/// What the source is asked.
pub(super) fn send(requests: impl IntoIterator<Item = Request>) -> Vec<Effect> {
    requests.into_iter().map(Effect::Send).collect()
}
