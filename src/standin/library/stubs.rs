//! Entry points without a behaviour of their own, generated from the table in `entries/`.

use crate::foreign::{put, zero};
use crate::names::NAMES;
use crate::{costs, kernels, memory, report};

include!(env!("VRAMLAB_STUBS"));

/// A call of an entry point that does nothing.
#[inline(never)]
fn called(entry: usize, answer: &str) {
    if report::called(entry)
        && report::is_told()
        && let Some(name) = NAMES.get(entry)
    {
        eprintln!("vramlab: {name} {answer}");
    }
}

/// Does nothing and reports success.
#[inline(never)]
fn done(entry: usize) -> usize {
    called(entry, "does nothing here");
    0
}

/// Launches a kernel, as the library itself would.
#[inline(never)]
fn launches(entry: usize) -> usize {
    called(entry, "launches a kernel");
    kernels::launched(0, 1, costs::UNKNOWN);
    0
}

/// Refuses; `code` is the library's result for this.
#[inline(never)]
fn refused(entry: usize, code: usize) -> usize {
    called(entry, "is refused here");
    code
}

/// Creates an opaque handle at the address in an argument.
#[inline(never)]
fn creates(entry: usize, place: usize) -> usize {
    called(entry, "makes a handle");
    // Nobody reads what it points to, and programs create few.
    put(place as *mut usize, Box::into_raw(Box::new([0_u64; 8])) as usize);
    0
}

/// Writes zeros at the address in an argument.
#[inline(never)]
fn zeroes(entry: usize, place: usize, bytes: usize) -> usize {
    called(entry, "answers zero");
    if !matches!(memory::kind(place as u64), memory::PointerKind::Device(_)) {
        zero(place as *mut u8, bytes);
    }
    0
}

/// Ends the program, because nothing sensible can follow.
fn stops(entry: usize) -> usize {
    let name = NAMES.get(entry).copied().unwrap_or_default();
    eprintln!("vramlab: the program called {name}, which the stand-in GPU can't answer. It ends here.");
    std::process::exit(70)
}
