//! What to train and how: the arguments that `vramlab` and `vramlab run` share.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use color_eyre::eyre::Result;

use super::Usage;
use crate::allocator::Settings;
use crate::device::sim::{CardCatalog, CardError};
use crate::session::{DeviceChoice, LabSpec, Speed};
use crate::train::{Amp, Config, DataPath, OptimizerKind, ZeroGrad};
use crate::units::{Bytes, GIB, KIB, MIB};
use crate::workload::{
    self, Architecture, Catalog, CatalogError, Data, DataKind, Entry, Generation, InferenceMode, InferencePlan, Models,
    Sizes, Text,
};

/// Mixed precision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AmpArg {
    /// Everything in fp32.
    #[default]
    Off,
    /// fp16 with a gradient scaler.
    Fp16,
    /// bf16.
    Bf16,
}

/// Optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptArg {
    /// Plain SGD: no state.
    Sgd,
    /// SGD with momentum 0.9: one state tensor per parameter.
    Momentum,
    /// Adam: two state tensors per parameter.
    Adam,
    /// AdamW: Adam with decoupled weight decay.
    Adamw,
}

/// What `zero_grad` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum ZeroGradArg {
    /// Gradients are freed.
    #[default]
    SetToNone,
    /// Gradients are filled with zeros.
    Zeroed,
}

/// How to run a model that is not trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum InferenceArg {
    /// model.eval() under torch.no_grad().
    NoGrad,
    /// model.eval() under torch.inference_mode().
    InferenceMode,
    /// model.eval() alone: the whole graph is built.
    Eval,
    /// Training mode, forward only.
    Train,
    /// A gpt writes token after token over a cache of keys and values.
    Generate,
}

/// How many models run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ModelsArg {
    /// One.
    #[default]
    One,
    /// Two on the device together.
    Together,
    /// Two, each loaded for its turn and dropped after it.
    InTurn,
}

/// The switches' values at the start, the sizes, and the memory.
#[derive(Clone, Debug, Args)]
pub struct SpecArgs {
    /// Where to train: cpu, or a simulated GPU such as sim:h200 (see `vramlab list`).
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub device: String,
    /// How many times as fast as the card a simulated device runs, or `max` [default: max; in the lab, as fast as the
    /// card while steps stay watchable].
    #[arg(long, value_name = "N|max", value_parser = parse_speed)]
    pub speed: Option<Speed>,
    /// Mixed precision.
    #[arg(long, value_enum, default_value_t)]
    pub amp: AmpArg,
    /// Recompute activations in backward instead of keeping them.
    #[arg(long)]
    pub ckpt: bool,
    /// Micro-batches per step.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub accum: usize,
    /// Optimizer [default: adamw].
    #[arg(long, value_enum)]
    pub opt: Option<OptArg>,
    /// What zero_grad does.
    #[arg(long, value_enum, default_value_t)]
    pub zero_grad: ZeroGradArg,
    /// Batches in page-locked memory, copied beside the computation.
    #[arg(long)]
    pub pin: bool,
    /// Samples per step, all micro-batches together.
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Layers (transformer blocks; linear layers of an MLP).
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub layers: Option<usize>,
    /// Channels.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub width: Option<usize>,
    /// Attention heads; must divide the width.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub heads: Option<usize>,
    /// Positions of a sequence (input values of an MLP).
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub seq: Option<usize>,
    /// Vocabulary (or classes, of a model that classifies).
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub vocab: Option<usize>,
    /// Classes.
    #[arg(long, value_name = "N", help_heading = "Sizes", conflicts_with = "vocab")]
    pub classes: Option<usize>,
    /// Rows and columns of an image.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub image: Option<usize>,
    /// Rows and columns of a patch; must divide the image.
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub patch: Option<usize>,
    /// Positions that the model has embeddings for [default: as many as --seq].
    #[arg(long, value_name = "N", help_heading = "Sizes")]
    pub context: Option<usize>,
    /// What to train on: `reference` (the four fixed batches of the reference measurements, kept on the device),
    /// `fresh` (the same, computed on the device anew in every step), `synthetic` (the same, brought to the device anew each
    /// time), `text` (vramlab's own source), or a file.
    #[arg(long, value_name = "reference|fresh|synthetic|text|FILE")]
    pub data: Option<PathBuf>,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Run the model instead of training it.
    #[arg(long, value_enum, value_name = "MODE", help_heading = "Inference")]
    pub inference: Option<InferenceArg>,
    /// Parameters and inputs in fp16, as model.half().
    #[arg(long, requires = "inference", help_heading = "Inference")]
    pub half: bool,
    /// How many models.
    #[arg(long, value_enum, requires = "inference", default_value_t, help_heading = "Inference")]
    pub models: ModelsArg,
    /// Tokens that `generate` writes; the prompt is the rest of the sequence [default: half of it].
    #[arg(long, value_name = "N", requires = "inference", help_heading = "Inference")]
    pub new_tokens: Option<usize>,
    /// `generate` keeps keys and values in tensors made once, instead of ones that grow.
    #[arg(long, requires = "inference", help_heading = "Inference")]
    pub static_cache: bool,
    /// The most that the allocator may reserve, such as 512MiB or 8GiB.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, help_heading = "Memory")]
    pub limit: Option<Bytes>,
    /// Allocator settings in PyTorch's own syntax [default: PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF].
    #[arg(long, value_name = "CONF", help_heading = "Memory")]
    pub alloc_conf: Option<String>,
}

