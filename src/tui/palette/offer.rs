//! An offer of the palette.

use std::sync::Arc;

use unicode_width::UnicodeWidthStr;

use crate::session::Switch;
use crate::source::Move;
use crate::tui::action::Action;

/// What Enter does with an offer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OnEnter {
    /// Presses a key, on the screen that has it.
    Press {
        /// The index of the screen; `None` for any screen.
        screen: Option<usize>,
        /// The key's action.
        action: Action,
    },
    /// Sets a switch to the value named by a text.
    Set(Switch, Arc<str>),
    /// Moves the cursor.
    Go(Move),
    /// Explains a word.
    Explain(&'static str),
}

/// The kind of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfferKind {
    /// A key of every screen, or of one.
    Key,
    /// A screen.
    Screen,
    /// A moment in time.
    Moment,
    /// A value of a switch.
    Value,
    /// A word of the glossary.
    Word,
    /// Blocks of one name.
    Block,
    /// A segment.
    Segment,
}

impl OfferKind {
    /// The word for it. A key needs none.
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

/// An offer of the palette.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    /// What kind of thing.
    pub kind: OfferKind,
    /// The word beside it: its kind, or its screen; empty for a key of every screen.
    pub of: &'static str,
    /// Its name.
    pub name: String,
    /// Other names by which it is found.
    pub also: String,
    /// A sentence about it.
    pub about: String,
    /// A shorter text, if there is no room for the sentence.
    pub brief: Option<String>,
    /// Its key in words; empty where it has none.
    pub key: String,
    /// What Enter does.
    pub on_enter: OnEnter,
    /// Why it can't be taken now.
    pub off: Option<String>,
}

impl Offer {
    /// An offer that can be taken now, without a key.
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

    /// Its sentence if that fits in `width` cells, otherwise the shorter text; without the name, which stands before it.
    pub fn about_in(&self, width: usize) -> &str {
        let unnamed = |text: &str| {
            let rest = text.strip_prefix(&*self.name).and_then(|rest| rest.strip_prefix(": "));
            text.len() - rest.unwrap_or(text).len()
        };
        let whole = &self.about[unnamed(&self.about)..];
        self.brief.as_deref().filter(|_| whole.width() > width).map_or(whole, |brief| &brief[unnamed(brief)..])
    }
}
