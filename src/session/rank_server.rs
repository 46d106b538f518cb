//! A rank whose lab is in the process of rank 0: it makes its model when that says so, does what it is asked, and tells what happens.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::order::{RankFault, RankRequest};
use super::rank_messages::{BEAT, BUFFER, FromRank, RankPayload, RankReader, ToRank, Unmade, Welcome, read, write};
use super::rank_worker::{End, RankClock, RankReport, serve};
use super::rendezvous::{Rendezvous, RendezvousError};
use super::{BuildError, LabSpec, Parallel, of_rank};
use vramlab_train::{Seat, TrainError};

/// Pieces of news that may wait to be written.
const AHEAD: usize = 256;
/// Events that go together at most.
const TOGETHER: usize = 1 << 14;
/// How long ranks may take to meet once more.
const AGAIN: Duration = Duration::from_secs(20);

/// What rank 0 has this rank do.
#[derive(Debug)]
pub enum RankDuty {
    /// Train for its lab.
    Lab(RankServer),
    /// Train without a screen.
    Run,
    /// Wait until its lab has ended, which computes this rank, too.
    Simulated(RankServer),
}

/// Why a rank can't train for the lab of rank 0 any more.
#[derive(Debug, Error)]
pub enum ServeError {
    /// It is gone.
    #[error("rank 0 is gone, and with it the lab that this rank trained for")]
    Gone,
    /// A connection, or a thread, can't be had.
    #[error("this rank can't tell rank 0 what it does ({0})")]
    Connection(#[from] io::Error),
}

/// The connection to the lab of rank 0.
#[derive(Debug)]
pub struct RankServer {
    rendezvous: Rendezvous,
    stream: TcpStream,
    /// Steps that were asked for.
    steps: u64,
}

/// The run under way, for who hears what rank 0 says.
struct UnderWay {
    shared: Arc<RankClock>,
    seat: Arc<Seat>,
}

impl UnderWay {
    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Who waits for another rank, or has its device wait, comes back.
        self.seat.fail();
    }
}

fn lock(under_way: &Mutex<Option<UnderWay>>) -> MutexGuard<'_, Option<UnderWay>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RankServer {
    /// Comes to rank 0, with what this rank was given to do, and hears what it has to do.
    ///
    /// # Errors
    /// [`RendezvousError`].
    pub fn join(rendezvous: &Rendezvous, given: String, patience: Duration) -> Result<RankDuty, RendezvousError> {
        let connections = rendezvous.of_lab(0).connect(patience)?;
        let first = connections.into_iter().find_map(|(rank, stream)| (rank == 0).then_some(stream));
        let stream = first.ok_or(RendezvousError::Ended)?;
        write(&stream, &FromRank { round: 0, said: RankPayload::Given(given) })?;
        // Without a buffer: what follows may have come, too.
        let welcome = read(&mut RankReader::to(&stream, |_| ())?).map_err(|_| RendezvousError::Ended)?;
        let server = Self { rendezvous: rendezvous.clone(), stream, steps: 0 };
        match welcome {
            ToRank::Welcome(Welcome::Lab) => Ok(RankDuty::Lab(server)),
            ToRank::Welcome(Welcome::Simulated) => Ok(RankDuty::Simulated(server)),
            ToRank::Welcome(Welcome::Run) => Ok(RankDuty::Run),
            ToRank::Welcome(Welcome::Differ(rank)) => Err(RendezvousError::Differ(rank)),
            _ => Err(RendezvousError::Ended),
        }
    }

    /// Trains as rank 0 asks, on the device of `spec`, until its lab has ended; how many steps it asked for.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn serve(mut self, spec: &LabSpec) -> Result<u64, ServeError> {
        let under_way = Arc::<Mutex<Option<UnderWay>>>::default();
        let (hears, heard) = channel();
        let (stream, of_run) = (self.stream.try_clone()?, Arc::clone(&under_way));
        thread::Builder::new().name("hears rank 0".to_owned()).spawn(move || hear(&stream, &hears, &of_run))?;
        let mut next = heard.recv().ok();
        loop {
            next = match next {
                Some(message @ ToRank::Begin { .. }) => self.run(message, spec, &heard, &under_way)?,
                Some(ToRank::Leave) => return Ok(self.steps),
                // What was asked of a run that has ended meanwhile.
                Some(_) => heard.recv().ok(),
                None => return Err(ServeError::Gone),
            };
        }
    }

    /// One run; what rank 0 says behind it.
    fn run(
        &mut self,
        begin: ToRank,
        spec: &LabSpec,
        heard: &Receiver<ToRank>,
        under_way: &Mutex<Option<UnderWay>>,
    ) -> Result<Option<ToRank>, ServeError> {
        let ToRank::Begin { round, elapsed, way, setup } = begin else { return Ok(Some(begin)) };
        let since = Instant::now().checked_sub(Duration::from_micros(elapsed)).unwrap_or_else(Instant::now);
        let world = self.rendezvous.world;
        let refuse = |why: String| {
            let said = RankPayload::Made(Err(Unmade::Refused(why)));
            write(&self.stream, &FromRank { round, said })?;
            Ok(heard.recv().ok())
        };
        let seat = match self.rendezvous.of_lab(round).meet(AGAIN) {
            Ok(seat) => seat,
            Err(error) => return refuse(error.to_string()),
        };
        let index = u16::try_from(world.rank()).unwrap_or(u16::MAX);
        let parallel = Parallel { parallelism: way, ranks: world.size() };
        let own = match of_rank(parallel, &spec.clone().under(&setup), world.rank(), index) {
            Ok(own) => LabSpec { device: spec.device.clone(), seat: Some(Arc::clone(&seat)), ..own },
            Err(error) => {
                seat.fail();
                return refuse(error.to_string());
            }
        };
        let shared = RankClock::since(since);
        *lock(under_way) = Some(UnderWay { shared: Arc::clone(&shared), seat: Arc::clone(&seat) });
        let (tells, told) = sync_channel(AHEAD);
        let stream = self.stream.try_clone()?;
        let writer =
            thread::Builder::new().name("tells rank 0".to_owned()).spawn(move || tell(&stream, round, &told))?;
        let (mut behind, mut steps) = (None, 0);
        let next = || match heard.recv().ok() {
            Some(ToRank::Ask(order)) => {
                steps += u64::from(order == RankRequest::Step);
                Some(order)
            }
            other => {
                behind = other;
                None
            }
        };
        let end = End { number: 0, seat, tells, _alive: None };
        serve(&own, next, &end, &shared);
        drop((end, own));
        *lock(under_way) = None;
        // A writer that panicked has said so.
        let _ = writer.join();
        self.steps += steps;
        Ok(behind)
    }
}

