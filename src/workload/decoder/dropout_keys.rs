//! The keys of a `config.json` for dropout.

use serde::Deserialize;

use super::family::Family;
use super::sizes::Dropouts;

/// The keys of dropout, by all their names.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct DropoutKeys {
    attention_dropout: Option<f64>,
    /// GPT-2's name of it.
    attn_pdrop: Option<f64>,
    embedding_dropout: Option<f64>,
    /// The name of it in GPT-2 and Phi.
    embd_pdrop: Option<f64>,
    residual_dropout: Option<f64>,
    /// Dropout of attention and MLP outputs (GPT-NeoX), or of the MLP's alone (StableLM).
    hidden_dropout: Option<f64>,
    /// The name of it in GPT-2 and Phi.
    resid_pdrop: Option<f64>,
    /// The name of it in OPT.
    dropout: Option<f64>,
}

impl DropoutKeys {
    /// The keys that are given and that some families don't read.
    pub fn asked(&self, family: &Family) -> [(&'static str, bool); 8] {
        let drops = |share: Option<f64>| share.is_some_and(|share| share != 0.0);
        [
            ("attention_dropout", family.lacks.contains(&"attention_dropout") && drops(self.attention_dropout)),
            ("attn_pdrop", self.attn_pdrop.is_some()),
            ("dropout", drops(self.dropout)),
            ("embd_pdrop", drops(self.embd_pdrop)),
            ("embedding_dropout", drops(self.embedding_dropout)),
            ("hidden_dropout", drops(self.hidden_dropout)),
            ("resid_pdrop", drops(self.resid_pdrop)),
            ("residual_dropout", drops(self.residual_dropout)),
        ]
    }

    /// The dropouts of a model.
    ///
    /// # Errors
    /// A sentence: the key of a share that is none.
    pub fn shares(&self, family: &Family) -> Result<Dropouts, String> {
        // The first key that is given.
        let share = |keys: &[(&str, Option<f64>)], own: f64| {
            let given = keys.iter().find_map(|(key, share)| Some((key, (*share)?)));
            match given {
                Some((key, share)) if !(0.0..1.0).contains(&share) => {
                    Err(format!("{key} is {share}; use a number from 0 on, below 1"))
                }
                given => Ok(given.map_or(own, |(_, share)| share)),
            }
        };
        let own = family.dropouts;
        let hidden = share(&[("hidden_dropout", self.hidden_dropout)], 0.0)?;
        let attention = [("attention_dropout", self.attention_dropout), ("attn_pdrop", self.attn_pdrop)];
        let embedding = [("embedding_dropout", self.embedding_dropout), ("embd_pdrop", self.embd_pdrop)];
        let residual = [
            ("residual_dropout", self.residual_dropout),
            ("hidden_dropout", self.hidden_dropout),
            ("resid_pdrop", self.resid_pdrop),
            ("dropout", self.dropout),
        ];
        Ok(Dropouts {
            attention: share(&attention, own.attention)?,
            embedding: share(&embedding, if own.embedding_as_hidden { hidden } else { own.embedding })?,
            replaces: own.replaces,
            residual: share(&residual, own.residual)?,
            place: own.place,
        })
    }
}
