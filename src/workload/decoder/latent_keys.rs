//! The keys of a `config.json` for attention over latent vectors (DeepSeek).

use serde::Deserialize;

use super::super::bounds::Extent;
use super::family::Family;
use super::sizes::LatentSizes;
use super::windows::given;

/// The keys of latent vectors.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct LatentKeys {
    kv_lora_rank: Option<Extent>,
    /// The key is there, perhaps with `null`: queries are projected at once then.
    #[serde(default, deserialize_with = "given")]
    q_lora_rank: Option<Option<Extent>>,
    qk_nope_head_dim: Option<Extent>,
    qk_rope_head_dim: Option<Extent>,
    v_head_dim: Option<Extent>,
    rope_interleave: Option<bool>,
}

impl LatentKeys {
    /// The keys that are given and that other families don't read.
    pub fn asked(&self) -> [(&'static str, bool); 6] {
        [
            ("kv_lora_rank", self.kv_lora_rank.is_some()),
            ("q_lora_rank", self.q_lora_rank.is_some_and(|rank| rank.is_some())),
            ("qk_nope_head_dim", self.qk_nope_head_dim.is_some()),
            ("qk_rope_head_dim", self.qk_rope_head_dim.is_some()),
            ("rope_interleave", self.rope_interleave.is_some()),
            ("v_head_dim", self.v_head_dim.is_some()),
        ]
    }

    /// The key that asks for something unsupported.
    pub fn missing(&self) -> Option<&'static str> {
        (self.rope_interleave == Some(false)).then_some("rope_interleave")
    }

    /// The sizes of latent vectors, and of the rotated part of a head, if the family has them.
    pub fn sizes(&self, family: &Family) -> Option<(LatentSizes, usize)> {
        let (own, rotated) = family.latent?;
        let size = |given: Option<Extent>, own| given.map_or(own, Extent::get);
        let sizes = LatentSizes {
            query_rank: self.q_lora_rank.map_or(own.query_rank, |given| given.map(Extent::get)),
            rank: size(self.kv_lora_rank, own.rank),
            plain: size(self.qk_nope_head_dim, own.plain),
            value: size(self.v_head_dim, own.value),
        };
        Some((sizes, size(self.qk_rope_head_dim, rotated)))
    }
}
