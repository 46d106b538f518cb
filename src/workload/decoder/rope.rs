//! The keys of a `config.json` for rotary embeddings.

use serde::Deserialize;

use vramlab_train::{PositionCount, PositionScale};

use super::family::Family;
use super::rotary_scaling::{DynamicScaling, Factors, Llama3Scaling, LongScaling, RotaryScaling, YarnScaling};

/// How positions become rotations.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(super) struct Rope {
    rope_type: Option<String>,
    /// The older key for the type; some files have both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    rope_theta: Option<f64>,
    partial_rotary_factor: Option<f64>,
    factor: Option<f64>,
    low_freq_factor: Option<f64>,
    high_freq_factor: Option<f64>,
    original_max_position_embeddings: Option<f64>,
    short_factor: Option<Vec<f32>>,
    long_factor: Option<Vec<f32>>,
    attention_factor: Option<f64>,
    beta_fast: Option<f64>,
    beta_slow: Option<f64>,
    mscale: Option<f64>,
    mscale_all_dim: Option<f64>,
    truncate: Option<bool>,
    llama_4_scaling_beta: Option<f64>,
    alpha: Option<f64>,
    /// Parameters of layers without a window, if the two kinds differ.
    full_attention: Option<Box<Self>>,
    /// Parameters of layers with a window.
    sliding_attention: Option<Box<Self>>,
}

impl Rope {
    /// Its type.
    fn kind(&self) -> Option<&str> {
        self.rope_type.as_deref().or(self.older_type.as_deref())
    }

    /// Whether only the older key gives the type.
    const fn has_older_type_alone(&self) -> bool {
        self.rope_type.is_none() && self.older_type.is_some()
    }

    /// YaRN frequencies, stretched by `factor` from the `original` positions of the training, as transformers computes them.
    fn yarn(&self, factor: f64, original: f64) -> YarnScaling {
        // A key of 0 counts as missing.
        let given = |value: Option<f64>| value.filter(|value| *value != 0.0);
        let wider = |part: f64| if factor <= 1.0 { 1.0 } else { 0.1 * part * factor.ln() + 1.0 };
        let own = match (given(self.mscale), given(self.mscale_all_dim)) {
            (Some(some), Some(all)) => wider(some) / wider(all),
            _ => wider(1.0),
        };
        YarnScaling {
            factor,
            fast: given(self.beta_fast).unwrap_or(32.0),
            slow: given(self.beta_slow).unwrap_or(1.0),
            truncates: self.truncate.unwrap_or(true),
            original,
            attention: self.attention_factor.unwrap_or(own),
        }
    }
}

/// All keys of a file for rotary embeddings: its tables, and the keys beside them.
pub(super) struct RopeKeys<'a> {
    /// `rope_parameters`.
    pub parameters: Option<&'a Rope>,
    /// `rope_scaling`, the older key.
    pub scaling: Option<&'a Rope>,
    /// `rope_theta`.
    pub theta: Option<f64>,
    /// `rope_local_base_freq`.
    pub local_theta: Option<f64>,
    /// `partial_rotary_factor`.
    pub rotated: Option<f64>,
    /// `max_position_embeddings`.
    pub most: Option<f64>,
    /// `original_max_position_embeddings`.
    pub original: Option<f64>,
}

