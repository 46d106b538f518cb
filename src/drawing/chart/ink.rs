//! What fills an area of a chart.

use ratatui::style::{Modifier, Style};

use crate::theme::{Theme, Token};
use vramlab_model::Category;

/// What fills a part of a column: a colour, and the glyph of a whole cell, which tells it from its neighbours where colours
/// can't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ink {
    /// The colour.
    pub token: Token,
    /// The glyph of a whole cell.
    pub fill: &'static str,
}

impl Ink {
    /// Where nothing lies.
    pub(super) const NOTHING: Self = Self { token: Token::Surface, fill: " " };

    /// Parts that are drawn as one: their colour is that of none of them.
    pub(super) const SEVERAL: Self = Self { token: Token::Several, fill: "█" };
    /// The same where letters tell parts apart.
    const SEVERAL_IN_LETTERS: Self = Self { token: Token::Several, fill: "&" };

    /// How much what is hidden of it counts: what came and went in a step is what a history is about, what is stranded what accounts
    /// are about, and what has the age of earlier steps what a leak is about.
    pub(super) fn weight(self) -> u64 {
        let is_old = matches!(self.token, Token::Age1 | Token::Age2 | Token::Age10 | Token::Age100);
        if is_old || matches!(self.token, Token::AllocatedSwing | Token::Stranded) { 2 } else { 1 }
    }

    /// Whether it is seen however thin it is: a floor is what a history is about as well.
    pub(super) fn stays(self) -> bool {
        self.weight() > 1 || self.token == Token::Allocated
    }

    /// Parts that lie on each other drawn as one: categories, of which legends say what they are as one, in an ink of their own; others in
    /// that of the part that has most.
    pub(super) fn joint(parts: &[Self], largest: Self) -> Self {
        let is_category = |ink: &Self| Category::ALL.iter().any(|category| Token::from(*category) == ink.token);
        match parts.len() > 1 && parts.iter().all(is_category) {
            true if largest.fill == Self::SEVERAL.fill => Self::SEVERAL,
            true => Self::SEVERAL_IN_LETTERS,
            false => largest,
        }
    }

    /// How a character in its colour looks.
    pub(super) fn style(self, theme: &Theme) -> Style {
        // A grid below it may be faint.
        Style::new().fg(theme.color(self.token)).remove_modifier(Modifier::DIM)
    }
}
