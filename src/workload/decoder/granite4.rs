//! The keys of Granite 4's `config.json` (`granitemoehybrid`) for models with attention in every layer.

use serde::Deserialize;

use super::super::bounds::Extent;
use super::expert_keys::or_none;

/// Keys of Granite 4 alone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Granite4Keys {
    /// The MLP's `intermediate_size`, as that key is the size of experts here; 0 is no MLP beside experts.
    #[serde(default, deserialize_with = "or_none")]
    shared_intermediate_size: Option<Option<Extent>>,
    /// Other families have this key but don't read it.
    position_embedding_type: Option<String>,
}

impl Granite4Keys {
    /// Hidden values of an MLP.
    pub fn hidden(&self) -> usize {
        self.shared_intermediate_size.flatten().map_or(1024, Extent::get)
    }

    /// Hidden values of an MLP beside experts (`granitemoeshared`); there is none if the key is 0 or missing.
    pub fn beside_experts(&self) -> Option<usize> {
        self.shared_intermediate_size.flatten().map(Extent::get)
    }

    /// Whether queries and keys are rotated.
    pub fn rotates(&self) -> bool {
        self.position_embedding_type.as_deref() == Some("rope")
    }

    /// Refuses layers that keep a state, according to the file's `types`, and experts, unless there are `none`.
    pub fn refuse_what_is_not_there(&self, types: Option<&[String]>, none: bool) -> Result<(), String> {
        let attends = |kind: &String| matches!(&**kind, "attention" | "full_attention");
        if self.shared_intermediate_size == Some(None) {
            return Err(
                "shared_intermediate_size is 0, which leaves granitemoehybrid no MLP; use 1 at least".to_owned()
            );
        }
        match types.map(|types| types.iter().find(|kind| !attends(kind))) {
            Some(Some(other)) => Err(format!("layer_types has '{other}', which is not there; there is attention")),
            None => Err(
                "layer_types is missing, which makes every layer a mamba, which is not there; give attention for each"
                    .to_owned(),
            ),
            Some(None) if !none => {
                Err("experts beside the MLP of granitemoehybrid are not there; give num_local_experts as 0".to_owned())
            }
            Some(None) => Ok(()),
        }
    }
}
