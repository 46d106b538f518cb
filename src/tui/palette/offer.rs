//! One thing that can be found.

use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

use crate::session::Switch;
use crate::source::Move;
use crate::tui::action::Action;

/// What Enter does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OnEnter {
    /// What a key does, on the screen that has the key.
    Press {
        /// The screen, by its place in the list; `None`: any.
        screen: Option<usize>,
        /// What the key asks for.
        action: Action,
    },
    /// Sets a switch to the value that a text names.
    Set(Switch, Arc<str>),
    /// Moves the cursor.
    Go(Move),
    /// Explains a word.
    Explain(&'static str),
}

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferKind {
    /// A key of every screen, or of one.
    Key,
    /// A screen.
    Screen,
    /// A place in time.
    Moment,
    /// A value of a switch.
    Value,
    /// A word of the help.
    Word,
    /// Blocks of one name.
    Block,
    /// A segment.
    Segment,
}

impl OfferKind {
    /// The word for it; a key says itself that it is one.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Key => "",
            Self::Screen => "screen",
            Self::Moment => "go to",
            Self::Value => "set",
            Self::Word => "word",
            Self::Block => "block",
            Self::Segment => "segment",
        }
    }
}

/// One thing that can be found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    /// What kind of thing.
    pub kind: OfferKind,
    /// The word beside it: its kind, or the screen that it belongs to; empty for a key of every screen.
    pub of: &'static str,
    /// Its name.
    pub name: String,
    /// Other names, by which it is found too.
    pub also: String,
    /// A sentence about it.
    pub about: String,
    /// What is said of it where there is no room for the sentence.
    pub brief: Option<String>,
    /// Its key in words; empty where it has none.
    pub key: String,
    /// What Enter does.
    pub on_enter: OnEnter,
    /// Why it can't be done now.
    pub off: Option<String>,
}

impl Offer {
    /// An offer that can be taken now, by no key.
    pub fn new(kind: OfferKind, name: impl Into<String>, about: impl Into<String>, on_enter: OnEnter) -> Self {
        Self {
            kind,
            of: kind.label(),
            name: name.into(),
            also: String::new(),
            about: about.into(),
            brief: None,
            key: String::new(),
            on_enter,
            off: None,
        }
    }

    /// Its sentence where that fits in so many cells, else the short one; without the name that stands before it.
    pub fn about_in(&self, width: usize) -> &str {
        let unnamed = |text: &str| {
            let rest = text.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix(": "));
            text.len() - rest.unwrap_or(text).len()
        };
        let whole = &self.about[unnamed(&self.about)..];
        self.brief.as_deref().filter(|_| whole.width() > width).map_or(whole, |brief| &brief[unnamed(brief)..])
    }
}
