//! What to train and how: the arguments that `vramlab` and `vramlab run` share.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use color_eyre::eyre::{Result, eyre};

use super::Usage;
use super::output::warn;
use super::ranks::split_count;
use super::switches::SwitchArgs;
use crate::allocator::{Settings, TorchVersion};
use crate::device::sim::{CardCatalog, CardError};
use crate::device::{DType, cuda};
use crate::session::{DeviceChoice, LabSpec, MemoryLimit, Speed};
use crate::train::Float8Recipe;
use crate::units::DeviceIndex;
use crate::user_input::{ShelfKind, read_text};
use crate::workload::{
    self, AdapterConfig, Architecture, Catalog, CatalogError, CheckpointLoad, Data, DataKind, Extent, Generation,
    InferenceMode, InferencePlan, LengthPolicy, Lengths, Lora, ModelConfig, Models, Preparation, Quantization, Repeats,
    Share, Sizes, Targets, Text, WorkloadEntry, read_lengths,
};

/// How to run a model that is not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum InferenceArg {
    /// model.eval() under torch.no_grad().
    NoGrad,
    /// model.eval() under torch.inference_mode().
    InferenceMode,
    /// model.eval() alone: PyTorch builds the whole graph.
    Eval,
    /// Training mode, forward only.
    Train,
    /// A GPT generates tokens, with a cache of keys and values.
    Generate,
}

/// How many models run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModelsArg {
    /// One model.
    #[default]
    One,
    /// Two models on the device at once.
    Together,
    /// Two models with the same parameters.
    Shared,
    /// Two models, one after the other; each is loaded and then dropped.
    InTurn,
}

/// The type of a model's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WeightsArg {
    /// float32.
    Fp32,
    /// bfloat16; gradients and optimizer state have it, too.
    Bf16,
    /// float16; gradients and optimizer state have it, too.
    Fp16,
}

impl WeightsArg {
    const fn dtype(self) -> DType {
        match self {
            Self::Fp32 => DType::F32,
            Self::Bf16 => DType::Bf16,
            Self::Fp16 => DType::F16,
        }
    }
}

