//! Formulas for the memory of a training step, with letters as in [`Model`] and B for the batch.

use super::{Model, ModelKind, SizeError, Weights};
use crate::train::{Amp, Checkpointing, Config, OptimizerForm, OptimizerKind, ZeroGrad};
use crate::units::Bytes;

/// How the model is trained, and the workspaces of the device's libraries.
#[derive(Clone, Copy, Debug)]
pub struct TrainingSetup<'a> {
    /// The switches: AMP, checkpointing, accumulation, optimizer, its form, zero_grad and batch count.
    pub config: &'a Config,
    /// Bytes of one cuBLAS workspace; 0 without cuBLAS.
    pub cublas: u64,
    /// Bytes of a cuBLASLt workspace; 0 without cuBLASLt.
    pub cublas_lt: u64,
}

/// The quantity that a figure describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryTerm {
    /// Weights and biases, 4 bytes each.
    Parameters,
    /// As many bytes as the parameters, alive from backward to zero_grad.
    Gradients,
    /// Moments and momentum.
    OptimizerState,
    /// The tensors that forward saves for backward, and the logits, to which the training loop still refers.
    Activations,
    /// The workspaces of libraries.
    Workspaces,
    /// The batch in training, including its targets.
    Batch,
    /// Short-lived tensors beside the others at the peak.
    Temporaries,
    /// The most memory allocated at once.
    Peak,
}

impl MemoryTerm {
    /// All terms, in the order of a table.
    pub const ALL: [Self; 8] = [
        Self::Parameters,
        Self::Gradients,
        Self::OptimizerState,
        Self::Activations,
        Self::Workspaces,
        Self::Batch,
        Self::Temporaries,
        Self::Peak,
    ];

    /// Its name.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer state",
            Self::Activations => "activations",
            Self::Workspaces => "workspaces",
            Self::Batch => "batch",
            Self::Temporaries => "temporaries",
            Self::Peak => "peak allocated",
        }
    }

    /// Its name as a JSON key.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Parameters => "parameters",
            Self::Gradients => "gradients",
            Self::OptimizerState => "optimizer_state",
            Self::Activations => "activations",
            Self::Workspaces => "workspaces",
            Self::Batch => "batch",
            Self::Temporaries => "temporaries",
            Self::Peak => "peak_allocated",
        }
    }
}

/// A figure with its formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermEstimate {
    /// The quantity.
    pub term: MemoryTerm,
    /// Bytes.
    pub bytes: Bytes,
    /// The calculation of the bytes, in letters.
    pub formula: String,
}

/// All figures for one way of training a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// In the order of [`MemoryTerm::ALL`].
    pub figures: [TermEstimate; 8],
    /// The moment of the peak.
    pub moment: &'static str,
}

/// Bytes for the samples of a micro-batch, as a number and in letters.
struct SampleBytes {
    bytes: u128,
    letters: String,
}

/// The tensors that forward saves.
struct KeptBytes {
    /// Bytes when the loss has been computed.
    at_loss: u128,
    /// The most that exist at once.
    most: SampleBytes,
}

/// A moment that may be the peak: the memory alive then, besides parameters, optimizer state and workspaces.
struct PeakCandidate {
    name: &'static str,
    activations: bool,
    gradients: bool,
    temporaries: SampleBytes,
}

