//! A description becomes a plan: every layer with the sizes that follow from its input.

use super::super::bounds::{Extent, MOST_OF_A_SAMPLE, Repeats};
use super::super::transformer::BlockStyle;
use super::layer::{Layer, LayerKind};

/// The most modules of a model, including those within blocks: enough for the highest number of repeats of a block of three.
const MOST_MODULES: usize = 4 * Repeats::MOST.get();
/// The deepest nesting of blocks.
const DEEPEST: usize = 16;
/// The most bytes of a layer's name, with which the name of each of its parameters begins.
const LONGEST_NAME: usize = 60;

/// The shape of one sample between two layers.
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
pub(super) enum ModuleSpec {
    Embedding {
        table: [usize; 2],
        positions: Option<usize>,
    },
    Linear {
        name: String,
        sizes: [usize; 2],
        bias: bool,
    },
    TiedLinear {
        name: String,
    },
    Relu {
        name: String,
        saves_input: bool,
    },
    Gelu {
        name: String,
        tanh: bool,
    },
    LayerNorm {
        name: String,
        width: usize,
    },
    RmsNorm {
        name: String,
        width: usize,
    },
    GatedMlp {
        name: String,
        /// Width and hidden values.
        sizes: [usize; 2],
    },
    Transformer {
        name: String,
        style: BlockStyle,
    },
    Tanh {
        name: String,
    },
    Patches {
        name: String,
        channels: [usize; 2],
        side: usize,
        rows: usize,
    },
    Conv {
        name: String,
        channels: [usize; 2],
        windows: [usize; 3],
        bias: bool,
    },
    BatchNorm {
        name: String,
        channels: usize,
        /// Values of a channel in one sample.
        values: usize,
    },
    MaxPool {
        name: String,
        windows: [usize; 3],
    },
    Mean {
        name: String,
    },
    Group {
        name: String,
        members: Vec<Self>,
        residual: bool,
        autocast: bool,
    },
}

impl ModuleSpec {
    /// Whether one of `modules`, or of those within them, is `wanted`.
    pub fn any(modules: &[Self], wanted: &impl Fn(&Self) -> bool) -> bool {
        modules.iter().any(|module| match module {
            Self::Group { members, .. } => Self::any(members, wanted),
            module => wanted(module),
        })
    }
}

/// Resolves the layers of a model one after the other.
pub(super) struct Planner {
    flow: Flow,
    /// Vocabulary and width of the embedding.
    table: Option<[usize; 2]>,
    /// Modules so far, including those within blocks.
    modules: usize,
    /// Blocks around the current layer.
    depth: usize,
}

impl Planner {
    pub const fn new(input: Flow) -> Self {
        Self { flow: input, table: None, modules: 0, depth: 0 }
    }

    /// The modules of `layers`, and the shape of the last output.
    ///
    /// # Errors
    /// Which layer does not fit, and why.
    pub fn plan(mut self, layers: &[Layer]) -> Result<(Vec<ModuleSpec>, Flow), String> {
        if !self.flow.has_possible_size() {
            return Err(format!("one sample is {}, more than any device holds; give smaller sizes", self.flow));
        }
        let modules = self.layers(layers, "", "layers.")?;
        Ok((modules, self.flow))
    }

    /// `place` counts from 1, for people; `prefix` begins the names of parameters, from 0.
    fn layers(&mut self, layers: &[Layer], place: &str, prefix: &str) -> Result<Vec<ModuleSpec>, String> {
        let mut modules = Vec::new();
        for (i, layer) in layers.iter().enumerate() {
            let place = format!("{place}{}", i + 1);
            let name = layer.name.clone().unwrap_or_else(|| format!("{prefix}{i}"));
            let refused = |why: String| format!("layer {place} ({}) {why}", layer.kind.word());
            if name.len() > LONGEST_NAME && layer.name.is_some() {
                return Err(refused(format!("has a name of {} bytes; give at most {LONGEST_NAME}", name.len())));
            }
            self.layer(layer, &place, &name, &mut modules)?;
            if !self.flow.has_possible_size() {
                return Err(refused(format!(
                    "makes {} of one sample, more than any device holds; give smaller sizes",
                    self.flow
                )));
            }
        }
        Ok(modules)
    }

    /// Counts modules that are about to be made.
    fn count(&mut self, modules: Repeats) -> Result<(), String> {
        self.modules += modules.get();
        if self.modules > MOST_MODULES {
            return Err(format!("is one too many: a model has at most {MOST_MODULES} modules; repeat fewer"));
        }
        Ok(())
    }

