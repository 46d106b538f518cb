//! Functions of the C library that std lacks.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// Pages that can't be accessed.
const PROT_NONE: c_int = 0;
const PROT_READ_WRITE: c_int = 3;
const MAP_SHARED: c_int = 1;
const MAP_PRIVATE: c_int = 2;
const MAP_FIXED_NOREPLACE: c_int = 0x10_0000;
const MAP_ANONYMOUS: c_int = 0x20;
const MAP_NORESERVE: c_int = 0x4000;
const MADV_DONTNEED: c_int = 4;
const RTLD_LAZY: c_int = 1;
const RTLD_NOLOAD: c_int = 4;
const FAILED: usize = usize::MAX;

unsafe extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, protection: c_int, flags: c_int, file: c_int, offset: c_long)
    -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int;
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dladdr(address: *const c_void, found: *mut DlInfo) -> c_int;
    fn pthread_atfork(prepare: extern "C" fn(), parent: extern "C" fn(), child: extern "C" fn()) -> c_int;
}

/// Dl_info.
#[repr(C)]
struct DlInfo {
    file: *const c_char,
    base: u64,
    name: *const c_char,
    address: u64,
}

/// The start of the library that contains an address.
pub fn library_of(address: u64) -> Option<u64> {
    let mut found = DlInfo { file: std::ptr::null(), base: 0, name: std::ptr::null(), address: 0 };
    // SAFETY: any address may be asked for.
    let known = unsafe { dladdr(address as *const c_void, &mut found) } != 0;
    known.then_some(found.base)
}

fn map(at: u64, bytes: u64, protection: c_int, flags: c_int, file: c_int) -> Option<u64> {
    // SAFETY: without MAP_FIXED nothing that is mapped already is touched.
    let mapped = unsafe { mmap(at as *mut c_void, bytes as usize, protection, flags, file, 0) } as usize;
    (mapped != FAILED).then_some(mapped as u64)
}

/// Reserves exactly these addresses: accessing them faults. False if something is already mapped there.
pub fn reserve_at(at: u64, bytes: u64) -> bool {
    let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    match map(at, bytes, PROT_NONE, flags, -1) {
        Some(mapped) if mapped == at => true,
        Some(elsewhere) => {
            // A kernel before 4.17 takes the address only as a hint.
            give_back(elsewhere, bytes);
            false
        }
        None => false,
    }
}

/// The same at any address that the system chooses.
pub fn reserve(bytes: u64) -> Option<u64> {
    map(0, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1)
}

/// Host memory that uses no memory until it is accessed.
pub fn take(bytes: u64) -> Option<u64> {
    map(0, bytes, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1)
}

/// Maps the bytes of a file, shared with its other readers.
pub fn share(file: &std::fs::File, bytes: usize) -> Option<*mut u8> {
    use std::os::fd::AsRawFd;
    map(0, bytes as u64, PROT_READ_WRITE, MAP_SHARED, file.as_raw_fd()).map(|at| at as *mut u8)
}

/// Unmaps what one of the functions above mapped.
pub fn give_back(at: u64, bytes: u64) {
    // SAFETY: only what was taken here is given back, and it is not used afterwards.
    unsafe { munmap(at as *mut c_void, bytes as usize) };
}

/// Zeroes whole pages of anonymous private memory by giving them back. False if they are something else.
pub fn forget_pages(at: u64, bytes: u64) -> bool {
    // SAFETY: the caller owns these bytes and wants them to be zero, which pages that are given back are.
    unsafe { madvise(at as *mut c_void, bytes as usize, MADV_DONTNEED) == 0 }
}

/// A library, if the program has loaded it.
pub fn loaded(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: nothing is loaded, so no foreign code runs.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
    (!library.is_null()).then_some(library)
}

/// A library; loads it if necessary.
pub fn load(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the libraries asked for are NVIDIA's, which the program loads itself.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_LAZY) };
    (!library.is_null()).then_some(library)
}

/// A function of a library, or of any library.
pub fn find(library: Option<*mut c_void>, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: null stands for every library in the order of loading.
    let found = unsafe { dlsym(library.unwrap_or_default(), name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// Registers functions to be called around every fork.
pub fn around_forks(before: extern "C" fn(), in_parent: extern "C" fn(), in_child: extern "C" fn()) {
    // SAFETY: the functions stay for as long as the process.
    unsafe { pthread_atfork(before, in_parent, in_child) };
}
