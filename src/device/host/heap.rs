//! The heap of a process whose addresses are limited, as `ulimit -v` does on shared machines.
#![allow(unsafe_code)]

#[cfg(target_env = "gnu")]
use rustix::process::{Resource, getrlimit};

/// Lets all threads share one heap if the process's addresses are limited. glibc otherwise reserves 64 MiB of addresses
/// for each of the first threads, and nothing would be left for training. Call it before the first thread starts.
pub fn spare_addresses() {
    #[cfg(target_env = "gnu")]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: sets a parameter of the heap. If glibc refuses it, threads keep heaps of their own.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}