impl Estimate {
    /// The figures of `model`.
    ///
    /// # Errors
    /// See [`SizeError`].
    pub fn of(model: &Model, training: &TrainingSetup<'_>) -> Result<Self, SizeError> {
        let TrainingSetup { config, cublas, cublas_lt } = *training;
        let weights = model.weights()?;
        let micro = config.micro_batch() as u128;
        let letters = model.weights_in_letters();
        let parameters = u128::from(weights.all) * 4;
        let (state, state_letters) = state(config, &weights);
        let activations = activations(model, config, &weights, micro);
        let workspaces = u128::from(2 * cublas + cublas_lt);
        let batch = batch(model, config, micro);
        let kept = parameters + state + workspaces + batch.bytes;
        let mut peak = (0, "", String::new(), SampleBytes { bytes: 0, letters: "0".into() });
        for moment in moments(model, config, &weights, micro) {
            let with = |yes: bool, bytes: u128| if yes { bytes } else { 0 };
            let all = kept
                + with(moment.activations, activations.at_loss)
                + with(moment.gradients, parameters)
                + moment.temporaries.bytes;
            if all > peak.0 {
                let mut words = vec!["parameters", "optimizer state", "workspaces", "batch"];
                words.extend(moment.activations.then_some("activations"));
                words.extend(moment.gradients.then_some("gradients"));
                words.push("temporaries");
                peak = (all, moment.name, words.join(" + "), moment.temporaries);
            }
        }
        let (peak, moment, sum, temporaries) = peak;
        let figure = |term, bytes: u128, formula: String| {
            u64::try_from(bytes)
                .map(|bytes| TermEstimate { term, bytes: Bytes(bytes), formula })
                .map_err(|_| SizeError::TooLarge)
        };
        Ok(Self {
            figures: [
                figure(MemoryTerm::Parameters, parameters, format!("4·({letters})"))?,
                figure(MemoryTerm::Gradients, parameters, "4·N".to_owned())?,
                figure(MemoryTerm::OptimizerState, state, state_letters)?,
                figure(MemoryTerm::Activations, activations.most.bytes, activations.most.letters)?,
                figure(MemoryTerm::Workspaces, workspaces, "2·cuBLAS + cuBLASLt".to_owned())?,
                figure(MemoryTerm::Batch, batch.bytes, batch.letters)?,
                figure(MemoryTerm::Temporaries, temporaries.bytes, temporaries.letters)?,
                figure(MemoryTerm::Peak, peak, sum)?,
            ],
            moment,
        })
    }

    /// The bytes of one figure.
    #[must_use]
    pub fn bytes(&self, term: MemoryTerm) -> Bytes {
        self.figures.iter().find(|figure| figure.term == term).map_or(Bytes::ZERO, |figure| figure.bytes)
    }
}

/// The optimizer's state, in bytes for N parameters.
fn state(config: &Config, weights: &Weights) -> (u128, String) {
    let all = u128::from(weights.all);
    match (config.optimizer, config.form) {
        (OptimizerKind::Sgd, _) => (0, "0".to_owned()),
        (OptimizerKind::Momentum, _) => (4 * all, "4·N".to_owned()),
        // A buffer for matrices of hidden layers, two moments for all other parameters.
        (OptimizerKind::Muon, form) => {
            let others = all - u128::from(weights.hidden);
            let counters = if form == OptimizerForm::Fused { 4 * u128::from(weights.tensors) } else { 0 };
            (4 * all + 4 * others + counters, "8·N − 4·(matrices of hidden layers)".to_owned())
        }
        // Two bytes per element, and for each moment one largest magnitude per 256 elements; small tensors have more.
        (OptimizerKind::AdamW8bit, _) => (2 * all + all / 32, "2·N + N/32".to_owned()),
        // For tensors that are large enough for unified memory; small ones have as much as without paging.
        (OptimizerKind::PagedAdamW8bit, _) => (all / 32, "N/32".to_owned()),
        (OptimizerKind::PagedAdamW | OptimizerKind::PagedLion, _) => (0, "0".to_owned()),
        (OptimizerKind::Lion, _) => (4 * all, "4·N".to_owned()),
        (OptimizerKind::Lion8bit, _) => (all + all / 64, "N + N/64".to_owned()),
        (OptimizerKind::PagedLion8bit, _) => (all / 64, "N/64".to_owned()),
        // The fused kernel counts steps on the device.
        (OptimizerKind::Adam | OptimizerKind::AdamW, OptimizerForm::Fused) => {
            (8 * all + 4 * u128::from(weights.tensors), "8·N + 4 a tensor".to_owned())
        }
        (OptimizerKind::Adam | OptimizerKind::AdamW, _) => (8 * all, "8·N".to_owned()),
    }
}

