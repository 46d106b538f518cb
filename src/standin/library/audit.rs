//! Functions of NVIDIA's libraries that PyTorch imports and the table lacks: they are reported once, by name.
//!
//! Such a call reaches NVIDIA's own function, which only says that there is no driver. The report explains that
//! message.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Once;

use crate::foreign::{get, text};
use crate::system;

include!(env!("VRAMLAB_REAL"));

/// The prefixes of the functions that the table covers.
const PREFIXES: [&str; 10] =
    ["cuda", "__cuda", "cublas", "cudnn", "cufft", "curand", "cusolverDn", "nccl", "nvml", "cuMem"];
/// Tags in the dynamic section: the string table, the symbol table, and its hash table.
const NAMES: i64 = 5;
const SYMBOLS: i64 = 6;
const HASHES: i64 = 0x6fff_fef5;
/// Bytes of a symbol.
const SYMBOL: u64 = 24;
/// The type of the program header of the dynamic section.
const DYNAMIC: u32 = 2;

/// The loader's description of a library.
#[repr(C)]
struct LoadedObject {
    base: u64,
    name: *const c_char,
    parts: *const ProgramHeader,
    count: u16,
}

/// A program header of a library.
#[repr(C)]
#[derive(Clone, Copy)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
}

/// Bytes of a whole program header.
const PART: u64 = 56;

unsafe extern "C" {
    fn dl_iterate_phdr(
        see: extern "C" fn(*const LoadedObject, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// Checks once, and reports what is missing.
pub fn once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let mut wanted: BTreeSet<&'static str> = BTreeSet::new();
        // SAFETY: the function is called now, with this set alone.
        unsafe { dl_iterate_phdr(see, (&raw mut wanted).cast()) };
        let here = system::library_of(once as *const () as u64);
        let missing: Vec<&str> = wanted
            .into_iter()
            .filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && REAL.binary_search(name).is_err())
            .filter(|name| {
                let name = std::ffi::CString::new(*name).unwrap_or_default();
                system::find(None, &name).is_none_or(|found| system::library_of(found as u64) != here)
            })
            .collect();
        if !missing.is_empty() {
            eprintln!(
                "vramlab: this PyTorch may call {}, which the stand-in GPU does not know. Where it does, NVIDIA's own library says that \
                 there is no driver.",
                missing.join(", ")
            );
        }
    });
}

/// Collects the functions that one of PyTorch's libraries imports.
extern "C" fn see(library: *const LoadedObject, _size: usize, wanted: *mut c_void) -> c_int {
    // SAFETY: the loader passes a library, and `once` its set.
    let (library, wanted) = unsafe { (&*library, &mut *wanted.cast::<BTreeSet<&'static str>>()) };
    let name = text(library.name).map(CStr::to_bytes).unwrap_or_default();
    if name.windows(11).any(|window| window == b"/torch/lib/") {
        collect(library, wanted);
    }
    0
}

fn collect(library: &LoadedObject, wanted: &mut BTreeSet<&'static str>) {
    let part = |at: u16| get((library.parts as u64 + u64::from(at) * PART) as *const ProgramHeader);
    let parts = library.count;
    let Some(dynamic) = (0..parts).filter_map(part).find(|part| part.kind == DYNAMIC) else { return };
    let (mut names, mut symbols, mut hashes) = (0, 0, 0);
    for at in 0.. {
        let Some((tag, value)) = get((library.base + dynamic.address + at * 16) as *const (i64, u64)) else { return };
        match tag {
            0 => break,
            NAMES => names = value,
            SYMBOLS => symbols = value,
            HASHES => hashes = value,
            _ => {}
        }
    }
    // The symbols before the first hashed one are those that the library imports.
    let Some([_, first]) = get(hashes as *const [u32; 2]) else { return };
    if names == 0 || symbols == 0 {
        return;
    }
    for at in 0..u64::from(first) {
        let Some(name) = get((symbols + at * SYMBOL) as *const u32) else { return };
        // SAFETY: the library stays loaded for as long as the process: PyTorch is never unloaded.
        let name: Option<&'static CStr> = text((names + u64::from(name)) as *const c_char);
        wanted.extend(name.and_then(|name| name.to_str().ok()));
    }
}
