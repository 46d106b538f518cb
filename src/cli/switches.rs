//! The switches on the command line: their initial values, built from the one table.

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use crate::allocator::TorchVersion;
use crate::session::{MemoryLimit, Setup, Switch};
use crate::train::{Config, OptimizerForm, Skips};
use crate::workload::BatchSize;

/// Default number of steps of the cosine schedule.
const SCHEDULE_STEPS: u64 = 1000;

/// What no key flips.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Switches")]
struct Hyper {
    /// Weight decay of the optimizer [default: 0.1 for adamw, 0 for the others].
    #[arg(long, value_name = "X")]
    weight_decay: Option<f64>,
    /// Clip the gradients before every optimizer step, so that their common norm is at most this, as clip_grad_norm_ does
    /// [default: no clipping].
    #[arg(long, value_name = "NORM", value_parser = parse_norm)]
    clip: Option<f64>,
    /// Call Llama-like models with use_cache=True: keys and values of every layer are copied, and the copies live as long as
    /// the model's output. Checkpointing leaves no cache.
    #[arg(long)]
    use_cache: bool,
    /// Run the MLPs of Llama-like models on one tile of positions after the other, in backward too, as DeepSpeed's TiledMLP does.
    /// The number of tiles is the length divided by the model's width.
    #[arg(long)]
    tiled_mlp: bool,
    /// Number of steps over which the cosine falls to zero. Over as many more it rises again, as with
    /// CosineAnnealingLR.
    #[arg(long, value_name = "N", default_value_t = SCHEDULE_STEPS, value_parser = clap::value_parser!(u64).range(1..))]
    schedule_steps: u64,
    /// Steps that the gradient scaler of fp16 skips: the first N, or those from A to before B. A simulated card computes nothing,
    /// so it can't find overflows by itself.
    #[arg(long, value_name = "N|A..B", default_value_t)]
    scaler_skips: Skips,
}

/// Parses a norm.
fn parse_norm(text: &str) -> Result<f64, String> {
    let norm = text.parse().ok().filter(|norm: &f64| norm.is_finite() && *norm > 0.0);
    norm.ok_or_else(|| "a norm is a number above 0, such as 1.0".to_owned())
}

/// The switches' values at the start.
#[derive(Clone, Debug)]
pub struct SwitchArgs {
    given: Vec<(Switch, String)>,
    hyper: Hyper,
}

/// Switches of a program that is not vramlab's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfProgram {
    /// The memory of the program's card.
    pub limit: Option<MemoryLimit>,
    /// The batch that is tried first.
    pub batch: Option<usize>,
}

/// A switch as an argument: its word, its description, its values.
fn argument(switch: Switch) -> Arg {
    let usual = switch.usual().map_or_else(String::new, |usual| match switch.word() {
        "opt-form" => " [default: foreach; fused with --fuse]".to_owned(),
        "attention-mask" => " [default: off; on with --lengths]".to_owned(),
        "alloc-conf" => " [default: PYTORCH_CUDA_ALLOC_CONF or PYTORCH_ALLOC_CONF]".to_owned(),
        _ => format!(" [default: {usual}]"),
    });
    let argument = Arg::new(switch.word())
        .long(switch.word())
        .help(format!("{}{usual}", capitalised(switch.help())))
        .help_heading("Switches")
        .value_parser(parser(switch));
    let name = match switch.word() {
        "ckpt" => "off|on|every:K|reentrant",
        "limit" => "BYTES|SHARE",
        "alloc-conf" => "CONF",
        _ => "N",
    };
    match switch.alone() {
        // The argument after a flag without a value may be the workload.
        Some(alone) if switch.values().len() == 2 => {
            argument.num_args(0..=1).require_equals(true).default_missing_value(alone)
        }
        Some(alone) if switch.is_closed() => argument.num_args(0..=1).default_missing_value(alone),
        Some(alone) => argument.num_args(0..=1).default_missing_value(alone).value_name(name),
        None if switch.is_closed() => argument,
        None => argument.value_name(name),
    }
}

fn parser(switch: Switch) -> ValueParser {
    if switch.is_closed() {
        return PossibleValuesParser::new(switch.values()).into();
    }
    let check = move |text: &str| -> Result<String, String> {
        // Allocator settings can be checked only once PyTorch's version is known.
        if switch.word() != "alloc-conf" {
            switch.set(&mut Setup::new(Config::new(1)), text).map_err(|reason| match switch.alone() {
                // A workload after a flag without a value is read as the flag's value.
                Some(_) => format!("{reason}; a workload goes before --{}", switch.word()),
                None => reason,
            })?;
        }
        Ok(text.to_owned())
    };
    check.into()
}