/// Bytes that one block saves per token (or per sample of an MLP).
fn of_block(model: &Model, amp: bool) -> SampleBytes {
    let (d, heads) = (u128::from(model.width), u128::from(model.heads));
    let (bytes, letters) = match model.kind {
        ModelKind::Gpt | ModelKind::Bert if amp => (36 * d + 16 + 4 * heads, "36·d + 16 + 4·H"),
        ModelKind::Gpt | ModelKind::Bert => (64 * d + 16 + 4 * heads, "64·d + 16 + 4·H"),
        ModelKind::Mlp if amp => (2 * d, "2·d"),
        ModelKind::Mlp => (4 * d, "4·d"),
    };
    SampleBytes { bytes, letters: letters.to_owned() }
}

/// Bytes saved per token outside of the blocks, as a number and in letters: the norm before the head (or after the
/// embedding), the input of the head, logits and log-probabilities.
fn of_head(model: &Model, amp: bool) -> (u128, String) {
    let (d, vocab) = (u128::from(model.width), u128::from(model.vocab));
    match model.kind {
        ModelKind::Gpt | ModelKind::Bert if amp => (6 * d + 8 + 8 * vocab, "6·d + 8 + 8·V".to_owned()),
        ModelKind::Gpt | ModelKind::Bert => (8 * d + 8 + 8 * vocab, "8·d + 8 + 8·V".to_owned()),
        ModelKind::Mlp if amp => (2 * u128::from(model.seq) + 8 * vocab, "2·T + 8·V".to_owned()),
        ModelKind::Mlp => (8 * vocab, "8·V".to_owned()),
    }
}

/// Tokens in a micro-batch, or samples of an MLP.
fn rows(model: &Model, micro: u128) -> u128 {
    if model.kind == ModelKind::Mlp { micro } else { micro * u128::from(model.seq) }
}

const fn rows_in_letters(model: &Model, config: &Config) -> &'static str {
    match (model.kind, config.accumulation > 1) {
        (ModelKind::Mlp, false) => "B",
        (ModelKind::Mlp, true) => "B/accum",
        (_, false) => "B·T",
        (_, true) => "B/accum·T",
    }
}

/// Blocks (for an MLP, hidden layers) that save tensors: those that run again in backward, and the others.
struct Blocks {
    all: u64,
    again: u64,
    letters: &'static str,
    /// The distance between blocks that run again.
    apart: u64,
}

impl Blocks {
    fn of(model: &Model, config: &Config) -> Self {
        let (all, letters) = match model.kind {
            ModelKind::Mlp => (model.layers - 1, "(L−1)"),
            ModelKind::Gpt | ModelKind::Bert => (model.layers, "L"),
        };
        match config.checkpointing {
            Checkpointing::Off => Self { all, again: 0, letters, apart: all },
            Checkpointing::Every(step) | Checkpointing::Reentrant(step) => {
                let apart = step.get() as u64;
                Self { all, again: all.div_ceil(apart), letters, apart }
            }
        }
    }

    /// The number of blocks that save everything.
    const fn whole(&self) -> u64 {
        self.all - self.again
    }

    /// The sum of `again` for each block that runs again and `whole` for each other block, with its formula.
    fn sum(&self, again: &SampleBytes, whole: &SampleBytes) -> SampleBytes {
        let Self { letters, apart, .. } = self;
        let bytes = u128::from(self.again) * again.bytes + u128::from(self.whole()) * whole.bytes;
        let letters = match (self.again, self.whole()) {
            (0, _) => format!("{letters}·({})", whole.letters),
            (_, 0) => format!("{letters}·({})", again.letters),
            _ => {
                format!("⌈{letters}/{apart}⌉·({}) + ({letters}−⌈{letters}/{apart}⌉)·({})", again.letters, whole.letters)
            }
        };
        SampleBytes { bytes, letters }
    }

    /// The number of blocks that save everything among the first `blocks`.
    const fn whole_before(&self, blocks: u64) -> u64 {
        if self.again == 0 { blocks } else { blocks - blocks.div_ceil(self.apart) }
    }

    /// The last block that runs again, counted from 0, if there is one.
    const fn last(&self) -> Option<u64> {
        if self.again == 0 { None } else { Some((self.again - 1) * self.apart) }
    }
}

