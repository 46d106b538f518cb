//! The thread that keeps a timeline with a cursor and publishes pictures, never faster than a screen can show them.

mod moves;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::arrival::{Arrival, Inbox, ON_ARRIVAL};
use super::cursor::LookBack;
use super::diagnoses::Diagnoses;
use super::ghosts::Ghosts;
use super::kept_recording::{self, KeptRecording};
use super::listings::Listings;
use super::marks::Marks;
use super::pending_history::PendingHistory;
use super::picture::{Cursor, Extent, Picture, ShownDevice, SourceKind};
use super::pins::Pins;
use super::rank_figures::RankFigures;
use super::recorder::free_name;
use super::request::Request;
use super::studies::{self, Studies};
use vramlab_allocator::DeviceMemory;
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_device::{HostAccount, Sensors};
use vramlab_model::{Event, EventKind, Lab, Micros, RunState};
use vramlab_recording::{Bounds, Timeline};

/// At most thirty pictures per second, because a picture takes time on the processor that may also train.
const FRAME: Duration = Duration::from_millis(33);
/// How often a device's sensors are checked for readings.
const READINGS: Duration = Duration::from_millis(100);
/// How long an engine may take to end if it is being recorded.
const LAST_WORDS: Duration = Duration::from_millis(1000);
/// The slowest and the fastest speed at which the cursor moves by itself.
const SPEEDS: (f64, f64) = (1.0 / 64.0, 1024.0);

/// The bounds for the timeline: a small part of the memory that the machine has left.
fn bounds() -> Bounds {
    let part = Bytes(HostAccount::default().left().get() / 32).max(Bytes::mib(2));
    let Bounds { frames, checkpoints } = Bounds::default();
    Bounds { frames: frames.min(part), checkpoints: checkpoints.min(part) }
}

/// A timeline, its cursor, and its observers.
pub(super) struct Keeper {
    timeline: Timeline,
    /// The rest of a file's history while only its end is shown.
    behind: Option<PendingHistory>,
    kind: SourceKind,
    device: DeviceIndex,
    cursor: Cursor,
    back: Option<LookBack>,
    play: Option<Play>,
    speed: f64,
    sensors: Option<Sensors>,
    grows: bool,
    pictures: watch::Sender<Arc<Picture>>,
    recording: Option<KeptRecording>,
    studies: Studies,
    ghosts: Ghosts,
    marks: Marks,
    pins: Pins,
    /// The device's memory, if the source knows it and no event reports it.
    memory: Option<DeviceMemory>,
    diagnoses: Diagnoses,
    listings: Listings,
    /// What the keeper itself said last, in contrast to messages in a file.
    said: Option<(u64, Arc<str>)>,
    /// The folder for recordings that a key starts.
    folder: PathBuf,
    dirty: bool,
    urgent: bool,
    published: Instant,
    /// The number of requests that were obeyed.
    answered: u64,
}

/// A cursor that moves by itself, and its clock when it started.
#[derive(Clone, Copy, Debug)]
struct Play {
    wall: Instant,
    time: Micros,
}

impl Keeper {
    pub fn new(kind: SourceKind, memory: Option<DeviceMemory>, pictures: watch::Sender<Arc<Picture>>) -> Self {
        Self {
            timeline: Timeline::new(bounds()),
            behind: None,
            kind,
            device: DeviceIndex::FIRST,
            cursor: Cursor::Now,
            back: None,
            play: None,
            speed: 1.0,
            sensors: None,
            grows: true,
            pictures,
            recording: None,
            studies: Studies::new(),
            ghosts: Ghosts::new(),
            marks: Marks::new(),
            pins: Pins::new(),
            memory,
            diagnoses: Diagnoses::new(),
            listings: Listings::new(),
            said: None,
            folder: PathBuf::new(),
            dirty: true,
            urgent: false,
            published: Instant::now(),
            answered: 0,
        }
    }

