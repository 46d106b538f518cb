//! The keys of Granite 4's `config.json` whose layers all attend (`granitemoehybrid`).

use serde::Deserialize;

use super::super::bounds::Extent;

/// What only Granite 4 says.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Granite4Keys {
    /// What others call `intermediate_size`, which is that of experts here.
    shared_intermediate_size: Option<Extent>,
    /// Others have it and do not read it.
    position_embedding_type: Option<String>,
}

impl Granite4Keys {
    /// Hidden values of an MLP.
    pub fn hidden(&self) -> usize {
        self.shared_intermediate_size.map_or(1024, Extent::get)
    }

    /// Queries and keys are rotated.
    pub fn rotates(&self) -> bool {
        self.position_embedding_type.as_deref() == Some("rope")
    }

    /// Layers that keep a state, of which a file says what `types` they are, and experts, which may be `none`.
    pub fn refuse_what_is_not_there(&self, types: Option<&[String]>, none: bool) -> Result<(), String> {
        let attends = |kind: &String| matches!(&**kind, "attention" | "full_attention");
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
