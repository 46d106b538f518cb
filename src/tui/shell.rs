//! The loop that owns the terminal: waits for the first of signal, key, picture and timer, and draws if something
//! changed and the connection has room. Only the write of a frame blocks.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossterm::event::Event;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use rustix::process::{Signal, getpid, getsid, kill_current_process_group};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::app::{App, Effect, Message};
use super::completion;
use super::error::TuiError;
use super::glyphs::GlyphTier;
use super::input::Input;
use super::output_tail;
use super::screen;
use super::signals::{self, Notice};
use super::states::OtherFile;
use super::svg;
use super::terminal::{self, Guard};
use crate::drawing::figures;
use crate::model::RunState;
use crate::session::Command;
use crate::source::{self, Comparable, Move, Picture, Request, Source};

/// The most frames per second, on this machine and over SSH.
const LOCAL_FRAMES: u32 = 30;
const REMOTE_FRAMES: u32 = 15;
/// The most frames per second if little should move.
const CALM_FRAMES: u32 = 4;
/// The loop does not wait longer for a connection that is slower than this many frames per second.
const FEWEST_FRAMES: u32 = 2;

/// How often the reading of a large file reports progress.
const PROGRESS: Duration = Duration::from_millis(500);
/// How long leaving waits for unfinished work.
const END_PATIENCE: Duration = Duration::from_millis(300);
/// Stores the name of the theme to use from now on. Returns a sentence that says where, or why it could not be stored.
pub type KeepTheme = fn(&str) -> String;

/// How the screen was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A person quit.
    Quit,
    /// This signal requested it.
    Signal(i32),
    /// A thread panicked and printed its message on the terminal.
    Panicked,
}

/// When the next frame may be sent: no sooner than the rate allows, and not before the connection has been idle for as
/// long as it took to send the last frame, so that half of a slow connection stays free for keys and other programs.
#[derive(Debug)]
pub(super) struct Pace {
    /// The shortest time between two frames.
    fastest: Duration,
    /// The connection's time for a frame. A terminal's buffer accepts some frames at once, so earlier times count too,
    /// halved each time.
    cost: Duration,
    next: Instant,
}

impl Pace {
    /// At most `frames` frames per second, or what suits the machine.
    pub fn new(frames: Option<u32>, calm: bool) -> Self {
        let remote = std::env::var_os("SSH_CONNECTION").is_some() || std::env::var_os("SSH_TTY").is_some();
        let usual = if remote { REMOTE_FRAMES } else { LOCAL_FRAMES };
        let most = if calm { CALM_FRAMES } else { u32::MAX };
        let fastest = Duration::from_secs(1) / frames.unwrap_or(usual).clamp(1, most);
        Self { fastest, cost: Duration::ZERO, next: Instant::now() }
    }

    /// Notes when a frame was begun and sent.
    fn drawn(&mut self, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        self.cost = took.max(self.cost / 2).min(Duration::from_secs(1) / FEWEST_FRAMES);
        self.next = (began + self.fastest).max(ended + self.cost);
    }
}

/// What remains when the screen is left.
#[derive(Debug)]
pub struct ScreenOutcome {
    /// How it was left.
    pub exit: Exit,
    /// The end of the run, as far as it was known.
    pub picture: Arc<Picture>,
    /// The characters that the terminal shows.
    pub glyphs: GlyphTier,
    /// Recordings that were written.
    pub recordings: Vec<PathBuf>,
    /// Screens that were saved.
    pub screens: Vec<PathBuf>,
}

/// Options of the shell besides drawing.
#[derive(Clone, Debug)]
pub(super) struct ShellOptions {
    /// True if clicks and the wheel are read.
    pub mouse: bool,
    /// Where the chosen theme is kept.
    pub keep_theme: Option<KeepTheme>,
    /// Files to compare with.
    pub compare: Vec<PathBuf>,
}

enum ShellEvent {
    Notice(Option<Notice>),
    Panic,
    Input(Option<Event>),
    Picture(bool),
    Saved(SavedScreen),
    Read(FileNews),
    Timer,
}

/// The result of saving a screen: its path, and the sentence about it.
struct SavedScreen {
    path: Option<PathBuf>,
    told: String,
}

/// News from a thread that reads files, so that the screen does not wait.
enum FileNews {
    /// A sentence for the footer.
    Told(String),
    /// A message for the app.
    Found(Message),
}