/// Bytes that a block that runs again saves per token (or per sample of an MLP): its input, which is f32 between
/// blocks. An MLP's hidden layers return the product's type.
fn input_of_block(model: &Model, amp: bool) -> SampleBytes {
    let (bytes, letters) = match (model.kind, amp) {
        (ModelKind::Mlp, true) => (2, "2·d"),
        _ => (4, "4·d"),
    };
    SampleBytes { bytes: bytes * u128::from(model.width), letters: letters.to_owned() }
}

/// Parameters in the matrices of a block; an MLP's first layer has a different number.
const fn matrices(model: &Model) -> (u128, &'static str) {
    let square = model.width as u128 * model.width as u128;
    match model.kind {
        ModelKind::Mlp => (square, "d²"),
        ModelKind::Gpt | ModelKind::Bert => (12 * square, "12·d²"),
    }
}

/// The batch: tokens and their successors, 8 bytes each; for an MLP, numbers and classes.
fn batch(model: &Model, config: &Config, micro: u128) -> SampleBytes {
    let rows = rows(model, micro);
    let (of_row, letters) = match model.kind {
        ModelKind::Mlp => (4 * u128::from(model.seq) + 8, "(4·T + 8)"),
        ModelKind::Gpt | ModelKind::Bert => (16, "16"),
    };
    SampleBytes { bytes: rows * of_row, letters: format!("{}·{letters}", rows_in_letters(model, config)) }
}

fn activations(model: &Model, config: &Config, weights: &Weights, micro: u128) -> KeptBytes {
    let amp = config.amp != Amp::Off;
    let ((head, head_letters), blocks) = (of_head(model, amp), Blocks::of(model, config));
    let of_blocks = blocks.sum(&input_of_block(model, amp), &of_block(model, amp));
    let mut bytes = rows(model, micro) * (of_blocks.bytes + head);
    let mut letters = format!("{}·({} + {head_letters})", rows_in_letters(model, config), of_blocks.letters);
    if amp {
        // 16-bit copies of matrices wait for backward. Blocks that run again, including the first, make their copies
        // only then.
        let (of_head, of_block) = (u128::from(model.vocab) * u128::from(model.width), matrices(model));
        let (copies, told) = match (blocks.again, blocks.whole()) {
            (0, _) => (u128::from(weights.cast), "matrices".to_owned()),
            (_, 0) => (of_head, "V·d".to_owned()),
            (_, whole) => (of_head + u128::from(whole) * of_block.0, format!("(V·d + {whole}·{})", of_block.1)),
        };
        bytes += 2 * copies;
        letters += &format!(" + 2·{told}");
    }
    let at_loss = bytes;
    if model.kind == ModelKind::Mlp && blocks.last() != Some(blocks.all - 1) {
        // The output of the last hidden layer's product waits for its ReLU; it may be larger than the head's tensors.
        let element = if amp { 2 } else { 4 };
        let (product, head) = (element * u128::from(model.width), 8 * u128::from(model.vocab));
        if product > head {
            bytes += rows(model, micro) * (product - head);
            letters = letters.replace("8·V", &format!("{element}·d"));
        }
    }
    KeptBytes { at_loss, most: SampleBytes { bytes, letters } }
}

