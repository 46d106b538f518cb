//! How categories and accounts are told apart, in the same way on every screen.

use ratatui::style::{Modifier, Style};
use ratatui::text::Span;

use crate::chart::Ink;
use crate::pane::span;
use crate::theme::{Theme, Token};
use vramlab_allocator::units::Bytes;
use vramlab_model::{Category, Ledger, Phase, View};

/// The letter for a category in themes without colour.
pub const fn category_letter(category: Category) -> &'static str {
    match category {
        Category::Parameter => "P",
        Category::Gradient => "G",
        Category::OptimizerState => "O",
        Category::Activation => "A",
        Category::Temporary => "T",
        Category::Workspace => "W",
        Category::Communication => "C",
        Category::Input => "I",
        Category::Other => "X",
    }
}

/// A short word for a category, for lines that must hold many.
pub const fn short_label(category: Category) -> &'static str {
    match category {
        Category::Parameter => "params",
        Category::Gradient => "grads",
        Category::OptimizerState => "optim",
        Category::Activation => "activ",
        Category::Temporary => "temp",
        Category::Workspace => "workspace",
        Category::Communication => "comm",
        Category::Input => "input",
        Category::Other => "other",
    }
}

/// The longest word for a phase that fits into `room` cells. No word is cut.
pub fn phase_label(phase: Phase, room: usize) -> &'static str {
    let words = match phase {
        Phase::Data => ["data", "data", "data", "d"],
        Phase::Forward => ["forward", "forw", "fw", "f"],
        Phase::Backward => ["backward", "backw", "bw", "b"],
        Phase::Optimizer => ["optimizer", "optim", "opt", "o"],
        Phase::ZeroGrad => ["zero_grad", "zero", "zero", "z"],
    };
    words.into_iter().find(|word| word.len() <= room).unwrap_or_default()
}

/// A remark that categories are guesses; `None` if the program gave them.
pub fn guessed(view: &View) -> Option<&'static str> {
    view.about.guessed.then_some("categories guessed")
}

/// How a category's area is filled in a chart: with a letter if there is no colour.
pub fn ink(category: Category, theme: &Theme) -> Ink {
    let fill = if theme.is_colorless() { category_letter(category) } else { "█" };
    Ink { token: category.into(), fill }
}

/// The mark of a category in legends.
pub fn legend_of(category: Category, theme: &Theme) -> Span<'static> {
    span(theme, category.into(), if theme.is_colorless() { category_letter(category) } else { "■" })
}

/// An account: a share of the reserved bytes.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// Its name.
    pub name: &'static str,
    /// How it is drawn.
    pub ink: Ink,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The accounts, from the bottom up as they lie on each other in charts. Stranded bytes are at the top: there even a
/// thin band is visible, because nothing else ends close to the reserved bytes.
pub fn accounts(ledger: &Ledger, theme: &Theme) -> [Account; 5] {
    // Colours differ enough to tell accounts apart; without colours density does.
    let account = |name, token, density, bytes| {
        let fill = if theme.is_colorless() { density } else { "█" };
        Account { name, ink: Ink { token, fill }, bytes }
    };
    [
        account("live", Token::Allocated, "█", ledger.live),
        account("rounding", Token::Rounding, "▓", ledger.rounding),
        account("pending", Token::Pending, "▒", ledger.pending),
        account("releasable", Token::Reserved, "·", ledger.releasable),
        account("stranded", Token::Stranded, "░", ledger.stranded),
    ]
}

/// The mark of an ink in legends.
pub fn mark(ink: Ink, theme: &Theme) -> Span<'static> {
    let symbol = if ink.fill == "█" && !theme.is_colorless() { "■" } else { ink.fill };
    Span::styled(symbol, Style::new().fg(theme.color(ink.token)))
}

/// The mark of an ink that no cell shows.
pub fn unseen(ink: Ink, theme: &Theme) -> Span<'static> {
    span(theme, ink.token, "□")
}

/// The pattern of stranded free bytes in maps.
pub const STRANDED: &str = "╱";
/// The pattern of free bytes that can go back to the driver.
pub const RELEASABLE: &str = "·";

/// The pattern of freed bytes that a stream may still use.
pub const PENDING: &str = "×";

/// The style of a map's cell with a pattern: an area in the colour of `token`, and the pattern in the surface's colour.
pub fn free_style(token: Token, theme: &Theme) -> Style {
    let color = theme.color(token);
    if theme.is_colorless() {
        Style::new()
    } else if theme.paints() {
        Style::new().fg(theme.color(Token::Surface)).bg(color)
    } else {
        // A theme that does not paint its surface has no other name for the surface's colour.
        Style::new().fg(color).add_modifier(Modifier::REVERSED)
    }
}

/// The marks for blocks that the current op allocated, mostly of this category, and blocks that it freed, as on maps:
/// drawn on whatever lies there now.
pub fn touched_marks(taken: Option<Category>, theme: &Theme) -> [(Span<'static>, &'static str); 2] {
    let [took, gave] = touched_symbols(theme);
    let mark = |symbol, ground: Token| Span::styled(symbol, touched_style(ground, theme));
    [(mark(took, taken.map_or(Token::Activations, Token::from)), "taken"), (mark(gave, Token::Stranded), "freed")]
}

/// The symbols of cells whose blocks an op allocated, and of cells whose blocks it freed.
pub fn touched_symbols(theme: &Theme) -> [&'static str; 2] {
    if theme.is_colorless() { ["@", "o"] } else { ["+", "−"] }
}

/// The style of such a cell on the colour of `ground`.
pub fn touched_style(ground: Token, theme: &Theme) -> Style {
    free_style(ground, theme).add_modifier(Modifier::BOLD)
}

/// The marks of the accounts besides requested bytes, as in the map.
pub fn account_marks(theme: &Theme) -> [(Span<'static>, &'static str); 4] {
    let free = |token, pattern, letter| {
        Span::styled(if theme.is_colorless() { letter } else { pattern }, free_style(token, theme))
    };
    [
        (free(Token::Stranded, STRANDED, "░"), "stranded"),
        (free(Token::Reserved, RELEASABLE, "·"), "releasable"),
        (span(theme, Token::Rounding, "▓"), "rounding"),
        (free(Token::Pending, PENDING, "▒"), "pending"),
    ]
}