/// The switches' values at the start, the sizes, and the memory.
#[derive(Clone, Debug, Args)]
pub struct SpecArgs {
    /// Where to train: cuda (or cuda:1 …), cpu, or a simulated GPU such as sim:h200 (see `vramlab list`) [default: the
    /// GPU where CUDA works, else the processor].
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// Speed of a simulated device: 2 is twice as fast as the card, `max` is as fast as this machine can [default: max;
    /// in the lab, the card's speed, or faster if a step would take too long to watch].
    #[arg(long, value_name = "N|max", value_parser = parse_speed)]
    pub speed: Option<Speed>,
    /// The PyTorch version whose allocator is used, from 2.1 to 2.15; the ops are always those of 2.11.
    #[arg(long, value_name = "VERSION", default_value_t)]
    pub torch: TorchVersion,
    #[command(flatten)]
    pub switches: SwitchArgs,
    /// Number of layers: transformer blocks, or linear layers of an MLP [default: the workload's, as for all sizes].
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub layers: Option<Repeats>,
    /// Channels of a layer, its width.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub width: Option<Extent>,
    /// Attention heads of a layer; must divide the width.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub heads: Option<Extent>,
    /// Sequence length in tokens; of an MLP, the number of input values.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub seq: Option<Extent>,
    /// Vocabulary size; of a classifier, the number of classes.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub vocab: Option<Extent>,
    /// Number of classes; the same as --vocab.
    #[arg(long, value_name = "N", help_heading = "Sizes", conflicts_with = "vocab")]
    pub classes: Option<Extent>,
    /// Rows and columns of an image, in pixels.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub image: Option<Extent>,
    /// Rows and columns of a patch, in pixels; must divide the image's.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub patch: Option<Extent>,
    /// Number of the model's position embeddings [default: as --seq].
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub context: Option<Extent>,
    /// Type of the weights of Llama-like models [default: what their config says, else fp32].
    #[arg(long, value_enum, value_name = "TYPE", help_heading = "Sizes")]
    pub weights: Option<WeightsArg>,
    /// Train adapters of this rank beside the frozen weights of Llama-like models, as peft does (LoRA).
    #[arg(long, value_name = "RANK", help_heading = "LoRA")]
    pub lora: Option<Extent>,
    /// The layers that get an adapter: all-linear, or some of q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj
    /// [default: those of peft, if it has some for the family].
    #[arg(long, value_name = "NAMES", requires = "lora", help_heading = "LoRA")]
    pub lora_targets: Option<Targets>,
    /// Scale what an adapter adds by this number divided by the rank [default: twice the rank].
    #[arg(long, value_name = "X", requires = "lora", help_heading = "LoRA")]
    pub lora_alpha: Option<f64>,
    /// Drop this share of the values that enter an adapter, other ones in every step [default: 0].
    #[arg(long, value_name = "SHARE", requires = "lora", help_heading = "LoRA")]
    pub lora_dropout: Option<Share>,
    /// Train the magnitude of each row of an adapted weight separately, as peft does with `use_dora` (DoRA).
    #[arg(long, requires = "lora", help_heading = "LoRA")]
    pub dora: bool,
    /// Keep the frozen linear layers in 4 bits, as bitsandbytes does (QLoRA). The largest magnitude of each block is kept in f32
    /// (`nf4`) or in 8 bits (`nf4-double`).
    #[arg(long, value_name = "nf4|nf4-double", help_heading = "LoRA")]
    pub quantize: Option<Quantization>,
    /// The type of embeddings, head and norms if linear layers have 4 bits: all f32, as after peft's
    /// prepare_model_for_kbit_training (`kbit`, the default); only norms f32, as after TRL's peft_module_casting_to_bf16 (`trl`);
    /// or the type of the weights (`none`).
    #[arg(long, value_name = "kbit|trl|none", help_heading = "LoRA")]
    pub prepare: Option<Preparation>,
    /// What to train on: `reference` (the four fixed batches of the reference measurements, kept on the device),
    /// `fresh` (the same, computed on the device in every step), `host` (the same, kept in host memory and copied in turn),
    /// `synthetic` (the same, copied to the device each time), `text` (vramlab's own source), or a file.
    #[arg(long, value_name = "reference|fresh|host|synthetic|text|FILE")]
    pub data: Option<PathBuf>,
    /// Train on samples of these lengths, in tokens. FILE is a text with one length a line, or a CSV or JSONL file with a
    /// column of lengths, or of lists that are as long [default: its first column with numbers]. Samples longer than --seq
    /// are cut to it, if --seq is given.
    #[arg(long, value_name = "FILE[:COLUMN]", conflicts_with_all = ["data", "inference"], help_heading = "Lengths")]
    pub lengths: Option<PathBuf>,
    /// How samples become batches: `pad` takes them in the order of the file and pads each batch to its longest sample;
    /// `shuffle` takes them in random order; `bucket` puts samples of nearly the same length together, as group_by_length
    /// does; `longest-first` takes them in falling order; `pack` puts them one after the other into rows of --seq tokens.
    #[arg(long, value_name = "POLICY", requires = "lengths", default_value = "pad", value_parser = policy_parser(),
          help_heading = "Lengths")]
    pub length_policy: LengthPolicy,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Load the weights from a checkpoint first: through the device, as `torch.load(…, map_location="cuda")` does
    /// (`device`); in the same way, while a variable keeps the loaded dict (`kept`); or through the host, as with `"cpu"`
    /// (`host`).
    #[arg(long, value_name = "device|kept|host")]
    pub load: Option<CheckpointLoad>,
    /// Allocate one segment of this size first and cut large blocks from it: a static pool, as JAX preallocates 75%. If no
    /// large block of the model lies in it, it is released with the cache before the first step.
    #[arg(long, value_name = "BYTES|SHARE")]
    pub preallocate: Option<MemoryLimit>,
    /// Run the model instead of training it.
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Inference")]
    pub inference: Option<InferenceArg>,
    /// Have parameters and inputs in fp16, as after model.half().
    #[arg(long, requires = "inference", help_heading = "Inference")]
    pub half: bool,
    /// How many models run, and how they share the device.
    #[arg(long, value_enum, requires = "inference", default_value_t, help_heading = "Inference")]
    pub models: ModelsArg,
    /// Number of tokens to generate; the rest of the sequence is the prompt [default: half of the sequence].
    #[arg(long, value_name = "N", requires = "inference", help_heading = "Inference")]
    pub new_tokens: Option<Extent>,
    /// Generate with a cache of keys and values that is allocated once, instead of one that grows.
    #[arg(long, requires = "inference", help_heading = "Inference")]
    pub static_cache: bool,
}

