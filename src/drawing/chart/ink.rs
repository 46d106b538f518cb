//! How an area of a chart is filled.

use ratatui::style::{Modifier, Style};

use crate::theme::{Theme, Token};
use vramlab_model::Category;

/// How a part of a column is filled: a colour, and the glyph of a whole cell, which tells parts apart where colours can't.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Ink {
    /// The colour.
    pub token: Token,
    /// The glyph of a whole cell.
    pub fill: &'static str,
}

impl PartialEq for Ink {
    /// A frame compares many thousands of inks, whose fills are nearly always the same string if they are equal.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token && (std::ptr::eq(self.fill, other.fill) || self.fill == other.fill)
    }
}

impl Ink {
    /// Blank space.
    pub(super) const NOTHING: Self = Self { token: Token::Surface, fill: " " };

    /// Several parts drawn as one, in a colour that belongs to none of them.
    pub(super) const SEVERAL: Self = Self { token: Token::Several, fill: "█" };
    /// [`Ink::SEVERAL`] for themes in which letters tell parts apart.
    const SEVERAL_IN_LETTERS: Self = Self { token: Token::Several, fill: "&" };

    /// The weight of a hidden share of this ink. Parts that a chart is mainly about weigh more: the swing within a step
    /// in a history, stranded bytes in accounts, and blocks of earlier steps in a leak.
    pub(super) fn weight(self) -> u64 {
        let is_old = matches!(self.token, Token::Age1 | Token::Age2 | Token::Age10 | Token::Age100);
        if is_old || matches!(self.token, Token::AllocatedSwing | Token::Stranded) { 2 } else { 1 }
    }

    /// True if the part is drawn however thin it is: those with more weight, and the floor of a history.
    pub(super) fn stays(self) -> bool {
        self.weight() > 1 || self.token == Token::Allocated
    }

    /// The ink for parts on top of each other that are drawn as one: [`Ink::SEVERAL`] if all are categories, which
    /// legends list as several; otherwise the ink of the largest part.
    pub(super) fn joint(parts: &[Self], largest: Self) -> Self {
        let is_category = |ink: &Self| Category::ALL.iter().any(|category| Token::from(*category) == ink.token);
        match parts.len() > 1 && parts.iter().all(is_category) {
            true if largest.fill == Self::SEVERAL.fill => Self::SEVERAL,
            true => Self::SEVERAL_IN_LETTERS,
            false => largest,
        }
    }

    /// The style of a character in this colour.
    pub(super) fn style(self, theme: &Theme) -> Style {
        // A grid line below it may be faint.
        Style::new().fg(theme.color(self.token)).remove_modifier(Modifier::DIM)
    }
}
