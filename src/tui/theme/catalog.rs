//! Theme files: those in the program, and those of the user, which win.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ratatui::style::{Color, Modifier, Style};
use serde::Deserialize;
use thiserror::Error;

use super::tier::nearest_indexed;
use super::{ColorTier, Theme, Token};
use crate::given::{Shelf, ShelfError};

/// The themes that are always there, in the order in which `T` goes through them.
const BUILT_IN: [(&str, &str); 4] = [
    ("dark", include_str!("../../../themes/dark.toml")),
    ("light", include_str!("../../../themes/light.toml")),
    ("plain", include_str!("../../../themes/plain.toml")),
    ("contrast", include_str!("../../../themes/contrast.toml")),
];

/// Why a theme can't be had.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ThemeError {
    /// No theme has this name.
    #[error("there is no theme \"{name}\"; the themes are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// All names.
        known: String,
    },
    /// A file is not read.
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
    /// A theme is its own ancestor.
    #[error("the theme \"{name}\" has itself as an ancestor; remove a `parent` from its file")]
    Cycle {
        /// The theme.
        name: String,
    },
}

#[derive(Deserialize)]
struct ThemeFile {
    parent: Option<String>,
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
pub struct Catalog(Shelf);

impl Default for Catalog {
    fn default() -> Self {
        Self::with_user_themes(None)
    }
}

impl Catalog {
    /// The built-in themes and, over them, the `.toml` files in `folder`.
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

    /// What of the user's folder is no theme, and why.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let own = self.names().filter(|name| self.0.is_users_own(name));
        let malformed = own.filter_map(|name| self.load(name, ColorTier::True).err()).map(|error| error.to_string());
        self.0.warnings().iter().cloned().chain(malformed).collect()
    }

    /// The names that `T` goes through from `name` on, which comes last.
    pub fn after(&self, name: &str) -> impl Iterator<Item = &str> {
        let position = self.names().position(|known| known == name).map_or(0, |index| index + 1);
        self.names().skip(position).chain(self.names().take(position))
    }

    /// The theme `name` for a terminal of `tier`, and what in its files was not understood.
    ///
    /// # Errors
    /// When no theme or parent has that name, a file does not parse, or parents form a cycle.
    pub fn load(&self, name: &str, tier: ColorTier) -> Result<(Theme, Vec<String>), ThemeError> {
        let mut warnings = Vec::new();
        let mut specs: BTreeMap<String, Spec> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut next = Some(name.to_owned());
        while let Some(current) = next {
            if !seen.insert(current.clone()) {
                return Err(ThemeError::Cycle { name: current });
            }
            let file = self.parse(&current)?;
            for key in file.unknown.keys() {
                warnings.push(format!("theme \"{current}\": \"{key}\" is not a setting"));
            }
            for (key, spec) in file.styles {
                if Token::ALL.iter().any(|token| token.name() == key) {
                    specs.entry(key).or_insert(spec); // the child came first
                } else {
                    warnings.push(format!("theme \"{current}\": \"{key}\" is not a style"));
                }
            }
            next = file.parent;
        }
        let mut styles = Vec::with_capacity(Token::ALL.len());
        for token in Token::ALL {
            let spec = specs.get(token.name()).cloned().unwrap_or(Spec::Table(SpecTable::default()));
            let style = resolve(&spec, tier).map_err(|reason| ThemeError::Malformed {
                name: name.to_owned(),
                reason: format!("{}: {reason}", token.name()),
            })?;
            styles.push(style);
        }
        Ok((Theme::new(name, tier, styles), warnings))
    }

    fn parse(&self, name: &str) -> Result<ThemeFile, ThemeError> {
        self.0.get(name).map_err(|error| match error {
            ShelfError::Unknown => {
                ThemeError::Unknown { name: name.to_owned(), known: self.names().collect::<Vec<_>>().join(", ") }
            }
            ShelfError::File(error) => ThemeError::File(error.to_string()),
            ShelfError::Malformed(reason) => {
                ThemeError::Malformed { name: name.to_owned(), reason: reason.to_string() }
            }
        })
    }
}