/// Parses the word of a length policy.
fn policy_parser() -> impl TypedValueParser<Value = LengthPolicy> {
    PossibleValuesParser::new(LengthPolicy::ALL.map(LengthPolicy::label)).map(|word| {
        let named = |policy: &LengthPolicy| policy.label() == word;
        LengthPolicy::ALL.into_iter().find(named).unwrap_or_default()
    })
}

/// Parses a speed such as `max`, `1` or `0.5`.
fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    match text.parse() {
        Ok(factor) if (1e-3..=1e6).contains(&factor) => Ok(Speed::Times(factor)),
        _ => Err("a speed is max or a number from 0.001 on, such as 1 or 10".to_owned()),
    }
}

/// The user's folder for files of `kind`.
pub fn user_folder(kind: ShelfKind) -> Option<PathBuf> {
    kind.user_folder(|name| std::env::var_os(name))
}

/// The workloads, including the user's own.
pub fn workloads() -> Catalog {
    Catalog::with_user_workloads(user_folder(ShelfKind::Workloads).as_deref())
}

/// Whether a workload has this name, or a file under this name may define one.
pub fn is_workload(name: &str) -> bool {
    is_config(name) || workloads().names().any(|known| known == name)
}

/// Whether `path` leads to a `config.json`.
fn is_config(path: &str) -> bool {
    path.ends_with(".json")
}

/// The simulated GPUs, including the user's own.
pub fn cards() -> CardCatalog {
    CardCatalog::with_user_cards(user_folder(ShelfKind::Devices).as_deref())
}

/// The themes, including the user's own.
pub fn themes() -> crate::drawing::theme::ThemeCatalog {
    crate::drawing::theme::ThemeCatalog::with_user_themes(user_folder(ShelfKind::Themes).as_deref())
}