/// Reads `8GiB`, `512 MiB`, `1.5GiB`, `4096`.
pub fn parse_bytes(text: &str) -> Result<Bytes, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        other => return Err(format!("'{other}' is no unit of memory; write KiB, MiB or GiB")),
    };
    let number: f64 = number.parse().map_err(|_| "a size is a number and a unit, such as 8GiB".to_owned())?;
    let bytes = number * unit as f64;
    if !(1.0..=9.0e18).contains(&bytes) {
        return Err("a size must be at least one byte and below 8 EiB".to_owned());
    }
    Ok(Bytes(bytes as u64))
}

/// Reads `max`, `1`, `0.5`.
fn parse_speed(text: &str) -> Result<Speed, String> {
    if text == "max" {
        return Ok(Speed::Max);
    }
    match text.parse() {
        Ok(factor) if (1e-3..=1e6).contains(&factor) => Ok(Speed::Times(factor)),
        _ => Err("a speed is max or a number from 0.001 on, such as 1 or 10".to_owned()),
    }
}

/// The workloads, the user's own included.
pub fn workloads() -> Catalog {
    let folder = Catalog::user_folder(|name| std::env::var(name).ok());
    Catalog::with_user_workloads(folder.as_deref())
}

/// The simulated GPUs, the user's own included.
pub fn cards() -> CardCatalog {
    let folder = Catalog::user_folder(|name| std::env::var(name).ok());
    // Beside the workloads.
    CardCatalog::with_user_cards(folder.as_deref().map(|workloads| workloads.with_file_name("devices")).as_deref())
}

