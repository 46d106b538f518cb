//! Sources as a front end uses them: looking back into a running lab, recordings of it, and files that still grow.

mod ghosts;

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use vramlab::device::sim::CardCatalog;
use vramlab::model::{AlikeRanks, Event, EventKind, Grouping, Lab, RunState, Study, View};
use vramlab::recording::Direction::{Backward, Forward};
use vramlab::recording::{FrameBuilder, Next, Reader, RecordingError, Writer};
use vramlab::session::{
    self, Command, DeviceChoice, FlipDirection, Headless, LabSpec, Listener, MemoryLimit, Parallel, StepSize, Switch,
};
use vramlab::source::{
    self, Ability, Cursor, Landmark, Moment, Move, MoveUnit, Picture, RankState, Recorder, Request, Source, SourceKind,
    StudyRequest, Window,
};
use vramlab::train::{Config, Parallelism, PipelineSchedule};
use vramlab::units::Bytes;
use vramlab::whatif::Conditions;
use vramlab::workload::{Catalog, Data, Extent, Repeats, Sizes};

use crate::patience;

fn spec() -> LabSpec {
    let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt-mini").unwrap());
    LabSpec { config: Config { batch: 4, ..spec.config }, ..spec }
}

/// A lab that does not fit.
fn too_large() -> LabSpec {
    let size = Some(Extent::nearest(128));
    let sizes = Sizes { width: size, layers: Some(Repeats::nearest(4)), seq: size, ..Sizes::default() };
    let limit = Some(MemoryLimit::Bytes(Bytes::mib(60)));
    LabSpec { sizes, limit, config: Config { batch: 8, ..spec().config }, ..spec() }
}

/// A viewer of a source.
struct Front {
    source: Source,
}

impl Front {
    fn of(source: Source) -> Self {
        Self { source }
    }

    fn live(spec: LabSpec) -> Self {
        Self::of(source::live(spec).unwrap())
    }

    fn recording(path: &Path, follows: bool) -> Self {
        Self::of(source::recording(path, follows).unwrap())
    }

    fn ask(&self, request: Request) {
        self.source.request(request);
    }

    fn command(&self, command: Command) {
        self.ask(Request::Lab(command));
    }

    fn flip(&self, word: &str) {
        self.command(Command::Flip(Switch::named(word).unwrap(), FlipDirection::Next));
    }

    fn last(&self) -> Arc<Picture> {
        self.source.pictures.borrow().clone()
    }

    /// Waits for a picture; fails with the last one. Some pictures are never seen, so what is waited for must stay.
    fn wait(&mut self, what: &str, wanted: impl FnMut(&Arc<Picture>) -> bool) -> Arc<Picture> {
        let pictures = &mut self.source.pictures;
        let found = async { pictures.wait_for(wanted).await.ok().map(|picture| Arc::clone(&picture)) };
        let found = patience::in_time(found).flatten();
        found.unwrap_or_else(|| {
            let Picture { run, cursor, extent, .. } = &**self.source.pictures.borrow();
            panic!("waited in vain for {what}; {run:?}, {cursor:?} in {extent:?}")
        })
    }

    fn wait_for_steps(&mut self, steps: u64) -> Arc<Picture> {
        self.wait("steps", |picture| picture.extent.steps >= steps)
    }

    fn pause(&mut self) -> Arc<Picture> {
        self.command(Command::Pause);
        self.wait("pause", |picture| picture.run == RunState::Paused)
    }

    /// Moves the cursor, and waits until it is somewhere else.
    fn go(&mut self, to: Move) -> (u64, Arc<Picture>) {
        let before = self.last().cursor;
        self.ask(Request::Move(to));
        let picture = self.wait(&format!("{to:?}"), |picture| picture.cursor != before);
        let Cursor::At(position) = picture.cursor else { panic!("{to:?} ends in {:?}", picture.cursor) };
        (position, picture)
    }

    /// Moves the cursor to where it already is, or nowhere.
    fn go_nowhere(&mut self, to: Move) {
        let before = self.last().cursor;
        self.ask(Request::Move(to));
        // Requests are handled in their order.
        let (_, elsewhere) = self.go(Move::To(1));
        assert_ne!(elsewhere.cursor, before);
        self.ask(Request::Move(match before {
            Cursor::Now => Move::Now,
            Cursor::At(position) => Move::To(position),
        }));
        self.wait("the way back", |picture| picture.cursor == before);
    }
}

/// All events of a complete recording.
fn events_of(path: &Path) -> Vec<Event> {
    let mut reader = Reader::new(File::open(path).unwrap());
    let mut events = Vec::new();
    loop {
        match reader.next().unwrap() {
            Next::Frame(frame) => events.extend(frame.unpack().unwrap().events().map(|event| event.unwrap())),
            Next::End => return events,
            Next::NotYet => panic!("the recording is cut off after {} events", events.len()),
        }
    }
}

/// The view of a new lab after these events.
fn view_of(events: &[Event]) -> View {
    let mut lab = Lab::new();
    events.iter().for_each(|event| lab.apply(event));
    lab.view()
}