/// The moments of a step at which the most memory may be allocated.
fn moments(model: &Model, config: &Config, weights: &Weights, micro: u128) -> Vec<PeakCandidate> {
    let amp = config.amp != Amp::Off;
    let (rows, letters) = (rows(model, micro), rows_in_letters(model, config));
    let (vocab, d) = (u128::from(model.vocab), u128::from(model.width));
    let all = u128::from(weights.all);
    // Gradients of earlier micro-batches, or gradients that are kept and zeroed, are alive during the forward pass.
    let carried = config.accumulation > 1 || config.zero_grad == ZeroGrad::Zeroed;
    // The gradients of the loss: for the log-probabilities and, in f32, also for the logits.
    let (loss, loss_letters) = if amp { (4, "4·V") } else { (8, "8·V") };
    let mut moments = vec![PeakCandidate {
        name: "the loss goes backward",
        activations: true,
        gradients: carried,
        temporaries: SampleBytes { bytes: rows * loss * vocab, letters: format!("{letters}·{loss_letters}") },
    }];
    let blocks = Blocks::of(model, config);
    if let Some(last) = blocks.last() {
        let (block, input) = (of_block(model, amp), input_of_block(model, amp));
        // By then the tensors of the head and of later blocks are freed; the block runs again, and its widest gradient
        // is alive.
        let before = last + 1 - blocks.again;
        let kept = rows * (u128::from(blocks.again) * input.bytes + u128::from(before) * block.bytes);
        let behind = match carried {
            true => 0,
            false => 4 * u128::from(blocks.all - 1 - last) * matrices(model).0,
        };
        let before_letters = match before {
            0 => String::new(),
            _ => format!(" + {letters}·{before}·({})", block.letters),
        };
        let behind_letters = if behind == 0 { "" } else { " + gradients of the blocks after it" };
        let wide = if model.kind == ModelKind::Mlp { 0 } else { 16 / if amp { 2 } else { 1 } * d };
        moments.push(PeakCandidate {
            name: "the last checkpointed block runs again",
            activations: false,
            gradients: carried,
            temporaries: SampleBytes {
                bytes: kept + behind + rows * (block.bytes + wide + vocab * if amp { 2 } else { 4 }),
                letters: format!(
                    "inputs of blocks{before_letters}{behind_letters} + {letters}·({} + its gradient + logits)",
                    block.letters
                ),
            },
        });
    }
    match model.kind {
        // From the second layer on, the difference from layer to layer is constant, so the most is at one of the ends.
        ModelKind::Mlp => moments.extend(
            [1, 2.min(model.layers - 1), model.layers - 1]
                .map(|layer| hidden_layer(model, config, micro, layer, carried)),
        ),
        // The head shares the embedding's matrix: both of its gradients exist until they are added, in f32 into a third
        // tensor.
        ModelKind::Gpt | ModelKind::Bert => {
            let tables = u128::from(carried) + if amp { 1 } else { 2 };
            let element = if amp { 2 } else { 4 };
            moments.push(PeakCandidate {
                name: "the embedding goes backward",
                activations: false,
                gradients: true,
                temporaries: SampleBytes {
                    bytes: 4 * tables * vocab * d + rows * element * vocab,
                    letters: format!("{}·V·d + {letters}·{element}·V", 4 * tables),
                },
            });
        }
    }
    let step = match (config.optimizer, config.form) {
        (kind, form)
            if kind.of_bitsandbytes().is_some()
                || matches!(kind, OptimizerKind::Sgd | OptimizerKind::Momentum)
                || form == OptimizerForm::Fused =>
        {
            SampleBytes { bytes: 0, letters: "0".to_owned() }
        }
        (OptimizerKind::Muon, form) => {
            let [rows, cols] = weights.widest.map(u128::from);
            let least = rows.min(cols);
            // An update and its 16-bit copies, and squares of its smaller side.
            let of_muon = 8 * rows * cols + 4 * least * least;
            let of_others = match form {
                OptimizerForm::Foreach => 4 * (all - u128::from(weights.hidden)),
                OptimizerForm::Loop => 8 * u128::from(weights.largest),
                OptimizerForm::Fused => 0,
            };
            let letters = "the larger of what Newton–Schulz and AdamW take".to_owned();
            SampleBytes { bytes: of_muon.max(of_others), letters }
        }
        (_, OptimizerForm::Foreach) => {
            SampleBytes { bytes: 4 * all, letters: "4·N (a root of all second moments)".to_owned() }
        }
        (_, OptimizerForm::Loop | OptimizerForm::Fused) => {
            SampleBytes { bytes: 8 * u128::from(weights.largest), letters: "8·(the largest matrix)".to_owned() }
        }
    };
    moments.push(PeakCandidate { name: "the optimizer steps", activations: false, gradients: true, temporaries: step });
    moments
}

