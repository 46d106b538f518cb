//! The properties by which blocks are coloured, and the inks of each.

use ratatui::text::Span;

use crate::chart::Ink;
use crate::legend::category_letter;
use crate::pane::span;
use crate::theme::{Theme, Token};
use vramlab_model::Category;

/// The property by which blocks are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coloring {
    /// Their category.
    #[default]
    Category,
    /// The module that allocated them, or the file for a program without modules.
    Module,
    /// The number of steps since they were allocated.
    Age,
    /// The pool and stream that they belong to.
    Pool,
    /// The account of their bytes.
    Account,
}

/// One of the few colours of a map, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tone(pub u8);

/// The tone of everything that has no tone of its own.
pub const OTHERS: Tone = Tone(Tone::COUNT as u8 - 1);

impl Tone {
    /// The number of tones.
    pub const COUNT: usize = Category::ALL.len();

    /// The tone of a category.
    pub const fn of(category: Category) -> Self {
        Self(category as u8)
    }
}

impl Coloring {
    /// All properties.
    pub const ALL: [Self; 5] = [Self::Category, Self::Module, Self::Age, Self::Pool, Self::Account];

    /// The property's name on screens.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Category => "category",
            Self::Module => "module",
            Self::Age => "age",
            Self::Pool => "stream and pool",
            Self::Account => "account",
        }
    }

    /// The next property, in a cycle.
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|coloring| *coloring == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// A tone's ink: its colour, and the letter that replaces it without colours.
    pub fn ink(self, tone: Tone) -> Ink {
        const MODULES: [&str; Tone::COUNT] = ["a", "b", "c", "d", "e", "f", "g", "h", "z"];
        /// The youngest first.
        const AGES: [(Token, &str); 5] =
            [(Token::Age0, "0"), (Token::Age1, "1"), (Token::Age2, "2"), (Token::Age10, "3"), (Token::Age100, "4")];
        let index = usize::from(tone.0).min(Tone::COUNT - 1);
        let category = Category::ALL[index];
        match self {
            Self::Category => Ink { token: category.into(), fill: category_letter(category) },
            Self::Module | Self::Pool => Ink { token: category.into(), fill: MODULES[index] },
            Self::Age => {
                let (token, fill) = AGES[index.min(AGES.len() - 1)];
                Ink { token, fill }
            }
            Self::Account => Ink { token: Token::Allocated, fill: "#" },
        }
    }

    /// A tone's mark in a legend.
    pub fn mark(self, tone: Tone, theme: &Theme) -> Span<'static> {
        let Ink { token, fill } = self.ink(tone);
        span(theme, token, if theme.is_colorless() { fill } else { "■" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tones_are_told_apart_with_and_without_colour() {
        for (coloring, tones) in
            [(Coloring::Category, 9), (Coloring::Module, 9), (Coloring::Pool, 9), (Coloring::Age, 5)]
        {
            for (one, other) in (0..tones).flat_map(|one| (0..one).map(move |other| (one, other))) {
                let (one, other) = (coloring.ink(Tone(one)), coloring.ink(Tone(other)));
                assert!(one.token != other.token && one.fill != other.fill, "{coloring:?} {one:?} {other:?}");
            }
        }
        let round = Coloring::ALL.iter().fold(Coloring::Category, |coloring, _| coloring.next());
        assert_eq!(round, Coloring::Category);
    }
}
