//! The processes of the other ranks, from the point of view of rank 0: a connection to each.

use std::io::BufReader;
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::order::{RankFault, RankRequest};
use super::rank_messages::{
    BEAT, BUFFER, FromRank, RankPayload, RankReader, SILENCE, ToRank, Unmade, Welcome, read, write,
};
use super::rank_worker::{RankReport, micros};
use super::rendezvous::{Rendezvous, RendezvousError};
use super::{BuildError, GroupError, Parallel, Setup};
use vramlab_device::DeviceError;
use vramlab_train::{Seat, TrainError};

/// How long ranks may take to meet again. The others wait a little less.
const AGAIN: Duration = Duration::from_secs(30);
/// A rank is reported as silent after this long: two signs of life are missing.
const QUIET: Duration = Duration::from_secs(5);

/// The processes of all ranks except this one, which is rank 0.
#[derive(Debug)]
pub struct RankProcesses {
    rendezvous: Rendezvous,
    links: Vec<Arc<Link>>,
    /// The number of runs so far.
    rounds: u32,
    /// Ends the thread that sends this rank's signs of life.
    _beating: Sender<()>,
}

/// The connection to a rank's process.
#[derive(Debug)]
pub(super) struct Link {
    rank: usize,
    stream: TcpStream,
    /// Held while a message is written.
    writing: Mutex<()>,
    desk: Mutex<Desk>,
}

/// Where the messages of a process go.
#[derive(Debug, Default)]
struct Desk {
    round: u32,
    tells: Option<SyncSender<RankReport>>,
    /// How long the process has been silent, if that is long.
    silence: Option<Duration>,
    /// Why the connection ended.
    gone: Option<Arc<str>>,
}

impl RankProcesses {
    /// Waits for all other ranks, and tells them what to do, unless one was given other arguments than this rank.
    /// # Errors
    /// [`RendezvousError`].
    pub fn gather(
        rendezvous: &Rendezvous,
        given: &str,
        welcomed: RanksDuty,
        patience: Duration,
    ) -> Result<Option<Self>, RendezvousError> {
        let connections = rendezvous.of_lab(0).connect(patience)?;
        let mut links = Vec::with_capacity(connections.len());
        let mut differs = None;
        for (rank, stream) in connections {
            match read(&mut RankReader::to(&stream, |_| ())?)? {
                FromRank { said: RankPayload::Given(theirs), .. } if theirs == given => {}
                _ => differs = differs.or(Some(rank)),
            }
            let (writing, desk) = (Mutex::default(), Mutex::default());
            links.push(Arc::new(Link { rank, stream, writing, desk }));
        }
        let told = differs.map_or(welcomed.message(), Welcome::Differ);
        links.iter().for_each(|link| link.say(&ToRank::Welcome(told)));
        if let Some(rank) = differs {
            return Err(RendezvousError::Differ(rank));
        }
        if welcomed == RanksDuty::Run {
            return Ok(None);
        }
        for link in &links {
            let link = Arc::clone(link);
            thread::Builder::new().name(format!("hears rank {}", link.rank)).spawn(move || link.hear())?;
        }
        let (beating, beats) = channel::<()>();
        let each = links.clone();
        thread::Builder::new().name("ranks".to_owned()).spawn(move || {
            while beats.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                each.iter().for_each(|link| link.say(&ToRank::Beat));
            }
        })?;
        Ok(Some(Self { rendezvous: rendezvous.clone(), links, rounds: 0, _beating: beating }))
    }

    /// Returns a function that lists the silent ranks and the length of their silence.
    pub fn silent(&self) -> impl Fn() -> Vec<(usize, Duration)> + use<> {
        let links = self.links.clone();
        move || links.iter().filter_map(|link| Some((link.rank, link.lock().silence?))).collect()
    }

    pub(super) fn links(&self) -> &[Arc<Link>] {
        &self.links
    }

    /// Makes all ranks begin a run whose clocks count from `begun`, and meets them. Their messages about it go to `tells`.
    /// # Errors
    /// [`GroupError`] if a rank is gone, or does not come.
    pub(super) fn begin(
        &mut self,
        parallel: Parallel,
        setup: &Setup,
        begun: Instant,
        tells: &SyncSender<RankReport>,
    ) -> Result<Arc<Seat>, GroupError> {
        if let Some(gone) = self.gone() {
            return Err(gone);
        }
        self.rounds += 1;
        for link in &self.links {
            {
                let mut desk = link.lock();
                (desk.round, desk.tells) = (self.rounds, Some(tells.clone()));
            }
            let (round, elapsed) = (self.rounds, micros(begun.elapsed()));
            link.say(&ToRank::Begin { round, elapsed, way: parallel.parallelism, setup: Box::new(setup.clone()) });
        }
        let met = self.rendezvous.of_lab(self.rounds).meet_unless(AGAIN, &|| self.gone().is_some());
        met.map_err(|error| self.gone().unwrap_or_else(|| GroupError::Refused(error.to_string())))
    }

    /// The error for a process that is gone, if there is one.
    fn gone(&self) -> Option<GroupError> {
        let (rank, why) = self.links.iter().find_map(|link| Some((link.rank, link.lock().gone.clone()?)))?;
        Some(GroupError::Build { rank, error: BuildError::Device(gone(&why)) })
    }
}