/// Backward of a hidden layer of an MLP, counted from 1: gradients of later layers are alive, and so are outputs of
/// earlier layers; the training loop still refers to the logits.
fn hidden_layer(model: &Model, config: &Config, micro: u128, layer: u64, carried: bool) -> PeakCandidate {
    let amp = config.amp != Amp::Off;
    let (rows, letters) = (rows(model, micro), rows_in_letters(model, config));
    let element = if amp { 2 } else { 4 };
    let [d, vocab, seq, before, behind] =
        [model.width, model.vocab, model.seq, layer - 1, model.layers - 1 - layer].map(u128::from);
    // The first layer's input requires no gradient.
    let (weight, weight_letters, own) = if layer == 1 { (seq * d, "T·d", 1) } else { (d * d, "d²", 2) };
    let (gradients, gradient_letters) = match carried {
        true => (0, String::new()),
        false => (4 * (behind * (d * d + d) + d * vocab + vocab), format!("4·(parameters after layer {layer}) + ")),
    };
    // 16-bit copies of the batch and of the matrices of earlier layers; layers that run again, including the first,
    // make them then.
    let blocks = Blocks::of(model, config);
    let whole = u128::from(blocks.whole_before(layer - 1));
    let (copies, copy_letters) = match (amp, blocks.again) {
        (false, _) => (0, String::new()),
        (true, 0) => (rows * 2 * seq + before * 2 * d * d, format!(" + {letters}·2·T + {before}·2·d²")),
        (true, _) => (whole * 2 * d * d, format!(" + {whole}·2·d²")),
    };
    let outputs = before + own;
    PeakCandidate {
        name: "a hidden layer goes backward",
        activations: false,
        gradients: carried,
        temporaries: SampleBytes {
            bytes: gradients
                + element * weight
                + rows * element * (outputs * d + vocab)
                + copies
                + sum_scratch(rows, d),
            letters: format!(
                "{gradient_letters}{element}·{weight_letters} + {letters}·{element}·({outputs}·d + V){copy_letters} + scratch of the bias gradient's sum"
            ),
        },
    }
}

/// Scratch of PyTorch's sum over many rows, on a card of 132 multiprocessors.
fn sum_scratch(rows: u128, columns: u128) -> u128 {
    if rows < 1024 {
        return 0;
    }
    let parts = (16_u128 * 132).div_ceil(columns.div_ceil(128)).min(rows.div_ceil(64));
    4 * columns * 128 * parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPT2: Model =
        Model { kind: ModelKind::Gpt, layers: 12, width: 768, heads: 12, seq: 1024, context: 1024, vocab: 50257 };

    fn estimate(config: &Config) -> Estimate {
        Estimate::of(&GPT2, &TrainingSetup { config, cublas: 32 << 20, cublas_lt: 1 << 20 }).unwrap()
    }

    /// `peak_allocated` of gpt2 at a batch of 16, measured with PyTorch 2.11 on an H200.
    #[test]
    fn peaks_of_gpt2_are_pytorchs_within_half_a_per_cent() {
        let plain = Config::new(16);
        let bf16 = Config { amp: Amp::Bf16, ..plain };
        let ckpt = Config { checkpointing: Checkpointing::ALL, ..plain };
        let accum = Config { accumulation: 4, ..plain };
        for (config, measured) in
            [(plain, 24_527_500_288_u64), (bf16, 17_221_881_344), (ckpt, 15_454_696_448), (accum, 7_827_991_040)]
        {
            let peak = estimate(&config).bytes(MemoryTerm::Peak).get();
            let off = (peak as f64 / measured as f64 - 1.0).abs();
            assert!(off < 0.005, "{peak} for {measured}: {config:?}");
        }
    }

    #[test]
    fn optimizers_hold_none_one_or_two_times_the_parameters() {
        let state =
            |optimizer| estimate(&Config { optimizer, ..Config::new(1) }).bytes(MemoryTerm::OptimizerState).get();
        let once = 4 * 124_439_808;
        assert_eq!([OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::AdamW].map(state), [0, once, 2 * once]);
        // The matrices of twelve layers, 12·768² each, have one moment.
        assert_eq!(state(OptimizerKind::Muon), 2 * once - 4 * 12 * 12 * 768 * 768);
    }
}