/// The sentence with a capital letter, unless it begins with a name of code.
fn capitalised(sentence: &str) -> String {
    if sentence.split(' ').next().is_some_and(|word| word.contains('_')) {
        return sentence.to_owned();
    }
    let mut symbols = sentence.chars();
    symbols.next().map_or_else(String::new, |first| first.to_uppercase().chain(symbols).collect())
}

impl Args for SwitchArgs {
    fn augment_args(command: Command) -> Command {
        Hyper::augment_args(command.args(Switch::all().map(argument)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SwitchArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |switch: Switch| Some((switch, matches.get_one::<String>(switch.word())?.clone()));
        Ok(Self { given: Switch::all().filter_map(given).collect(), hyper: Hyper::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl SwitchArgs {
    /// Flags for the options that no key flips, if they differ from the defaults.
    pub fn others(&self) -> Vec<String> {
        let Hyper { weight_decay, clip, use_cache, tiled_mlp, schedule_steps, scaler_skips } = self.hyper;
        let decay = weight_decay.map(|decay| ["--weight-decay".to_owned(), decay.to_string()]);
        let steps =
            (schedule_steps != SCHEDULE_STEPS).then(|| ["--schedule-steps".to_owned(), schedule_steps.to_string()]);
        let skips = (scaler_skips != Skips::default()).then(|| ["--scaler-skips".to_owned(), scaler_skips.to_string()]);
        let clip = clip.map(|norm| ["--clip".to_owned(), norm.to_string()]);
        let numbers = decay.into_iter().chain(clip).chain(steps).chain(skips).flatten();
        let flags = [(use_cache, "--use-cache"), (tiled_mlp, "--tiled-mlp")];
        numbers.chain(flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag.to_owned())).collect()
    }

    /// The arguments that apply to a program other than vramlab's own.
    ///
    /// # Errors
    /// A sentence that names the arguments which don't apply.
    pub fn of_program(&self) -> Result<OfProgram, String> {
        let mut of = OfProgram::default();
        for (switch, text) in &self.given {
            match switch.word() {
                "limit" => of.limit = Some(text.parse()?),
                "batch" => of.batch = Some(text.parse().map_err(|_| format!("'{text}' is no batch; give a number"))?),
                word => {
                    return Err(format!(
                        "--{word} is for vramlab's own workloads; a program has its own arguments for it"
                    ));
                }
            }
        }
        match self.others().first() {
            Some(word) => Err(format!("{word} is for vramlab's own workloads; a program has its own arguments for it")),
            None => Ok(of),
        }
    }

    /// Whether the arguments give a value for the switch `word`.
    pub fn is_given(&self, word: &str) -> bool {
        self.given.iter().any(|(switch, _)| switch.word() == word)
    }

    /// The setup that these arguments describe: with `batch` samples if they give no batch, and with the allocator
    /// settings of the environment if they give none, as `torch` reads them.
    ///
    /// # Errors
    /// A sentence that says what is impossible.
    pub fn setup(&self, batch: BatchSize, environment: &str, torch: TorchVersion) -> Result<Setup, String> {
        let mut setup = Setup { torch, ..Setup::new(Config::new(batch.get())) };
        if !self.is_given("alloc-conf") {
            setup.alloc_conf = environment.into();
        }
        for (switch, text) in &self.given {
            switch.set(&mut setup, text)?;
        }
        let config = &mut setup.config;
        if config.fuse && !self.is_given("opt-form") {
            config.form = OptimizerForm::Fused;
        }
        config.hyper.weight_decay = self.hyper.weight_decay;
        config.hyper.clip = self.hyper.clip;
        config.use_cache = self.hyper.use_cache;
        config.tiled_mlp = self.hyper.tiled_mlp;
        config.hyper.schedule_steps = self.hyper.schedule_steps;
        config.hyper.scaler_skips = self.hyper.scaler_skips;
        if config.accumulation > config.batch {
            return Err(format!(
                "a batch of {} can't be cut into {} micro-batches; raise --batch or lower --accum",
                config.batch, config.accumulation
            ));
        }
        if self.hyper.weight_decay.is_some_and(|decay| !(0.0..=1.0).contains(&decay)) {
            return Err("a weight decay lies between 0 and 1, such as 0.1".to_owned());
        }
        Ok(setup)
    }
}
