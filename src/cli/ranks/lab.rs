//! The lab of ranks that a launcher started, each in its own process: rank 0 draws it, the others train for it.

use std::io::{self, IsTerminal};
use std::time::Duration;

use color_eyre::eyre::{Report, Result};

use super::launcher::LaunchedRank;
use super::process::{given, own_device};
use super::threads::prepare;
use super::{check_live, refused};
use crate::cli::output::complain;
use crate::session::{self, DeviceChoice, LabSpec, PATIENCE, Parallel, RankDuty, RankProcesses, RankServer, RanksDuty};
use crate::train::Parallelism;

/// The reason for the missing screen.
const NO_TERMINAL: &str = "rank 0 has no terminal to draw the lab on, and prints a table instead: torchrun hands on its own, srun \
                           does with --pty, and under mpirun there is none";

/// What this process must do once all ranks have joined.
pub(in crate::cli) enum ProcessDuty {
    /// Show a lab of this run, with these processes as its other ranks.
    Lab(Box<LabSpec>, RankProcesses),
    /// Train without a screen.
    Run,
    /// Nothing: the lab of rank 0 has ended.
    Ended,
}

/// Waits for all ranks of a launcher. Rank 0 opens a lab if it has a terminal; the others train for it until it ends.
pub(in crate::cli) fn gather(
    spec: &LabSpec,
    way: Parallelism,
    launched: &LaunchedRank,
    terminal: bool,
    device_is_named: bool,
) -> Result<ProcessDuty> {
    let rendezvous = &launched.rendezvous;
    let (rank, ranks) = (rendezvous.world.rank(), rendezvous.world.size());
    let of_this = |error: Report| if rank == 0 { error } else { error.wrap_err(format!("rank {rank}")) };
    let parallel = Parallel { parallelism: way, ranks };
    let simulated = matches!(spec.device, DeviceChoice::Sim(_));
    let device = own_device(spec, launched, device_is_named)?;
    // Rank 0 computes all ranks on simulated cards.
    let own = LabSpec { device, parallel: Some(parallel), apart: !simulated, ..spec.clone() };
    check_live(&own, parallel).map_err(of_this)?;
    session::of_rank(parallel, spec, rank, 0).map_err(refused).map_err(of_this)?;
    prepare(&own)?;
    let given = given(spec, parallel, spec.steps.unwrap_or_default());
    if rank == 0 {
        complain(format_args!("rank 0 of {ranks}: waits for the others at {}", rendezvous.host));
        let welcomed = match (simulated, terminal) {
            (true, _) => RanksDuty::Simulated,
            (false, true) => RanksDuty::Lab,
            (false, false) => RanksDuty::Run,
        };
        let processes = RankProcesses::gather(rendezvous, &given, welcomed, PATIENCE)?;
        if welcomed == RanksDuty::Run {
            complain(format_args!("{NO_TERMINAL}"));
        }
        return Ok(processes.map_or(ProcessDuty::Run, |processes| ProcessDuty::Lab(Box::new(own), processes)));
    }
    let joined = RankServer::join(rendezvous, given, PATIENCE).map_err(Report::new).map_err(of_this)?;
    let (server, told) = match joined {
        RankDuty::Run => return Ok(ProcessDuty::Run),
        RankDuty::Lab(server) => (server, "trains for the lab of rank 0"),
        RankDuty::Simulated(server) => (server, "is simulated by rank 0, and waits for it to end"),
    };
    // If this process shares rank 0's terminal, that terminal shows the lab.
    let say = |told: &str| {
        if !(launched.is_beside_first() && io::stderr().is_terminal()) {
            complain(format_args!("rank {rank} of {ranks}: {told}"));
        }
    };
    say(told);
    let steps = server.serve(&LabSpec { parallel: None, ..own }).map_err(Report::new).map_err(of_this)?;
    let steps = if simulated { String::new() } else { format!(" after {steps} steps of this rank") };
    say(&format!("the lab has ended{steps}"));
    Ok(ProcessDuty::Ended)
}

/// Reports the ranks whose processes are silent after the lab has ended; returns whether there are any.
pub(in crate::cli) fn left_behind(silent: &[(usize, Duration)]) -> bool {
    for (rank, silence) in silent {
        let seconds = silence.as_secs();
        complain(format_args!(
            "rank {rank} has said nothing for {seconds} s, and its process may still be there: end it where it runs"
        ));
    }
    !silent.is_empty()
}