    /// Takes in messages and obeys requests until the front end is gone.
    pub async fn keep(mut self, mut arrivals: Inbox, mut requests: mpsc::UnboundedReceiver<Request>) {
        loop {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                request = requests.recv() => match request {
                    Some(request) => self.obey(request),
                    None => break,
                },
                arrival = arrivals.recv(), if self.grows => match arrival {
                    Some(arrival) => self.take(arrival),
                    None => {
                        self.grows = false;
                        self.show_history();
                        (self.dirty, self.urgent) = (true, true);
                    }
                },
                study = self.studies.next() => {
                    self.studies.take(study);
                    (self.dirty, self.urgent) = (true, true);
                }
                found = self.pins.found() => {
                    self.pins.take(found);
                    (self.dirty, self.urgent) = (true, true);
                }
                ghost = self.ghosts.next() => {
                    self.ghosts.take(ghost);
                    (self.dirty, self.urgent) = (true, true);
                }
                found = self.diagnoses.next() => {
                    self.diagnoses.take(found);
                    (self.dirty, self.urgent) = (true, true);
                }
                listing = self.listings.next() => {
                    self.listings.take(listing);
                    (self.dirty, self.urgent) = (true, true);
                }
                () = sleep_until(wake) => {}
            }
            self.read_sensors();
            // A long study reports progress.
            let busy = self.studies.is_busy() || self.ghosts.is_busy();
            self.dirty |= busy && self.published.elapsed() >= studies::PROGRESS;
            self.play_on();
            self.write_on(false);
            if self.dirty && (self.urgent || self.published.elapsed() >= FRAME) {
                self.publish();
            }
            if self.pictures.is_closed() {
                break;
            }
        }
        // The front end is gone, but the engine's last events still belong in the recording.
        if self.recording.is_some() {
            let last = tokio::time::timeout(LAST_WORDS, async {
                while let Some(arrival) = arrivals.recv().await {
                    self.take(arrival);
                }
            });
            // An engine that takes longer is left alone.
            let _ = last.await;
            self.write_on(true);
        }
    }

    fn toggle_recording(&mut self) {
        match self.recording.take() {
            Some(mut recording) => {
                recording.write(&mut self.timeline);
                match recording.finish() {
                    Ok(state) => self.tell(format!("recorded {} in {}", state.bytes, state.path.display())),
                    Err(error) => self.tell(error.to_string()),
                }
            }
            None => {
                let about = self.timeline.now().lab(self.device).map(|lab| Arc::clone(&lab.about().workload));
                self.record(free_name(&self.folder, about.as_deref().unwrap_or("run")));
            }
        }
    }

    fn record(&mut self, path: PathBuf) {
        match KeptRecording::begin(&mut self.timeline, &path) {
            Ok(recording) => {
                self.recording = Some(recording);
                self.tell(format!("recording to {}", path.display()));
                self.write_on(true);
            }
            Err(error) => self.tell(error.to_string()),
        }
    }

    /// Hands new frames to the recorder: at once if `now`, otherwise when they are as old as a recording may miss.
    fn write_on(&mut self, now: bool) {
        let Some(recording) = self.recording.as_mut().filter(|recording| now || recording.is_due()) else { return };
        recording.write(&mut self.timeline);
        if let Some(error) = recording.failure() {
            self.recording = None;
            self.tell(error.to_string());
        }
    }

    /// Puts a message into the stream itself, so that every picture has it.
    fn tell(&mut self, text: String) {
        let (time, text) = (self.now_time(), Arc::from(text));
        self.say(&text);
        self.push(&Event { device: self.device, ..Event::new(time, EventKind::Notice { text }) });
        self.dirty = true;
    }

    /// Adds an event. Events that waited for a busy keeper are still recorded in frames that cover a moment each.
    fn push(&mut self, event: &Event) {
        if self.recording.is_some()
            && let Some(since) = self.timeline.open_since()
            && u128::from(event.time.0.saturating_sub(since.0)) >= kept_recording::WRITE.as_micros()
        {
            self.timeline.close_frame();
        }
        self.timeline.push(event);
    }

    fn say(&mut self, text: &Arc<str>) {
        let before = self.said.as_ref().map_or(0, |(number, _)| *number);
        self.said = Some((before + 1, Arc::clone(text)));
    }

    fn next_wake(&self) -> Instant {
        if self.dirty {
            return self.published + FRAME;
        }
        let idle = if self.sensors.is_some() && self.grows { READINGS } else { Duration::from_secs(3600) };
        let idle = if self.recording.is_some() && self.grows { kept_recording::WRITE.min(idle) } else { idle };
        let busy = self.studies.is_busy() || self.ghosts.is_busy();
        let idle = if busy { studies::PROGRESS.min(idle) } else { idle };
        Instant::now() + if self.play.is_some() { FRAME } else { idle }
    }

    fn take(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::Events(events) => {
                let mut short = Vec::new();
                for mut event in events {
                    if event.time == ON_ARRIVAL {
                        event.time = self.now_time();
                    }
                    let event = &event;
                    if let EventKind::Notice { text } = &event.kind {
                        self.say(text);
                    }
                    if let Some(behind) = &mut self.behind {
                        behind.timeline.push(event);
                        continue;
                    }
                    self.urgent |= matches!(event.kind, EventKind::Run(_) | EventKind::Settings(_));
                    self.ghosts.see(self.timeline.end(), event);
                    self.push(event);
                    if event.kind == EventKind::Run(RunState::OutOfMemory) {
                        short.push(event.device);
                    }
                }
                self.show_shortage(&short);
            }
            Arrival::Frame(frame) => {
                if let Err(error) = self.timeline.append(frame) {
                    self.tell(error.to_string());
                }
            }
            Arrival::Sensors(sensors) => self.sensors = sensors,
            Arrival::Standing(events) => {
                self.behind().reading.clear();
                events.iter().for_each(|event| self.timeline.push(event));
                self.urgent = true;
            }
            Arrival::Reading(reading) => self.behind().reading = reading,
            Arrival::Memory(memory) => self.memory = memory,
            Arrival::Broken(why) => self.fail(why),
        }
        self.show_first_device();
        self.dirty = true;
    }

    /// The history that is still to come.
    fn behind(&mut self) -> &mut PendingHistory {
        self.behind.get_or_insert_with(|| PendingHistory::new(bounds()))
    }

    /// Replaces the file's end by its complete history.
    fn show_history(&mut self) {
        if let Some(behind) = self.behind.take_if(|behind| !behind.has_failed()) {
            self.timeline = behind.timeline;
            self.studies.begin_anew();
            self.marks.begin_anew();
            self.show_first_device();
        }
    }

    /// Notes that the history will not come: the file's end is all there is.
    fn fail(&mut self, why: Arc<str>) {
        let device = self.device;
        self.behind().fail(device);
        let time = self.now_time();
        let failed = EventKind::Run(RunState::Failed(why));
        self.timeline.push(&Event { device, ..Event::new(time, failed) });
        self.urgent = true;
    }

    /// Shows the first device on which something happened.
    fn show_first_device(&mut self) {
        let nothing = self.timeline.now().lab(self.device).is_none_or(|lab| !lab.has_begun());
        if nothing && let Some(first) = self.devices().first().copied() {
            self.show_device(first);
        }
    }

    /// Shows a rank that ran out of memory, if the one shown did not.
    fn show_shortage(&mut self, short: &[DeviceIndex]) {
        if let Some(first) = short.first().copied().filter(|_| !short.contains(&self.device)) {
            self.show_device(first);
        }
    }

    /// Takes in the sensors' readings, which also arrive while the engine is paused.
    fn read_sensors(&mut self) {
        if let Some(reading) = self.sensors.as_ref().and_then(Sensors::take) {
            let time = self.now_time();
            self.push(&Event::new(time, EventKind::Reading(Arc::new(reading))));
            self.dirty = true;
        }
    }

    fn now_time(&mut self) -> Micros {
        self.timeline.now().lab(self.device).map_or(Micros(0), |lab| lab.time())
    }

    fn obey(&mut self, request: Request) {
        self.answered += 1;
        match request {
            Request::Lab(_) => return,
            // Without the history there are no moments to go to.
            Request::Move(_) | Request::Pin | Request::TogglePlay | Request::Record(_) | Request::ToggleRecording
                if self.behind.is_some() => {}
            Request::Move(to) => {
                self.play = None;
                self.go(to);
            }
            Request::TogglePlay => self.toggle_play(),
            Request::Faster(factor) => {
                self.speed = (self.speed * factor).clamp(SPEEDS.0, SPEEDS.1);
                self.restart_play();
            }
            Request::ToggleRecording => self.toggle_recording(),
            Request::Pin => self.pin(),
            Request::NextDevice => self.next_device(),
            Request::Study(wanted) => self.studies.want(wanted),
            Request::Read(path) => self.listings.want(path),
            Request::RecordTo(folder) => self.folder = folder,
            Request::Record(path) => self.record(path),
            Request::Ghost(conditions) => self.ghosts.want(conditions),
        }
        (self.dirty, self.urgent) = (true, true);
    }

    /// The devices on which something happened in the current run.
    fn devices(&mut self) -> Vec<DeviceIndex> {
        let ranks = self.timeline.now();
        let indices = (0..ranks.len()).filter_map(|index| u16::try_from(index).ok().map(DeviceIndex));
        indices.filter(|index| ranks.lab(*index).is_some_and(Lab::has_begun)).collect()
    }

    /// Shows the next device, in a cycle, at the same cursor.
    fn next_device(&mut self) {
        let devices = self.devices();
        let next = devices.iter().find(|device| **device > self.device).or(devices.first());
        if let Some(next) = next.copied().filter(|next| *next != self.device) {
            self.show_device(next);
        }
    }

    fn show_device(&mut self, device: DeviceIndex) {
        self.device = device;
        self.studies.begin_anew();
        self.ghosts.begin_anew();
        self.marks.begin_anew();
        self.pins = Pins::new();
        self.back = None;
        self.set_cursor(self.cursor);
    }

    fn publish(&mut self) {
        let device = self.device;
        let looked = self.mark();
        if self.cursor != Cursor::Now || self.behind.is_some() {
            self.studies.begin(&mut self.timeline, device, self.cursor, false);
        }
        if self.behind.is_none() {
            self.ghosts.catch_up(&mut self.timeline, device, self.grows);
            self.ghosts.look_back(&mut self.timeline, looked);
            let goes_on = self.goes_on();
            self.diagnoses.begin(&mut self.timeline, device, goes_on);
        }
        let (first, end) = (self.timeline.first(), self.timeline.end());
        let time = self.now_time();
        let devices = self.devices();
        let place = devices.iter().position(|of| *of == device).unwrap_or(0);
        let ranks = match &self.back {
            Some(back) => RankFigures::of(&back.ranks, &devices),
            None => RankFigures::of(self.timeline.now(), &devices),
        };
        let now = self.timeline.now().lab_mut(device);
        let memory = self.memory.or_else(|| now.as_ref()?.device_memory());
        let (steps, run, settings, history) = match &now {
            Some(lab) => {
                let history = Arc::new(lab.history().clone());
                (lab.finished(), lab.run().clone(), Arc::clone(lab.settings()), history)
            }
            None => (0, RunState::default(), Arc::default(), Arc::default()),
        };
        let configurations = now.as_ref().map_or_else(Vec::new, |lab| lab.configurations()).into();
        let effects = now.as_ref().map_or_else(Vec::new, |lab| lab.effects()).into();
        let (view, step, concluded) = match &mut self.back {
            Some(back) => {
                let step = back.step(&mut self.timeline, device);
                (back.view(&mut self.timeline, device), step, back.concluded())
            }
            None => (now.map(vramlab_model::Lab::view), None, None),
        };
        let view = view.unwrap_or_default();
        let mut marked = self.marks.shown().cloned();
        let segments =
            marked.as_ref().filter(|_| looked != self.cursor).map_or(&view.segments, |mark| &mark.view.segments);
        let ghost = self.ghosts.picture(looked, &history, segments, end);
        if let (true, Some(mark)) = (looked != self.cursor, &mut marked) {
            mark.ghost = ghost.as_ref().and_then(|ghost| ghost.occupancy.clone());
        }
        let picture = Picture {
            view: Arc::new(view),
            marked,
            pinned: self.pins.picture(),
            history,
            configurations,
            effects,
            step,
            concluded,
            cursor: self.cursor,
            extent: Extent { first, end, steps, time, grows: self.grows },
            playing: self.play.map(|_| self.speed),
            run,
            settings,
            kind: self.kind.clone(),
            device: ShownDevice { place, of: devices.len() },
            ranks,
            recording: self.recording.as_ref().map(KeptRecording::state),
            study: self.studies.last(),
            listing: self.listings.last(),
            // In a run that goes on, the diagnosis is about now.
            untold_limit: self.diagnoses.untold_limit().filter(|_| !self.goes_on()),
            diagnosis: self.diagnoses.last().filter(|_| !self.goes_on() || self.cursor == Cursor::Now),
            studying: self.studies.progress(),
            answered: self.answered,
            ghost,
            memory,
            said: self.said.clone(),
            reading: self.behind.as_ref().map(|behind| behind.reading(device)),
        };
        self.pictures.send_replace(Arc::new(picture));
        (self.dirty, self.urgent) = (false, false);
        self.published = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vramlab_session::{Feed, Feeder};

    #[test]
    fn what_was_found_beside_the_stream_takes_no_time_back() {
        let (feeder, feed) = Feeder::pair(4);
        let note = |text: &str| EventKind::Note { text: text.into() };
        assert!(feeder.send(Feed::Events(vec![Event::new(Micros(70), note("a step"))])));
        assert!(feeder.send(Feed::Aside(DeviceIndex::FIRST, EventKind::Remedied(Arc::default()))));
        drop(feeder);
        let (pictures, _shown) = watch::channel(Arc::default());
        let mut keeper = Keeper::new(SourceKind::Live, None, pictures);
        let mut inbox = Inbox::Feed(feed);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        while let Some(arrival) = runtime.block_on(inbox.recv()) {
            keeper.take(arrival);
        }
        assert_eq!(keeper.timeline.end(), 2);
        assert_eq!(keeper.now_time(), Micros(70));
    }
}
