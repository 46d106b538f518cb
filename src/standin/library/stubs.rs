//! Entry points that do nothing of their own: generated from the table in `entries/`.

use crate::foreign::{put, zero};
use crate::names::NAMES;
use crate::{costs, kernels, memory, report};

include!(env!("VRAMLAB_STUBS"));

/// A call to an entry point that does nothing.
#[inline(never)]
fn called(entry: usize, answer: &str) {
    if report::called(entry)
        && report::is_told()
        && let Some(name) = NAMES.get(entry)
    {
        eprintln!("vramlab: {name} {answer}");
    }
}

/// Done, as far as the program can tell.
#[inline(never)]
fn done(entry: usize) -> usize {
    called(entry, "does nothing here");
    0
}

/// A kernel that the library itself would launch.
#[inline(never)]
fn launches(entry: usize) -> usize {
    called(entry, "launches a kernel");
    kernels::launched(0, 1, costs::UNKNOWN);
    0
}

/// Not done, and said to be: `code` is the library's word for it.
#[inline(never)]
fn refused(entry: usize, code: usize) -> usize {
    called(entry, "is refused here");
    code
}

/// Makes an opaque handle in the place that an argument names.
#[inline(never)]
fn creates(entry: usize, place: usize) -> usize {
    called(entry, "makes a handle");
    // Nothing is ever read of it, and programs make few.
    put(place as *mut usize, Box::into_raw(Box::new([0_u64; 8])) as usize);
    0
}

/// Answers zero in the place that an argument names.
#[inline(never)]
fn zeroes(entry: usize, place: usize, bytes: usize) -> usize {
    called(entry, "answers zero");
    if !matches!(memory::kind(place as u64), memory::PointerKind::Device(_)) {
        zero(place as *mut u8, bytes);
    }
    0
}

/// Nothing sensible can follow.
fn stops(entry: usize) -> usize {
    let name = NAMES.get(entry).copied().unwrap_or_default();
    eprintln!("vramlab: the program called {name}, which the stand-in GPU can't answer. It ends here.");
    std::process::exit(70)
}
