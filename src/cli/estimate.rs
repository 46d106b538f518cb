//! `vramlab estimate`: what a model of given sizes takes, by formulas, beside what a simulated run of it measures.

use std::io::Write;

use clap::{Args, ValueEnum};
use color_eyre::eyre::{Result, eyre};
use serde_json::{Map, Value, json};

use super::columns::{Cell, Column, Paper, Table, Tone};
use super::output::stdout;
use super::spec::SpecArgs;
use super::{Status, Usage};
use crate::estimate::{Estimate, MemoryTerm, Model, ModelKind, TrainingSetup};
use crate::model::{Category, RunSettings, View, advice};
use crate::session::{DeviceChoice, Headless, LabSpec, Scene, Setup, Speed, Switch, settings};
use crate::train::{AttentionKernel, Libraries, Offload, Retain};
use crate::units::Bytes;
use crate::workload::{Data, Extent};

/// The card that a run is simulated on by default.
const CARD: &str = "sim:h200";
/// Steps of a run: the second one starts with the optimizer's state from the first.
const STEPS: usize = 2;
/// Differences from this value on, in per cent, are reported.
const TOLD: f64 = 1.0;
/// The switches that are compared, one at a time and some together.
const SWITCHES: &[&[(&str, &str)]] = &[
    &[("amp", "bf16")],
    &[("ckpt", "every:2")],
    &[("ckpt", "on")],
    &[("accum", "4")],
    &[("zero-grad", "zeroed")],
    &[("opt-form", "fused")],
    &[("opt", "momentum")],
    &[("opt", "sgd")],
    &[("amp", "bf16"), ("ckpt", "on")],
    &[("ckpt", "on"), ("accum", "4")],
];

/// Models that there are formulas for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// A transformer that predicts the next token (GPT).
    #[default]
    Gpt,
    /// A transformer with bidirectional attention (BERT).
    Bert,
    /// Linear layers with ReLU.
    Mlp,
}

impl KindArg {
    const fn kind(self) -> ModelKind {
        match self {
            Self::Gpt => ModelKind::Gpt,
            Self::Bert => ModelKind::Bert,
            Self::Mlp => ModelKind::Mlp,
        }
    }

    /// The workload that provides the default sizes.
    const fn workload(self) -> &'static str {
        match self {
            Self::Gpt => "gpt2",
            Self::Bert => "bert-large",
            Self::Mlp => "mlp",
        }
    }
}

/// Help text for defaults that the shared options don't mention.
const DEFAULTS: &str = "\
Without --device the run is simulated on an H200 (sim:h200); the formulas are compared with simulated runs only.

Without --opt-form the optimizer is PyTorch's default, \"foreach\": its step adds temporaries as large as all parameters, which is \
the row of temporaries. \"loop\" adds two of one parameter, \"fused\" none.";

/// Arguments of `vramlab estimate`.
#[derive(Debug, Args)]
#[command(after_help = DEFAULTS)]
pub(super) struct EstimateArgs {
    /// The kind of model. Sizes default to those of gpt2, bert-large or mlp.
    #[arg(long, value_enum, default_value_t)]
    kind: KindArg,
    #[command(flatten)]
    spec: SpecArgs,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

/// One way to train: its formulas, and what a run of it measured.
struct EstimateRow {
    switches: String,
    estimate: Estimate,
    /// The measured bytes, or a sentence that says why the run failed.
    measured: Result<[Option<Bytes>; 8], String>,
}

/// Computes the formulas, runs the model and prints both.
pub(super) fn run(args: &EstimateArgs) -> Result<Status> {
    let device = args.spec.device.clone().unwrap_or_else(|| CARD.to_owned());
    let spec = SpecArgs { device: Some(device), ..args.spec.clone() }.lab(Some(args.kind.workload()), None)?;
    let DeviceChoice::Sim(card) = &spec.device else {
        return Err(
            Usage("formulas are compared with a simulated run; give --device sim:h200 or another card".into()).into()
        );
    };
    if let Some(why) = uncovered(&spec) {
        return Err(Usage(format!("there are no formulas for {why}; leave it out")).into());
    }
    let model = model(args.kind.kind(), &spec)?;
    let rows = rows(&spec, &model, card.compute_capability)?;
    if args.json {
        let object = json!({
            "units": { "sizes": "bytes" },
            "kind": args.kind.workload(),
            "device": spec.about(None).device,
            "simulated": true,
            "sizes": {
                "layers": model.layers, "width": model.width, "heads": model.heads,
                "seq": model.seq, "context": model.context, "vocab": model.vocab, "batch": spec.config.batch,
            },
            "parameters": model.weights()?.all,
            "rows": rows.iter().map(row_json).collect::<Vec<_>>(),
        });
        writeln!(stdout(), "{object}")?;
    } else {
        let paper = Paper::terminal();
        write(&mut paper.out(), paper, &spec, &model, &rows)?;
    }
    Ok(Status::DONE)
}

/// What the formulas don't cover.
fn uncovered(spec: &LabSpec) -> Option<&'static str> {
    let config = &spec.config;
    [
        (spec.inference.is_some(), "--inference"),
        (matches!(spec.data, Data::Lengths(_)), "--lengths"),
        (config.fuse, "--fuse"),
        (config.offload != Offload::Off, "--offload"),
        (config.retain != Retain::Off, "--retain"),
        (config.attention != AttentionKernel::Auto, "--attention"),
    ]
    .into_iter()
    .find_map(|(is, what)| is.then_some(what))
}