/// All parts of a view, one a line, so that a difference can be found.
fn known(view: &View) -> String {
    [
        format!("{} {:?} {:?} {:?} {:?}", view.position, view.time, view.run, view.phase, view.limit),
        format!("{:?}\n{:?}\n{:?}", view.about, view.settings, view.ledger),
        format!("{:?}\n{:?}\n{:?}", view.by_category, view.peak_by_category, view.host),
        format!("{:?} {:?} {:?}", view.peak_allocated, view.peak_reserved, view.peak_position),
        format!("{:?}\n{:?}", view.steps, view.traffic),
        format!("{:?}\n{:?}\n{:?}", view.segments, view.findings, view.effects),
        format!("{:?}\n{:?}\n{:?}", view.log, view.profiles, view.touched),
        // A state that was restored knows only the end of its history.
        format!("{} {:?}", view.history.columns(), view.history.latest()),
        format!("{:?}\n{:?}", view.autopsy, view.generated),
        format!("{:?} {:?} {}", view.op, view.names, view.malformed),
        format!("{:?}", view.configurations),
    ]
    .join("\n")
}

fn assert_same(found: &View, expected: &View, what: &str) {
    let (found, expected) = (known(found), known(expected));
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert!(found == expected, "{what}:\n{found:.2000}\nwhere a fresh lab has\n{expected:.2000}");
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_lab_that_runs_can_be_looked_back_into_while_it_goes_on() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut front = Front::live(spec());
    front.ask(Request::Record(path.clone()));
    front.wait_for_steps(5);
    // Moves begin at the mark that the screen shows.
    front.wait("a mark", |picture| picture.moment() == Moment::StepPeak && picture.shown().steps.finished >= 3);
    let (step_end, back) = front.go(Move::By(MoveUnit::Step, Backward));
    assert_eq!(back.view.position, step_end, "the view is that of the cursor");
    let steps = back.view.steps.finished;
    assert!(steps >= 3 && steps <= back.extent.steps && step_end <= back.extent.end);
    // The run goes on, the picture stays.
    let later = front.wait("the run to go on", |picture| picture.extent.steps >= back.extent.steps + 5);
    assert_eq!((later.cursor, later.run.clone()), (Cursor::At(step_end), RunState::Running));
    assert!(later.extent.grows && later.extent.end > back.extent.end && later.extent.time > back.extent.time);
    assert_same(&later.view, &back.view, "the view at a cursor that stays");
    assert!(later.history.columns() > later.view.history.columns(), "the history knows what follows the cursor");
    // One step back, one op forward, and back to now.
    let (before, picture) = front.go(Move::By(MoveUnit::Step, Backward));
    assert_eq!(picture.view.steps.finished, steps - 1);
    assert_eq!(front.go(Move::By(MoveUnit::Step, Forward)).0, step_end);
    let (op_end, on) = front.go(Move::By(MoveUnit::Op, Forward));
    assert_eq!(on.view.steps.finished, steps);
    let (phase_end, _) = front.go(Move::By(MoveUnit::Phase, Forward));
    front.ask(Request::Move(Move::Now));
    let now = front.wait("now", |picture| picture.is_now());
    assert!(now.view.steps.finished >= later.extent.steps && now.view.position == now.extent.end);
    // The recording shows where steps, phases and ops end.
    drop(front);
    let events = events_of(&path);
    let ends = |from: u64, to: u64, wanted: fn(&EventKind) -> bool| -> Vec<u64> {
        (from..to).filter(|&index| wanted(&events[index as usize].kind)).collect()
    };
    let step: fn(&EventKind) -> bool = |kind| matches!(kind, EventKind::StepEnd(_));
    assert_eq!(ends(before - 1, step_end, step), [before - 1, step_end - 1]);
    assert_eq!(ends(step_end, op_end, |kind| *kind == EventKind::OpEnd), [op_end - 1], "one op");
    assert_eq!(ends(op_end, phase_end, |kind| matches!(kind, EventKind::PhaseEnd { .. })), [phase_end - 1]);
}

#[test]
fn the_view_at_any_position_is_that_of_a_fresh_lab_after_as_many_events() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut front = Front::live(spec());
    front.ask(Request::Record(path.clone()));
    front.wait_for_steps(8);
    front.flip("ckpt");
    front.wait_for_steps(20);
    front.command(Command::EmptyCache);
    front.wait_for_steps(22);
    front.flip("amp");
    front.flip("retain");
    let end = front.wait_for_steps(40).extent.end;
    let mut seen = Vec::new();
    // Far and near, back and forth, and some next to each other.
    for part in [90, 10, 50, 51, 49, 99, 1, 70, 30] {
        for position in [end * part / 100, end * part / 100 + 1, end * part / 100 + 700] {
            seen.push(front.go(Move::To(position.min(end))));
        }
    }
    for to in [Move::By(MoveUnit::Op, Forward), Move::By(MoveUnit::Phase, Forward), Move::By(MoveUnit::Step, Backward)]
    {
        seen.push(front.go(to));
    }
    seen.push(front.go(Move::Jump(Landmark::Flip, Forward)));
    assert_eq!(front.go(Move::Start).0, 0);
    front.ask(Request::Move(Move::Now));
    front.wait("now", |picture| picture.is_now());
    let now = front.pause();
    drop(front);
    let events = events_of(&path);
    for (position, picture) in &seen {
        let at = usize::try_from(*position).unwrap();
        assert_same(&picture.view, &view_of(&events[..at]), &format!("at event {position}"));
    }
    assert_same(&now.view, &view_of(&events[..usize::try_from(now.extent.end).unwrap()]), "now");
    assert!(seen.iter().any(|(_, picture)| picture.view.effects.len() > 1 && !picture.view.findings.is_empty()));
}

