//! Theme files: the built-in ones, and the user's, which take precedence.

use std::collections::BTreeMap;
use std::path::Path;

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;
use thiserror::Error;
use toml::Spanned;

use super::tier::nearest_indexed;
use super::{ColorTier, Theme, Token};
use vramlab_user_input::{Shelf, ShelfError, TextPosition, TomlText, hint};

/// The built-in themes, in the order of the list.
const BUILT_IN: [(&str, &str); 10] = [
    ("dark", include_str!("../../../themes/dark.toml")),
    ("light", include_str!("../../../themes/light.toml")),
    ("plain", include_str!("../../../themes/plain.toml")),
    ("contrast", include_str!("../../../themes/contrast.toml")),
    ("colorblind", include_str!("../../../themes/colorblind.toml")),
    ("terminal", include_str!("../../../themes/terminal.toml")),
    ("solarized-dark", include_str!("../../../themes/solarized-dark.toml")),
    ("solarized-light", include_str!("../../../themes/solarized-light.toml")),
    ("gruvbox", include_str!("../../../themes/gruvbox.toml")),
    ("nord", include_str!("../../../themes/nord.toml")),
];

/// Why a theme can't be loaded.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ThemeError {
    /// No theme has this name.
    #[error("there is no theme \"{name}\"{hint}; the themes are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// A suggestion.
        hint: String,
        /// All names.
        known: String,
    },
    /// A file can't be read.
    #[error("{0}")]
    File(String),
    /// A file is not a theme.
    #[error("the theme \"{name}\" can't be read ({reason}); correct or remove its file")]
    Malformed {
        /// The theme.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A theme inherits from one that is not there.
    #[error("{place}: there is no theme \"{parent}\" to inherit from{hint}; the themes are {known}")]
    UnknownParent {
        /// The place of the parent's name in the file.
        place: TextPosition,
        /// The unknown name.
        parent: String,
        /// A suggestion.
        hint: String,
        /// All names.
        known: String,
    },
    /// A theme is its own ancestor.
    #[error("{place}: the theme \"{name}\" inherits from itself ({circle}); remove one `inherits` of these")]
    Cycle {
        /// The place where the cycle closes.
        place: TextPosition,
        /// The theme.
        name: String,
        /// The names in the cycle, such as `a → b → a`.
        circle: String,
    },
}

