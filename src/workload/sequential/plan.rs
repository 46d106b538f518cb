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
    /// The same, laid out channel by channel as a convolution leaves them.
    Patches {
        /// How many.
        rows: usize,
        /// Values of each.
        width: usize,
    },
    /// A square image.
    Image {
        /// Channels.
        channels: usize,
        /// Pixels along each side.
        side: usize,
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
            Self::Patches { rows, width } => write!(f, "{rows} patches of {width} values"),
            Self::Image { channels, side } => write!(f, "an image of {channels} × {side} × {side}"),
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
    Tanh { name: String },
    Patches { name: String, channels: [usize; 2], side: usize, rows: usize },
    Conv { name: String, channels: [usize; 2], windows: [usize; 3], bias: bool },
    BatchNorm { name: String, channels: usize },
    MaxPool { name: String, windows: [usize; 3] },
    Mean { name: String },
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
            (
                LayerKind::Embedding { width: 0, .. }
                | LayerKind::Linear { outputs: 0, .. }
                | LayerKind::Conv { outputs: 0, .. }
                | LayerKind::Conv { kernel: 0, .. }
                | LayerKind::Conv { stride: 0, .. }
                | LayerKind::MaxPool { kernel: 0, .. }
                | LayerKind::MaxPool { stride: 0, .. }
                | LayerKind::Patches { side: 0, .. }
                | LayerKind::Patches { width: 0, .. },
                _,
            ) => {
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
            (LayerKind::Patches { side, width }, Flow::Image { channels, side: of }) => {
                if !place.bytes().all(|c| c.is_ascii_digit()) {
                    return Err(refused("is part of a block; let it stand alone before the blocks".into()));
                }
                if of < *side || of % side != 0 {
                    return Err(refused(format!(
                        "can't cut {input} into squares of {side}; choose a side that divides {of}"
                    )));
                }
                let rows = (of / side) * (of / side);
                self.flow = Flow::Patches { rows, width: *width };
                modules.push(Module::Patches { name: name.into(), channels: [channels, *width], side: *side, rows });
            }
            (&LayerKind::Conv { outputs, kernel, stride, padding, bias }, Flow::Image { channels, side }) => {
                let windows = [kernel, stride, padding];
                let side = windows_along(side, windows).ok_or_else(|| refused(too_large(kernel, input)))?;
                self.flow = Flow::Image { channels: outputs, side };
                modules.push(Module::Conv { name: name.into(), channels: [channels, outputs], windows, bias });
            }
            (&LayerKind::MaxPool { kernel, stride, padding }, Flow::Image { channels, side }) => {
                if 2 * padding > kernel {
                    return Err(refused(format!("has a padding above half its kernel of {kernel}; give less")));
                }
                let windows = [kernel, stride, padding];
                let side = windows_along(side, windows).ok_or_else(|| refused(too_large(kernel, input)))?;
                self.flow = Flow::Image { channels, side };
                modules.push(Module::MaxPool { name: name.into(), windows });
            }
            (LayerKind::BatchNorm, Flow::Image { channels, .. }) => {
                modules.push(Module::BatchNorm { name: name.into(), channels });
            }
            (
                LayerKind::Patches { .. } | LayerKind::Conv { .. } | LayerKind::MaxPool { .. } | LayerKind::BatchNorm,
                _,
            ) => return gets("an image"),
            (LayerKind::Mean, Flow::Rows { width, .. } | Flow::Image { channels: width, .. }) => {
                self.flow = Flow::Vector { width };
                modules.push(Module::Mean { name: name.into() });
            }
            (LayerKind::Mean, _) => return gets("rows or an image"),
            (LayerKind::Linear { .. } | LayerKind::TiedLinear, _) => return gets("rows or a vector"),
            (LayerKind::Relu | LayerKind::Tanh | LayerKind::Gelu { .. }, Flow::Patches { .. }) => {
                return gets("rows; put a layer_norm between them");
            }
            (LayerKind::Relu, _) => modules.push(Module::Relu { name: name.into() }),
            (LayerKind::Tanh, _) => modules.push(Module::Tanh { name: name.into() }),
            (LayerKind::Gelu { tanh }, _) => modules.push(Module::Gelu { name: name.into(), tanh: *tanh }),
            (LayerKind::LayerNorm, Flow::Patches { rows, width }) => {
                self.flow = Flow::Rows { rows, width };
                modules.push(Module::LayerNorm { name: name.into(), width });
            }
            (LayerKind::LayerNorm, Flow::Image { .. }) => return gets("rows or a vector"),
            (LayerKind::LayerNorm, Flow::Rows { width, .. } | Flow::Vector { width }) => {
                modules.push(Module::LayerNorm { name: name.into(), width });
            }
            (LayerKind::Transformer { post_norm: true, .. }, Flow::Patches { .. }) => {
                return gets("rows; put a layer_norm between them, or let it be pre-norm");
            }
            (
                &LayerKind::Transformer { heads, causal, post_norm, tanh, repeat },
                Flow::Rows { width, .. } | Flow::Patches { width, .. },
            ) => {
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

/// How many windows (side, stride, padding) fit along `side` pixels.
fn windows_along(side: usize, [kernel, stride, padding]: [usize; 3]) -> Option<usize> {
    Some(side.checked_add(padding.checked_mul(2)?)?.checked_sub(kernel)? / stride + 1)
}

fn too_large(kernel: usize, input: Flow) -> String {
    format!("has a kernel of {kernel}, larger than {input} with its padding; give a smaller one")
}

impl Flow {
    /// Nothing goes through.
    pub(super) const fn is_empty(self) -> bool {
        matches!(
            self,
            Self::Tokens { rows: 0, .. }
                | Self::Tokens { vocab: 0, .. }
                | Self::Rows { rows: 0, .. }
                | Self::Rows { width: 0, .. }
                | Self::Patches { rows: 0, .. }
                | Self::Patches { width: 0, .. }
                | Self::Image { channels: 0, .. }
                | Self::Image { side: 0, .. }
                | Self::Vector { width: 0 }
        )
    }

    const fn with_width(self, width: usize) -> Self {
        match self {
            Self::Tokens { .. } => self,
            Self::Rows { rows, .. } => Self::Rows { rows, width },
            Self::Patches { rows, .. } => Self::Patches { rows, width },
            Self::Image { side, .. } => Self::Image { channels: width, side },
            Self::Vector { .. } => Self::Vector { width },
        }
    }
}