#[test]
fn the_curve_around_a_cursor_is_the_whole_step() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut front = Front::live(spec());
    front.ask(Request::Record(path.clone()));
    front.wait_for_steps(6);
    let (peak, picture) = front.go(Move::Step(3));
    let step = picture.step.clone().unwrap();
    assert_eq!((picture.view.steps.finished, picture.view.ledger.allocated()), (3, step.peak().unwrap().allocated));
    assert_eq!(picture.shown_step(), Some(&*step), "all of it is drawn");
    let (_, before) = front.go(Move::To(peak - 20));
    assert_eq!((before.step.as_ref(), before.view.steps.finished), (Some(&step), 3));
    let (later, inside) = front.go(Move::To(peak + 20));
    assert_eq!((inside.step.as_ref(), inside.view.steps.finished), (Some(&step), 3));
    assert!(inside.view.profiles.under_way.events > 0 && inside.view.profiles.under_way.events < step.events);
    drop(front);
    let events = events_of(&path);
    let begin = events.iter().position(|event| matches!(event.kind, EventKind::StepBegin { step: 3 })).unwrap() as u64;
    assert!(begin < peak);
    let end = events.iter().position(|event| matches!(&event.kind, EventKind::StepEnd(report) if report.step == 3));
    let end = end.unwrap() + 1;
    assert!(end as u64 > later);
    assert_eq!(view_of(&events[..end]).profiles.last, Some(step));
}

#[test]
fn a_recording_plays_what_was_live() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut live = Front::live(LabSpec { steps: Some(12), ..spec() });
    live.ask(Request::Record(path.clone()));
    // However busy the machine is, there are steps left after the flip.
    live.pause();
    live.command(Command::Train(3));
    live.wait("three steps", |picture| picture.run == RunState::Paused && picture.extent.steps >= 3);
    live.flip("ckpt");
    live.command(Command::Resume);
    let finished = live.wait("the end", |picture| picture.run == RunState::Finished);
    let recording = finished.recording.clone().unwrap();
    assert_eq!(recording.path, path);
    live.ask(Request::ToggleRecording);
    let told = live.wait("the end of the recording", |picture| picture.recording.is_none());
    let line = told.view.log.last().unwrap().text.clone();
    assert!(line.starts_with("recorded ") && line.ends_with("run.vram"), "{line}");

    let mut opened = Front::recording(&path, false);
    let last = opened.wait("the whole recording", |picture| !picture.extent.grows);
    assert_eq!(last.kind, SourceKind::Recording("run.vram".into()));
    assert_eq!((last.extent.steps, last.run.clone(), last.is_now()), (12, RunState::Finished, true));
    assert_eq!(last.extent.end, events_of(&path).len() as u64);
    assert_eq!(last.configurations.len(), 2, "before the flip and after it");
    // Since then, the live lab has reported that it recorded.
    assert_eq!(told.extent.end, last.extent.end + 1);
    let (_, at_end) = live.go(Move::To(last.extent.end));
    assert_same(&last.view, &at_end.view, "the last view of the recording");
    for part in [1, 2, 3] {
        let position = last.extent.end * part / 4;
        let (live, opened) = (live.go(Move::To(position)), opened.go(Move::To(position)));
        assert_same(&opened.1.view, &live.1.view, &format!("at event {position}"));
        assert_eq!(opened.1.step, live.1.step);
        assert_eq!(opened.1.history.page(0, 64), last.history.page(0, 64));
        assert_eq!(opened.1.configurations, last.configurations, "those behind the cursor, too");
    }
}

#[test]
fn a_recording_that_begins_late_has_all_that_came_before() {
    let folder = folder();
    let path = folder.path().join("late.vram");
    let mut live = Front::live(spec());
    live.wait_for_steps(6);
    live.pause();
    live.ask(Request::Record(path.clone()));
    let begun = live.wait("the recording", |picture| picture.recording.is_some());
    live.command(Command::Advance(StepSize::Step));
    let paused =
        live.wait("a step more", |picture| picture.run == RunState::Paused && picture.extent.end > begun.extent.end);
    drop(live);
    let events = events_of(&path);
    assert!(events.len() as u64 >= paused.extent.end, "from the start on, not from the key on");
    assert_same(&view_of(&events[..paused.extent.end as usize]), &paused.view, "the last picture");
}