/// Shows the lab until the user leaves. A terminal that is closed counts as a hang-up, whether the signal or a failed
/// write reports it first.
pub(super) async fn run(
    mut source: Source,
    app: App,
    pace: Pace,
    options: ShellOptions,
) -> Result<ScreenOutcome, TuiError> {
    let glyphs = app.glyphs();
    let (mut recordings, mut screens) = (Vec::new(), Vec::new());
    let exit = match show(&mut source, app, pace, options, &mut recordings, &mut screens).await {
        Err(TuiError::Terminal(_)) if terminal::is_gone() => Exit::Signal(Signal::HUP.as_raw()),
        exit => exit?,
    };
    if exit == Exit::Quit {
        see_the_end(&mut source).await;
    }
    // The engine ends when its handle is dropped; if it has ended already, nothing listens.
    source.request(Request::Lab(Command::Quit));
    let picture = source.pictures.borrow().clone();
    Ok(ScreenOutcome { exit, picture, glyphs, recordings, screens })
}

/// Waits a moment for the picture of the run's end, if the cursor looks back.
async fn see_the_end(source: &mut Source) {
    if !source.pictures.borrow().is_now() {
        source.request(Request::Move(Move::Now));
        // A busy keeper does not delay leaving; the last picture then suffices.
        let _ = tokio::time::timeout(END_PATIENCE, source.pictures.wait_for(|picture| picture.is_now())).await;
    }
}

async fn show(
    source: &mut Source,
    mut app: App,
    mut pace: Pace,
    options: ShellOptions,
    recordings: &mut Vec<PathBuf>,
    screens: &mut Vec<PathBuf>,
) -> Result<Exit, TuiError> {
    let ShellOptions { mouse, keep_theme, compare } = options;
    let (sender, mut notices) = mpsc::unbounded_channel();
    signals::watch(sender, source.engine()).map_err(TuiError::Signals)?;
    let panicked = Arc::new(Notify::new());
    let notify = panicked.clone();
    terminal::restore_on_panic(move || notify.notify_one());
    let mut guard = Guard::enter(mouse).map_err(TuiError::Terminal)?;
    let mut input = Input::open().map_err(TuiError::Terminal)?;
    let began = Instant::now();
    let mut source_is_there = true;
    let (saver, mut saved) = mpsc::unbounded_channel();
    let mut saving = 0_usize;
    let (reader, mut read) = mpsc::unbounded_channel();
    read_others(compare, &reader);
    let waits = Arc::new(AtomicBool::new(false));
    follow_output(&app, &waits, &reader);
    let first = source.pictures.borrow_and_update().clone();
    let effects = app.update(Message::Picture(first));
    perform(&effects, source, &mut guard)?;

    let exit = loop {
        if app.needs_frame() && Instant::now() >= pace.next {
            let start = Instant::now();
            let mut layout = super::stage::FrameLayout::default();
            guard
                .draw(|frame| layout = screen::draw(&app, frame.area(), frame.buffer_mut()))
                .map_err(TuiError::Terminal)?;
            pace.drawn(start, Instant::now());
            panic_for_test(app.latest());
            let effects = app.update(Message::Drawn(layout));
            if perform(&effects, source, &mut guard)? {
                break Exit::Quit;
            }
        }
        let wake = if app.needs_frame() { Some(pace.next) } else { app.next_change().map(|at| began + at) };
        let happened = tokio::select! {
            biased;
            notice = notices.recv() => ShellEvent::Notice(notice),
            () = panicked.notified() => ShellEvent::Panic,
            event = input.next() => ShellEvent::Input(event),
            changed = source.pictures.changed(), if source_is_there => ShellEvent::Picture(changed.is_ok()),
            Some(told) = saved.recv() => ShellEvent::Saved(told),
            Some(found) = read.recv() => ShellEvent::Read(found),
            () = sleep_until(wake) => ShellEvent::Timer,
        };
        let mut effects = app.update(Message::Clock(began.elapsed()));
        effects.extend(match happened {
            ShellEvent::Notice(Some(Notice::End(signal))) => break Exit::Signal(signal),
            ShellEvent::Notice(Some(Notice::Resumed)) => {
                guard.enter_again().map_err(TuiError::Terminal)?;
                app.update(Message::Resized)
            }
            ShellEvent::Panic => break Exit::Panicked,
            ShellEvent::Input(Some(event)) => Message::of(event).map_or_else(Vec::new, |message| app.update(message)),
            ShellEvent::Notice(None) | ShellEvent::Input(None) => {
                return Err(TuiError::Terminal(std::io::ErrorKind::UnexpectedEof.into()));
            }
            ShellEvent::Picture(true) => {
                let picture = source.pictures.borrow_and_update().clone();
                let path = picture.recording.as_ref().map(|recording| recording.path.clone());
                recordings.extend(path.filter(|path| recordings.last() != Some(path)));
                let effects = app.update(Message::Picture(picture));
                waits.store(app.awaited().is_some(), Ordering::Relaxed);
                effects
            }
            ShellEvent::Picture(false) => {
                source_is_there = false;
                Vec::new()
            }
            ShellEvent::Saved(SavedScreen { path, told }) => {
                saving = saving.saturating_sub(1);
                screens.extend(path);
                app.notify(told);
                Vec::new()
            }
            ShellEvent::Read(FileNews::Found(message)) => app.update(message),
            ShellEvent::Read(FileNews::Told(text)) => {
                app.notify(text);
                Vec::new()
            }
            ShellEvent::Timer => Vec::new(),
        });
        for effect in &effects {
            match effect {
                Effect::Compare(path) => read_others(vec![path.clone()], &reader),
                Effect::Complete(text) => complete(text.clone(), &reader),
                _ => {}
            }
        }
        if effects.contains(&Effect::SaveScreen) {
            saving += usize::from(save_screen(&app, &saver));
        }
        let kept = effects.iter().find_map(|effect| match effect {
            Effect::KeepTheme(name) => Some(name.clone()),
            _ => None,
        });
        if let (Some(name), Some(keep)) = (kept, keep_theme) {
            saving +=
                usize::from(in_background("keep theme", &saver, move || SavedScreen { path: None, told: keep(&name) }));
        }
        if perform(&effects, source, &mut guard)? {
            break Exit::Quit;
        }
    };
    waits.store(false, Ordering::Relaxed);
    drop(guard);
    // Unfinished writes are waited for, but not for long.
    let rest = async {
        while saving > 0
            && let Some(SavedScreen { path, .. }) = saved.recv().await
        {
            saving -= 1;
            screens.extend(path);
        }
    };
    let _ = tokio::time::timeout(END_PATIENCE, rest).await;
    Ok(exit)
}