#[derive(Deserialize)]
struct ThemeFile {
    #[serde(alias = "parent")]
    inherits: Option<Spanned<String>>,
    #[serde(default)]
    styles: BTreeMap<String, Spec>,
    #[serde(flatten)]
    unknown: BTreeMap<String, toml::Value>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Spec {
    Color(String),
    Table(SpecTable),
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecTable {
    rgb: Option<String>,
    ansi: Option<String>,
    #[serde(default)]
    bold: bool,
    #[serde(default)]
    italic: bool,
    #[serde(default)]
    underline: bool,
    #[serde(default)]
    reverse: bool,
}

/// All themes.
#[derive(Clone, Debug)]
pub struct ThemeCatalog(Shelf);

impl Default for ThemeCatalog {
    fn default() -> Self {
        Self::with_user_themes(None)
    }
}

impl Spec {
    fn table(self) -> SpecTable {
        match self {
            Self::Color(color) => SpecTable { rgb: Some(color), ..SpecTable::default() },
            Self::Table(table) => table,
        }
    }
}

impl SpecTable {
    /// The colour for terminals with 16 colours, if there is one.
    fn of_sixteen(&self) -> Option<&String> {
        self.ansi.as_ref().or(self.rgb.as_ref().filter(|color| !color.starts_with('#')))
    }
}

impl ThemeCatalog {
    /// The built-in themes, and the `.toml` files in `folder`, which override them.
    #[must_use]
    pub fn with_user_themes(folder: Option<&Path>) -> Self {
        Self(Shelf::new(&BUILT_IN, folder))
    }

    /// Adds a theme, or replaces the one of that name.
    pub fn insert(&mut self, name: &str, source: &str) {
        self.0.insert(name, source);
    }

    /// All names: built-in ones first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// Files in the user's folder that are not themes, and why.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.0.warnings_of(|name| self.load(name, ColorTier::True))
    }

    /// The theme `name` for a terminal of `tier`, and warnings about its files.
    ///
    /// # Errors
    /// If no theme or parent has that name, a file does not parse, or parents form a cycle.
    pub fn load(&self, name: &str, tier: ColorTier) -> Result<(Theme, Vec<String>), ThemeError> {
        let mut warnings = Vec::new();
        let mut specs: BTreeMap<String, SpecTable> = BTreeMap::new();
        let mut line: Vec<String> = vec![name.to_owned()];
        let (mut text, mut file) = self.parse(name)?;
        loop {
            let current = line.last().map_or(name, String::as_str);
            for key in file.unknown.keys() {
                warnings.push(format!(
                    "theme \"{current}\": \"{key}\" is not a setting{}",
                    hint(key, ["inherits", "styles"])
                ));
            }
            for (key, spec) in file.styles {
                if !Token::ALL.iter().any(|token| token.name() == key) {
                    let hint = hint(&key, Token::ALL.iter().map(|token| token.name()));
                    warnings.push(format!("theme \"{current}\": \"{key}\" is not a style{hint}"));
                    continue;
                }
                // The child's values come first. If it has none for 16 colours, the parent's are used.
                let spec = spec.table();
                let known = specs.entry(key).or_insert_with(|| spec.clone());
                if known.of_sixteen().is_none() {
                    known.ansi = spec.of_sixteen().cloned();
                }
            }
            let Some(parent) = file.inherits else { break };
            let place = text.place(parent.span().start);
            let parent = parent.into_inner();
            let again = line.contains(&parent);
            line.push(parent.clone());
            if again {
                return Err(ThemeError::Cycle { place, name: parent, circle: line.join(" → ") });
            }
            (text, file) = self.parse(&parent).map_err(|error| match error {
                ThemeError::Unknown { known, .. } => {
                    ThemeError::UnknownParent { place, hint: hint(&parent, self.names()), parent, known }
                }
                other => other,
            })?;
        }
        let mut styles = Vec::with_capacity(Token::ALL.len());
        for token in Token::ALL {
            let style = specs.get(token.name()).map_or(Ok(Style::new()), |spec| resolve(spec, tier));
            let style = style.map_err(|reason| ThemeError::Malformed {
                name: name.to_owned(),
                reason: format!("{}: {reason}", token.name()),
            })?;
            // Without colours, frames and grids would be as bright as their content and the lines drawn over it.
            styles.push(match (tier, *token) {
                (ColorTier::None, Token::Border) => style.add_modifier(Modifier::DIM),
                (ColorTier::None, _) => style.remove_modifier(Modifier::DIM),
                _ => style,
            });
        }
        Ok((Theme::new(name, tier, styles), warnings))
    }

    fn parse(&self, name: &str) -> Result<(TomlText, ThemeFile), ThemeError> {
        let file = |error: &dyn std::fmt::Display| ThemeError::File(error.to_string());
        let text = self.0.text(name).map_err(|error| match error {
            ShelfError::Unknown => ThemeError::Unknown {
                name: name.to_owned(),
                hint: hint(name, self.names()),
                known: self.names().collect::<Vec<_>>().join(", "),
            },
            other => file(&other),
        })?;
        let parsed = text.parse().map_err(|error| ThemeError::Malformed {
            name: name.to_owned(),
            reason: text.file().map_or_else(|| error.to_string(), |file| format!("{}, {error}", file.display())),
        })?;
        Ok((text, parsed))
    }
}

fn resolve(table: &SpecTable, tier: ColorTier) -> Result<Style, String> {
    let rgb = table.rgb.as_deref().map(parse_color).transpose()?;
    let ansi = table.ansi.as_deref().map(parse_color).transpose()?;
    let color = match tier {
        ColorTier::None => None,
        ColorTier::Ansi => ansi.or(rgb.filter(|color| !matches!(color, Color::Rgb(..)))),
        ColorTier::Indexed => rgb.or(ansi).map(|color| match color {
            Color::Rgb(r, g, b) => nearest_indexed(r, g, b),
            other => other,
        }),
        ColorTier::True => rgb.or(ansi),
    };
    let mut style = Style { fg: color.filter(|&color| color != Color::Reset), ..Style::new() };
    for (wanted, modifier) in [
        (table.bold, Modifier::BOLD),
        (table.italic, Modifier::ITALIC),
        (table.underline, Modifier::UNDERLINED),
        (table.reverse, Modifier::REVERSED),
    ] {
        if wanted {
            style = style.add_modifier(modifier);
        }
    }
    Ok(style)
}

fn parse_color(text: &str) -> Result<Color, String> {
    let named = match text {
        "default" => Color::Reset,
        "black" => Color::Black,
        "red" => Color::Red,
        "green" => Color::Green,
        "yellow" => Color::Yellow,
        "blue" => Color::Blue,
        "magenta" => Color::Magenta,
        "cyan" => Color::Cyan,
        "white" => Color::Gray,
        "bright-black" => Color::DarkGray,
        "bright-red" => Color::LightRed,
        "bright-green" => Color::LightGreen,
        "bright-yellow" => Color::LightYellow,
        "bright-blue" => Color::LightBlue,
        "bright-magenta" => Color::LightMagenta,
        "bright-cyan" => Color::LightCyan,
        "bright-white" => Color::White,
        _ => {
            let digits = text.strip_prefix('#').filter(|digits| digits.len() == 6);
            let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
            let [_, r, g, b] = value.ok_or_else(|| format!("\"{text}\" is not a colour"))?.to_be_bytes();
            Color::Rgb(r, g, b)
        }
    };
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<&'static str> {
        BUILT_IN.iter().map(|(name, _)| *name).collect()
    }

