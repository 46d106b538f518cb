//! Meanings on the screen, and the look of each. No other module knows colours.

mod catalog;
mod contrast;
mod tier;

pub use catalog::{ThemeCatalog, ThemeError};
pub use tier::ColorTier;

use ratatui::style::{Color, Style};

use vramlab_model::{Category, Phase};

macro_rules! tokens {
    ($($(#[$doc:meta])* $variant:ident = $name:literal),+ $(,)?) => {
        /// A meaning to which a theme gives a look.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Token { $($(#[$doc])* $variant),+ }

        impl Token {
            /// All tokens, in the order of theme files.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Its key in theme files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }
        }
    };
}

tokens! {
    /// The background of everything.
    Surface = "surface",
    /// Ordinary text.
    Text = "text",
    /// Figures and words that matter most.
    Strong = "strong",
    /// Units, labels, and inactive things.
    Dim = "dim",
    /// Lines around panes.
    Border = "border",
    /// Titles of panes.
    Title = "title",
    /// The one accent: current values, what just changed.
    Accent = "accent",
    /// Keys that can be pressed.
    Key = "key",
    /// Good news.
    Ok = "ok",
    /// Worth a look.
    Warn = "warn",
    /// Failed.
    Danger = "danger",
    /// Allocated bytes, in the memory chart.
    Allocated = "allocated",
    /// Between the lowest and the highest allocated bytes within one column.
    AllocatedSwing = "allocated_swing",
    /// Held from the driver but not allocated.
    Reserved = "reserved",
    /// Free, but inside a segment that contains allocated blocks.
    Stranded = "stranded",
    /// The line of the limit.
    Limit = "limit",
    /// The marks on free bytes in the block map.
    FreeMark = "free_mark",
    /// The part of an allocated block beyond the requested bytes.
    Rounding = "rounding",
    /// Freed, but waiting for another stream.
    Pending = "pending",
    /// Blocks of parameters.
    Parameters = "parameters",
    /// Blocks of gradients.
    Gradients = "gradients",
    /// Blocks of optimizer state.
    Optimizer = "optimizer",
    /// Blocks of activations.
    Activations = "activations",
    /// Blocks of temporaries.
    Temporaries = "temporaries",
    /// Blocks of workspaces.
    Workspaces = "workspaces",
    /// Blocks for communication between ranks, and its time.
    Communication = "communication",
    /// Blocks of inputs.
    Inputs = "inputs",
    /// All other blocks.
    Other = "other",
    /// Several categories that are too thin to be told apart.
    Several = "several",
    /// Blocks allocated in this step.
    Age0 = "age_0",
    /// Blocks allocated in the step before.
    Age1 = "age_1",
    /// Blocks that are two to nine steps old.
    Age2 = "age_2",
    /// Blocks that are ten steps old or more.
    Age10 = "age_10",
    /// Blocks that are a hundred steps old or more.
    Age100 = "age_100",
    /// Time spent waiting for data.
    Data = "data",
    /// Time of the forward pass.
    Forward = "forward",
    /// Time of the backward pass.
    Backward = "backward",
    /// Time of the optimizer.
    Update = "update",
    /// Time of `zero_grad`.
    ZeroGrad = "zero_grad",
    /// Time of copies.
    Copy = "copy",
    /// The loss curve.
    Loss = "loss",
    /// The curve of the step before the last flip, and of a ghost.
    Ghost = "ghost",
}

impl From<Category> for Token {
    fn from(category: Category) -> Self {
        match category {
            Category::Parameter => Self::Parameters,
            Category::Gradient => Self::Gradients,
            Category::OptimizerState => Self::Optimizer,
            Category::Activation => Self::Activations,
            Category::Temporary => Self::Temporaries,
            Category::Workspace => Self::Workspaces,
            Category::Communication => Self::Communication,
            Category::Input => Self::Inputs,
            Category::Other => Self::Other,
        }
    }
}

impl From<Phase> for Token {
    fn from(phase: Phase) -> Self {
        match phase {
            Phase::Data => Self::Data,
            Phase::Forward => Self::Forward,
            Phase::Backward => Self::Backward,
            Phase::Optimizer => Self::Update,
            Phase::ZeroGrad => Self::ZeroGrad,
        }
    }
}

/// A look for every token, in the colours that the terminal has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Theme {
    name: String,
    tier: ColorTier,
    styles: Vec<Style>,
    /// The luminance of each token's colour in millionths, if it is known. Charts ask for contrasts cell by cell.
    luminance: Vec<Option<u32>>,
    whole_cells: bool,
}

impl Theme {
    fn new(name: &str, tier: ColorTier, styles: Vec<Style>) -> Self {
        let millionths = |style: &Style| Some((contrast::luminance(style.fg?)? * 1e6).round() as u32);
        let luminance = styles.iter().map(millionths).collect();
        Self { name: name.to_owned(), tier, styles, luminance, whole_cells: tier == ColorTier::None }
    }

    /// The same theme for a terminal that has no characters for parts of a cell.
    #[must_use]
    pub fn in_whole_cells(self) -> Self {
        Self { whole_cells: true, ..self }
    }

    /// True if a cell of a chart shows only one part: without colours, or without characters for parts of a cell.
    #[must_use]
    pub fn has_whole_cells(&self) -> bool {
        self.whole_cells
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of colours that it was made for.
    #[must_use]
    pub fn tier(&self) -> ColorTier {
        self.tier
    }

    /// The style of text that means `token`. [`Token::Surface`] is a background.
    #[must_use]
    pub fn style(&self, token: Token) -> Style {
        let style = self.styles.get(token as usize).copied().unwrap_or_default();
        if token == Token::Surface { Style { bg: style.fg, fg: None, ..style } } else { style }
    }

    /// The colour of `token`; `Reset` if the theme leaves it to the terminal.
    #[must_use]
    pub fn color(&self, token: Token) -> Color {
        self.styles.get(token as usize).and_then(|style| style.fg).unwrap_or(Color::Reset)
    }

    /// A colour between that of `token` and the surface, for an area that contains others; `None` if the colours can't be mixed.
    #[must_use]
    pub fn faint(&self, token: Token) -> Option<Color> {
        let (Color::Rgb(r, g, b), Color::Rgb(on_r, on_g, on_b)) = (self.color(token), self.color(Token::Surface))
        else {
            return None;
        };
        let mixed = |one: u8, other: u8| u8::try_from((u16::from(one) * 2 + u16::from(other) * 3) / 5).unwrap_or(one);
        Some(Color::Rgb(mixed(r, on_r), mixed(g, on_g), mixed(b, on_b)))
    }

    /// True if background colours may separate areas: the theme paints its own surface, so similar colours are visible.
    #[must_use]
    pub fn paints(&self) -> bool {
        self.color(Token::Surface) != Color::Reset
    }

    /// True if `color` is the colour of blank space.
    #[must_use]
    pub fn is_ground(&self, color: Color) -> bool {
        [Color::Reset, self.color(Token::Surface)].contains(&color)
    }

    /// The contrast of two colours, from 1 to 21, if both are known.
    #[must_use]
    pub fn contrast(&self, a: Token, b: Token) -> Option<f64> {
        let luminance = |token: Token| Some(f64::from((*self.luminance.get(token as usize)?)?) / 1e6);
        Some(contrast::contrast(luminance(a)?, luminance(b)?))
    }

    /// True if everybody can tell touching areas of two colours apart.
    #[must_use]
    pub fn tells_apart(&self, a: Token, b: Token) -> bool {
        a == b || self.contrast(a, b).is_some_and(|contrast| contrast >= contrast::AREAS)
    }

    /// True if the colour of `token` is readable on a ground, as far as is known.
    #[must_use]
    pub fn reads_on(&self, token: Token, ground: Color) -> bool {
        let known = self.luminance.get(token as usize).copied().flatten().map(|millionths| f64::from(millionths) / 1e6);
        match (known, contrast::luminance(ground)) {
            (Some(ink), Some(ground)) => contrast::contrast(ink, ground) >= contrast::AREAS,
            _ => self.color(token) != ground,
        }
    }

    /// True if there are no colours at all.
    #[must_use]
    pub fn is_colorless(&self) -> bool {
        self.tier == ColorTier::None
    }
}