fn model(kind: ModelKind, spec: &LabSpec) -> Result<Model> {
    let sizes = spec.sizes.or(spec.workload.sizes);
    let of = |size: Option<Extent>| size.map_or(0, |size| size.get() as u64);
    let model = Model {
        kind,
        layers: sizes.layers.map_or(0, |layers| layers.get() as u64),
        width: of(sizes.width),
        heads: of(sizes.heads),
        seq: of(sizes.seq),
        context: of(sizes.context.or(sizes.seq)),
        vocab: of(if kind == ModelKind::Mlp { sizes.classes.or(sizes.vocab) } else { sizes.vocab }),
    };
    model.weights()?;
    Ok(model)
}

/// The settings that were requested, and each of the switches on top of them.
fn rows(spec: &LabSpec, model: &Model, compute_capability: u32) -> Result<Vec<EstimateRow>> {
    let mut rows = Vec::new();
    let as_is: &[(&str, &str)] = &[];
    for flips in [as_is].into_iter().chain(SWITCHES.iter().copied()) {
        let mut setup = spec.setup();
        let standing = settings(&setup, &setup, &Scene::of(spec, &setup.config));
        if !flips.iter().all(|(word, value)| is_compared(&standing, word, value)) {
            continue;
        }
        for (word, value) in flips {
            let switch = Switch::named(word).ok_or_else(|| eyre!("there is no switch {word}; this is a bug"))?;
            switch.set(&mut setup, value).map_err(Usage)?;
        }
        let words: Vec<String> = flips.iter().map(|(word, value)| format!("{word} {value}")).collect();
        rows.push(EstimateRow {
            switches: if words.is_empty() { "as asked".to_owned() } else { words.join(", ") },
            estimate: estimate(model, &setup, compute_capability)?,
            measured: measured(spec, &setup),
        });
    }
    Ok(rows)
}

/// Whether a flip gets a row: it changes the settings and does not undo an economy.
fn is_compared(standing: &RunSettings, word: &str, value: &str) -> bool {
    let measure = advice::MEASURES.iter().find(|measure| measure.switch == word && measure.value == value);
    advice::changes(standing, word, value) && measure.is_none_or(|measure| measure.trades(standing))
}

fn estimate(model: &Model, setup: &Setup, compute_capability: u32) -> Result<Estimate> {
    let libraries = Libraries { compute_capability, ..Libraries::HOPPER };
    // Without cuBLAS, both threads' matrix products have a workspace of the other kind.
    let lt = libraries.cublas_lt().get();
    let (cublas, cublas_lt) = libraries.cublas().map_or((lt, 0), |cublas| (cublas.get(), lt));
    Ok(Estimate::of(model, &TrainingSetup { config: &setup.config, cublas, cublas_lt })?)
}

/// Runs the model and reads what it held.
fn measured(spec: &LabSpec, setup: &Setup) -> Result<[Option<Bytes>; 8], String> {
    let spec = LabSpec { config: setup.config, speed: Speed::Max, ..spec.clone() };
    let mut run = Headless::start(spec).map_err(|error| error.to_string())?;
    for _ in 0..STEPS {
        run.step().map_err(|error| error.to_string())?;
    }
    Ok(figures(&run.view()))
}

fn figures(view: &View) -> [Option<Bytes>; 8] {
    // Counts requested bytes: blocks may be larger if the remainder was not split off.
    let asked = |category: Category| {
        let blocks = view.segments.iter().flat_map(|segment| segment.blocks.iter());
        blocks.filter(|block| block.category == category).map(|block| block.requested).sum::<Bytes>()
    };
    let place = |category: Category| Category::ALL.iter().position(|&other| other == category);
    let at_peak = |category| place(category).and_then(|place| view.peak_by_category.get(place).copied());
    let most = |category| {
        let place = place(category)?;
        let samples = &view.profiles.last.as_ref()?.samples;
        samples.iter().map(|sample| sample.by_category[place]).max()
    };
    [
        Some(asked(Category::Parameter)),
        most(Category::Gradient),
        Some(asked(Category::OptimizerState)),
        most(Category::Activation),
        Some(asked(Category::Workspace)),
        at_peak(Category::Input),
        at_peak(Category::Temporary),
        Some(view.peak_allocated),
    ]
}

/// How far a formula is from the measurement, in per cent.
fn off(formula: Bytes, measured: Bytes) -> Option<f64> {
    (measured > Bytes::ZERO).then(|| (formula.get() as f64 / measured.get() as f64 - 1.0) * 100.0)
}

