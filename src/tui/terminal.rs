//! Takes and restores the terminal: raw mode, alternate screen, mouse, paste, synchronized frames.
//!
//! However the program ends (return, error, panic in any thread, signal), [`leave`] undoes all of it, once.

use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crossterm::{QueueableCommand, cursor, event, terminal};
use ratatui::Terminal;
use ratatui::layout::Rect;
use rustix::event::{PollFd, PollFlags, Timespec};

use super::clipboard::{self, Multiplexer};
use crate::drawing::wire::{self, WireBackend};

/// A frame is sent in one write.
const BUFFER: usize = 64 * 1024;

/// Presses, drags and the wheel, with coordinates of any size, and motion, so that the help knows where the mouse is.
/// Motion draws nothing. A terminal that does not know motion stays in the mode before.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1006h";
const MOUSE_OFF: &[u8] = b"\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l";
/// How long restoring waits for a terminal that accepts no bytes.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
const BEGIN_FRAME: &[u8] = b"\x1b[?2026h";
const END_FRAME: &[u8] = b"\x1b[?2026l";

/// True while the terminal is ours. Writers hold the lock while they write, so that nothing follows a restoring sequence.
static OURS: Mutex<bool> = Mutex::new(false);
static MOUSE: AtomicBool = AtomicBool::new(false);

/// The terminal, which is ours as long as this exists.
#[derive(Debug)]
pub struct Guard {
    terminal: Terminal<WireBackend<BufWriter<TerminalOutput>>>,
}

impl Guard {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If the terminal refuses raw mode or can't be written to. What was done before is undone.
    pub fn enter(mouse: bool) -> io::Result<Self> {
        MOUSE.store(mouse, Ordering::SeqCst);
        enter_modes()?;
        let erases = wire::erases_in_colour(|name| std::env::var(name).ok());
        let backend = WireBackend::new(BufWriter::with_capacity(BUFFER, TerminalOutput)).erasing(erases);
        Terminal::new(backend).map(|terminal| Self { terminal }).inspect_err(|_| leave())
    }

    /// Draws one synchronized frame.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn draw(&mut self, render: impl FnOnce(&mut ratatui::Frame<'_>)) -> io::Result<()> {
        self.terminal.backend_mut().write_all(BEGIN_FRAME)?;
        let drawn = self.terminal.draw(render).map(|_| ());
        let ended =
            self.terminal.backend_mut().write_all(END_FRAME).and_then(|()| Write::flush(self.terminal.backend_mut()));
        drawn.and(ended)
    }

    /// Forgets the screen's content, so that the next frame paints all of it. (Not `Terminal::clear`, which asks the
    /// terminal a question and hangs while keys are read.)
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn repaint(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::from(size))
    }

    /// Puts `text` on the user's clipboard, if the terminal allows that.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        let through = Multiplexer::detect(|name| std::env::var(name).ok());
        self.terminal.backend_mut().write_all(&clipboard::sequence(text, through))?;
        Write::flush(self.terminal.backend_mut())
    }

    /// Takes the terminal again after [`leave`], for instance when the shell brings the program back.
    ///
    /// # Errors
    /// If the terminal is gone.
    pub fn enter_again(&mut self) -> io::Result<()> {
        enter_modes()?;
        self.repaint()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Later output of a dropped `BufWriter` or `Terminal` is swallowed by [`TerminalOutput`].
        leave();
    }
}

/// Standard output as long as the terminal is ours; afterwards bytes are discarded.
#[derive(Debug)]
struct TerminalOutput;

impl Write for TerminalOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        if *ours { write_once(bytes) } else { Ok(bytes.len()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes directly, because the line buffer of `std::io::Stdout` would cut frames into pieces.
fn write_once(bytes: &[u8]) -> io::Result<usize> {
    rustix::io::write(io::stdout(), bytes).map_err(io::Error::from)
}

fn write_all(mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write_once(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes as long as the terminal accepts bytes. A terminal that its reader has stopped (Ctrl-S, a frozen multiplexer)
/// must not keep the program from ending. Writes byte by byte, because only one byte is known to fit.
fn write_patiently(bytes: &[u8]) {
    let stdout = io::stdout();
    for byte in bytes.chunks(1) {
        let mut waiting = [PollFd::new(&stdout, PollFlags::OUT)];
        let takes = rustix::event::poll(&mut waiting, Some(&PATIENCE)).is_ok_and(|ready| ready > 0);
        if !takes || write_all(byte).is_err() {
            return;
        }
    }
}

fn enter_modes() -> io::Result<()> {
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    terminal::enable_raw_mode()?;
    let mut sequence = Vec::new();
    sequence.queue(terminal::EnterAlternateScreen)?.queue(cursor::Hide)?.queue(event::EnableBracketedPaste)?;
    if MOUSE.load(Ordering::SeqCst) {
        sequence.extend_from_slice(MOUSE_ON);
    }
    *ours = true;
    let written = write_all(&sequence);
    drop(ours);
    written.inspect_err(|_| leave())
}

/// Restores the terminal. Does nothing if that has already happened. Safe in every thread; if another thread hangs in a
/// write, waits for it only a moment.
pub fn leave() {
    let patience = Instant::now() + Duration::from_millis(200);
    let mut lock = loop {
        match OURS.try_lock() {
            Ok(lock) => break Some(lock),
            Err(TryLockError::Poisoned(poisoned)) => break Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < patience => {
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(TryLockError::WouldBlock) => break None,
        }
    };
    if lock.as_deref() == Some(&false) {
        return;
    }
    let mut sequence = Vec::from(END_FRAME);
    if MOUSE.load(Ordering::SeqCst) {
        sequence.extend_from_slice(MOUSE_OFF);
    }
    // Writing to a vector can't fail. A terminal that is gone can't be restored, and need not be.
    let queued = sequence.queue(event::DisableBracketedPaste).and_then(|out| out.queue(crossterm::style::ResetColor));
    let queued =
        queued.and_then(|out| out.queue(cursor::Show)).and_then(|out| out.queue(terminal::LeaveAlternateScreen));
    if queued.is_ok() {
        write_patiently(&sequence);
    }
    let _ = terminal::disable_raw_mode();
    if let Some(ours) = lock.as_deref_mut() {
        *ours = false;
    }
}

/// Whether the terminal was closed, or its connection lost.
pub fn is_gone() -> bool {
    matches!(rustix::termios::tcgetattr(io::stdin()), Err(rustix::io::Errno::IO | rustix::io::Errno::NXIO))
}

/// Marks the terminal as lost: nothing is written to it any more.
pub fn abandon() {
    if let Ok(mut ours) = OURS.try_lock() {
        *ours = false;
    }
}

/// Makes a panic in any thread restore the terminal before its message is printed, and then call `after`. The hook that
/// prints the message must be installed first.
pub fn restore_on_panic(after: impl Fn() + Send + Sync + 'static) {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        leave();
        print(info);
        after();
    }));
}