    #[test]
    fn every_built_in_theme_gives_every_token_a_look_at_every_tier() {
        let catalog = ThemeCatalog::default();
        for name in catalog.names() {
            for tier in [ColorTier::Ansi, ColorTier::Indexed, ColorTier::True] {
                let (theme, warnings) = catalog.load(name, tier).unwrap();
                assert_eq!(warnings, Vec::<String>::new());
                for category in vramlab_model::Category::ALL {
                    assert_ne!(theme.color(category.into()), Color::Reset, "{name} {tier:?} {category:?}");
                }
            }
        }
    }

    /// Every built-in theme that paints its surface, at every number of colours whose look is known.
    fn painted() -> impl Iterator<Item = Theme> {
        let load = |(name, _): &(&str, &str), tier| ThemeCatalog::default().load(name, tier).unwrap().0;
        let tiers = [ColorTier::Indexed, ColorTier::True];
        BUILT_IN.iter().flat_map(move |entry| tiers.map(|tier| load(entry, tier))).filter(Theme::paints)
    }

    #[test]
    fn areas_of_the_history_that_touch_differ_by_three_to_one() {
        let check = |theme: &Theme, a: Token, b: Token| {
            let contrast = theme.contrast(a, b).unwrap();
            assert!(contrast >= 3.0, "{} {:?}: {a:?} beside {b:?} has {contrast:.2}", theme.name(), theme.tier());
        };
        let (plain, _) = ThemeCatalog::default().load("plain", ColorTier::True).unwrap();
        for theme in painted().chain([plain]) {
            check(&theme, Token::Reserved, Token::AllocatedSwing);
            check(&theme, Token::AllocatedSwing, Token::Allocated);
            if theme.paints() {
                check(&theme, Token::Surface, Token::Reserved);
            }
        }
    }

