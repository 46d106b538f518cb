//! cuBLASLt for cuDNN, which opens it by name: every function jumps to the one in the stand-in's library.
//!
//! It is linked as a shared library with a version node of its own name, because NVIDIA's libraries refer to that node.
//! rustc can't do this for its own kinds of libraries.

#![no_std]
#![no_main]

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

include!(env!("VRAMLAB_STUBS"));

/// The target of each function's jump.
// SAFETY: no other symbol of this library has the name, and none is exported but those of cuBLASLt.
#[unsafe(no_mangle)]
static SLOTS: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(core::ptr::null_mut()) }; COUNT];

unsafe extern "C" {
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// CUBLAS_STATUS_NOT_SUPPORTED.
extern "C" fn refused() -> i32 {
    15
}

/// Fills the slots when the library is loaded. The stand-in's own library was loaded before; if not, every function
/// refuses.
extern "C" fn fill() {
    for (slot, name) in SLOTS.iter().zip(NAMES) {
        // SAFETY: null stands for every library in the order of loading.
        let found = unsafe { dlsym(core::ptr::null_mut(), name.as_ptr()) };
        let here = found.addr().abs_diff(fill as *const () as usize) < 1 << 16;
        let to = if found.is_null() || here { refused as *const () as *mut c_void } else { found };
        slot.store(to, Ordering::Relaxed);
    }
}

// SAFETY: the loader calls the functions of this section, with arguments that `fill` does not take.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = fill;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
