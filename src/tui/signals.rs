//! Signals and the lost terminal, watched by a thread of their own: even where the loop is stuck in a
//! write, the process ends.
//!
//! The loop is told first and ends in order. Where it can't, this thread gives the terminal back, has the engine close its
//! device, and ends the process. All of it takes less than two seconds.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::terminal;
use crate::device::process;
use crate::session::Engine;

/// How often the terminal is asked whether it is still there, for a hang-up that comes without its signal.
const TERMINAL_CHECK: Duration = Duration::from_millis(500);
/// How long the loop has to end in order.
const LOOP_PATIENCE: Duration = Duration::from_millis(500);
/// How long the engine has to close its device when the program ends.
pub const ENGINE_PATIENCE: Duration = Duration::from_millis(1200);

/// What ends a program that does not ask for it to be ignored. Those of faults are not among them: nothing can go on after
/// one.
const ENDING: [Signal; 8] =
    [Signal::HUP, Signal::INT, Signal::QUIT, Signal::ABORT, Signal::USR1, Signal::USR2, Signal::ALARM, Signal::TERM];

/// What the loop is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// End in order, with 128 plus this as the exit status.
    End(i32),
    /// The process was stopped and goes on: take the terminal again.
    Resumed,
}

/// Starts the watching thread. It ends with the process.
///
/// # Errors
/// When the thread, its runtime or the signal handlers can't be had.
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
                // Another thread may take the signal: this one goes on for a moment.
                let _ = kill_process(getpid(), Signal::STOP);
            }
            _ = resume.recv() => {
                // A terminal that is closed sends this too, behind its hang-up.
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