#[test]
fn a_recording_never_takes_the_place_of_a_file() {
    let folder = folder();
    let path = folder.path().join("mine.vram");
    fs::write(&path, "precious").unwrap();
    let mut live = Front::live(spec());
    live.ask(Request::Record(path.clone()));
    let told = |picture: &Picture| picture.view.log.iter().any(|line| line.text.contains("can't be written"));
    let picture = live.wait("the refusal", |picture| told(picture));
    assert_eq!(picture.recording, None);
    let steps = picture.extent.steps;
    live.wait_for_steps(steps + 2);
    drop(live);
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

/// The events of a short run, and their bytes in a file: the preface, then every frame.
fn pieces() -> (Vec<Event>, Vec<Vec<u8>>) {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut live = Front::live(LabSpec { steps: Some(4), ..spec() });
    live.ask(Request::Record(path.clone()));
    live.wait("the end", |picture| picture.run == RunState::Finished);
    drop(live);
    let events = events_of(&path);
    let out = Shelf::default();
    let mut writer = Writer::new(out.clone()).unwrap();
    let mut builder = FrameBuilder::new(0);
    let mut pieces = Vec::new();
    for chunk in events.chunks(events.len().div_ceil(6)) {
        chunk.iter().for_each(|event| builder.push(event));
        writer.write(&builder.finish().unwrap()).unwrap();
        pieces.push(out.0.take());
    }
    assert_eq!((writer.events(), pieces.len()), (events.len() as u64, 6));
    (events, pieces)
}

/// Bytes that were written and not taken yet.
#[derive(Clone, Default)]
struct Shelf(Rc<RefCell<Vec<u8>>>);

impl Write for Shelf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_that_is_being_written_is_followed() {
    let (events, pieces) = pieces();
    let folder = folder();
    let path = folder.path().join("growing.vram");
    let mut file = OpenOptions::new().create_new(true).append(true).open(&path).unwrap();
    file.write_all(&pieces[0]).unwrap();
    let mut front = Front::recording(&path, true);
    let first = front.wait("the first frame", |picture| picture.extent.end > 0);
    assert!(first.extent.end < events.len() as u64);
    let mut end = first.extent.end;
    for (index, piece) in pieces.iter().enumerate().skip(1) {
        // A frame comes in two writes; the first alone is no frame.
        let (some, rest) = piece.split_at(piece.len() / 2);
        file.write_all(some).unwrap();
        std::thread::sleep(Duration::from_millis(120));
        assert_eq!(front.last().extent.end, end, "half a frame is no frame");
        file.write_all(rest).unwrap();
        let next = front.wait("the next frame", |picture| picture.extent.end > end);
        assert!(next.extent.grows, "nobody knows whether more follows");
        end = next.extent.end;
        assert_same(&next.view, &view_of(&events[..end as usize]), &format!("after piece {index}"));
    }
    assert_eq!(end, events.len() as u64);
    // While the source waits for the end, the cursor looks back.
    let (position, back) = front.go(Move::By(MoveUnit::Step, Backward));
    assert_same(&back.view, &view_of(&events[..position as usize]), "looking back");
}

#[test]
fn a_file_that_is_followed_may_be_empty_at_first() {
    let (events, pieces) = pieces();
    let folder = folder();
    let path = folder.path().join("empty.vram");
    let mut file = OpenOptions::new().create_new(true).append(true).open(&path).unwrap();
    let mut front = Front::recording(&path, true);
    pieces.iter().for_each(|piece| file.write_all(piece).unwrap());
    front.wait("all of it", |picture| picture.extent.end == events.len() as u64);
}

/// Two stages of a pipeline on simulated cards.
fn ranks() -> LabSpec {
    let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
    let mut spec = LabSpec {
        data: Data::Reference,
        device: DeviceChoice::Sim(Box::new(card)),
        parallel: Some(Parallel { parallelism: Parallelism::Pipeline(PipelineSchedule::GPipe), ranks: 2 }),
        ..spec()
    };
    spec.config.data = spec.data.path();
    spec
}

#[test]
fn ranks_stand_side_by_side_in_a_lab_and_in_its_recording() {
    let folder = folder();
    let path = folder.path().join("ranks.vram");
    let mut front = Front::live(ranks());
    front.wait("two steps", |picture| picture.view.steps.finished >= 2 && picture.ranks.len() == 2);
    front.command(Command::Pause);
    front.wait("pause", |picture| picture.run == RunState::Paused);
    front.ask(Request::NextDevice);
    let second = front.wait("the next rank", |picture| picture.device.place == 1);
    assert!(second.view.about.detail.starts_with("pp-gpipe, rank 1 of 2"), "{}", second.view.about.detail);
    front.ask(Request::Record(path.clone()));
    front.wait("a recording", |picture| picture.recording.is_some());
    front.ask(Request::ToggleRecording);
    let live = front.wait("its end", |picture| picture.recording.is_none());
    let numbers: Vec<String> = live.ranks.iter().map(|of| of.alike.numbers()).collect();
    assert_eq!(numbers, ["0", "1"]);
    assert!(live.ranks.iter().all(|of| of.peak_allocated > Bytes::ZERO && of.peak_reserved >= of.peak_allocated));
    let mut recorded = Front::recording(&path, false);
    let recorded = recorded.wait("the end", |picture| !picture.extent.grows);
    assert_eq!(recorded.ranks, live.ranks);
    // A card's memory is the line that no chart exceeds.
    assert_eq!(live.memory, ranks().memory());
    assert_eq!(recorded.memory, live.memory);
    assert!(live.memory.is_some());
    // At the beginning nothing is known about them.
    let mut front = Front::recording(&path, false);
    front.wait("the end", |picture| !picture.extent.grows);
    assert!(front.go(Move::To(0)).1.ranks.is_empty());
}

/// Records one rank to a file of its own, as a process started by a launcher does.
fn record_rank(path: &Path, rank: usize) {
    let spec = ranks();
    let parallel = spec.parallel.unwrap();
    let recorder = RefCell::new(Some(Recorder::create(path).unwrap()));
    let recorder = Rc::new(recorder);
    let hears = Rc::clone(&recorder);
    let listener: Listener = Box::new(move |event: &Event| {
        if let Some(recorder) = &mut *hears.borrow_mut() {
            recorder.push(event);
        }
    });
    let mut run = Headless::start_before(session::of_rank(parallel, &spec, rank, 0).unwrap(), Some(listener)).unwrap();
    let ranks = vec![u16::try_from(rank).unwrap()];
    let alike = AlikeRanks { parallelism: Some(parallel.parallelism), world: 2, ranks };
    run.announce(EventKind::AlikeRanks(alike.into()));
    // What was recorded up to here can be read however the process ends.
    recorder.borrow_mut().as_mut().unwrap().close_frame();
    for _ in 0..3 {
        run.step().unwrap();
    }
    run.finish();
    recorder.take().unwrap().finish().unwrap();
}

#[test]
fn recordings_of_the_ranks_of_one_run_open_side_by_side() {
    let folder = folder();
    let paths = [1, 0].map(|rank| folder.path().join(format!("run.rank{rank}.vram")));
    record_rank(&paths[0], 1);
    record_rank(&paths[1], 0);
    // A second file of the same rank is compared, and so is one that is no rank.
    let (again, other) = (folder.path().join("again.vram"), folder.path().join("other.vram"));
    fs::copy(&paths[0], &again).unwrap();
    fs::write(&other, pieces().1.concat()).unwrap();
    let all = [paths[0].clone(), other.clone(), paths[1].clone(), again.clone()];
    assert_eq!(source::side_by_side(&all), (paths.to_vec(), vec![other.clone(), again.clone()]));
    assert_eq!(source::side_by_side(&[other.clone(), paths[0].clone()]).0, [other.as_path()]);
    let snapshots = ["gpt-mini.all", "gpt-mini.base"]
        .map(|name| Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/traces/{name}.pickle.xz")));
    let (beside, compared) = source::side_by_side(&snapshots);
    assert_eq!((beside, compared), (snapshots.to_vec(), vec![snapshots[1].clone()]), "both are shown, and compared");
    assert_eq!(source::open(&[paths[0].clone(), again.clone()], false, None).unwrap_err().0, again);
    assert_eq!(source::open(&paths, true, None).unwrap_err().0, paths[0]);
    let mut front = Front::of(source::open(&paths, false, None).unwrap());
    let picture = front.wait("both ranks", |picture| {
        let whole = picture.ranks.len() == 2 && picture.view.steps.finished == 3;
        whole && picture.run == RunState::Finished && picture.ranks[1].peak_reserved > Bytes::ZERO
    });
    let numbers: Vec<String> = picture.ranks.iter().map(|of| of.alike.numbers()).collect();
    assert_eq!(numbers, ["0", "1"], "by rank, in whatever order they are given");
    front.ask(Request::NextDevice);
    let second = front.wait("the next rank", |picture| picture.device.place == 1);
    assert!(second.view.about.detail.starts_with("pp-gpipe, rank 1 of 2"), "{}", second.view.about.detail);
    // A file that was cut off shows its complete part, and says so.
    let bytes = fs::read(&paths[0]).unwrap();
    fs::write(&paths[0], &bytes[..bytes.len() - 5]).unwrap();
    let mut front = Front::of(source::open(&paths, false, None).unwrap());
    front.wait("both ranks", |picture| picture.ranks.len() == 2 && picture.view.steps.finished == 3);
    front.ask(Request::NextDevice);
    front.wait("what is said of the end", |picture| {
        picture.device.place == 1 && picture.view.log.iter().any(|line| line.text.contains("cut off"))
    });
}

#[test]
fn a_rank_that_runs_out_of_memory_is_shown() {
    let size = Some(Extent::nearest(128));
    let sizes = Sizes { width: size, layers: Some(Repeats::nearest(4)), seq: size, ..Sizes::default() };
    let sizes = Sizes { vocab: Some(Extent::nearest(8192)), ..sizes };
    let mut front = Front::live(LabSpec { sizes, limit: Some(MemoryLimit::Bytes(Bytes::mib(100))), ..ranks() });
    let short = front.wait("out of memory", |picture| picture.run == RunState::OutOfMemory);
    assert_eq!(short.device.place, 1);
    assert_eq!([0, 1].map(|place| short.ranks[place].state), [RankState::Waits, RankState::OutOfMemory]);
}

#[test]
fn a_recording_that_was_cut_off_says_so_behind_what_is_whole() {
    let (events, pieces) = pieces();
    let folder = folder();
    let path = folder.path().join("cut.vram");
    let whole = pieces[..3].concat();
    let torn = [&*whole, &pieces[3][..pieces[3].len() - 5]].concat();
    fs::write(&path, torn).unwrap();
    let mut front = Front::recording(&path, false);
    let last = front.wait("the end", |picture| !picture.extent.grows);
    let line = last.view.log.last().unwrap();
    assert_eq!(&*line.text, "the recording was cut off here; all before is as it was");
    // The notice about it comes after the events.
    let (position, picture) = front.go(Move::To(last.extent.end - 1));
    assert_same(&picture.view, &view_of(&events[..position as usize]), "the last event");
    fs::write(&path, &whole).unwrap();
    let mut front = Front::recording(&path, false);
    let last = front.wait("the end", |picture| !picture.extent.grows);
    assert_eq!(last.extent.end, position, "at a frame's end nobody can tell");
    assert!(last.view.log.iter().all(|line| !line.text.contains("cut off")));
}

#[test]
fn a_damaged_recording_says_where() {
    let (_, pieces) = pieces();
    let folder = folder();
    let path = folder.path().join("damaged.vram");
    let mut bytes = pieces.concat();
    let at = pieces[..2].concat().len() + pieces[2].len() / 2;
    bytes[at] ^= 0x40;
    fs::write(&path, bytes).unwrap();
    let mut front = Front::recording(&path, false);
    let last = front.wait("the end", |picture| !picture.extent.grows);
    let good = last.extent.end - 1;
    let expected = RecordingError::Damaged(good).to_string();
    assert_eq!(&*last.view.log.last().unwrap().text, expected);
}

#[test]
fn what_is_no_recording_is_told_before_anything_is_shown() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "dear diary, today I measured reserved memory").unwrap();
    let error = source::recording(&path, false).unwrap_err();
    assert!(!matches!(error, RecordingError::Unreadable(_)), "{error}");
    let missing = source::recording(&folder.path().join("missing.vram"), false).unwrap_err();
    assert!(matches!(missing, RecordingError::Unreadable(_)), "{missing}");
}

