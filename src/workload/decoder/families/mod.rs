//! The families of decoders by lineage: the properties of each, and its defaults for keys that a `config.json` leaves out. A family of
//! known operations is one entry of one file.

mod base;
mod cohere;
mod deepseek;
mod gemma;
mod glm;
mod gpt;
mod gpt_oss;
mod granite;
mod llama;
mod mistral;
mod olmo;
mod phi;
mod qwen;

use super::family::Family;

/// All, by lineage.
static LINEAGES: [&[Family]; 12] = [
    cohere::FAMILIES,
    deepseek::FAMILIES,
    gemma::FAMILIES,
    glm::FAMILIES,
    gpt::FAMILIES,
    gpt_oss::FAMILIES,
    granite::FAMILIES,
    llama::FAMILIES,
    mistral::FAMILIES,
    olmo::FAMILIES,
    phi::FAMILIES,
    qwen::FAMILIES,
];

impl Family {
    /// The family of a `model_type`.
    ///
    /// # Errors
    /// A sentence: the family is not supported.
    pub fn named(name: &str) -> Result<&'static Self, String> {
        LINEAGES.into_iter().flatten().find(|family| family.name == name).ok_or_else(|| {
            let known = Self::known();
            format!(
                "model_type '{name}' is not there; write its sizes into a config.json of the nearest that is: {known}"
            )
        })
    }

    /// Every supported `model_type`.
    pub fn known() -> String {
        let all = LINEAGES.into_iter().flatten().map(|family| family.name);
        let mut known: Vec<_> = all.chain(["gemma3", "llama4", "mistral3"]).collect();
        known.sort_unstable();
        known.join(", ")
    }
}
