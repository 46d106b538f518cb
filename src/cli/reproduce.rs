//! The command that runs the same again, with the options that neither the switches nor a screen's header contain.

use clap::ValueEnum;

use super::spec::{InferenceArg, ModelsArg, SpecArgs, WeightsArg};
use crate::model::{AlikeRanks, View};
use crate::session::{LabSpec, MemoryLimit, Parallel, Scene, Setup, Speed, settings};
use crate::source::{Picture, RankFigures};
use crate::tui::OpeningCommand;

/// The shell command for the run of `spec` with the switches of `setup`; on several cards if `parallel` is given.
pub(super) fn command(args: &SpecArgs, spec: &LabSpec, setup: &Setup, parallel: Option<Parallel>) -> String {
    let standing = settings(setup, setup, &Scene::of(spec, &setup.config));
    let limit = match setup.limit {
        Some(MemoryLimit::Bytes(limit)) => Some(limit),
        _ => None,
    };
    let view = View { about: spec.about(None).into(), limit, ..View::default() };
    let ranks = parallel.map(|Parallel { parallelism, ranks }| {
        let world = u32::try_from(ranks).unwrap_or(u32::MAX);
        let alike = AlikeRanks { parallelism: Some(parallelism), world, ranks: Vec::new() };
        RankFigures { alike: alike.into(), ..RankFigures::default() }
    });
    let ranks = ranks.into_iter().collect();
    let picture = Picture { view: view.into(), settings: standing.into(), ranks, ..Picture::default() };
    OpeningCommand::Run(flags(args)).command(&picture)
}

/// Flags for everything in `args` except the device and the switches of the common table.
pub(super) fn flags(args: &SpecArgs) -> Vec<String> {
    let mut words = args.switches.others();
    let mut give = |flag: &str, value: Option<String>| {
        if let Some(value) = value {
            words.extend([format!("--{flag}"), value]);
        }
    };
    give("speed", args.speed.map(speed));
    give("layers", args.layers.map(|layers| layers.get().to_string()));
    let extents = [
        ("width", args.width),
        ("heads", args.heads),
        ("seq", args.seq),
        ("vocab", args.vocab),
        ("classes", args.classes),
        ("image", args.image),
        ("patch", args.patch),
        ("context", args.context),
    ];
    for (flag, extent) in extents {
        give(flag, extent.map(|extent| extent.get().to_string()));
    }
    give("weights", args.weights.as_ref().map(word::<WeightsArg>));
    give("lora", args.lora.map(|rank| rank.get().to_string()));
    give("lora-targets", args.lora_targets.map(|targets| targets.to_string()));
    give("lora-alpha", args.lora_alpha.map(|alpha| alpha.to_string()));
    give("lora-dropout", args.lora_dropout.map(|share| share.to_string()));
    give("quantize", args.quantize.map(|quantization| quantization.to_string()));
    give("prepare", args.prepare.map(|prepare| prepare.to_string()));
    give("data", args.data.as_ref().map(|data| data.to_string_lossy().into_owned()));
    give("lengths", args.lengths.as_ref().map(|lengths| lengths.to_string_lossy().into_owned()));
    give("length-policy", args.lengths.as_ref().map(|_| args.length_policy.label().to_owned()));
    give("seed", (args.seed != 1).then(|| args.seed.to_string()));
    give("load", args.load.map(|way| way.label().to_owned()));
    give("preallocate", args.preallocate.map(pool));
    give("inference", args.inference.as_ref().map(word::<InferenceArg>));
    give("models", (args.models != ModelsArg::One).then(|| word(&args.models)));
    give("new-tokens", args.new_tokens.map(|tokens| tokens.get().to_string()));
    words.extend(args.dora.then(|| "--dora".to_owned()));
    words.extend(args.half.then(|| "--half".to_owned()));
    words.extend(args.static_cache.then(|| "--static-cache".to_owned()));
    words
}

fn speed(speed: Speed) -> String {
    match speed {
        Speed::Times(factor) => factor.to_string(),
        _ => "max".to_owned(),
    }
}

fn pool(pool: MemoryLimit) -> String {
    match pool {
        MemoryLimit::Bytes(bytes) => format!("{}B", bytes.get()),
        MemoryLimit::Fraction(share) => format!("{}%", share * 100.0),
    }
}

fn word<T: ValueEnum>(value: &T) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::model::{About, View};
    use crate::session::{Scene, settings};
    use crate::source::Picture;
    use crate::tui::OpeningCommand;

    #[derive(Debug, Parser)]
    struct ReproducedCommand {
        workload: String,
        #[command(flatten)]
        spec: SpecArgs,
    }

    fn given<'a>(words: impl IntoIterator<Item = &'a str>) -> ReproducedCommand {
        ReproducedCommand::try_parse_from(["vramlab"].into_iter().chain(words)).unwrap()
    }

    /// The command of a lab that these arguments open.
    fn command(words: &[&str]) -> String {
        let given = given(words.iter().copied());
        let spec = given.spec.lab(Some(&given.workload), None).unwrap();
        let setup = spec.setup();
        let settings = settings(&setup, &setup, &Scene::of(&spec, &setup.config));
        let limit = setup.limit.map(|limit| limit.of(crate::units::Bytes::gib(16)));
        let view = View { about: spec.about(None).into(), limit, ..View::default() };
        let picture = Picture { view: view.into(), settings: settings.into(), ..Picture::default() };
        assert_ne!(About::default(), *picture.view.about);
        OpeningCommand::Run(flags(&given.spec)).command(&picture)
    }

    #[test]
    fn the_command_asks_for_the_same_lab() {
        for words in [
            "gpt-mini --device sim:t4",
            "gpt-mini --device sim:t4 --amp bf16 --ckpt --accum 4 --batch 8 --opt sgd --limit 96MiB",
            "gpt-mini --device cpu --layers 2 --width 32 --heads 2 --seq 16 --vocab 64 --context 32 --seed 7",
            "gpt-mini --device sim:t4 --fuse --opt-form foreach --retain graph --offload optimizer --speed 2",
            "gpt-mini --device sim:t4 --fuse --data synthetic --weight-decay 0.2 --schedule-steps 50 --scaler-skips 2 --schedule cosine",
            "gpt-mini --device sim:t4 --inference generate --half --models together --new-tokens 3 --static-cache",
            "llama-mini --device sim:t4 --weights bf16 --seq 32",
            "llama-mini --device sim:t4 --lora 8 --lora-targets all-linear --lora-dropout 0.1 --dora --quantize nf4 --prepare none",
            "gpt-mini --device sim:t4 --load kept --preallocate 75%",
            "gpt-mini --device sim:t4 --preallocate 64MiB",
            "gpt-mini --device sim:t4 --alloc-conf expandable_segments:True --limit 50%",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let first = command(&words);
            let again: Vec<&str> = first.split(' ').collect();
            assert_eq!(again[..2], ["vramlab", "run"]);
            assert_eq!(command(&again[2..]), first, "it does not come back");
            let spec = |words: &[&str]| {
                let given = given(words.iter().copied());
                format!("{:?}", given.spec.lab(Some(&given.workload), None).unwrap())
            };
            assert_eq!(spec(&again[2..]), spec(&words), "{first}");
        }
    }
}