#[test]
fn what_can_not_be_done_is_said() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut live = Front::live(LabSpec { steps: Some(3), ..spec() });
    live.ask(Request::Record(path.clone()));
    let picture = live.wait("the end", |picture| picture.run == RunState::Finished);
    for ability in [Ability::Flip, Ability::Run, Ability::Seek, Ability::Record] {
        assert_eq!(picture.can(ability), Ok(()), "{ability:?}");
    }
    drop(live);
    let mut opened = Front::recording(&path, false);
    let before = opened.wait("the end", |picture| !picture.extent.grows);
    assert_eq!(before.can(Ability::Flip), Err("a recording can't be changed"));
    assert_eq!(before.can(Ability::Run), Err("nothing runs here: it can only be played"));
    assert_eq!(before.can(Ability::Record), Err("this is a recording already"));
    assert_eq!(before.can(Ability::Seek), Ok(()));
    assert!(opened.source.engine().is_none() && !before.is_live());
    // A request that is made nevertheless changes nothing.
    opened.flip("amp");
    opened.command(Command::EmptyCache);
    opened.go(Move::To(3));
    opened.ask(Request::Move(Move::Now));
    let after = opened.wait("now", |picture| picture.is_now());
    assert_same(&after.view, &before.view, "a recording that was asked to change");
}