impl SpecArgs {
    /// The run that these arguments describe, checked.
    ///
    /// # Errors
    /// [`Usage`] for impossible arguments, other errors for files that can't be read.
    pub fn lab(&self, workload: Option<&str>, steps: Option<u64>) -> Result<LabSpec> {
        let catalog = workloads();
        let workload = workload.unwrap_or(workload::DEFAULT);
        let mut entry = match model_config(workload)? {
            Some(entry) => entry,
            None => catalog.entry(workload).map_err(|error| match error {
                CatalogError::Unknown { .. } if Path::new(workload).is_file() => {
                    usage(format!("{workload} is a file, not a workload; vramlab open {workload} shows it"))
                }
                CatalogError::Unknown { .. } => {
                    // The workload may be in a file that can't be read.
                    catalog.warnings().iter().for_each(warn);
                    usage(error)
                }
                other => other.into(),
            })?,
        };
        if let Some(weights) = self.weights {
            let config = entry.config.as_mut().ok_or_else(|| {
                usage(format!("the weights of {} are always fp32; --weights is for Llama-like models", entry.name))
            })?;
            config.dtype = Some(weights.dtype().label().to_owned());
        }
        if let Some(rank) = self.lora {
            if entry.config.is_none() {
                return Err(usage(format!("{} has no layers for LoRA; --lora is for Llama-like models", entry.name)));
            }
            let targets = self.lora_targets;
            let dropout = self.lora_dropout.unwrap_or_default();
            let (alpha, dora) = (self.lora_alpha, self.dora);
            entry.lora =
                Some(Lora { rank, alpha, targets, dropout, dora, quantization: None, prepare: Preparation::Kbit });
        }
        if let Some(quantization) = self.quantize {
            let lora = entry.lora.as_mut().ok_or_else(|| {
                usage("no step changes layers in 4 bits: --quantize needs adapters beside them, --lora 16 for one")
            })?;
            lora.quantization = Some(quantization);
        }
        let is_quantized = entry.is_quantized();
        if let Some(prepare) = self.prepare {
            match entry.lora.as_mut().filter(|_| is_quantized) {
                Some(lora) => lora.prepare = prepare,
                None => {
                    return Err(usage("only layers in 4 bits are prepared for training: --prepare needs --quantize"));
                }
            }
        }
        if self.load.is_some() && is_quantized {
            return Err(usage("layers in 4 bits are quantised as their weights are loaded; leave --load out"));
        }
        let data = self.data(entry.data)?;
        let data = self.lengths()?.map_or(data, Data::Lengths);
        let sizes = Sizes {
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            seq: self.seq,
            context: self.context,
            vocab: self.vocab,
            classes: self.classes,
            image: self.image,
            patch: self.patch,
            stages: None,
        };
        // Sizes that describe no model are a mistake on the command line: it is reported before the screen opens.
        entry.workload(sizes, data.clone(), self.seed).map_err(|error| {
            // An error that comes from the command line has no place in a file.
            match catalog.place(&entry.name, &error).filter(|_| sizes == Sizes::default()) {
                Some(place) => usage(format!("{place}: {error}")),
                None => usage(error),
            }
        })?;
        let environment = environment_settings().map_err(usage)?.unwrap_or_default();
        let setup = self.switches.setup(entry.batch, &environment, self.torch).map_err(usage)?;
        let mut config = setup.config;
        config.data = data.path();
        config.attention_mask |= !self.switches.is_given("attention-mask") && entry.passes_attention_mask(&data);
        if config.float8 != Float8Recipe::Off && !(entry.model == Architecture::Llama && entry.lora.is_none()) {
            return Err(usage("--fp8 converts the linear layers of Llama-like models, without adapters; leave it out"));
        }
        config.hyper.adam_lr = entry.learning_rate.adam.unwrap_or(config.hyper.adam_lr);
        config.hyper.sgd_lr = entry.learning_rate.sgd.unwrap_or(config.hyper.sgd_lr);
        let inference = self.inference(&entry, sizes.or(entry.sizes))?;
        let alloc_conf = setup.alloc_conf;
        Ok(LabSpec {
            parallel: None,
            apart: false,
            member: None,
            seat: None,
            timetable: None,
            index: DeviceIndex::FIRST,
            inference,
            load: self.load,
            preallocate: self.preallocate,
            kernels: None,
            workload: entry,
            sizes,
            data,
            seed: self.seed,
            config,
            device: self.device.as_deref().map_or_else(|| Ok(DeviceChoice::best()), device)?,
            speed: self.speed.unwrap_or_default(),
            settings: Settings::parse_for(self.torch, &alloc_conf)
                .map_err(|error| usage(format!("the allocator settings \"{alloc_conf}\" are refused: {error}")))?,
            alloc_conf,
            limit: setup.limit,
            steps,
            rests: false,
        })
    }