    #[test]
    fn text_reads_and_areas_stand_out_from_the_surface_in_every_painted_theme() {
        use Token::{
            Accent, Backward, Copy, Danger, Data, Dim, Forward, Ghost, Key, Limit, Loss, Ok, Pending, Rounding,
            Stranded, Strong, Text, Title, Update, Warn, ZeroGrad,
        };
        // What WCAG demands of text (AA), and of other elements.
        let text = [
            Text, Strong, Dim, Title, Accent, Key, Ok, Warn, Danger, Limit, Loss, Data, Forward, Backward, Update,
            ZeroGrad, Copy,
        ];
        let graphics = [Stranded, Rounding, Pending, Ghost, Token::FreeMark, Token::Several].into_iter();
        let graphics = graphics.chain(vramlab_model::Category::ALL.map(Token::from));
        let wanted: Vec<(Token, f64)> =
            text.into_iter().map(|token| (token, 4.5)).chain(graphics.map(|token| (token, 3.0))).collect();
        let mut themes = 0;
        for theme in painted() {
            themes += 1;
            for (token, least) in &wanted {
                let contrast = theme.contrast(Token::Surface, *token).unwrap();
                assert!(contrast >= *least, "{} {:?}: {token:?} has {contrast:.2}", theme.name(), theme.tier());
            }
        }
        assert_eq!(themes, 2 * 8);
    }

    #[test]
    fn parts_that_lie_upon_each_other_are_dark_and_light_in_turn_in_every_painted_theme() {
        use vramlab_model::Category::{
            Activation, Communication, Gradient, Input, OptimizerState, Other, Parameter, Temporary, Workspace,
        };
        // In the order of the stack, also without categories that are often absent.
        let categories = [
            (Parameter, OptimizerState),
            (Parameter, Gradient),
            (OptimizerState, Input),
            (Gradient, Input),
            (OptimizerState, Activation),
            (Gradient, Activation),
            (Activation, Communication),
            (Activation, Other),
            (Activation, Workspace),
            (Activation, Temporary),
        ];
        let accounts = [(Token::Allocated, Token::Stranded), (Token::Stranded, Token::Reserved)];
        let pairs = categories.map(|(low, high)| (Token::from(low), Token::from(high))).into_iter().chain(accounts);
        for (low, high) in pairs {
            for theme in painted() {
                let contrast = theme.contrast(low, high).unwrap();
                // Palettes of soft colours have too little contrast to do without lines.
                let least = match (["gruvbox", "nord"].contains(&theme.name()), theme.tier()) {
                    (false, ColorTier::True) => 2.95,
                    (true, ColorTier::Indexed) => 1.5,
                    _ => 1.8,
                };
                assert!(
                    contrast >= least,
                    "{} {:?}: {low:?} below {high:?}: {contrast:.2}",
                    theme.name(),
                    theme.tier()
                );
            }
        }
        let (terminal, _) = ThemeCatalog::default().load("terminal", ColorTier::True).unwrap();
        assert!(!terminal.tells_apart(Parameter.into(), Activation.into()), "nobody knows how they look");
    }

    #[test]
    fn ages_are_shades_from_one_to_the_next_and_what_is_old_stands_out() {
        use Token::{Age0, Age1, Age2, Age10, Age100};
        let ages = [Age0, Age1, Age2, Age10, Age100];
        for theme in painted() {
            let from_surface = ages.map(|age| theme.contrast(Token::Surface, age).unwrap());
            let text = format!("{} {:?}: {from_surface:.2?}", theme.name(), theme.tier());
            assert!(from_surface[0] >= 1.8, "{text}");
            assert!(from_surface.windows(2).all(|pair| pair[1] > pair[0] * 1.1), "{text}");
        }
    }

    #[test]
    fn several_as_one_have_a_colour_of_their_own_that_is_seen_below_activations() {
        let categories = vramlab_model::Category::ALL.map(Token::from);
        for theme in painted() {
            assert!(categories.iter().all(|own| theme.color(*own) != theme.color(Token::Several)), "{}", theme.name());
            let contrast = theme.contrast(Token::Several, Token::Activations).unwrap();
            assert!(contrast >= 2.3, "{} {:?}: {contrast:.2}", theme.name(), theme.tier());
        }
    }