#[test]
fn the_cursor_jumps_to_peak_flip_step_and_out_of_memory() {
    let mut front = Front::live(too_large());
    // Small enough at first.
    front.command(Command::Set(Switch::named("accum").unwrap(), "8".into()));
    let stopped = |picture: &Picture| picture.run == RunState::OutOfMemory;
    let first = front.wait("out of memory, or steps", |picture| stopped(picture) || picture.extent.steps >= 4);
    if stopped(&first) {
        front.command(Command::Resume);
    }
    front.wait("steps", |picture| picture.run == RunState::Running && picture.extent.steps >= 4);
    front.flip("zero-grad");
    let flipped = front.last().extent.steps;
    front.wait_for_steps(flipped + 4);
    front.command(Command::Set(Switch::named("accum").unwrap(), "1".into()));
    let end = front.wait("out of memory", |picture| stopped(picture) && picture.extent.steps >= flipped + 4);

    let (position, picture) = front.go(Move::Jump(Landmark::OutOfMemory, Backward));
    let autopsy = picture.view.autopsy.as_ref().unwrap();
    assert_eq!((autopsy.position + 1, picture.view.position), (position, position));
    assert_eq!(autopsy.limit, Some(Bytes::mib(60)));
    assert!(picture.view.ledger.reserved() > Bytes::ZERO && picture.view.op == end.view.op);
    assert!(picture.view.log.last().unwrap().text.starts_with("out of memory: "));
    assert_eq!(picture.run, RunState::OutOfMemory, "what the lab does is told wherever the cursor is");

    let (position, picture) = front.go(Move::Jump(Landmark::Flip, Backward));
    let line = picture.view.log.last().unwrap();
    assert_eq!((&*line.text, picture.view.position), ("accum 8 → 1", position));
    let (before, picture) = front.go(Move::Jump(Landmark::Flip, Backward));
    let line = picture.view.log.last().unwrap();
    assert_eq!((&*line.text, before < position), ("zero-grad set_to_none → zeroed", true));
    assert_eq!(front.go(Move::Jump(Landmark::Flip, Forward)).0, position);
    front.go_nowhere(Move::Jump(Landmark::Flip, Forward));

    let (position, picture) = front.go(Move::Jump(Landmark::Peak, Forward));
    assert_eq!(picture.view.ledger.allocated(), end.view.peak_allocated);
    assert_eq!((position, picture.view.peak_allocated), (end.view.peak_position, end.view.peak_allocated));

    let (_, picture) = front.go(Move::Step(2));
    assert_eq!((picture.view.steps.finished, picture.view.profiles.under_way.step), (2, 2));
    assert_eq!(picture.view.ledger.allocated(), picture.step.as_ref().unwrap().peak().unwrap().allocated);
    front.go_nowhere(Move::Step(1_000_000));
    assert_eq!(front.go(Move::Start).0, 0);
    assert_eq!(front.go(Move::To(u64::MAX)).0, front.last().extent.end, "beyond the end is the end");
}