fn resolve(spec: &Spec, tier: ColorTier) -> Result<Style, String> {
    let table = match spec {
        Spec::Color(color) => SpecTable { rgb: Some(color.clone()), ..SpecTable::default() },
        Spec::Table(table) => table.clone(),
    };
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

    #[test]
    fn every_built_in_theme_gives_every_token_a_look_at_every_tier() {
        let catalog = Catalog::default();
        for name in catalog.names() {
            for tier in [ColorTier::Ansi, ColorTier::Indexed, ColorTier::True] {
                let (theme, warnings) = catalog.load(name, tier).unwrap();
                assert_eq!(warnings, Vec::<String>::new());
                for category in crate::model::Category::ALL {
                    assert_ne!(theme.color(category.into()), Color::Reset, "{name} {tier:?} {category:?}");
                }
            }
        }
    }

    /// Relative luminance of a colour, as WCAG defines it.
    fn luminance(color: Color) -> f64 {
        let Color::Rgb(r, g, b) = color else { panic!("{color:?} is no exact colour") };
        let linear = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.03928 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b)
    }

    #[test]
    fn areas_of_the_history_that_touch_differ_by_three_to_one() {
        let catalog = Catalog::default();
        for name in catalog.names() {
            let (theme, _) = catalog.load(name, ColorTier::True).unwrap();
            let mut pairs = vec![(Token::Reserved, Token::AllocatedSwing), (Token::AllocatedSwing, Token::Allocated)];
            if theme.paints() {
                pairs.push((Token::Surface, Token::Reserved));
            }
            for (a, b) in pairs {
                let (x, y) = (luminance(theme.color(a)), luminance(theme.color(b)));
                let contrast = (x.max(y) + 0.05) / (x.min(y) + 0.05);
                assert!(contrast >= 3.0, "{name}: {a:?} beside {b:?} has {contrast:.2}");
            }
        }
    }

    #[test]
    fn without_colour_modifiers_remain() {
        let (theme, _) = Catalog::default().load("dark", ColorTier::None).unwrap();
        for &token in Token::ALL {
            assert_eq!(theme.color(token), Color::Reset);
        }
        assert!(theme.style(Token::Strong).add_modifier.contains(Modifier::BOLD));
    }

    #[test]
    fn an_unknown_theme_is_one_sentence_with_the_names() {
        let error = Catalog::default().load("neon", ColorTier::True).unwrap_err();
        assert_eq!(error.to_string(), "there is no theme \"neon\"; the themes are dark, light, plain, contrast");
    }

    #[test]
    fn a_child_overrides_its_parent_and_unknown_keys_warn() {
        let mut catalog = Catalog::default();
        catalog.insert("mine", "parent = \"dark\"\n[styles]\naccent = \"#010203\"\nglow = \"red\"\n");
        let (theme, warnings) = catalog.load("mine", ColorTier::True).unwrap();
        assert_eq!(theme.color(Token::Accent), Color::Rgb(1, 2, 3));
        let (dark, _) = catalog.load("dark", ColorTier::True).unwrap();
        assert_eq!(theme.color(Token::Warn), dark.color(Token::Warn));
        assert_eq!(warnings, ["theme \"mine\": \"glow\" is not a style"]);
    }

    #[test]
    fn a_cycle_of_parents_is_an_error() {
        let mut catalog = Catalog::default();
        catalog.insert("a", "parent = \"b\"");
        catalog.insert("b", "parent = \"a\"");
        assert_eq!(catalog.load("a", ColorTier::True), Err(ThemeError::Cycle { name: "a".into() }));
    }

    #[test]
    fn a_theme_of_the_users_folder_wins() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("dark.toml"), "[styles]\ntext = \"#ffffff\"\n").unwrap();
        let catalog = Catalog::with_user_themes(Some(folder.path()));
        assert_eq!(catalog.names().collect::<Vec<_>>(), ["dark", "light", "plain", "contrast"]);
        let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
        assert_eq!(theme.color(Token::Text), Color::Rgb(255, 255, 255));
    }

    #[test]
    fn a_bad_colour_names_the_theme_and_the_style() {
        let mut catalog = Catalog::default();
        catalog.insert("mine", "parent = \"dark\"\n[styles]\nwarn = \"mauve\"\n");
        let error = catalog.load("mine", ColorTier::True).unwrap_err().to_string();
        assert!(error.contains("mine") && error.contains("warn: \"mauve\" is not a colour"), "{error}");
    }

    #[test]
    fn the_next_theme_goes_round() {
        let catalog = Catalog::default();
        assert_eq!(catalog.after("dark").collect::<Vec<_>>(), ["light", "plain", "contrast", "dark"]);
        assert_eq!(catalog.after("contrast").next(), Some("dark"));
    }
}