/// Panics if an end-to-end test's environment asks for it, once a model trains: the traces of a panic can only be seen
/// from outside. Not in a release.
#[expect(clippy::panic, reason = "a test asks for it")]
fn panic_for_test(picture: &Picture) {
    const MESSAGE: &str = "a panic that a test asked for";
    if !cfg!(debug_assertions) || picture.run != RunState::Running {
        return;
    }
    match std::env::var("VRAMLAB_TEST_PANIC").as_deref() {
        Ok("loop") => panic!("{MESSAGE}"),
        Ok("thread") => drop(std::thread::spawn(|| panic!("{MESSAGE}"))),
        _ => {}
    }
}

/// Performs the app's effects. Returns true if the user leaves.
fn perform(effects: &[Effect], source: &Source, guard: &mut Guard) -> Result<bool, TuiError> {
    for effect in effects {
        match effect {
            Effect::Send(request) => source.request(request.clone()),
            // These are performed where the app is available.
            Effect::SaveScreen | Effect::Compare(_) | Effect::Complete(_) | Effect::KeepTheme(_) => {}
            Effect::Copy(text) => guard.copy(text).map_err(TuiError::Terminal)?,
            Effect::Repaint => guard.repaint().map_err(TuiError::Terminal)?,
            // A session's leader has no shell above it that could bring it back.
            Effect::Suspend => {
                if getsid(None).is_ok_and(|session| session != getpid()) {
                    let _ = kill_current_process_group(Signal::TSTP);
                }
            }
            Effect::Quit => return Ok(true),
        }
    }
    Ok(false)
}

/// Saves the screen into the working folder, on a thread of its own because a disk may be slow. Returns whether the
/// thread was started.
fn save_screen(app: &App, saver: &mpsc::UnboundedSender<SavedScreen>) -> bool {
    let Ok((width, height)) = crossterm::terminal::size() else { return false };
    let area = Rect::new(0, 0, width, height);
    let mut buf = Buffer::empty(area);
    let _ = screen::draw(app, area, &mut buf);
    let workload = &app.latest().view.about.workload;
    let safe: String = workload.chars().filter(|symbol| symbol.is_alphanumeric() || "-_".contains(*symbol)).collect();
    let stem = format!("vramlab-{safe}");
    in_background("save", saver, move || match svg::save(&buf, Path::new("."), &stem) {
        Ok(path) => {
            let told = format!("saved {}, and the text beside it", path.display());
            SavedScreen { path: Some(path), told }
        }
        Err(error) => {
            let hint = "start vramlab in a folder that can be written";
            SavedScreen { path: None, told: format!("the screen can't be saved here ({error}); {hint}") }
        }
    })
}