#[test]
fn a_recording_plays_by_itself_at_its_own_speed_or_another() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut live = Front::live(LabSpec { steps: Some(30), ..spec() });
    live.ask(Request::Record(path.clone()));
    live.wait("the end", |picture| picture.run == RunState::Finished);
    drop(live);
    let mut opened = Front::recording(&path, false);
    let whole = opened.wait("the end", |picture| !picture.extent.grows);
    // Slowly, so that it can be watched.
    opened.ask(Request::Faster(1.0 / 16.0));
    opened.ask(Request::TogglePlay);
    let playing = opened.wait("the play", |picture| picture.playing == Some(1.0 / 16.0) && !picture.is_now());
    let Cursor::At(from) = playing.cursor else { panic!() };
    assert!(from < whole.extent.end, "from the end it begins at the start");
    opened.wait("it to go on", |picture| matches!(picture.cursor, Cursor::At(position) if position > from));
    opened.ask(Request::TogglePlay);
    let stopped = opened.wait("it to stop", |picture| picture.playing.is_none());
    assert!(!stopped.is_now());
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(opened.last().cursor, stopped.cursor, "stopped is stopped");
    // And to its end, where it stays.
    opened.ask(Request::Faster(16_000.0));
    opened.ask(Request::TogglePlay);
    let end = opened.wait("the end", |picture| picture.playing.is_none() && picture.cursor != stopped.cursor);
    assert_eq!((end.cursor, end.view.position), (Cursor::At(whole.extent.end), whole.extent.end));
}

#[test]
fn while_nobody_moves_the_cursor_memory_is_that_of_a_peak() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut live = Front::live(spec());
    live.ask(Request::Record(path.clone()));
    for wanted in [3, 6] {
        let running = live
            .wait("a mark", |picture| picture.moment() == Moment::StepPeak && picture.shown().steps.finished >= wanted);
        let (shown, step) = (running.shown(), running.shown_step().unwrap());
        let column = running.history.around(shown.position).unwrap();
        assert_eq!(
            (step.step, column.step),
            (shown.steps.finished, shown.steps.finished),
            "curve and history have that step"
        );
        assert_eq!(shown.ledger.allocated(), column.peak);
        assert_eq!(running.place(), shown.position);
    }
    // Moves begin where the screen is.
    let running = live.last();
    live.ask(Request::Move(Move::By(MoveUnit::Op, Backward)));
    let back = live.wait("a look back", |picture| !picture.is_now());
    assert_eq!(back.moment(), Moment::Cursor);
    assert!(back.place() + 2000 > running.place(), "{} {}", back.place(), running.place());
    live.ask(Request::Move(Move::Now));
    live.wait("now", |picture| picture.is_now());
    live.flip("ckpt");
    let steps = live.last().extent.steps;
    live.wait_for_steps(steps + 12);
    let paused = live.pause();
    assert_eq!(
        (paused.moment(), paused.shown().position),
        (Moment::Now, paused.extent.end),
        "paused it is where it stands"
    );
    live.command(Command::Resume);
    let end = live.wait_for_steps(steps + 14);
    drop(live);

    // Left in the middle of it; opened as a whole, at its peak, with all its contents.
    let mut opened = Front::recording(&path, false);
    let whole = opened.wait("the recording", |picture| !picture.extent.grows && picture.marked.is_some());
    assert_eq!((whole.moment(), whole.is_now()), (Moment::RunPeak, true));
    assert_eq!(whole.shown().ledger.allocated(), whole.view.peak_allocated);
    assert_eq!(whole.shown_step().unwrap().step, whole.shown().steps.finished);
    assert_eq!(whole.configurations.len(), end.configurations.len());
    assert!(!whole.goes_on(), "what is over doesn't go on, whatever it did last");
    let (_, at_end) = opened.go(Move::To(u64::MAX));
    assert_eq!((at_end.moment(), at_end.place()), (Moment::Cursor, at_end.extent.end));
}