impl SpecArgs {
    /// What these arguments ask for, checked.
    ///
    /// # Errors
    /// [`Usage`] for what can't be, other errors for files that can't be read.
    pub fn lab(&self, workload: Option<&str>, steps: Option<u64>) -> Result<LabSpec> {
        let entry = workloads().entry(workload.unwrap_or(workload::DEFAULT)).map_err(|error| match error {
            CatalogError::Unknown { .. } => usage(error),
            other => other.into(),
        })?;
        let data = self.data(entry.data)?;
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
        // Sizes that make no model are a mistake on the command line: better told before the screen opens.
        entry.workload(sizes, data.clone(), self.seed).map_err(usage)?;
        let mut config = Config::new(self.batch.unwrap_or(entry.batch));
        config.amp = match self.amp {
            AmpArg::Off => Amp::Off,
            AmpArg::Fp16 => Amp::Fp16,
            AmpArg::Bf16 => Amp::Bf16,
        };
        config.checkpointing = self.ckpt;
        config.accumulation = self.accum;
        config.optimizer = match self.opt {
            Some(OptArg::Sgd) => OptimizerKind::Sgd,
            Some(OptArg::Momentum) => OptimizerKind::Momentum,
            Some(OptArg::Adam) => OptimizerKind::Adam,
            Some(OptArg::Adamw) | None => OptimizerKind::AdamW,
        };
        config.zero_grad = match self.zero_grad {
            ZeroGradArg::SetToNone => ZeroGrad::SetToNone,
            ZeroGradArg::Zeroed => ZeroGrad::Zeroed,
        };
        config.pinned = self.pin;
        config.data = match data {
            Data::Reference => DataPath::Resident,
            Data::Fresh => DataPath::Fresh,
            Data::Streamed | Data::Text(_) => DataPath::Streamed,
        };
        config.hyper.adam_lr = entry.learning_rate.adam.unwrap_or(config.hyper.adam_lr);
        config.hyper.sgd_lr = entry.learning_rate.sgd.unwrap_or(config.hyper.sgd_lr);
        if config.batch == 0 || config.accumulation == 0 {
            return Err(usage("--batch and --accum count from 1; give a number of at least 1"));
        }
        if config.accumulation > config.batch {
            return Err(usage(format!(
                "a batch of {} can't be cut into {} micro-batches; raise --batch or lower --accum",
                config.batch, config.accumulation
            )));
        }
        let inference = self.inference(&entry, sizes.or(entry.sizes))?;
        Ok(LabSpec {
            inference,
            workload: entry,
            sizes,
            data,
            seed: self.seed,
            config,
            device: self.device()?,
            speed: self.speed.unwrap_or_default(),
            settings: self.settings()?,
            limit: self.limit,
            steps,
        })
    }

    fn inference(&self, entry: &Entry, sizes: Sizes) -> Result<Option<InferencePlan>> {
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
                let rows = sizes.seq.unwrap_or(0);
                let new_tokens = self.new_tokens.unwrap_or(rows / 2);
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
            ModelsArg::InTurn => Models::InTurn,
        };
        Ok(Some(InferencePlan { mode, half: self.half, models }))
    }

    fn data(&self, default: DataKind) -> Result<Data> {
        let Some(path) = &self.data else {
            return Ok(default.data());
        };
        Ok(match path.to_str() {
            Some("reference") => Data::Reference,
            Some("fresh") => Data::Fresh,
            Some("synthetic") => Data::Streamed,
            Some("text") => Data::Text(Text::source()),
            _ => Data::Text(Text::open(Path::new(path))?),
        })
    }

    fn device(&self) -> Result<DeviceChoice> {
        match self.device.as_str() {
            "cpu" => Ok(DeviceChoice::Cpu),
            other if other == "cuda" || other.starts_with("cuda:") => {
                Err(usage("this build does not train on GPUs yet; use --device cpu or a simulated one: sim:h200"))
            }
            other => match other.strip_prefix("sim:") {
                Some(name) => match cards().card(name) {
                    Ok(card) => Ok(DeviceChoice::Sim(Box::new(card))),
                    Err(error @ CardError::Unknown { .. }) => Err(usage(error)),
                    Err(error) => Err(error.into()),
                },
                None => Err(usage(format!("there is no device '{other}'; use cpu or a simulated GPU: sim:h200"))),
            },
        }
    }

    fn settings(&self) -> Result<Settings> {
        let text = self.alloc_conf.clone().or_else(environment_settings).unwrap_or_default();
        Settings::parse(&text).map_err(|error| usage(format!("the allocator settings \"{text}\" are refused: {error}")))
    }
}

fn usage(error: impl ToString) -> color_eyre::Report {
    Usage(error.to_string()).into()
}

/// The allocator settings that the environment holds: PyTorch's variables, the first one set wins.
pub fn environment_settings() -> Option<String> {
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        assert_eq!(parse_bytes("8GiB"), Ok(Bytes::gib(8)));
        assert_eq!(parse_bytes("512 MiB"), Ok(Bytes::mib(512)));
        assert_eq!(parse_bytes("1.5g"), Ok(Bytes::mib(1536)));
        assert_eq!(parse_bytes("4096"), Ok(Bytes(4096)));
        assert!(parse_bytes("8 apples").is_err());
        assert!(parse_bytes("GiB").is_err());
        assert!(parse_bytes("0").is_err());
        assert!(parse_bytes("-3GiB").is_err());
    }
}
