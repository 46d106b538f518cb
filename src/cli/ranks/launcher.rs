//! What torchrun, mpirun and SLURM say about a process's rank.

use std::hash::{DefaultHasher, Hash, Hasher};

use color_eyre::eyre::Result;

use crate::cli::Usage;
use crate::session::Rendezvous;
use crate::train::World;

/// The rank as which a launcher started this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct LaunchedRank {
    /// Where the ranks meet.
    pub rendezvous: Rendezvous,
    /// The rank's number on its host.
    pub local: u32,
}

impl LaunchedRank {
    /// Whether this rank runs on the host of rank 0: a host has consecutive ranks, and that host has the first ones.
    pub fn is_beside_first(&self) -> bool {
        usize::try_from(self.local).is_ok_and(|local| local == self.rendezvous.world.rank())
    }
}

/// The variables of a launcher: rank, number of ranks, rank on the host, ranks on the host.
const LAUNCHERS: [[&str; 4]; 4] = [
    ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
    // The variables of a SLURM step: in a batch script, which is no step, the job's variables say nothing about this process.
    ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"],
];

/// Variables that identify the run, for all launchers.
const NAMES: [&str; 6] = [
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
];

/// The rank of this process, if a launcher started several.
///
/// # Errors
/// [`Usage`] if the variables contradict each other, or don't say where the ranks meet.
pub(in crate::cli) fn launched() -> Result<Option<LaunchedRank>> {
    of_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()), std::os::unix::process::parent_id())
}

/// The same for these variables, with the ID of the parent process.
fn of_variables(variable: impl Fn(&str) -> Option<String>, parent: u32) -> Result<Option<LaunchedRank>> {
    let started = |[rank, size, ..]: &&[&str; 4]| variable(rank).is_some() && variable(size).is_some();
    let Some([rank, size, local, on_host]) = LAUNCHERS.iter().find(started) else { return Ok(None) };
    let number = |name: &str| -> Result<usize> {
        let text = variable(name).unwrap_or_default();
        text.parse()
            .map_err(|_| Usage(format!("{name} is '{text}', which is no number; unset it or set it right")).into())
    };
    let (rank_number, ranks) = (number(rank)?, number(size)?);
    if ranks < 2 {
        return Ok(None);
    }
    let world = World::new(ranks, rank_number).ok_or_else(|| {
        Usage(format!("{rank} is {rank_number}, and {size} {ranks}; ranks count from 0 to {}", ranks - 1))
    })?;
    let local_rank = if variable(local).is_some() { number(local)? } else { rank_number };
    let names: Vec<String> = NAMES.iter().filter_map(|name| variable(name)).collect();
    let on_one_host = variable(on_host).and_then(|count| count.parse().ok()) == Some(ranks);
    let host =
        variable("MASTER_ADDR").or_else(|| first_host(&variable)).or(on_one_host.then(|| "127.0.0.1".to_owned()));
    let host = host.ok_or_else(|| {
        Usage("MASTER_ADDR is not set, and the ranks are on several hosts; set it to the host of rank 0".to_owned())
    })?;
    let run = format!("{} {}", env!("CARGO_PKG_VERSION"), names.join(" "));
    let port = match variable("MASTER_PORT") {
        Some(text) => text
            .parse()
            .map_err(|_| Usage(format!("MASTER_PORT is '{text}', which is no port; give one from 1024 to 65535")))?,
        None => {
            let mut hasher = DefaultHasher::new();
            names.hash(&mut hasher);
            // If the run has no name, the children of one process count as one run.
            names.is_empty().then_some(parent).hash(&mut hasher);
            20_000 + u16::try_from(hasher.finish() % 20_000).unwrap_or_default()
        }
    };
    // torchrun itself listens on the port.
    let taken = variable("TORCHELASTIC_USE_AGENT_STORE").is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let port: u16 = if taken { u16::saturating_add(port, 1) } else { port };
    let rendezvous = Rendezvous { world, host, port, run };
    Ok(Some(LaunchedRank { rendezvous, local: u32::try_from(local_rank).unwrap_or(u32::MAX) }))
}

/// The first host that SLURM lists: `gpu[07-09,12],login` is gpu07.
fn first_host(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let list = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST"))?;
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let Some(inside) = rest.strip_prefix('[') else { return Some(name.to_owned()) };
    let (numbers, behind) = inside.split_once(']')?;
    let first = numbers.split([',', '-']).next()?;
    let suffix = behind.split(',').next().unwrap_or_default();
    Some(format!("{name}{first}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<LaunchedRank>> {
        let variable = |name: &str| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
        of_variables(variable, 7)
    }

    fn place(variables: &[(&str, &str)]) -> (usize, usize, u32, String, u16) {
        let LaunchedRank { rendezvous, local } = of(variables).unwrap().unwrap();
        (rendezvous.world.rank(), rendezvous.world.size(), local, rendezvous.host, rendezvous.port)
    }

    #[test]
    fn every_launcher_says_which_rank_this_is_and_where_ranks_meet() {
        let torchrun = [
            ("RANK", "5"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "gpu07"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_USE_AGENT_STORE", "True"),
        ];
        assert_eq!(place(&torchrun), (5, 8, 1, "gpu07".to_owned(), 29501));
        assert_eq!(place(&torchrun[..5]), (5, 8, 1, "gpu07".to_owned(), 29500));
        let mpirun = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ];
        let (rank, size, local, host, port) = place(&mpirun);
        assert_eq!((rank, size, local, host.as_str()), (1, 2, 1, "127.0.0.1"));
        assert!((20_000..40_000).contains(&port));
        let srun = [
            ("SLURM_PROCID", "3"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_NODELIST", "gpu[07-09,12],login"),
            ("SLURM_JOB_ID", "4711"),
        ];
        let (rank, size, local, host, _) = place(&srun);
        assert_eq!((rank, size, local, host.as_str()), (3, 4, 1, "gpu07"));
        let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "4000")];
        assert_eq!(place(&hydra), (0, 2, 0, "10.0.0.1".to_owned(), 4000));
    }

    #[test]
    fn a_process_alone_is_no_rank_and_nonsense_is_a_sentence() {
        assert_eq!(of(&[]).unwrap(), None);
        assert_eq!(of(&[("RANK", "0"), ("WORLD_SIZE", "1")]).unwrap(), None);
        // A batch script is no step.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]).unwrap(), None);
        let refused = |variables: &[(&str, &str)]| of(variables).unwrap_err().to_string();
        assert!(refused(&[("RANK", "x"), ("WORLD_SIZE", "2")]).contains("RANK is 'x'"));
        assert!(refused(&[("RANK", "2"), ("WORLD_SIZE", "2")]).contains("ranks count from 0 to 1"));
        assert!(refused(&[("RANK", "1"), ("WORLD_SIZE", "2")]).contains("MASTER_ADDR is not set"));
        let port = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "a"), ("MASTER_PORT", "99999")];
        assert!(refused(&port).contains("MASTER_PORT is '99999'"));
    }

    #[test]
    fn the_first_host_of_a_list() {
        let first = |list: &str| first_host(|name| (name == "SLURM_JOB_NODELIST").then(|| list.to_owned())).unwrap();
        let lists = ["gpu1", "gpu1,gpu2", "gpu[1-4]", "gpu[07,09]-ib,x", "a-b[3]"];
        assert_eq!(lists.map(first), ["gpu1", "gpu1", "gpu1", "gpu07-ib", "a-b3"]);
    }
}