impl Drop for RankProcesses {
    fn drop(&mut self) {
        for link in &self.links {
            link.leave();
            // The process closes the connection when it has read the message.
            let _ = link.stream.shutdown(Shutdown::Write);
        }
    }
}

/// What ranks that have joined are to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RanksDuty {
    /// They train for a lab.
    Lab,
    /// They train without a screen.
    Run,
    /// Their cards are simulated: this process computes them all, and they wait.
    Simulated,
}

impl RanksDuty {
    const fn message(self) -> Welcome {
        match self {
            Self::Lab => Welcome::Lab,
            Self::Run => Welcome::Run,
            Self::Simulated => Welcome::Simulated,
        }
    }
}

/// The error for a process that is gone, which counts as a lost device.
pub(super) fn gone(why: &str) -> DeviceError {
    DeviceError::Lost { device: "its process".to_owned(), reason: why.to_owned() }
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, message: &ToRank) {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        // The listener of the connection notices if the process is gone.
        let _ = write(&self.stream, message);
    }

    pub fn ask(&self, order: RankRequest) {
        self.say(&ToRank::Ask(order));
    }

    /// Reports the total time for which a person has paused all ranks.
    pub fn held(&self, held: u64) {
        self.say(&ToRank::Held(held));
    }

    /// Tells the rank to stop at its next safe point.
    pub fn stop(&self) {
        self.say(&ToRank::Stop);
    }

    /// Tells the rank that the lab ends.
    pub fn leave(&self) {
        self.say(&ToRank::Leave);
    }

    /// Forgets the listener.
    pub fn forget(&self) {
        self.lock().tells = None;
    }

    /// Sends a report to the listener, or drops it if there is none.
    fn tell(&self, told: RankReport) {
        let tells = self.lock().tells.clone();
        if let Some(tells) = tells {
            // The receiver may be gone.
            let _ = tells.send(told);
        }
    }

    /// Notes how long the rank has been silent.
    fn note_silence(&self, silence: Duration) {
        if silence >= QUIET {
            self.lock().silence = Some(silence);
            self.tell(RankReport::Silent(self.rank, Some(silence)));
        }
    }

    /// Notes that the rank is no longer silent.
    fn end_silence(&self) {
        let silence = self.lock().silence.take();
        if silence.is_some() {
            self.tell(RankReport::Silent(self.rank, None));
        }
    }

    /// Passes the messages of the process on to the listener, until the connection ends.
    fn hear(&self) {
        let silent = |silence: Duration| self.note_silence(silence);
        let why = match RankReader::to(&self.stream, silent) {
            Ok(listening) => {
                let mut reader = BufReader::with_capacity(BUFFER, listening);
                loop {
                    match read::<FromRank>(&mut reader) {
                        Ok(FromRank { round, said }) => {
                            self.end_silence();
                            if self.lock().round == round {
                                self.pass_on(said);
                            }
                        }
                        Err(error)
                            if matches!(
                                error.kind(),
                                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                            ) =>
                        {
                            break format!("it has said nothing for {} s", SILENCE.as_secs());
                        }
                        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                            break "its connection has closed".to_owned();
                        }
                        Err(error) => break error.to_string(),
                    }
                }
            }
            Err(error) => error.to_string(),
        };
        let why: Arc<str> = why.into();
        let tells = {
            let mut desk = self.lock();
            desk.gone = Some(Arc::clone(&why));
            desk.tells.clone()
        };
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(tells) = tells {
            // The receiver may be gone.
            let _ = tells.send(RankReport::Ended(self.rank, Some(why)));
        }
    }

    fn pass_on(&self, said: RankPayload) {
        match said {
            RankPayload::Happened(happened) => self.tell(RankReport::Happened(self.rank, happened)),
            RankPayload::Made(Ok(made)) => self.tell(RankReport::Made(self.rank, Ok(made))),
            RankPayload::Made(Err(why)) => self.tell(RankReport::Made(self.rank, Err(unmade(why, self.rank)))),
            RankPayload::Answered(reply) => self.tell(RankReport::Answered(self.rank, reply)),
            RankPayload::Beat | RankPayload::Given(_) => {}
        }
    }
}

/// Why a process has no model, as the error of a rank in this process.
fn unmade(why: Unmade, rank: usize) -> BuildError {
    match why {
        Unmade::Lost(RankFault::Lost { device, reason }) => BuildError::Device(DeviceError::Lost { device, reason }),
        Unmade::Lost(fault) => BuildError::Train(fault.into()),
        Unmade::Refused(why) => BuildError::Train(TrainError::Workload(why)),
        Unmade::Failed(why) => BuildError::Train(TrainError::Workload(format!("rank {rank}: {why}"))),
    }
}
