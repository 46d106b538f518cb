//! Watches signals and the loss of the terminal on a thread of its own, so that the process ends even if the loop is
//! stuck in a write.
//!
//! The loop is told first, and ends in order. If it can't, this thread restores the terminal, makes the engine close
//! its device, and ends the process. All of that takes less than two seconds.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::terminal;
use crate::device::process;
use crate::session::Engine;

/// How often the terminal is checked, for a hang-up without a signal.
const TERMINAL_CHECK: Duration = Duration::from_millis(500);
/// How long the loop may take to end in order.
const LOOP_PATIENCE: Duration = Duration::from_millis(500);
/// How long the engine may take to close its device when the program ends.
pub const ENGINE_PATIENCE: Duration = Duration::from_millis(1200);

/// The signals that end a program unless it is told to ignore them, except those of faults, after which nothing can go on.
const ENDING: [Signal; 8] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::ABORT, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::TERM];

/// A notice to the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// End in order, with 128 plus this as the exit status.
    End(i32),
    /// The process was stopped and continues: take the terminal again.
    Resumed,
}

/// Starts the watching thread. It ends with the process.
///
/// # Errors
/// If the thread, its runtime or the signal handlers can't be created.
pub fn watch(notices: UnboundedSender<Notice>, engine: Option<Engine>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let outcome = serve(&notices, engine.as_ref(), || drop(ready.send(Ok(())))).await;
            if let Err(error) = outcome {
                drop(ready.send(Err(error)));
            }
        });
    })?;
    started.recv().unwrap_or(Ok(()))
}

async fn serve(notices: &UnboundedSender<Notice>, engine: Option<&Engine>, ready: impl FnOnce()) -> io::Result<()> {
    let (sender, mut endings) = unbounded_channel();
    for ending in ENDING.map(Signal::as_raw) {
        let (mut signals, sender) = (signal(SignalKind::from_raw(ending))?, sender.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                let _ = sender.send(ending);
            }
        });
    }
    let mut stop = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let mut resume = signal(SignalKind::from_raw(Signal::CONT.as_raw()))?;
    let mut check = tokio::time::interval(TERMINAL_CHECK);
    check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    ready();
    loop {
        tokio::select! {
            biased;
            Some(signal) = endings.recv() => end(notices, engine, signal).await,
            _ = stop.recv() => {
                terminal::leave();
                // Another thread may get the signal, and this one then continues for a moment.
                let _ = kill_process(getpid(), Signal::STOP);
            }
            _ = resume.recv() => {
                // A terminal that is closed also sends this, after its hang-up.
                if terminal::is_gone() {
                    end(notices, engine, Signal::HUP.as_raw()).await;
                }
                // The process was stopped without a chance to restore the terminal's modes.
                terminal::leave();
                let _ = notices.send(Notice::Resumed);
            }
            _ = check.tick() => {
                if terminal::is_gone() {
                    end(notices, engine, Signal::HUP.as_raw()).await;
                }
            }
        }
    }
}

/// Ends the process, with 128 plus the signal's number.
async fn end(notices: &UnboundedSender<Notice>, engine: Option<&Engine>, signal: i32) {
    if terminal::is_gone() {
        terminal::abandon();
    }
    let _ = notices.send(Notice::End(signal));
    tokio::time::sleep(LOOP_PATIENCE).await;
    terminal::leave();
    if let Some(engine) = engine {
        let _ = engine.end(ENGINE_PATIENCE);
    }
    process::exit(u8::try_from(128 + signal).unwrap_or(1))
}
