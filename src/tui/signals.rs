//! Signals and the lost terminal, watched by a thread of their own: whatever the loop is doing, even stuck in a
//! write, a hang-up ends the process.
//!
//! Crossterm 0.29 reads a vanished terminal for ever at full speed once SIGHUP is caught, so on hang-up the process
//! exits from here, without a word to the terminal that is gone.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;

use super::terminal;

/// How often the terminal is asked whether it is still there, for a hang-up that comes without its signal.
const TERMINAL_CHECK: Duration = Duration::from_millis(500);
/// How long the loop has to end in order after SIGTERM.
const PATIENCE: Duration = Duration::from_millis(500);
/// Exit status after SIGHUP: 128 + 1.
const HUNG_UP: i32 = 129;

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
pub fn watch(notices: UnboundedSender<Notice>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            let outcome = serve(&notices, || drop(ready.send(Ok(())))).await;
            if let Err(error) = outcome {
                drop(ready.send(Err(error)));
            }
        });
    })?;
    started.recv().unwrap_or(Ok(()))
}

async fn serve(notices: &UnboundedSender<Notice>, ready: impl FnOnce()) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut stop = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let mut check = tokio::time::interval(TERMINAL_CHECK);
    check.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    ready();
    loop {
        tokio::select! {
            biased;
            _ = hangup.recv() => hang_up(),
            _ = terminate.recv() => end(notices, 15).await,
            _ = interrupt.recv() => end(notices, 2).await,
            _ = stop.recv() => {
                terminal::leave();
                // Execution stops inside this call and goes on after it when somebody sends SIGCONT.
                let _ = kill_process(getpid(), Signal::STOP);
                let _ = notices.send(Notice::Resumed);
            }
            _ = check.tick() => {
                if terminal_is_gone() {
                    hang_up();
                }
            }
        }
    }
}

async fn end(notices: &UnboundedSender<Notice>, signal: i32) {
    let _ = notices.send(Notice::End(signal));
    tokio::time::sleep(PATIENCE).await;
    terminal::leave();
    std::process::exit(128 + signal);
}

fn hang_up() -> ! {
    terminal::abandon();
    std::process::exit(HUNG_UP)
}

fn terminal_is_gone() -> bool {
    matches!(rustix::termios::tcgetattr(std::io::stdin()), Err(rustix::io::Errno::IO | rustix::io::Errno::NXIO))
}
