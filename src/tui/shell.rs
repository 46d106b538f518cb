//! The loop that owns the terminal: waits for the first of signal, key, picture and timer, and draws when something
//! changed and the link has room. Nothing in it blocks but the write of a frame.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use crossterm::event::Event;
use rustix::process::{Signal, getpid, getsid, kill_current_process_group};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::app::{App, Effect, Message};
use super::error::TuiError;
use super::input::Input;
use super::screen;
use super::signals::{self, Notice};
use super::terminal::{self, Guard};
use crate::model::RunState;
use crate::session::Command;
use crate::source::{Picture, Request, Source};

/// Frames a second at most, on this machine and over SSH.
const LOCAL_FRAMES: u32 = 30;
const REMOTE_FRAMES: u32 = 15;
/// Frames a second at least, however slow the link.
const FEWEST_FRAMES: u32 = 2;
/// After so many frames in time the pace goes up again.
const FRAMES_IN_TIME: u32 = 60;

/// How the screen was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A person quit.
    Quit,
    /// A signal of this number asked for it.
    Signal(i32),
    /// A thread panicked; its message stands on the terminal.
    Panicked,
}

/// When the next frame may go out.
#[derive(Debug)]
struct Pace {
    fastest: Duration,
    slot: Duration,
    next: Instant,
    in_time: u32,
}

impl Pace {
    fn new(remote: bool) -> Self {
        let fastest = Duration::from_secs(1) / if remote { REMOTE_FRAMES } else { LOCAL_FRAMES };
        Self { fastest, slot: fastest, next: Instant::now(), in_time: 0 }
    }

    /// A frame that began at `began` is out: one that took longer than its slot means a slow reader.
    fn drawn(&mut self, began: Instant) {
        let took = began.elapsed();
        if took > self.slot {
            self.slot = (self.slot * 2).min(Duration::from_secs(1) / FEWEST_FRAMES);
            self.in_time = 0;
        } else {
            self.in_time += 1;
            if self.in_time >= FRAMES_IN_TIME {
                self.slot = (self.slot / 2).max(self.fastest);
                self.in_time = 0;
            }
        }
        self.next = (began + self.slot).max(Instant::now());
    }
}

enum Happened {
    Notice(Option<Notice>),
    Panic,
    Input(Option<Event>),
    Picture(bool),
    Timer,
}

/// Shows the lab until somebody leaves. A terminal that is closed meanwhile is a hang-up, whether the signal or a failed
/// write tells of it first.
pub(super) async fn run(source: Source, app: App, mouse: bool) -> Result<Exit, TuiError> {
    match show(source, app, mouse).await {
        Err(TuiError::Terminal(_)) if terminal::is_gone() => Ok(Exit::Signal(Signal::HUP.as_raw())),
        exit => exit,
    }
}

async fn show(mut source: Source, mut app: App, mouse: bool) -> Result<Exit, TuiError> {
    let (sender, mut notices) = mpsc::unbounded_channel();
    signals::watch(sender, source.engine()).map_err(TuiError::Signals)?;
    let panicked = Arc::new(Notify::new());
    let notify = panicked.clone();
    terminal::restore_on_panic(move || notify.notify_one());
    let mut guard = Guard::enter(mouse).map_err(TuiError::Terminal)?;
    let mut input = Input::open().map_err(TuiError::Terminal)?;
    let remote = std::env::var_os("SSH_CONNECTION").is_some() || std::env::var_os("SSH_TTY").is_some();
    let mut pace = Pace::new(remote);
    let began = Instant::now();
    let mut source_is_there = true;
    let first = source.pictures.borrow_and_update().clone();
    app.update(Message::Picture(first));

    let exit = loop {
        app.update(Message::Clock(began.elapsed()));
        if app.needs_frame() && Instant::now() >= pace.next {
            let start = Instant::now();
            let mut layout = super::stage::Layout::default();
            guard
                .draw(|frame| layout = screen::draw(&app, frame.area(), frame.buffer_mut()))
                .map_err(TuiError::Terminal)?;
            pace.drawn(start);
            panic_for_test(app.latest());
            app.update(Message::Drawn(layout));
        }
        let wake = if app.needs_frame() { Some(pace.next) } else { app.next_change().map(|at| began + at) };
        let happened = tokio::select! {
            biased;
            notice = notices.recv() => Happened::Notice(notice),
            () = panicked.notified() => Happened::Panic,
            event = input.next() => Happened::Input(event),
            changed = source.pictures.changed(), if source_is_there => Happened::Picture(changed.is_ok()),
            () = sleep_until(wake) => Happened::Timer,
        };
        app.update(Message::Clock(began.elapsed()));
        let effects = match happened {
            Happened::Notice(Some(Notice::End(signal))) => break Exit::Signal(signal),
            Happened::Notice(Some(Notice::Resumed)) => {
                guard.enter_again().map_err(TuiError::Terminal)?;
                app.update(Message::Resized)
            }
            Happened::Panic => break Exit::Panicked,
            Happened::Input(Some(event)) => Message::of(event).map_or_else(Vec::new, |message| app.update(message)),
            Happened::Notice(None) | Happened::Input(None) => {
                return Err(TuiError::Terminal(std::io::ErrorKind::UnexpectedEof.into()));
            }
            Happened::Picture(true) => {
                let picture = source.pictures.borrow_and_update().clone();
                app.update(Message::Picture(picture))
            }
            Happened::Picture(false) => {
                source_is_there = false;
                Vec::new()
            }
            Happened::Timer => Vec::new(),
        };
        if perform(&effects, &source, &mut guard)? {
            break Exit::Quit;
        }
    };
    // The engine ends when its handle goes; if it has ended already, nobody listens.
    source.request(Request::Lab(Command::Quit));
    drop(guard);
    Ok(exit)
}

/// Panics where the environment of an end-to-end test asks for it, once a model trains: what a panic leaves behind can
/// only be seen from outside. Not in a release.
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

/// Does what the app asked for; true if that is to leave.
fn perform(effects: &[Effect], source: &Source, guard: &mut Guard) -> Result<bool, TuiError> {
    for effect in effects {
        match effect {
            Effect::Send(request) => source.request(request.clone()),
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

async fn sleep_until(wake: Option<Instant>) {
    match wake {
        Some(at) => tokio::time::sleep_until(at).await,
        None => pending().await,
    }
}