#[test]
fn a_snapshot_opens_at_its_failure_else_at_its_peak() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers");
    let (mut failed, mut whole) = (0, 0);
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "xz") {
            continue;
        }
        let mut front = Front::of(source::snapshot(&path, None).unwrap());
        let read = front.wait("the history", |picture| !picture.extent.grows && picture.marked.is_some());
        match (&read.view.autopsy, read.moment()) {
            (Some(autopsy), Moment::Failure) => {
                failed += 1;
                assert_eq!(read.shown().position, autopsy.position + 1);
            }
            (None, Moment::RunPeak) => {
                whole += 1;
                assert_eq!(read.shown().ledger.allocated(), read.view.peak_allocated, "{}", path.display());
            }
            (_, moment) => panic!("{}: {moment:?}", path.display()),
        }
        assert!(!read.shown().segments.is_empty(), "{}", path.display());
    }
    assert!(failed > 0 && whole > 2, "{failed} {whole}");
}

#[test]
fn the_step_before_is_pinned_then_this_one_then_none() {
    let mut front = Front::live(LabSpec { steps: Some(8), ..spec() });
    front.wait("the end", |picture| picture.run == RunState::Finished);
    let found = |step: u64| {
        move |picture: &Arc<Picture>| {
            picture.pinned.as_ref().is_some_and(|pinned| pinned.step.step == step && pinned.study.is_some())
        }
    };
    front.ask(Request::Move(Move::Step(5)));
    for step in [4, 5] {
        front.ask(Request::Pin);
        let picture = front.wait("a pin", found(step));
        let pinned = picture.pinned.as_ref().unwrap();
        let column = picture.history.page(0, 64).columns[step as usize];
        assert_eq!((column.step, column.peak), (step, pinned.view.ledger.allocated()));
        let study = pinned.study.as_ref().unwrap();
        assert_eq!(study.steps.iter().map(|step| step.what).collect::<Vec<_>>(), [step]);
        assert_eq!(study.peak.unwrap().allocated, column.peak);
    }
    front.ask(Request::Pin);
    front.wait("no pin", |picture| picture.pinned.is_none());
    // There is no step before the first one: it is pinned itself.
    front.ask(Request::Move(Move::Step(0)));
    front.ask(Request::Pin);
    front.wait("a pin", found(0));
}

#[test]
fn a_part_of_the_run_is_studied_and_the_study_follows_the_cursor() {
    let mut front = Front::live(spec());
    front.wait("six steps", |picture| picture.view.steps.finished > 6);
    front.ask(Request::Study(Some(StudyRequest { window: Window::Step, grouping: Grouping::Category })));
    let studied = front.wait("a study", |picture| picture.study.is_some());
    let study = studied.study.as_ref().unwrap();
    assert_eq!(study.steps.len(), 1, "the last whole step");
    assert_eq!(study.phases.iter().filter(|place| place.what.is_some()).count(), 5);
    front.command(Command::Pause);
    front.wait("a pause", |picture| picture.run == RunState::Paused);
    front.ask(Request::Move(Move::Step(3)));
    front.ask(Request::Move(Move::By(MoveUnit::Op, Forward)));
    // Step 3 may have been studied before, as the last complete one: that is no answer to the move.
    let back = front.wait("the study of step 3", |picture| {
        let of_step = |study: &Study| study.steps.first().is_some_and(|step| step.what == 3);
        let around = |study: &Study| (study.begin..=study.end).contains(&picture.view.position);
        picture.study.as_deref().is_some_and(|study| of_step(study) && around(study))
    });
    let (study, view) = (back.study.as_ref().unwrap(), &back.view);
    let alive: Bytes = study.lives.iter().filter(|life| life.is_alive_at(view.position)).map(|life| life.size).sum();
    assert_eq!(alive, view.ledger.allocated(), "what was alive at the cursor");
    let column = back.history.page(0, 64).columns[3];
    assert_eq!(study.peak.unwrap().allocated, column.peak, "as full as the history says");
    assert_eq!(study.moments.iter().map(|moment| moment.reserved).max(), Some(column.reserved));
    // The whole run, by name.
    front.ask(Request::Study(Some(StudyRequest { window: Window::Run, grouping: Grouping::Name })));
    // What a thread computes beside the run may lengthen the recording meanwhile; then it is studied again.
    let whole = front.wait("a study of the run", |picture| {
        let all = |study: &Study| (study.begin, study.end) == (picture.extent.first, picture.extent.end);
        picture.study.as_deref().is_some_and(|study| study.grouping == Grouping::Name && all(study))
    });
    let study = whole.study.as_ref().unwrap();
    assert_eq!(
        study.peak.unwrap().allocated,
        front.last().history.page(0, 4096).columns.iter().map(|column| column.peak).max().unwrap()
    );
    front.ask(Request::Study(None));
    front.wait("no study", |picture| picture.study.is_none());
}