impl<'a> RopeKeys<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Rope> {
        let all = self.parameters.iter().chain(&self.scaling);
        all.map(|rope| rope.full_attention.as_deref().unwrap_or(rope))
    }

    /// The base of its wavelengths.
    pub fn theta(&self, family: &Family) -> f64 {
        self.all().find_map(|rope| rope.rope_theta).or(self.theta).unwrap_or(family.theta)
    }

    /// The base for layers with a window, if they have their own.
    pub fn local_theta(&self, family: &Family) -> Option<f64> {
        let given = self.parameters.and_then(|rope| rope.sliding_attention.as_ref()?.rope_theta);
        family.local_theta.map(|own| given.or(self.local_theta).unwrap_or(own))
    }

    /// How queries are scaled by position.
    pub fn position_scale(&self, family: &Family) -> Result<Option<PositionScale>, String> {
        if !family.own_keys.contains(&"llama_4_scaling_beta") {
            return Ok(None);
        }
        let lacks = |key: &str| format!("{key} is missing in rope_parameters; a config.json of {} has it", family.name);
        let beta = self.all().find_map(|rope| rope.llama_4_scaling_beta);
        let original = self.all().find_map(|rope| self.first_learned(rope)).filter(|original| *original >= 1.0);
        Ok(Some(PositionScale {
            count: PositionCount::Model,
            beta: beta.ok_or_else(|| lacks("llama_4_scaling_beta"))?,
            original: original.ok_or_else(|| lacks("original_max_position_embeddings"))?,
        }))
    }

    /// Positions of the original training. As in transformers, keys beside the table take precedence.
    fn first_learned(&self, rope: &Rope) -> Option<f64> {
        let own = self.original.or(rope.original_max_position_embeddings);
        own.or(self.most)
    }

    /// Refuses keys that transformers does not read if layers with a window have their own frequencies.
    fn refuse_unread_rope(&self, family: &Family) -> Result<(), String> {
        if family.local_theta.is_none() {
            return Ok(());
        }
        let local = self.parameters.and_then(|rope| rope.sliding_attention.as_deref());
        if let Some(kind) = local.and_then(Rope::kind).filter(|kind| *kind != "default") {
            return Err(format!("rope_type '{kind}' of sliding_attention is not there; there is default"));
        }
        if self.parameters.is_some_and(|rope| rope.full_attention.is_none() && rope.kind().is_some()) {
            let name = family.name;
            return Err(format!(
                "rope_parameters of {name} are read by kinds of layers; put them under full_attention"
            ));
        }
        if self.scaling.is_some_and(Rope::has_older_type_alone) {
            let name = family.name;
            return Err(format!("the type of rope_scaling is not read for {name}; call it rope_type"));
        }
        Ok(())
    }

    /// How many elements of a head are rotated.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a part of a head, cut off as in transformers"
    )]
    pub fn rotated(&self, family: &Family, head_size: usize) -> Result<usize, String> {
        let part = self.all().find_map(|rope| rope.partial_rotary_factor).or(self.rotated);
        let part = part.unwrap_or(family.rotated);
        if !(part > 0.0 && part <= 1.0) {
            return Err(format!("partial_rotary_factor is {part}; use a number above 0 and at most 1"));
        }
        let rotated = (head_size as f64 * part) as usize;
        // Whole heads are checked where the model is made.
        if rotated < head_size && (rotated == 0 || !rotated.is_multiple_of(2)) {
            return Err(format!(
                "partial_rotary_factor rotates {rotated} of a head's {head_size} elements, which have no two halves; choose one that makes an even number"
            ));
        }
        Ok(rotated)
    }

    /// How the `rotated / 2` frequencies are stretched.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positions of a sample")]
    pub fn scaling(&self, family: &Family, rotated: usize) -> Result<Option<RotaryScaling>, String> {
        self.refuse_unread_rope(family)?;
        let Some((rope, kind)) = self.all().find_map(|rope| Some((rope, rope.kind()?))) else {
            // Any table replaces the family's own.
            return Ok(family.scaling.filter(|_| self.all().next().is_none()));
        };
        let need = |value: Option<f64>, key: &str| {
            value.filter(|value| *value > 0.0).ok_or_else(|| format!("rope_type '{kind}' needs a {key} above 0"))
        };
        if family.own_keys.contains(&"short_factor") {
            return match kind {
                "default" => Ok(None),
                // The name in earlier versions of Phi-3.
                "longrope" | "su" | "yarn" => Ok(Some(RotaryScaling::Long(self.long_scaling(rope, rotated)?))),
                other => Err(format!("rope_type '{other}' is not there; {} has default and longrope", family.name)),
            };
        }
        match kind {
            "default" => Ok(None),
            "linear" => Ok(Some(RotaryScaling::Linear(need(rope.factor, "factor")?))),
            "llama3" => Ok(Some(RotaryScaling::Llama3(Llama3Scaling {
                factor: need(rope.factor, "factor")?,
                low: need(rope.low_freq_factor, "low_freq_factor")?,
                high: need(rope.high_freq_factor, "high_freq_factor")?,
                original: need(rope.original_max_position_embeddings, "original_max_position_embeddings")?,
            }))),
            "yarn" => {
                let factor = need(rope.factor, "factor")?;
                let original = need(self.first_learned(rope), "original_max_position_embeddings")?;
                Ok(Some(RotaryScaling::Yarn(rope.yarn(factor, original))))
            }
            "dynamic" if family.local_theta.is_none() => {
                let most = need(self.most, "max_position_embeddings")?;
                Ok(Some(RotaryScaling::Dynamic(DynamicScaling {
                    factor: need(rope.factor, "factor")?,
                    most: most as usize,
                    alpha: rope.alpha.filter(|alpha| *alpha > 0.0 && family.own_keys.contains(&"alpha")),
                })))
            }
            other => {
                let all = if family.local_theta.is_none() { "default, dynamic" } else { "default" };
                Err(format!("rope_type '{other}' is not there; there are {all}, linear, llama3 and yarn"))
            }
        }
    }

    /// Phi-3's frequencies: keys beside the table take precedence over the table's own.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positions of a sample")]
    fn long_scaling(&self, rope: &Rope, rotated: usize) -> Result<LongScaling, String> {
        let (most, original) = (self.most.unwrap_or(4096.0), self.original.unwrap_or(4096.0));
        if original < 1.0 {
            return Err(format!("original_max_position_embeddings is {original}; use 1 at least"));
        }
        let factors = |given: &Option<Vec<f32>>, key: &str| {
            let given = given.as_deref().unwrap_or_default();
            let fits = given.len() == rotated / 2 && given.iter().all(|factor| *factor > 0.0);
            Factors::of(given).filter(|_| fits).ok_or_else(|| {
                let (need, have, most) = (rotated / 2, given.len(), Factors::MOST);
                format!(
                    "{key} has {have} numbers; rope_type 'longrope' needs {need} above 0, and {most} at most are there"
                )
            })
        };
        let factor = rope.factor.unwrap_or(most / original);
        let own = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / original.ln()).sqrt() };
        Ok(LongScaling {
            short: factors(&rope.short_factor, "short_factor")?,
            long: factors(&rope.long_factor, "long_factor")?,
            original: original as usize,
            attention: rope.attention_factor.unwrap_or(own),
        })
    }

    /// The factor on products of queries and keys of latent vectors, if their frequencies are stretched: `mscale_all_dim`.
    pub fn product_scale(&self) -> f64 {
        let stretched = self.all().find(|rope| rope.kind().is_some_and(|kind| kind != "default"));
        let given = stretched.and_then(|rope| rope.factor.zip(rope.mscale_all_dim.filter(|part| *part != 0.0)));
        let own = given.filter(|(factor, _)| *factor > 1.0).map(|(factor, part)| 0.1 * part * factor.ln() + 1.0);
        own.map_or(1.0, |own| own * own)
    }

    /// Whether some key asks for heads that are rotated in part.
    pub fn rotates_a_part(&self) -> bool {
        let parts = self.all().map(|rope| rope.partial_rotary_factor).chain([self.rotated]);
        parts.flatten().any(|part| part != 1.0)
    }
}
