//! `vramlab doctor`: what this machine has, in sentences.

use std::io::IsTerminal;
use std::io::Write as _;

use clap::Args;
use color_eyre::eyre::Result;
use serde::Serialize;

use super::columns::{Cell, Column, Paper, Table, Tone};
use super::output::stdout;
use super::{Status, combinations, config, selftest, spec};
use crate::allocator::{Settings, TorchVersion};
use crate::device::cpu::{CpuDevice, CpuOptions};
use crate::device::{Device, cuda};
use crate::drawing::theme::ColorTier;
use crate::tui::GlyphTier;
use crate::user_input::ShelfKind;

/// Arguments of `vramlab doctor`.
#[derive(Debug, Args)]
pub(super) struct DoctorArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Compare every kernel of a device with the processor in f64; exit code 1 where one is wrong.
    #[arg(long)]
    selftest: bool,
    /// The device to test: cpu, cuda or cuda:N.
    #[arg(long, value_name = "DEVICE", requires = "selftest", default_value = "cpu")]
    device: String,
    /// Train every workload under combinations of switches instead: all pairs of values, then random ones. Losses of small
    /// workloads are compared with the processor's. `--device` may be a simulated GPU.
    #[arg(long, requires = "selftest")]
    combinations: bool,
    /// Test only kernels or workloads whose names start with this.
    #[arg(long, value_name = "NAME", requires = "selftest")]
    only: Vec<String>,
}

/// One item that was checked.
#[derive(Debug, Serialize)]
struct DoctorLine {
    subject: String,
    found: bool,
    sentence: String,
}

impl DoctorLine {
    fn new(subject: &str, found: bool, sentence: String) -> Self {
        Self { subject: subject.to_owned(), found, sentence }
    }
}

/// Prints what was found; this always succeeds, because a machine without a GPU is fine. Or tests a device.
pub(super) fn run(args: &DoctorArgs) -> Result<Status> {
    if args.combinations {
        return combinations::run(&args.device, &args.only, args.json);
    }
    if args.selftest {
        return selftest::run(&args.device, &args.only, args.json);
    }
    let mut lines = vec![processor(), terminal(), config_file()];
    lines.extend(themes());
    lines.push(settings());
    lines.extend(gpu(!args.json));
    if args.json {
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&lines)?)?;
        return Ok(Status::DONE);
    }
    let paper = Paper::terminal();
    let mut table = Table::new([Column::right(""), Column::left(""), Column::wraps("")]);
    for line in lines {
        let mark = if line.found { Cell::toned("yes", Tone::Good) } else { Cell::toned("no", Tone::Mixed) };
        table.row(vec![mark, Cell::toned(line.subject, Tone::Strong), line.sentence.into()]);
    }
    table.print(&mut paper.out(), paper)?;
    Ok(Status::DONE)
}

/// The lines about CUDA. For people, a missing driver and everything missing with it share one line: without a GPU,
/// nobody misses the libraries one by one.
fn gpu(for_people: bool) -> Vec<DoctorLine> {
    let probes = cuda::probe();
    let line = |probe: cuda::Probe| DoctorLine::new(&probe.subject, probe.found, probe.sentence);
    let has_driver = probes.first().is_none_or(|driver| driver.found);
    if has_driver || !for_people {
        return probes.into_iter().map(line).collect();
    }
    let (found, missing): (Vec<_>, Vec<_>) = probes.into_iter().partition(|probe| probe.found);
    let missing: Vec<String> =
        missing.into_iter().map(|probe| probe.subject).filter(|subject| subject != cuda::HOW_TO_GET).collect();
    let sentence = format!(
        "Not found: {}. The processor trains, or a simulated GPU (--device sim:h200). To train on a GPU install NVIDIA's driver, and \
         CUDA 12 or 13, which `pip install torch` brings.",
        missing.join(", ")
    );
    found.into_iter().map(line).chain([DoctorLine::new("CUDA", false, sentence)]).collect()
}

fn processor() -> DoctorLine {
    match CpuDevice::open(CpuOptions::default()) {
        Ok(device) => {
            let info = device.info();
            let sentence = format!("{}; segments may take {} unless --limit says less.", info.name, info.memory);
            DoctorLine::new("processor", true, sentence)
        }
        Err(error) => DoctorLine::new("processor", false, error.to_string()),
    }
}

fn terminal() -> DoctorLine {
    let variable = |name: &str| std::env::var(name).ok();
    if !(std::io::stdin().is_terminal() && std::io::stdout().is_terminal()) {
        let sentence = "Not on a terminal: the lab would print tables instead.";
        return DoctorLine::new("terminal", false, sentence.to_owned());
    }
    let size = crossterm::terminal::size().map_or_else(|_| "unknown size".to_owned(), |(w, h)| format!("{w}×{h}"));
    let sentence = format!(
        "{size}, colours {}, characters {} (change with --color and --glyphs).",
        ColorTier::detect(variable).name(),
        GlyphTier::detect(variable).name(),
    );
    DoctorLine::new("terminal", true, sentence)
}

fn config_file() -> DoctorLine {
    const SUBJECT: &str = "settings";
    let told = config::settings().told;
    match config::place() {
        _ if !told.is_empty() => DoctorLine::new(SUBJECT, false, told.join("; ")),
        Some(file) if file.exists() => DoctorLine::new(SUBJECT, true, format!("From {}.", file.display())),
        Some(file) => {
            DoctorLine::new(SUBJECT, true, format!("The defaults; `vramlab config --init` writes {}.", file.display()))
        }
        None => DoctorLine::new(SUBJECT, true, "The defaults; HOME and XDG_CONFIG_HOME are not set.".to_owned()),
    }
}

fn themes() -> Vec<DoctorLine> {
    let place = spec::user_folder(ShelfKind::Themes);
    let place = place.map_or_else(String::new, |folder| format!("; your own go to {}", folder.display()));
    let catalog = spec::themes();
    let all = DoctorLine::new("themes", true, format!("{}{place}.", catalog.names().collect::<Vec<_>>().join(", ")));
    let wrong = catalog.warnings().into_iter().map(|warning| DoctorLine::new("themes", false, warning));
    std::iter::once(all).chain(wrong).collect()
}

fn settings() -> DoctorLine {
    const SUBJECT: &str = "allocator settings";
    match spec::environment_settings() {
        Err(why) => DoctorLine::new(SUBJECT, false, format!("{why}.")),
        Ok(None) => DoctorLine::new(SUBJECT, true, "PyTorch's defaults; no PYTORCH_ALLOC_CONF is set. The allocator is that of 2.11, or of --torch 2.1 to 2.15."
                .to_owned()),
        Ok(Some(text)) => match Settings::parse_for(TorchVersion::V2_15, &text) {
            Ok(_) => DoctorLine::new(SUBJECT, true, format!("From the environment: {text}")),
            Err(error) => DoctorLine::new(SUBJECT, false, format!("From the environment, refused: {error}")),
        },
    }
}
