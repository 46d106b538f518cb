//! A program that is watched while it trains.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::mpsc::{self as std_mpsc, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc;

use super::arrival::{Arrival, Inbox};
use super::handle::Source;
use super::picture::SourceKind;
use vramlab_allocator::units::{Address, Bytes, DeviceIndex};
use vramlab_model::{
    About, AlikeRanks, Begins, Category, DeviceKind, Event, EventKind, Micros, Phase, Ranks, RunSettings, RunState,
    Setting, StepReport,
};
use vramlab_narration::Following;
use vramlab_snapshot::{Action, Snapshot, TraceEntry};
pub use vramlab_watch::has_loaded_torch;
use vramlab_watch::{Hello, Job, Message, SnapshotPart, Use, WatchError, connect, sockets_in};

/// The most batches that wait for the keeper. It takes them at its own pace and does not hold up the program.
const QUEUE: usize = 64;
/// How often new processes of the program are searched for.
const LOOK: Duration = Duration::from_millis(50);

/// How a program is reached.
#[derive(Clone, Debug)]
pub enum MeetingPoint {
    /// It was started here: its processes appear in its folder.
    Started(Arc<Mutex<Job>>),
    /// It is already running, behind this socket.
    Socket(PathBuf),
}

/// Watches a program. What is known of its past comes first.
///
/// # Errors
/// If the system can't start a thread.
pub fn watched(meeting: MeetingPoint, name: Arc<str>) -> Result<Source, WatchError> {
    let (arrive, arrivals) = mpsc::channel(QUEUE);
    let watcher = Watcher {
        program: Arc::clone(&name),
        arrive,
        meeting,
        met: Vec::new(),
        talking: 0,
        devices: Vec::new(),
        last: Micros(0),
    };
    let started = thread::Builder::new().name("watch".to_owned()).spawn(move || watcher.watch());
    started.map_err(WatchError::Broken)?;
    Source::keep(SourceKind::Watched(name), None, Inbox::Read(arrivals), None).map_err(WatchError::Broken)
}

/// A message from a process, with the process's index.
type ProcessMessage = (usize, Result<Option<Message>, WatchError>);

struct Watcher {
    program: Arc<str>,
    meeting: MeetingPoint,
    /// Every process that was connected, in that order.
    met: Vec<Process>,
    /// How many of them have not ended.
    talking: usize,
    devices: Vec<Device>,
    last: Micros,
    /// Dropped last: once the receiver sees its end, the job is no longer shared.
    arrive: mpsc::Sender<Arrival>,
}

struct Process {
    socket: PathBuf,
    hello: Hello,
    ended: bool,
    /// The GPUs on which it has a context, and what was reported about that.
    contexts: Vec<usize>,
    told: Vec<u16>,
}

impl Process {
    fn new(socket: PathBuf) -> Self {
        Self { socket, hello: Hello::default(), ended: false, contexts: Vec::new(), told: Vec::new() }
    }
}

/// A GPU that a process uses.
struct Device {
    process: usize,
    index: usize,
    /// Its number in the stream: the rank of its process, if there is one.
    number: DeviceIndex,
    following: Following,
    steps: StreamSteps,
}

/// The steps of a device's stream.
#[derive(Default)]
struct StreamSteps {
    /// True once the first step was reported.
    begun: bool,
    finished: u64,
    began: Micros,
    /// Ends of steps that were not reported yet.
    ends: VecDeque<Micros>,
    /// The time that the exchanges of recent steps took.
    exchange: Micros,
}

