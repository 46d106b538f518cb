//! Cohere's.

use super::super::super::llama::NormKind;
use super::super::family::{EpsKey, Family, WindowRule};
use super::super::style::{NormPlaces, Rotation, Style};
use super::base::{LLAMA, WITH_TABLE};

/// Cohere itself.
const COHERE: Family = Family {
    name: "cohere",
    style: Style {
        norm: NormKind::Unbiased,
        places: NormPlaces::Once,
        rotation: Rotation::CastNeighbours,
        plan: WITH_TABLE,
        ..Style::LLAMA
    },
    tied: true,
    eps_key: EpsKey::LayerNormEps,
    eps: 1e-5,
    padding: Some(0),
    own_keys: &["layer_norm_eps", "logit_scale", "use_qk_norm"],
    ..LLAMA
};

/// All of them.
pub(super) static FAMILIES: &[Family] = &[
    Family { name: "cohere", theta: 500_000.0, ..COHERE },
    Family {
        name: "cohere2",
        windows: WindowRule::AllButEvery(4),
        turns_in_windows: true,
        own_keys: &["layer_norm_eps", "logit_scale", "sliding_window_pattern"],
        ..COHERE
    },
];