/// Does slow work on a thread of its own; `told` receives the result. Returns false if no thread can be started; then
/// nothing is done, and nothing needs to be undone.
fn in_background(
    name: &str,
    told: &mpsc::UnboundedSender<SavedScreen>,
    work: impl FnOnce() -> SavedScreen + Send + 'static,
) -> bool {
    let told = told.clone();
    // The receiver may be gone.
    let run = move || drop(told.send(work()));
    std::thread::Builder::new().name(name.to_owned()).spawn(run).is_ok()
}

/// Follows the output of a watched program as long as the screen waits for it.
fn follow_output(app: &App, waits: &Arc<AtomicBool>, reader: &mpsc::UnboundedSender<FileNews>) {
    let (path, process) = app.followed();
    if path.is_none() && process.is_none() {
        return;
    }
    waits.store(true, Ordering::Relaxed);
    let reader = reader.clone();
    // The listener may be gone.
    let tell = move |message| drop(reader.send(FileNews::Found(message)));
    output_tail::follow(path, process, Arc::clone(waits), tell);
}

/// Reads the files to compare with, one after the other, on a thread of its own, and reports progress and errors.
fn read_others(paths: Vec<PathBuf>, reader: &mpsc::UnboundedSender<FileNews>) {
    if paths.is_empty() {
        return;
    }
    let reader = reader.clone();
    let read = move || {
        for path in paths {
            let name: Arc<str> = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into()).into();
            let mut next = Instant::now() + PROGRESS;
            // The listener may be gone.
            let tell = |text: String| drop(reader.send(FileNews::Told(text)));
            let compared = source::compared(&path, |done, all| {
                if Instant::now() >= next {
                    next = Instant::now() + PROGRESS;
                    tell(format!("reading {name} … {} %", 100 * done / all.max(1)));
                }
            });
            match compared {
                Ok(Comparable { configurations: all, remark }) => {
                    let count = figures::counted(all.len() as u64, "configuration");
                    let remark = remark.map_or_else(String::new, |remark| format!("; {remark}"));
                    tell(format!("{name} is on Compare now, with {count}{remark}"));
                    drop(reader.send(FileNews::Found(Message::Compared(OtherFile { name, all }))));
                }
                Err(error) => tell(format!("{} can't be compared: {error}", path.display())),
            }
        }
    };
    // Without a thread nothing is read, and nothing needs to be undone.
    let _ = std::thread::Builder::new().name("compare".to_owned()).spawn(read);
}

/// Completes a path on a thread of its own, because a folder may be slow to read.
fn complete(text: String, reader: &mpsc::UnboundedSender<FileNews>) {
    let reader = reader.clone();
    let look = move || drop(reader.send(FileNews::Found(Message::Completed(completion::complete(&text)))));
    let _ = std::thread::Builder::new().name("complete".to_owned()).spawn(look);
}

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_follow_the_speed_of_the_line() {
        let ms = Duration::from_millis;
        let mut pace = Pace::new(Some(20), false);
        let began = Instant::now();
        let next = |pace: &mut Pace, took| {
            pace.drawn(began, began + took);
            pace.next - began
        };
        assert_eq!(next(&mut pace, ms(1)), ms(50), "a fast line: what the rate allows");
        assert_eq!(next(&mut pace, ms(80)), ms(160), "a slow one rests for as long as it took");
        assert_eq!(next(&mut pace, ms(0)), ms(50), "one that swallowed a frame counts half of that");
        assert_eq!(pace.cost, ms(40));
        assert_eq!(next(&mut pace, ms(3000)), ms(3500), "but a frame comes");
        for _ in 0..9 {
            next(&mut pace, ms(1));
        }
        assert_eq!(next(&mut pace, ms(1)), ms(50), "and a line that got fast is fast");
    }

    #[test]
    fn a_person_may_ask_for_fewer_frames() {
        assert_eq!(Pace::new(Some(5), false).fastest, Duration::from_millis(200));
        assert_eq!(Pace::new(Some(60), true).fastest, Duration::from_millis(250));
        assert_eq!(Pace::new(Some(1), true).fastest, Duration::from_secs(1));
    }
}