    fn inference(&self, entry: &WorkloadEntry, sizes: Sizes) -> Result<Option<InferencePlan>> {
        let mode = match self.inference {
            None => return Ok(None),
            Some(InferenceArg::NoGrad) => InferenceMode::NoGrad,
            Some(InferenceArg::InferenceMode) => InferenceMode::InferenceMode,
            Some(InferenceArg::Eval) => InferenceMode::Eval,
            Some(InferenceArg::Train) => InferenceMode::Train,
            Some(InferenceArg::Generate) => {
                if entry.model != Architecture::Gpt {
                    return Err(usage(format!("{} does not write text; --inference generate takes a gpt", entry.name)));
                }
                let rows = sizes.seq.map_or(0, Extent::get);
                let new_tokens = self.new_tokens.map_or(rows / 2, Extent::get);
                if !(1..rows).contains(&new_tokens) {
                    return Err(usage(format!(
                        "a sequence of {rows} has no room for a prompt and {new_tokens} new tokens; give --new-tokens \
                         from 1 to {}",
                        rows.saturating_sub(1)
                    )));
                }
                InferenceMode::Generate(Generation { new_tokens, preallocated: self.static_cache })
            }
        };
        let models = match self.models {
            ModelsArg::One => Models::One,
            ModelsArg::Together => Models::Together,
            ModelsArg::Shared => Models::Shared,
            ModelsArg::InTurn => Models::InTurn,
        };
        Ok(Some(InferencePlan { mode, half: self.half, models }))
    }

    fn lengths(&self) -> Result<Option<Lengths>> {
        let Some(given) = &self.lengths else { return Ok(None) };
        let (path, column) = match given.to_str().and_then(|text| text.rsplit_once(':')) {
            Some((path, column)) if !given.exists() => (Path::new(path), Some(column)),
            _ => (&**given, None),
        };
        let (samples, column) = read_lengths(path, column)?;
        if let Some(column) = column.filter(|_| path == given) {
            warn(format_args!("{}: lengths are those of its column '{column}'", path.display()));
        }
        let most = self.seq.and_then(|seq| u32::try_from(seq.get()).ok());
        let lengths = Lengths::new(samples, most, self.seed);
        Ok(lengths.map(|lengths| lengths.under(self.length_policy)))
    }

    fn data(&self, default: DataKind) -> Result<Data> {
        let Some(path) = &self.data else {
            return Ok(default.data());
        };
        Ok(match path.to_str() {
            Some("reference") => Data::Reference,
            Some("fresh") => Data::Fresh,
            Some("host") => Data::Host,
            Some("synthetic") => Data::Streamed,
            Some("text") => Data::Text(Text::source()),
            _ => Data::Text(Text::open(Path::new(path))?),
        })
    }
}

/// The workload of a Hugging Face `config.json`; `None` if `path` is no such path.
///
/// # Errors
/// If the file can't be read or understood.
fn model_config(path: &str) -> Result<Option<WorkloadEntry>> {
    if !is_config(path) {
        return Ok(None);
    }
    let path = Path::new(path);
    let text = read_text(path)?;
    let config = serde_json::from_str(&text).map_err(|error| match ModelConfig::unknown_family(&text) {
        Some(why) => usage(format!("{}: {why}", path.display())),
        None => usage(format!("{} is no config.json that is understood ({error}); correct it", path.display())),
    })?;
    let mut entry = WorkloadEntry::of_config(&path.to_string_lossy(), config);
    entry.lora = adapter_config(&path.with_file_name("adapter_config.json"))?;
    Ok(Some(entry))
}

/// The adapters of a peft `adapter_config.json`; `None` if there is no such file.
///
/// # Errors
/// If the file can't be read or understood, or requests something unsupported.
fn adapter_config(path: &Path) -> Result<Option<Lora>> {
    if !path.is_file() {
        return Ok(None);
    }
    let adapters: AdapterConfig = serde_json::from_str(&read_text(path)?).map_err(|error| {
        usage(format!("{} is no adapter_config.json that is understood ({error}); correct it", path.display()))
    })?;
    Ok(Some(adapters.lora().map_err(|why| usage(format!("{}: {why}", path.display())))?))
}

