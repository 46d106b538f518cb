//! A description becomes a plan: every layer with the sizes that follow from what goes in.

use super::super::transformer::BlockStyle;
use super::layer::{Layer, LayerKind};

/// What goes from one layer to the next: one sample's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Tokens of a vocabulary.
    Tokens {
        /// How many.
        rows: usize,
        /// How many different ones there are.
        vocab: usize,
    },
    /// Several vectors.
    Rows {
        /// How many.
        rows: usize,
        /// Values of each.
        width: usize,
    },
    /// One vector.
    Vector {
        /// Its values.
        width: usize,
    },
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tokens { rows, .. } => write!(f, "{rows} tokens"),
            Self::Rows { rows, width } => write!(f, "{rows} rows of {width} values"),
            Self::Vector { width } => write!(f, "a vector of {width} values"),
        }
    }
}

/// A module to make.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Module {
    Embedding { table: [usize; 2], positions: Option<usize> },
    Linear { name: String, sizes: [usize; 2], bias: bool },
    TiedLinear { name: String },
    Relu { name: String },
    Gelu { name: String, tanh: bool },
    LayerNorm { name: String, width: usize },
    Transformer { name: String, style: BlockStyle },
    Group { name: String, members: Vec<Self>, residual: bool },
}

/// Resolves the layers of a model one after the other.
pub(super) struct Planner {
    flow: Flow,
    /// Vocabulary and width of the embedding.
    table: Option<[usize; 2]>,
}

impl Planner {
    pub const fn new(input: Flow) -> Self {
        Self { flow: input, table: None }
    }

    /// The modules of `layers`, and what comes out in the end.
    ///
    /// # Errors
    /// Which layer does not fit, and why.
    pub fn plan(mut self, layers: &[Layer]) -> Result<(Vec<Module>, Flow), String> {
        let modules = self.layers(layers, "", "layers.")?;
        Ok((modules, self.flow))
    }

    /// `place` is how people count, from 1; `prefix` is how parameters are called, from 0.
    fn layers(&mut self, layers: &[Layer], place: &str, prefix: &str) -> Result<Vec<Module>, String> {
        let mut modules = Vec::new();
        for (i, layer) in layers.iter().enumerate() {
            let place = format!("{place}{}", i + 1);
            let name = layer.name.clone().unwrap_or_else(|| format!("{prefix}{i}"));
            self.layer(layer, &place, &name, &mut modules)?;
        }
        Ok(modules)
    }

    fn layer(&mut self, layer: &Layer, place: &str, name: &str, modules: &mut Vec<Module>) -> Result<(), String> {
        let refused = |why: String| format!("layer {place} ({}) {why}", layer.kind.word());
        let input = self.flow;
        let gets = |wanted: &str| Err(refused(format!("gets {input} and takes {wanted}")));
        match (&layer.kind, input) {
            (LayerKind::Embedding { width: 0, .. } | LayerKind::Linear { outputs: 0, .. }, _) => {
                return Err(refused("has a size of 0; give at least 1".into()));
            }
            (LayerKind::Transformer { repeat: 0, .. } | LayerKind::Block { repeat: 0, .. }, _) => {
                return Err(refused("is repeated 0 times; leave it out, or give at least 1".into()));
            }
            (LayerKind::Embedding { width, positions }, Flow::Tokens { rows, vocab }) => {
                if let Some(positions) = positions.filter(|positions| *positions < rows) {
                    return Err(refused(format!(
                        "has {positions} positions for sequences of {rows}; choose a shorter sequence or more positions"
                    )));
                }
                self.table = Some([vocab, *width]);
                self.flow = Flow::Rows { rows, width: *width };
                modules.push(Module::Embedding { table: [vocab, *width], positions: *positions });
            }
            (LayerKind::Embedding { .. }, _) => return gets("tokens; let it be the first layer"),
            (_, Flow::Tokens { .. }) => return gets("numbers; let the first layer be an embedding"),
            (LayerKind::Linear { outputs, bias }, Flow::Rows { width, .. } | Flow::Vector { width }) => {
                self.flow = input.with_width(*outputs);
                modules.push(Module::Linear { name: name.into(), sizes: [width, *outputs], bias: *bias });
            }
            (LayerKind::TiedLinear, Flow::Rows { width, .. } | Flow::Vector { width }) => match self.table {
                Some([vocab, table]) if table == width => {
                    self.flow = input.with_width(vocab);
                    modules.push(Module::TiedLinear { name: name.into() });
                }
                Some([_, table]) => return gets(&format!("the {table} values of the embedding's rows")),
                None => return Err(refused("has no embedding to share a table with; use linear".into())),
            },
            (LayerKind::Relu, _) => modules.push(Module::Relu { name: name.into() }),
            (LayerKind::Gelu { tanh }, _) => modules.push(Module::Gelu { name: name.into(), tanh: *tanh }),
            (LayerKind::LayerNorm, Flow::Rows { width, .. } | Flow::Vector { width }) => {
                modules.push(Module::LayerNorm { name: name.into(), width });
            }
            (&LayerKind::Transformer { heads, causal, post_norm, tanh, repeat }, Flow::Rows { width, .. }) => {
                if heads == 0 || !width.is_multiple_of(heads) {
                    return Err(refused(format!(
                        "has {heads} heads, which do not divide a width of {width}; choose a width that is a multiple of \
                         the heads"
                    )));
                }
                let style = BlockStyle { width, heads, causal, post_norm, tanh };
                modules.extend((0..repeat).map(|i| Module::Transformer { name: format!("{name}.{i}"), style }));
            }
            (LayerKind::Transformer { .. }, _) => return gets("rows, such as an embedding makes"),
            (LayerKind::Block { layers, residual, repeat }, _) => {
                for i in 0..*repeat {
                    let (name, input) = (format!("{name}.{i}"), self.flow);
                    let members = self.layers(layers, &format!("{place}."), &format!("{name}."))?;
                    if *residual && self.flow != input {
                        let output = self.flow;
                        return Err(refused(format!(
                            "makes {output} of {input}, and can't add them; let it keep the shape"
                        )));
                    }
                    modules.push(Module::Group { name, members, residual: *residual });
                }
            }
        }
        Ok(())
    }
}

impl Flow {
    const fn with_width(self, width: usize) -> Self {
        match self {
            Self::Tokens { .. } => self,
            Self::Rows { rows, .. } => Self::Rows { rows, width },
            Self::Vector { .. } => Self::Vector { width },
        }
    }
}
