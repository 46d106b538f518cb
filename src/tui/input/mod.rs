//! Keys, mouse and pastes, read from the terminal by a thread and decoded here.
//!
//! crossterm's reader is not used: an unfinished sequence makes it wait for ever, and a lost terminal makes it spin.

mod decoder;
mod sequences;

use std::collections::VecDeque;
use std::fs::File;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crossterm::event::Event;
use crossterm::terminal;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{Errno, read, retry_on_intr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, sleep, sleep_until};

pub use decoder::Decoder;
use sequences::Sequences;

/// How many bytes are read at once, and how many such pieces may wait for the loop. Faster input waits in the terminal.
const PIECE: usize = 4096;
const WAITING: usize = 16;
/// How long the thread that watches the terminal may take to report its loss.
const PATIENCE: Duration = Duration::from_secs(1);

/// The input of a person at the terminal.
#[derive(Debug)]
pub(super) struct Input {
    pieces: Receiver<TimedBytes>,
    resized: Signal,
    sequences: Sequences,
    events: VecDeque<Event>,
}

/// Bytes and their time of arrival: the loop may see them much later, and several pieces at once.
#[derive(Debug)]
struct TimedBytes {
    at: Instant,
    bytes: Vec<u8>,
}

impl Input {
    /// Begins to read standard input. Needs a runtime with its drivers.
    ///
    /// # Errors
    /// If no thread can be started, or changes of size can't be watched.
    pub fn open() -> io::Result<Self> {
        let resized = signal(SignalKind::window_change())?;
        let (sender, pieces) = channel(WAITING);
        std::thread::Builder::new().name("keyboard".to_owned()).spawn(move || read_all(&sender))?;
        Ok(Self { pieces, resized, sequences: Sequences::default(), events: VecDeque::new() })
    }

    /// The next event; `None` once the terminal is gone. Cancelling it loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            tokio::select! {
                biased;
                piece = self.pieces.recv() => match piece {
                    Some(TimedBytes { at, bytes }) => self.events.extend(self.sequences.take(at, &bytes)),
                    None => {
                        sleep(PATIENCE).await;
                        return None;
                    }
                },
                _ = self.resized.recv() => {
                    let (columns, rows) = terminal::size().unwrap_or_default();
                    self.events.push_back(Event::Resize(columns, rows));
                }
                () = until(self.sequences.settles()) => self.events.extend(self.sequences.settle()),
            }
        }
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

/// Reads until the terminal or the program is gone.
fn read_all(pieces: &Sender<TimedBytes>) {
    // The standard input may be a recording; keys then come from the terminal itself.
    let terminal: OwnedFd = match io::stdin().is_terminal() {
        true => match io::stdin().as_fd().try_clone_to_owned() {
            Ok(terminal) => terminal,
            Err(_) => return,
        },
        false => match File::open("/dev/tty") {
            Ok(terminal) => terminal.into(),
            Err(_) => return,
        },
    };
    let mut piece = vec![0; PIECE];
    loop {
        match retry_on_intr(|| read(&terminal, &mut piece[..])) {
            Ok(0) => return,
            Ok(n) => {
                if pieces.blocking_send(TimedBytes { at: Instant::now(), bytes: piece[..n].to_vec() }).is_err() {
                    return;
                }
            }
            // Another program that shares the terminal made it non-blocking.
            Err(Errno::AGAIN) => {
                let mut wait = [PollFd::new(&terminal, PollFlags::IN)];
                if retry_on_intr(|| poll(&mut wait, None)).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
}