/// The device that `--device` names; only cheap checks are made.
///
/// # Errors
/// [`Usage`] if the text names no device; a sentence if CUDA can't train.
pub fn device(text: &str) -> Result<DeviceChoice> {
    let none = || usage(format!("there is no device '{text}'; use cuda, cpu or a simulated GPU: sim:h200"));
    match text.split_once(':').map_or((text, None), |(kind, which)| (kind, Some(which))) {
        ("cpu", None) => Ok(DeviceChoice::Cpu),
        ("cuda", which) => {
            if which.is_some_and(|which| which.contains(',')) {
                let text =
                    "GPUs of several ranks follow each other, such as cuda:0,1; CUDA_VISIBLE_DEVICES chooses others";
                return Err(usage(text));
            }
            let ordinal = which.map_or(Ok(0), str::parse).map_err(|_| none())?;
            match cuda::usable(ordinal) {
                Ok(()) => Ok(DeviceChoice::Cuda(ordinal)),
                Err(why) => Err(eyre!("cuda:{ordinal} can't be trained on: {why} `vramlab doctor` says more.")),
            }
        }
        ("sim", Some(name)) => {
            let cards = cards();
            cards.card(name).map(|card| DeviceChoice::Sim(Box::new(card))).map_err(|error| match error {
                CardError::Unknown { .. } => {
                    if let (Some(card), Some(count)) = split_count(Some(text.to_owned()))
                        && cards.card(card.trim_start_matches("sim:")).is_ok()
                    {
                        return usage(format!(
                            "{count} ranks train together with `vramlab run --parallel`; give one device here, {card}"
                        ));
                    }
                    cards.warnings().iter().for_each(warn);
                    usage(error)
                }
                other => other.into(),
            })
        }
        _ => Err(none()),
    }
}

fn usage(error: impl ToString) -> color_eyre::Report {
    Usage(error.to_string()).into()
}

/// The allocator settings in the environment: PyTorch's variables, of which the first that is set wins.
///
/// # Errors
/// A sentence if the variable is no valid text.
pub fn environment_settings() -> Result<Option<String>, String> {
    let names = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
    let found = names.into_iter().find_map(|name| Some((name, std::env::var_os(name)?)));
    found
        .map(|(name, value)| {
            value.into_string().map_err(|_| format!("{name} is no UTF-8 text; correct it, or give --alloc-conf"))
        })
        .transpose()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::train::TrainError;

    /// A workload and its arguments, as both commands parse them.
    #[derive(Debug, Parser)]
    struct SpecCommand {
        workload: String,
        #[command(flatten)]
        spec: SpecArgs,
    }

    const SIZES: [&str; 13] = [
        "--layers",
        "--width",
        "--heads",
        "--seq",
        "--vocab",
        "--classes",
        "--image",
        "--patch",
        "--context",
        "--batch",
        "--accum",
        "--new-tokens",
        "--schedule-steps",
    ];
    const VALUES: [u64; 10] = [0, 1, 10_000, 1 << 16, 1 << 22, 1 << 24, 1 << 31, 1 << 32, (1 << 63) - 1, u64::MAX];

    /// Trains a step on a small card.
    ///
    /// # Errors
    /// A sentence if the arguments are refused or something does not fit.
    fn train(arguments: &[&str]) -> Result<(), String> {
        let common = ["vramlab", "--device", "sim:t4", "--limit", "96MiB"];
        let given = SpecCommand::try_parse_from(common.iter().chain(arguments)).map_err(|error| error.to_string())?;
        let spec = given.spec.lab(Some(&given.workload), Some(1)).map_err(|error| error.to_string())?;
        let mut trainer = spec.build(Box::new(spec.pace())).map_err(|error| error.to_string())?;
        match trainer.step() {
            Ok(_) => Ok(()),
            Err(error @ TrainError::OutOfMemory { .. }) => Err(error.to_string()),
            Err(other) => panic!("{arguments:?}: {other}"),
        }
    }

    #[test]
    fn no_size_of_any_workload_does_more_than_be_refused() {
        let mut trained = 0;
        for workload in workloads().names() {
            for size in SIZES {
                for value in VALUES {
                    let value = value.to_string();
                    let mut arguments = vec![workload, size, &value];
                    if size == "--new-tokens" {
                        arguments.extend(["--inference", "generate"]);
                    }
                    match train(&arguments) {
                        Ok(()) => trained += 1,
                        Err(sentence) => assert!(!sentence.contains("bug"), "{arguments:?}: {sentence}"),
                    }
                }
            }
        }
        assert!(trained >= 90, "most small sizes train: {trained}");
    }
}