    #[test]
    fn without_colour_modifiers_remain() {
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::None).unwrap();
        for &token in Token::ALL {
            assert_eq!(theme.color(token), Color::Reset);
        }
        assert!(theme.style(Token::Strong).add_modifier.contains(Modifier::BOLD));
        assert!(theme.style(Token::Border).add_modifier.contains(Modifier::DIM));
    }

    #[test]
    fn an_unknown_theme_is_one_sentence_with_the_names() {
        let error = ThemeCatalog::default().load("neon", ColorTier::True).unwrap_err();
        assert_eq!(error.to_string(), format!("there is no theme \"neon\"; the themes are {}", names().join(", ")));
        let error = ThemeCatalog::default().load("gruvbx", ColorTier::True).unwrap_err().to_string();
        assert!(error.contains("did you mean \"gruvbox\"?"), "{error}");
    }

    #[test]
    fn a_child_overrides_its_parent_and_unknown_keys_warn() {
        let mut catalog = ThemeCatalog::default();
        catalog.insert("mine", "inherits = \"dark\"\n[styles]\naccent = \"#010203\"\nglow = \"red\"\n");
        let (theme, warnings) = catalog.load("mine", ColorTier::True).unwrap();
        assert_eq!(theme.color(Token::Accent), Color::Rgb(1, 2, 3));
        let (dark, _) = catalog.load("dark", ColorTier::True).unwrap();
        assert_eq!(theme.color(Token::Warn), dark.color(Token::Warn));
        assert_eq!(warnings, ["theme \"mine\": \"glow\" is not a style"]);
    }

    #[test]
    fn what_a_child_says_for_no_16_colours_its_parent_says() {
        let mut catalog = ThemeCatalog::default();
        catalog.insert("mine", "inherits = \"dark\"\n[styles]\naccent = \"#010203\"\nkey = \"red\"\n");
        let (mine, _) = catalog.load("mine", ColorTier::Ansi).unwrap();
        let (dark, _) = catalog.load("dark", ColorTier::Ansi).unwrap();
        assert_eq!(mine.color(Token::Accent), dark.color(Token::Accent));
        assert_eq!(mine.color(Token::Key), Color::Red);
    }

    #[test]
    fn a_cycle_and_a_parent_that_is_none_are_told_with_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.toml", "# mine\ninherits = \"b\"");
        write("b.toml", "\n\ninherits = \"a\"");
        write("c.toml", "\ninherits = \"drak\"");
        write("d.toml", "parent = \"light\"");
        let catalog = ThemeCatalog::with_user_themes(Some(folder.path()));
        let told = |name: &str| catalog.load(name, ColorTier::True).unwrap_err().to_string();
        let at = |file: &str| folder.path().join(file).display().to_string();
        let wanted = format!(
            "{}, line 3: the theme \"a\" inherits from itself (a → b → a); remove one `inherits` of these",
            at("b.toml")
        );
        assert_eq!(told("a"), wanted);
        let begins = format!(
            "{}, line 2: there is no theme \"drak\" to inherit from (did you mean \"dark\"?); the themes are dark,",
            at("c.toml")
        );
        assert!(told("c").starts_with(&begins), "{}", told("c"));
        assert!(catalog.load("d", ColorTier::True).is_ok(), "the older word");
        assert_eq!(catalog.warnings().len(), 3, "and whoever looks at the themes is told: {:?}", catalog.warnings());
    }

    #[test]
    fn a_file_that_is_no_theme_is_told_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.toml");
        std::fs::write(&file, "inherits = \"dark\"\n[styles]\ntext = = 3").unwrap();
        let warnings = ThemeCatalog::with_user_themes(Some(folder.path())).warnings();
        assert!(matches!(&*warnings, [one] if one.contains(&format!("{}, line 3: ", file.display()))), "{warnings:?}");
    }

    #[test]
    fn a_theme_of_the_users_folder_wins() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("dark.toml"), "[styles]\ntext = \"#ffffff\"\n").unwrap();
        let catalog = ThemeCatalog::with_user_themes(Some(folder.path()));
        assert_eq!(catalog.names().collect::<Vec<_>>(), names());
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        assert_eq!(theme.color(Token::Text), Color::Rgb(255, 255, 255));
    }

    #[test]
    fn a_bad_colour_names_the_theme_and_the_style() {
        let mut catalog = ThemeCatalog::default();
        catalog.insert("mine", "inherits = \"dark\"\n[styles]\nwarn = \"mauve\"\n");
        let error = catalog.load("mine", ColorTier::True).unwrap_err().to_string();
        assert!(error.contains("mine") && error.contains("warn: \"mauve\" is not a colour"), "{error}");
    }
}
