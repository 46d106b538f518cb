//! How categories and accounts are told apart, on every screen alike.

use ratatui::text::Span;

use super::chart::Ink;
use super::pane::span;
use super::theme::{Theme, Token};
use crate::model::{Category, View};

/// What tells a category apart where there is no colour.
pub(crate) const fn category_letter(category: Category) -> &'static str {
    match category {
        Category::Parameter => "P",
        Category::Gradient => "G",
        Category::OptimizerState => "O",
        Category::Activation => "A",
        Category::Temporary => "T",
        Category::Workspace => "W",
        Category::Input => "I",
        Category::Other => "X",
    }
}

/// A short word for a category, where a line must hold many.
pub(crate) const fn short_label(category: Category) -> &'static str {
    match category {
        Category::Parameter => "params",
        Category::Gradient => "grads",
        Category::OptimizerState => "optim",
        Category::Activation => "activ",
        Category::Temporary => "temp",
        Category::Workspace => "works",
        Category::Input => "input",
        Category::Other => "other",
    }
}

/// A remark on categories that nobody told; `None` where the program did.
pub(crate) fn guessed(view: &View) -> Option<&'static str> {
    view.about.guessed.then_some("categories guessed")
}

/// What fills the area of a category in a chart: a letter where there is no colour.
pub(crate) fn ink(category: Category, theme: &Theme) -> Ink {
    let fill = if theme.is_colorless() { category_letter(category) } else { "█" };
    Ink { token: category.into(), fill }
}

/// The mark of a category in legends.
pub(crate) fn legend_of(category: Category, theme: &Theme) -> Span<'static> {
    span(theme, category.into(), if theme.is_colorless() { category_letter(category) } else { "■" })
}

/// The marks of bytes that nobody asked for, as the map shows them.
pub(crate) fn account_marks(theme: &Theme) -> [(Span<'static>, &'static str); 4] {
    [
        (span(theme, Token::Stranded, "░"), "stranded"),
        (span(theme, Token::FreeMark, "·"), "releasable"),
        (span(theme, Token::Rounding, "▓"), "rounding"),
        (span(theme, Token::Pending, "▒"), "pending"),
    ]
}
