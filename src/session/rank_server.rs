//! A rank whose lab is in the process of rank 0: it builds its model, obeys orders, and reports events.

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

/// The most reports that may wait to be written.
const AHEAD: usize = 256;
/// The most events in a message.
const TOGETHER: usize = 1 << 14;
/// How long ranks may take to meet again.
const AGAIN: Duration = Duration::from_secs(20);

/// What rank 0 makes this rank do.
#[derive(Debug)]
pub enum RankDuty {
    /// Train for its lab.
    Lab(RankServer),
    /// Train without a screen.
    Run,
    /// Wait until the lab has ended. It computes this rank too.
    Simulated(RankServer),
}

/// Why a rank can no longer train for the lab of rank 0.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The lab is gone.
    #[error("rank 0 is gone, and with it the lab that this rank trained for")]
    Gone,
    /// The system can't give a connection or a thread.
    #[error("this rank can't tell rank 0 what it does ({0})")]
    Connection(#[from] io::Error),
}

/// The connection to the lab of rank 0.
#[derive(Debug)]
pub struct RankServer {
    rendezvous: Rendezvous,
    stream: TcpStream,
    /// The number of steps that were ordered.
    steps: u64,
}

/// The current run, for the thread that listens to rank 0.
struct UnderWay {
    shared: Arc<RankClock>,
    seat: Arc<Seat>,
}

impl UnderWay {
    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Wakes up whoever waits for another rank.
        self.seat.fail();
    }
}

fn lock(under_way: &Mutex<Option<UnderWay>>) -> MutexGuard<'_, Option<UnderWay>> {
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RankServer {
    /// Joins rank 0 with this rank's arguments, and learns what to do.
    ///
    /// # Errors
    /// [`RendezvousError`].
    pub fn join(rendezvous: &Rendezvous, given: String, patience: Duration) -> Result<RankDuty, RendezvousError> {
        let connections = rendezvous.of_lab(0).connect(patience)?;
        let first = connections.into_iter().find_map(|(rank, stream)| (rank == 0).then_some(stream));
        let stream = first.ok_or(RendezvousError::Ended)?;
        write(&stream, &FromRank { round: 0, said: RankPayload::Given(given) })?;
        // Read without a buffer, because the following messages may already be there.
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

    /// Trains as rank 0 orders, on the device of `spec`, until the lab has ended. Returns the number of steps.
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
                // An order to a run that has ended meanwhile.
                Some(_) => heard.recv().ok(),
                None => return Err(ServeError::Gone),
            };
        }
    }

    /// Serves one run. Returns the next message from rank 0 after it.
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
        // A writer that panicked has printed its own message.
        let _ = writer.join();
        self.steps += steps;
        Ok(behind)
    }
}

/// Listens to rank 0 until the connection ends. Urgent messages are obeyed at once, all others are passed on.
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

/// Writes the reports of a run until it ends, and signs of life from time to time.
fn tell(stream: &TcpStream, round: u32, told: &Receiver<RankReport>) {
    // If rank 0 is gone, reports have no reader.
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
                    // Later reports are added to the same message.
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