/// The difference as text, or nothing if it is small.
fn difference(formula: Bytes, measured: Option<Bytes>) -> String {
    match measured.and_then(|measured| off(formula, measured)) {
        Some(percent) if percent.abs() >= TOLD => {
            format!("{}{:.1} %", if percent < 0.0 { '−' } else { '+' }, percent.abs())
        }
        _ => String::new(),
    }
}

fn write(out: &mut impl Write, paper: Paper, spec: &LabSpec, model: &Model, rows: &[EstimateRow]) -> Result<()> {
    let Model { layers, width, heads, seq, context, vocab, kind } = *model;
    let sizes = match kind {
        ModelKind::Mlp => format!("L {layers} · d {width} · T {seq} (elements of a sample) · V {vocab} (classes)"),
        _ => format!("L {layers} · d {width} · H {heads} · T {seq} · C {context} · V {vocab}"),
    };
    let sizes = format!("{sizes} · B {} · N {} parameters", spec.config.batch, model.weights()?.all);
    paper.paragraph(out, &sizes, 0, Tone::Strong)?;
    writeln!(out, "beside {STEPS} steps on {}, simulated\n", spec.about(None).device)?;
    let Some(first) = rows.first() else { return Ok(()) };
    let measured = first.measured.as_ref().ok();
    let mut table =
        Table::new([Column::left(""), Column::right("formula"), Column::right("run"), Column::right("off")]);
    for (index, figure) in first.estimate.figures.iter().enumerate() {
        let measured = measured.and_then(|measured| measured.get(index).copied().flatten());
        table.words(vec![
            figure.term.label().to_owned(),
            figure.bytes.to_string(),
            measured.map_or_else(|| "–".to_owned(), |bytes| bytes.to_string()),
            difference(figure.bytes, measured),
        ]);
    }
    table.print(out, paper)?;
    if let Err(why) = &first.measured {
        paper.paragraph(out, &format!("the run did not go through: {why}"), 0, Tone::Bad)?;
    }
    writeln!(out, "\n{}", paper.toned("formulas, in bytes:", Tone::Strong))?;
    let mut formulas = Table::new([Column::left(""), Column::wraps("")]);
    for figure in &first.estimate.figures {
        formulas.words(vec![format!("  {:<14}", figure.term.label()), format!("= {}", figure.formula)]);
    }
    formulas.print(out, paper)?;
    let moment = first.estimate.moment;
    let moment = format!("the peak is where {moment}; the run's figures are of blocks, which are rounded");
    paper.paragraph(out, &moment, 0, Tone::Plain)?;
    writeln!(out, "\n{}", paper.toned("under each switch", Tone::Strong))?;
    let mut table = Table::new([
        Column::wraps(""),
        Column::right("optimizer state").spare(2),
        Column::right("activations").spare(1),
        Column::right("peak"),
        Column::right("run"),
        Column::right("off"),
        Column::wraps("the peak is where"),
    ]);
    let one_moment = rows.iter().all(|row| row.estimate.moment == first.estimate.moment);
    for row in rows {
        let of = |term| row.estimate.bytes(term);
        let peak = row.measured.as_ref().ok().and_then(|&[.., peak]| peak);
        table.row(vec![
            row.switches.as_str().into(),
            of(MemoryTerm::OptimizerState).to_string().into(),
            of(MemoryTerm::Activations).to_string().into(),
            of(MemoryTerm::Peak).to_string().into(),
            peak.map_or_else(|| Cell::toned("does not fit", Tone::Bad), |bytes| bytes.to_string().into()),
            difference(of(MemoryTerm::Peak), peak).into(),
            if one_moment { Cell::default() } else { row.estimate.moment.into() },
        ]);
    }
    table.print(out, paper)?;
    if one_moment {
        paper.paragraph(out, &format!("in every row the peak is where {}", first.estimate.moment), 0, Tone::Plain)?;
    }
    let off = format!("off: how far the formula is from the run, where that is {TOLD:.0} % or more");
    Ok(paper.paragraph(out, &off, 0, Tone::Dim)?)
}

fn row_json(row: &EstimateRow) -> Value {
    let measured = row.measured.as_ref().ok();
    let figure = |(index, figure): (usize, &crate::estimate::TermEstimate)| {
        let measured = measured.and_then(|measured| measured.get(index).copied().flatten());
        let value = json!({
            "bytes": figure.bytes,
            "formula": figure.formula,
            "measured": measured,
            "off_percent": measured.and_then(|measured| off(figure.bytes, measured)),
        });
        (figure.term.key().to_owned(), value)
    };
    let figures: Map<String, Value> = row.estimate.figures.iter().enumerate().map(figure).collect();
    json!({
        "switches": row.switches,
        "figures": figures,
        "peak_is_where": row.estimate.moment,
        "failed": row.measured.as_ref().err(),
    })
}