    fn layer(&mut self, layer: &Layer, place: &str, name: &str, modules: &mut Vec<ModuleSpec>) -> Result<(), String> {
        let refused = |why: String| format!("layer {place} ({}) {why}", layer.kind.word());
        self.count(layer.kind.repeats()).map_err(refused)?;
        let input = self.flow;
        let gets = |wanted: &str| Err(refused(format!("gets {input} and takes {wanted}")));
        match (&layer.kind, input) {
            (LayerKind::Embedding { width, positions }, Flow::Tokens { rows, vocab }) => {
                let (width, positions) = (width.get(), positions.map(Extent::get));
                if let Some(positions) = positions.filter(|positions| *positions < rows) {
                    return Err(refused(format!(
                        "has {positions} positions for sequences of {rows}; choose a shorter sequence or more positions"
                    )));
                }
                self.table = Some([vocab, width]);
                self.flow = Flow::Rows { rows, width };
                modules.push(ModuleSpec::Embedding { table: [vocab, width], positions });
            }
            (LayerKind::Embedding { .. }, _) => return gets("tokens; let it be the first layer"),
            (_, Flow::Tokens { .. }) => return gets("numbers; let the first layer be an embedding"),
            (LayerKind::Linear { outputs, bias }, Flow::Rows { width, .. } | Flow::Vector { width }) => {
                self.flow = input.with_width(outputs.get());
                modules.push(ModuleSpec::Linear { name: name.into(), sizes: [width, outputs.get()], bias: *bias });
            }
            (LayerKind::TiedLinear, Flow::Rows { width, .. } | Flow::Vector { width }) => match self.table {
                Some([vocab, table]) if table == width => {
                    self.flow = input.with_width(vocab);
                    modules.push(ModuleSpec::TiedLinear { name: name.into() });
                }
                Some([_, table]) => return gets(&format!("the {table} values of the embedding's rows")),
                None => return Err(refused("has no embedding to share a table with; use linear".into())),
            },
            (LayerKind::Patches { side, width }, Flow::Image { channels, side: of }) => {
                if !place.bytes().all(|c| c.is_ascii_digit()) {
                    return Err(refused("is part of a block; let it stand alone before the blocks".into()));
                }
                let (side, width) = (side.get(), width.get());
                if of < side || of % side != 0 {
                    return Err(refused(format!(
                        "can't cut {input} into squares of {side}; choose a side that divides {of}"
                    )));
                }
                let rows = (of / side) * (of / side);
                self.flow = Flow::Patches { rows, width };
                modules.push(ModuleSpec::Patches { name: name.into(), channels: [channels, width], side, rows });
            }
            (&LayerKind::Conv { outputs, kernel, stride, padding, bias }, Flow::Image { channels, side }) => {
                let (kernel, outputs) = (kernel.get(), outputs.get());
                let windows = [kernel, stride.get(), padding.get()];
                let side = windows_along(side, windows).ok_or_else(|| refused(too_large(kernel, input)))?;
                self.flow = Flow::Image { channels: outputs, side };
                modules.push(ModuleSpec::Conv { name: name.into(), channels: [channels, outputs], windows, bias });
            }
            (&LayerKind::MaxPool { kernel, stride, padding }, Flow::Image { channels, side }) => {
                let (kernel, padding) = (kernel.get(), padding.get());
                if 2 * padding > kernel {
                    return Err(refused(format!("has a padding above half its kernel of {kernel}; give less")));
                }
                let windows = [kernel, stride.get(), padding];
                let side = windows_along(side, windows).ok_or_else(|| refused(too_large(kernel, input)))?;
                self.flow = Flow::Image { channels, side };
                modules.push(ModuleSpec::MaxPool { name: name.into(), windows });
            }
            (LayerKind::BatchNorm, Flow::Image { channels, side }) => {
                modules.push(ModuleSpec::BatchNorm { name: name.into(), channels, values: side * side });
            }
            (
                LayerKind::Patches { .. } | LayerKind::Conv { .. } | LayerKind::MaxPool { .. } | LayerKind::BatchNorm,
                _,
            ) => return gets("an image"),
            (LayerKind::Mean, Flow::Rows { width, .. } | Flow::Image { channels: width, .. }) => {
                self.flow = Flow::Vector { width };
                modules.push(ModuleSpec::Mean { name: name.into() });
            }
            (LayerKind::Mean, _) => return gets("rows or an image"),
            (LayerKind::Linear { .. } | LayerKind::TiedLinear, _) => return gets("rows or a vector"),
            (LayerKind::Relu { .. } | LayerKind::Tanh | LayerKind::Gelu { .. }, Flow::Patches { .. }) => {
                return gets("rows; put a layer_norm between them");
            }
            (LayerKind::Relu { saves_input }, Flow::Image { .. }) if *saves_input => return gets("rows or a vector"),
            (LayerKind::Relu { saves_input }, _) => {
                modules.push(ModuleSpec::Relu { name: name.into(), saves_input: *saves_input });
            }
            (LayerKind::Tanh, _) => modules.push(ModuleSpec::Tanh { name: name.into() }),
            (LayerKind::Gelu { tanh }, _) => modules.push(ModuleSpec::Gelu { name: name.into(), tanh: *tanh }),
            (LayerKind::LayerNorm, Flow::Patches { rows, width }) => {
                self.flow = Flow::Rows { rows, width };
                modules.push(ModuleSpec::LayerNorm { name: name.into(), width });
            }
            (LayerKind::LayerNorm, Flow::Image { .. }) => return gets("rows or a vector"),
            (LayerKind::LayerNorm, Flow::Rows { width, .. } | Flow::Vector { width }) => {
                modules.push(ModuleSpec::LayerNorm { name: name.into(), width });
            }
            (LayerKind::RmsNorm, Flow::Rows { width, .. } | Flow::Vector { width }) => {
                modules.push(ModuleSpec::RmsNorm { name: name.into(), width });
            }
            (LayerKind::GatedMlp { hidden }, Flow::Rows { width, .. } | Flow::Vector { width }) => {
                modules.push(ModuleSpec::GatedMlp { name: name.into(), sizes: [width, hidden.get()] });
            }
            (LayerKind::RmsNorm | LayerKind::GatedMlp { .. }, _) => return gets("rows or a vector"),
            (LayerKind::Transformer { post_norm: true, .. }, Flow::Patches { .. }) => {
                return gets("rows; put a layer_norm between them, or let it be pre-norm");
            }
            (
                &LayerKind::Transformer { heads, causal, post_norm, tanh, repeat },
                Flow::Rows { width, .. } | Flow::Patches { width, .. },
            ) => {
                let heads = heads.get();
                if !width.is_multiple_of(heads) {
                    return Err(refused(format!(
                        "has {heads} heads, which do not divide a width of {width}; choose a width that is a multiple of \
                         the heads"
                    )));
                }
                let style = BlockStyle { width, heads, causal, post_norm, tanh };
                modules
                    .extend((0..repeat.get()).map(|i| ModuleSpec::Transformer { name: format!("{name}.{i}"), style }));
            }
            (LayerKind::Transformer { .. }, _) => return gets("rows, such as an embedding makes"),
            (LayerKind::Block { layers, residual, autocast, repeat }, _) => {
                if self.depth == DEEPEST {
                    return Err(refused(format!("lies within {DEEPEST} others; nest fewer")));
                }
                self.depth += 1;
                for i in 0..repeat.get() {
                    let (name, input) = (format!("{name}.{i}"), self.flow);
                    let members = self.layers(layers, &format!("{place}."), &format!("{name}."))?;
                    if *residual && self.flow != input {
                        let output = self.flow;
                        return Err(refused(format!(
                            "makes {output} of {input}, and can't add them; let it keep the shape"
                        )));
                    }
                    modules.push(ModuleSpec::Group { name, members, residual: *residual, autocast: *autocast });
                }
                self.depth -= 1;
            }
        }
        Ok(())
    }
}

/// How many windows (side, stride, padding) fit along `side` pixels.
fn windows_along(side: usize, [kernel, stride, padding]: [usize; 3]) -> Option<usize> {
    Some((side + 2 * padding).checked_sub(kernel)? / stride + 1)
}

fn too_large(kernel: usize, input: Flow) -> String {
    format!("has a kernel of {kernel}, larger than {input} with its padding; give a smaller one")
}

impl Flow {
    /// Whether it has no elements.
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

    /// Whether it has at most as many elements as any model's sample may have.
    fn has_possible_size(self) -> bool {
        let factors = match self {
            Self::Tokens { rows, .. } => [rows, 1, 1],
            Self::Rows { rows, width } | Self::Patches { rows, width } => [rows, width, 1],
            Self::Image { channels, side } => [channels, side, side],
            Self::Vector { width } => [width, 1, 1],
        };
        let elements = factors.into_iter().try_fold(1, |product: usize, factor| product.checked_mul(factor));
        elements.is_some_and(|elements| elements <= MOST_OF_A_SAMPLE)
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
