//! `vramlab`: the lab on the terminal, or tables where there is none.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use color_eyre::eyre::{Result, WrapErr, eyre};
use tokio::sync::watch;

use super::output::complain;
use super::spec::{SpecArgs, cards, themes, workloads};
use super::{Status, Usage, run};
use crate::session::{self, Engine, LabState, RunState};
use crate::tui::{self, ColorTier, GlyphTier, TuiError, TuiOptions};

/// Steps of the tables that replace the lab where there is no terminal.
const STEPS_WITHOUT_TERMINAL: u64 = 50;

/// How long the first frame may wait for a model that can't be made.
const MODEL_PATIENCE: Duration = Duration::from_millis(60);

/// How many colours to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ColorArg {
    Never,
    #[value(name = "16")]
    Ansi,
    #[value(name = "256")]
    Indexed,
    Truecolor,
}

/// Which characters to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum GlyphArg {
    Unicode,
    Ascii,
}

/// Arguments of `vramlab` without a command.
#[derive(Debug, Args)]
pub(super) struct LabArgs {
    /// What to train: see `vramlab list` [default: gpt-char].
    #[arg(value_name = "WORKLOAD")]
    workload: Option<String>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Stop after so many steps; the lab stays open.
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Theme: see `vramlab list` [default: dark].
    #[arg(long, value_name = "NAME", help_heading = "Screen")]
    theme: Option<String>,
    /// Colours [default: what the terminal says it can].
    #[arg(long, value_enum, help_heading = "Screen")]
    color: Option<ColorArg>,
    /// Characters [default: what the locale says].
    #[arg(long, value_enum, help_heading = "Screen")]
    glyphs: Option<GlyphArg>,
    /// Leave clicks and the wheel to the terminal.
    #[arg(long, help_heading = "Screen")]
    no_mouse: bool,
}

/// Opens the lab and stays until somebody leaves it.
pub(super) fn run(args: LabArgs) -> Result<Status> {
    let options = TuiOptions {
        theme: args.theme,
        color: args.color.map(|color| match color {
            ColorArg::Never => ColorTier::None,
            ColorArg::Ansi => ColorTier::Ansi,
            ColorArg::Indexed => ColorTier::Indexed,
            ColorArg::Truecolor => ColorTier::True,
        }),
        glyphs: args.glyphs.map(|glyphs| match glyphs {
            GlyphArg::Unicode => GlyphTier::Unicode,
            GlyphArg::Ascii => GlyphTier::Ascii,
        }),
        mouse: !args.no_mouse,
        notices: [workloads().warnings(), cards().warnings(), themes().warnings()].concat(),
    };
    tui::check(&options, themes()).map_err(|error| match error {
        TuiError::Theme(error) => Usage(error.to_string()).into(),
        other => color_eyre::Report::from(other),
    })?;
    let spec = args.spec.lab(args.workload.as_deref(), args.steps)?;
    let terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !terminal || std::env::var("TERM").is_ok_and(|term| term == "dumb") {
        complain(format_args!(
            "no terminal to draw the lab on: training {STEPS_WITHOUT_TERMINAL} steps with tables instead"
        ));
        let steps = args.steps.unwrap_or(STEPS_WITHOUT_TERMINAL);
        return run::table(&session::LabSpec { steps: Some(steps), ..spec }, steps);
    }
    let speed = args.spec.speed.unwrap_or(session::Speed::Watchable);
    let handle = session::start(session::LabSpec { speed, ..spec }).wrap_err("the system gives no threads")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let state = handle.state.clone();
    let _ending = Ending(handle.engine());
    // A model that can't be made is told at once: no screen opens for a sentence. A large one is waited for on screen.
    runtime.block_on(settled(state.clone()));
    failure(&state)?;
    let exit = runtime.block_on(tui::run(handle, options, themes()))?;
    failure(&state)?;
    Ok(exit.into())
}

/// Ends the engine when it goes, however the screen was left: a device is closed before the process ends.
struct Ending(Engine);

impl Drop for Ending {
    fn drop(&mut self) {
        // One that takes longer is in a library that does not return: the process ends without it.
        let _ = self.0.end(tui::ENGINE_PATIENCE);
    }
}

/// Waits until the lab has its model, but not for long.
async fn settled(mut state: watch::Receiver<Arc<LabState>>) {
    let made = state.wait_for(|lab| lab.run != RunState::Starting);
    // Either way the next thing is to look.
    let _ = tokio::time::timeout(MODEL_PATIENCE, made).await;
}

/// Why the lab can't go on, if it can't.
fn failure(state: &watch::Receiver<Arc<LabState>>) -> Result<()> {
    match &state.borrow().run {
        RunState::Failed(reason) | RunState::Lost(reason) => Err(eyre!("{reason}")),
        _ => Ok(()),
    }
}