/// Hears what rank 0 says until it says no more: what can't wait is done at once, all else is passed on.
fn hear(stream: &TcpStream, hears: &Sender<ToRank>, under_way: &Mutex<Option<UnderWay>>) {
    if let Ok(listening) = RankReader::to(stream, |_| ()) {
        let mut reader = io::BufReader::with_capacity(BUFFER, listening);
        while let Ok(message) = read(&mut reader) {
            match message {
                ToRank::Held(held) => {
                    lock(under_way).iter().for_each(|run| run.shared.held.store(held, Ordering::Relaxed));
                }
                ToRank::Beat | ToRank::Welcome(_) => {}
                message => {
                    let leaves = matches!(message, ToRank::Leave);
                    if leaves || matches!(message, ToRank::Stop) {
                        lock(under_way).iter().for_each(UnderWay::stop);
                    }
                    if hears.send(message).is_err() || leaves {
                        return;
                    }
                }
            }
        }
    }
    lock(under_way).iter().for_each(UnderWay::stop);
}

/// Writes what a rank tells in a run, until it tells no more, and now and then that it is there.
fn tell(stream: &TcpStream, round: u32, told: &Receiver<RankReport>) {
    // Where rank 0 is gone, what is told is nobody's.
    let say = |said| drop(write(stream, &FromRank { round, said }));
    loop {
        let mut next = match told.recv_timeout(BEAT) {
            Ok(told) => Some(told),
            Err(RecvTimeoutError::Timeout) => {
                say(RankPayload::Beat);
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        while let Some(told_now) = next.take() {
            match told_now {
                RankReport::Happened(_, mut happened) => {
                    // What came meanwhile goes with it.
                    while happened.len() < TOGETHER && next.is_none() {
                        match told.try_recv() {
                            Ok(RankReport::Happened(_, more)) => happened.extend(more),
                            Ok(other) => next = Some(other),
                            Err(_) => break,
                        }
                    }
                    say(RankPayload::Happened(happened));
                }
                RankReport::Made(_, made) => say(RankPayload::Made(made.map_err(unmade))),
                RankReport::Answered(_, reply) => say(RankPayload::Answered(reply)),
                RankReport::Silent(..) | RankReport::Ended(..) => {}
            }
        }
    }
}

fn unmade(error: BuildError) -> Unmade {
    match error {
        BuildError::Train(TrainError::Workload(why)) => Unmade::Refused(why),
        error if error.lost() => match error {
            BuildError::Device(error) => Unmade::Lost(RankFault::from(TrainError::from(error))),
            BuildError::Train(error) => Unmade::Lost(error.into()),
            error => Unmade::Failed(error.to_string()),
        },
        error => Unmade::Failed(error.to_string()),
    }
}
