//! The keys of a `config.json` for layers with a sliding window.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::super::bounds::Extent;
use super::family::{Family, WindowRule};
use super::pattern::LayerPattern;
use super::sizes::SlidingWindows;

/// The keys of windows.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct WindowKeys {
    /// The key is there, perhaps with `null`.
    #[serde(default, deserialize_with = "given")]
    sliding_window: Option<Option<usize>>,
    use_sliding_window: Option<bool>,
    /// The type of each layer.
    pub layer_types: Option<Vec<String>>,
    max_window_layers: Option<usize>,
    /// Positions of a chunk (Llama 4).
    attention_chunk_size: Option<Extent>,
    #[serde(alias = "_sliding_window_pattern")]
    sliding_window_pattern: Option<Every>,
}

/// The period of layers without a window.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Every {
    Layers(usize),
    /// A string with a letter per layer (EXAONE 4), which `layer_types` repeats.
    Word(IgnoredAny),
}

impl WindowKeys {
    /// Whether the file does not set the window to none.
    pub const fn are_given(&self) -> bool {
        !matches!(self.sliding_window, Some(None))
    }

    /// The windows of a model with this many `layers`, of which some are `unrotated`.
    pub fn windows(&self, family: &Family, layers: usize, unrotated: LayerPattern) -> Result<SlidingWindows, String> {
        if family.windows == WindowRule::ChunksWhereRotated {
            return self.chunks(family, layers, unrotated);
        }
        let asked = self.use_sliding_window == Some(true);
        let given = self.sliding_window.flatten();
        let window = match family.windows {
            WindowRule::Never | WindowRule::ChunksWhereRotated => None,
            WindowRule::All => return Ok(given.map_or(SlidingWindows::NONE, SlidingWindows::every)),
            WindowRule::AllWhereAsked => {
                let window = asked.then(|| given.unwrap_or(family.window));
                return Ok(window.map_or(SlidingWindows::NONE, SlidingWindows::every));
            }
            WindowRule::AllButEvery(_) | WindowRule::AllButFirstOf(_) | WindowRule::AllOrListed => {
                Some(given.unwrap_or(family.window))
            }
            WindowRule::AllButEveryUnlessNone(_) | WindowRule::LateUnlessNone(_) => {
                self.sliding_window.unwrap_or(Some(family.window))
            }
            WindowRule::Early => Some(if asked { given.unwrap_or(family.window) } else { 0 }),
            WindowRule::Late | WindowRule::Unrotated => given.filter(|_| asked),
        };
        let Some(window) = window else { return Ok(SlidingWindows::NONE) };
        let listed = match (&self.layer_types, family.windows) {
            (Some(types), _) => types.iter().map(|kind| has_window(kind)).collect::<Result<_, _>>()?,
            (None, WindowRule::AllButEvery(own) | WindowRule::AllButEveryUnlessNone(own)) => {
                // Only Gemma 3 and EXAONE 4 read another pattern.
                let reads = family.own_keys.contains(&"sliding_window_pattern");
                let every = match self.sliding_window_pattern.as_ref().filter(|_| reads) {
                    Some(Every::Layers(every)) => *every,
                    Some(Every::Word(_)) => {
                        return Err("sliding_window_pattern is a word; give layer_types beside it".to_owned());
                    }
                    None => own,
                };
                (1..=layers).map(|layer| !layer.is_multiple_of(every.max(1))).collect()
            }
            (None, WindowRule::AllButFirstOf(own)) => (0..layers).map(|layer| !layer.is_multiple_of(own)).collect(),
            (None, WindowRule::AllOrListed) => vec![true],
            (None, WindowRule::Early) => {
                let most = self.max_window_layers.unwrap_or(28);
                (0..layers).map(|layer| asked && layer.is_multiple_of(2) && layer < most).collect()
            }
            (None, WindowRule::LateUnlessNone(own)) => {
                (0..layers).map(|layer| layer >= self.max_window_layers.unwrap_or(own)).collect()
            }
            (None, WindowRule::Late) => {
                (0..layers).map(|layer| layer >= self.max_window_layers.unwrap_or(28)).collect()
            }
            (None, _) => (0..layers).map(|layer| unrotated.has(layer)).collect(),
        };
        let pattern = LayerPattern::under("layer_types", &listed)?;
        // If no layer has a window, some families make no mask for windows.
        let always = matches!(
            family.windows,
            WindowRule::AllButEvery(_) | WindowRule::AllButFirstOf(_) | WindowRule::AllOrListed | WindowRule::Early
        );
        let some = SlidingWindows::some(window, pattern);
        Ok(match pattern {
            LayerPattern::NONE if !always => SlidingWindows::NONE,
            _ if always || matches!(family.windows, WindowRule::AllButEveryUnlessNone(_)) => some.with_both_masks(),
            _ => some,
        })
    }
}

impl WindowKeys {
    /// Whether it has the key of chunks.
    pub const fn has_chunks(&self) -> bool {
        self.attention_chunk_size.is_some()
    }

    fn chunks(&self, family: &Family, layers: usize, unrotated: LayerPattern) -> Result<SlidingWindows, String> {
        let listed = match &self.layer_types {
            Some(types) => types.iter().map(|kind| has_chunks(kind)).collect::<Result<_, _>>()?,
            None => (0..layers).map(|layer| !unrotated.has(layer)).collect::<Vec<_>>(),
        };
        let chunk = self.attention_chunk_size.map_or(family.window, Extent::get);
        Ok(SlidingWindows::chunks(chunk, LayerPattern::under("layer_types", &listed)?))
    }
}

/// Whether layers of a type have chunks.
fn has_chunks(kind: &str) -> Result<bool, String> {
    match kind {
        "full_attention" => Ok(false),
        "chunked_attention" => Ok(true),
        other => Err(format!(
            "layer_types has '{other}', which is not there; there are full_attention and chunked_attention"
        )),
    }
}

/// A key that is given, with any value.
pub(super) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Whether layers of a type have a window.
fn has_window(kind: &str) -> Result<bool, String> {
    match kind {
        "full_attention" => Ok(false),
        "sliding_attention" => Ok(true),
        other => Err(format!(
            "layer_types has '{other}', which is not there; there are full_attention and sliding_attention"
        )),
    }
}