impl Watcher {
    fn watch(mut self) {
        let (say, said) = std_mpsc::channel::<ProcessMessage>();
        let mut nobody_yet = true;
        loop {
            if self.arrive.is_closed() {
                return;
            }
            self.meet(&say);
            match said.recv_timeout(LOOK) {
                Ok((process, message)) => {
                    nobody_yet = false;
                    self.take(process, message);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.talking == 0 && self.is_over(nobody_yet) {
                return;
            }
        }
    }

    /// Connects to processes that have appeared.
    fn meet(&mut self, say: &std_mpsc::Sender<ProcessMessage>) {
        let sockets = match &self.meeting {
            MeetingPoint::Started(job) => {
                let job = job.lock().unwrap_or_else(PoisonError::into_inner);
                sockets_in(job.folder()).into_iter().map(|(_, socket)| socket).collect()
            }
            MeetingPoint::Socket(socket) if self.met.is_empty() => vec![socket.clone()],
            MeetingPoint::Socket(_) => Vec::new(),
        };
        for socket in sockets {
            if self.met.iter().any(|process| process.socket == socket) {
                continue;
            }
            let number = self.met.len();
            let say = say.clone();
            let stream = match connect(&socket) {
                Ok(stream) => stream,
                // It is not listening yet, or no longer.
                Err(_) if matches!(self.meeting, MeetingPoint::Started(_)) => continue,
                Err(error) => {
                    self.met.push(Process { ended: true, ..Process::new(socket) });
                    return self.notice(format!("the program can't be reached: {error}"));
                }
            };
            let mut stream = std::io::BufReader::with_capacity(1 << 20, stream);
            let listening = thread::Builder::new().name("watch-reader".to_owned()).spawn(move || {
                loop {
                    let message = Message::read(&mut stream);
                    let last = !matches!(message, Ok(Some(Message::Hello(_) | Message::Part(..))));
                    if say.send((number, message)).is_err() || last {
                        return;
                    }
                }
            });
            if let Err(error) = listening {
                return self.notice(format!("can't start a thread ({error})"));
            }
            self.met.push(Process::new(socket));
            self.talking += 1;
        }
    }

    fn take(&mut self, process: usize, message: Result<Option<Message>, WatchError>) {
        match message {
            Ok(Some(Message::Hello(hello))) => self.met[process].hello = hello,
            Ok(Some(Message::Part(part, snapshot))) => self.part(process, &part, &snapshot),
            Ok(Some(Message::End(notices))) => {
                notices.into_iter().for_each(|sentence| self.notice(sentence));
                self.leave(process);
            }
            Ok(None) => self.leave(process),
            Err(error) => {
                self.notice(error.to_string());
                self.leave(process);
            }
        }
    }

    fn leave(&mut self, process: usize) {
        if !std::mem::replace(&mut self.met[process].ended, true) {
            self.talking -= 1;
        }
    }

    /// Takes in what one process did since its last message.
    fn part(&mut self, process: usize, part: &SnapshotPart, snapshot: &Snapshot) {
        self.met[process].contexts.clone_from(&part.contexts);
        for index in 0..snapshot.device_count() {
            // PyTorch records our snapshots for all devices, including those that the process never uses.
            let looked = |entry: &TraceEntry| entry.action == Action::Snapshot;
            let nothing =
                snapshot.device_trace(index).iter().all(looked) && snapshot.device_segments(index).next().is_none();
            let known = self.devices.iter().position(|device| device.process == process && device.index == index);
            let at = match known {
                Some(at) => at,
                None if nothing => continue,
                None => self.devices.len(),
            };
            let mut batch = Vec::new();
            if known.is_none() {
                // A stream has a limited number of devices.
                let Some(number) = self.number_for(process, index) else { continue };
                let mut emit = |kind| batch.push((Micros(0), kind));
                let begun = self.begin(process, index, number, part, snapshot, &mut emit);
                self.devices.push(begun);
            }
            let device = &mut self.devices[at];
            let rank = device.number;
            device.steps.ends.extend(part.steps.iter().map(|&time| Micros(time)));
            device.steps.exchange = Micros(part.exchange.unwrap_or(0));
            let here = part.labels.iter().filter(|label| label.0 == index);
            let known = here.map(|label| (Address(label.1), category_of(label.2)));
            device.tell(snapshot, part.whole, known, &mut |event| batch.push((event.time, event.kind)));
            let first = batch.iter().map(|(time, _)| *time).find(|time| *time > Micros(0)).unwrap_or(self.last);
            let events: Vec<Event> =
                batch.into_iter().map(|(time, kind)| Event { time: time.max(first), device: rank, kind }).collect();
            self.last = events.last().map_or(self.last, |event| event.time.max(self.last));
            self.hand_on(events);
        }
        self.tell_contexts();
    }

    /// Reports which processes have a context on the GPU of another rank, if that is new.
    fn tell_contexts(&mut self) {
        let owned: Vec<(usize, usize, u16)> = self.devices.iter().filter_map(|device| self.owned(device)).collect();
        for process in 0..self.met.len() {
            let Some(&(_, own, rank)) = owned.iter().find(|(owner, ..)| *owner == process) else { continue };
            let met = &mut self.met[process];
            let foreign = |(_, index, _): &&(usize, usize, u16)| *index != own && met.contexts.contains(index);
            let mut foreign: Vec<u16> = owned.iter().filter(foreign).map(|(_, _, rank)| *rank).collect();
            foreign.sort_unstable();
            if met.told != foreign {
                met.told.clone_from(&foreign);
                let kind = EventKind::ForeignContexts(foreign.into());
                self.hand_on(vec![Event { time: self.last, device: DeviceIndex(rank), kind }]);
            }
        }
    }

    /// The process, the GPU and the rank of a device, if it is the rank's own.
    fn owned(&self, device: &Device) -> Option<(usize, usize, u16)> {
        let rank = self.met[device.process].hello.rank?;
        (u32::from(device.number.0) == rank).then_some((device.process, device.index, device.number.0))
    }

    /// The number of a new device: the process's rank if it is the rank's own device; otherwise a number that is no
    /// rank in the job.
    fn number_for(&self, process: usize, index: usize) -> Option<DeviceIndex> {
        let free = |number: &u16| self.devices.iter().all(|device| device.number.0 != *number);
        // A job on many machines has more ranks than a stream has room for.
        let fits = |ranks: &u16| usize::from(*ranks) <= Ranks::MOST;
        let world = |hello: &Hello| hello.world.and_then(|world| u16::try_from(world).ok()).filter(fits);
        let hello = &self.met[process].hello;
        // A rank's own GPU has its rank on this machine as index; if no launcher says so, or there is no such GPU, it
        // is the first one.
        let local = hello.local_rank.filter(|local| *local < hello.device_names.len());
        let rank = world(hello).and(hello.rank).and_then(|rank| u16::try_from(rank).ok());
        let rank = rank.filter(|_| local.is_none_or(|local| local == index));
        let ranks = self.met.iter().filter_map(|process| world(&process.hello)).max().unwrap_or(0);
        rank.filter(free).or_else(|| (ranks..u16::MAX).find(free)).map(DeviceIndex)
    }

    /// The first events of a device.
    fn begin(
        &self,
        process: usize,
        index: usize,
        number: DeviceIndex,
        part: &SnapshotPart,
        snapshot: &Snapshot,
        emit: &mut impl FnMut(EventKind),
    ) -> Device {
        let hello = &self.met[process].hello;
        let device = hello.device_names.get(index).cloned().unwrap_or_else(|| format!("device {index}"));
        let rank = hello.rank.map_or_else(String::new, |rank| format!(" · rank {rank}"));
        // Without segments it was observed from its first request on.
        let begins = if part.whole { Begins::Late } else { Begins::First };
        emit(EventKind::Begin(Arc::new(About {
            workload: Arc::clone(&self.program),
            detail: format!("PyTorch {} · process {}{rank}", hello.torch, hello.pid).into(),
            device: device.into(),
            kind: if hello.absent { DeviceKind::Absent } else { DeviceKind::Gpu },
            torch: hello.torch.parse().unwrap_or_default(),
            history: Some(begins),
            guessed: true,
            ..About::default()
        })));
        if let (Some(rank), Some(world)) = (hello.rank, hello.world)
            && rank == u32::from(number.0)
        {
            let ranks = vec![number.0];
            emit(EventKind::AlikeRanks(Arc::new(AlikeRanks { parallelism: None, world, ranks })));
        }
        let conf = snapshot.allocator_settings.conf.clone().unwrap_or_default();
        let conf = Setting { switch: "alloc-conf".into(), value: conf, wanted: None, idle: None };
        emit(EventKind::Settings(Arc::new(RunSettings(vec![conf]))));
        emit(EventKind::Run(RunState::Running));
        let share = part.limits.get(index).copied().filter(|share| *share < 1.0);
        let limit = share.zip(hello.device_bytes.get(index)).map(|(share, bytes)| limit_of(share, Bytes(*bytes)));
        emit(EventKind::Limit { limit });
        let following = Following::new(snapshot.allocator_settings.conf.as_deref());
        Device { process, index, number, following, steps: StreamSteps::default() }
    }

    /// True if nothing more will come, which is then reported.
    fn is_over(&mut self, nobody_yet: bool) -> bool {
        let sentence = match &self.meeting {
            MeetingPoint::Started(job) => {
                let Some(status) = job.lock().unwrap_or_else(PoisonError::into_inner).ended() else { return false };
                match (nobody_yet, status.success()) {
                    (true, _) => format!("the program ended ({status}) and never used PyTorch on a GPU"),
                    (false, true) => "the program ended".to_owned(),
                    (false, false) => format!("the program failed ({status})"),
                }
            }
            MeetingPoint::Socket(_) if self.met.is_empty() => return false,
            MeetingPoint::Socket(_) => "the program ended, or closed the connection".to_owned(),
        };
        self.notice(sentence);
        let mut ends: Vec<DeviceIndex> = self.devices.iter().map(|device| device.number).collect();
        if ends.is_empty() {
            ends.push(DeviceIndex::FIRST);
        }
        let finished = |device| Event { time: self.last, device, kind: EventKind::Run(RunState::Finished) };
        self.hand_on(ends.into_iter().map(finished).collect());
        true
    }

    fn notice(&self, sentence: String) {
        self.hand_on(vec![Event::new(self.last, EventKind::Notice { text: sentence.into() })]);
    }

    fn hand_on(&self, events: Vec<Event>) {
        // The receiver may be gone.
        let _ = self.arrive.blocking_send(Arrival::Events(events));
    }
}

impl Device {
    /// Reports what happened, with the ends of steps in their places.
    fn tell(
        &mut self,
        snapshot: &Snapshot,
        whole: bool,
        known: impl Iterator<Item = (Address, Category)>,
        emit: &mut impl FnMut(Event),
    ) {
        let Self { index, following, steps, .. } = self;
        let fresh = following.fresh(snapshot, *index, whole);
        if fresh.begins_anew {
            following.begin_anew(snapshot, *index, emit);
        }
        // Memory that already existed belongs before the first step.
        if !std::mem::replace(&mut steps.begun, true) {
            let time = fresh.entries.first().map_or(Micros(0), |entry| entry.time);
            emit(Event::new(time, EventKind::StepBegin { step: 0 }));
        }
        for (at, entry) in fresh.entries.iter().enumerate() {
            steps.tell_until(entry.time, following, emit);
            following.tell(snapshot, fresh.entries, at, emit);
        }
        let time = fresh.entries.last().map_or(Micros(0), |entry| entry.time);
        known.for_each(|(address, category)| following.relabel(address, category, time, emit));
        steps.tell_until(Micros(u64::MAX), following, emit);
    }
}

impl StreamSteps {
    /// Reports the steps that ended before `time`.
    fn tell_until(&mut self, time: Micros, following: &mut Following, emit: &mut impl FnMut(Event)) {
        while let Some(end) = self.ends.front().copied().filter(|end| *end < time) {
            self.ends.pop_front();
            following.end_step(end, emit);
            let took = if self.finished == 0 { 0 } else { end.0.saturating_sub(self.began.0) };
            let report = StepReport {
                step: self.finished,
                loss: None,
                total: Micros(took),
                phases: [Micros(0); Phase::ALL.len()],
                copy: Micros(0),
                exchange: Micros(self.exchange.0.min(took)),
                items: 0,
                optimizer_ran: true,
            };
            emit(Event::new(end, EventKind::StepEnd(report)));
            self.finished += 1;
            self.began = end;
            emit(Event::new(end, EventKind::StepBegin { step: self.finished }));
        }
    }
}

const fn category_of(used: Use) -> Category {
    match used {
        Use::Parameter => Category::Parameter,
        Use::Gradient => Category::Gradient,
        Use::OptimizerState => Category::OptimizerState,
    }
}

/// The limit that PyTorch computes from a share of a device's memory.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "PyTorch computes it in floating point and cuts it off; a share lies between 0 and 1"
)]
fn limit_of(share: f64, memory: Bytes) -> Bytes {
    Bytes((share.clamp(0.0, 1.0) * memory.0 as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that consecutive devices get, for processes with these ranks and numbers of ranks.
    fn numbers(processes: &[(Option<u32>, Option<u32>)], devices: &[usize]) -> Vec<u16> {
        numbers_of(processes.iter().map(|&(rank, world)| Hello { rank, world, ..Hello::default() }).collect(), devices)
    }

    /// The same for processes that send these messages. Each uses its GPUs in their order.
    fn numbers_of(processes: Vec<Hello>, devices: &[usize]) -> Vec<u16> {
        let process = |hello| Process { hello, ..Process::new(PathBuf::new()) };
        let (arrive, _arrivals) = mpsc::channel(1);
        let mut watcher = Watcher {
            program: "train.py".into(),
            meeting: MeetingPoint::Socket(PathBuf::new()),
            met: processes.into_iter().map(process).collect(),
            talking: 0,
            devices: Vec::new(),
            last: Micros(0),
            arrive,
        };
        for &process in devices {
            let index = watcher.devices.iter().filter(|device| device.process == process).count();
            let number = watcher.number_for(process, index).unwrap();
            let (following, steps) = (Following::new(None), StreamSteps::default());
            watcher.devices.push(Device { process, index, number, following, steps });
        }
        watcher.devices.iter().map(|device| device.number.0).collect()
    }

    #[test]
    fn devices_are_called_by_their_ranks() {
        let ranks = [(Some(2), Some(3)), (Some(0), Some(3)), (Some(1), Some(3))];
        assert_eq!(numbers(&ranks, &[0, 1, 2]), [2, 0, 1], "whoever comes first");
        assert_eq!(numbers(&ranks, &[0, 0, 1, 2]), [2, 3, 0, 1], "a second card of a rank is behind all ranks");
        assert_eq!(numbers(&[(None, None), (None, None)], &[1, 0, 0]), [0, 1, 2], "without ranks as they come");
        let local = |rank, gpus| Hello {
            rank: Some(rank),
            world: Some(2),
            local_rank: Some(rank as usize),
            device_names: vec!["GPU".to_owned(); gpus],
            ..Hello::default()
        };
        let first_of_another = numbers_of(vec![local(0, 2), local(1, 2)], &[1, 0, 1]);
        assert_eq!(first_of_another, [2, 0, 1], "a rank that uses the GPU of another before its own");
        assert_eq!(numbers_of(vec![local(0, 1), local(1, 1)], &[1, 0]), [1, 0], "each sees its own GPU alone");
        assert_eq!(
            numbers(&[(Some(700), Some(1024)), (Some(701), Some(1024))], &[1, 0]),
            [0, 1],
            "no stream has so many"
        );
    }
}
