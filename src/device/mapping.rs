//! Anonymous memory mappings: memory that this process manages itself, outside of Rust's allocator.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mlock, mmap_anonymous, mprotect, munmap};

use vramlab_allocator::units::Bytes;

/// A type for which every bit pattern is valid.
///
/// # Safety
/// Implementors have no padding and no invalid bit patterns, all zeros are their default, and pages are aligned for them.
pub unsafe trait Plain: Copy + Default {}

macro_rules! plain {
    ($($number:ty)*) => {
        $(
            // SAFETY: a plain number.
            unsafe impl Plain for $number {}
        )*
    };
}
plain!(u8 u32 u64 i64 usize f32 f64);

/// An anonymous private mapping, unmapped when dropped.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// True if all of it is and stays readable and writable.
    whole: bool,
}

// SAFETY: owns its memory like a `Vec<u8>`.
unsafe impl Send for Mapping {}
// SAFETY: shared access only hands out pointers and shared slices.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` zeroed bytes, or only reserves addresses if not `committed`.
    pub(super) fn new(len: Bytes, committed: bool) -> Option<Self> {
        let len = usize::try_from(len.get()).ok().filter(|&n| n > 0)?;
        let (protection, flags) = if committed {
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        } else {
            (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        // SAFETY: the kernel picks an unused range.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, flags) }.ok()?;
        // Fewer and larger pages cost fewer faults and translations; a system without them continues with small pages.
        // SAFETY: the pages belong to this mapping, and their contents do not change.
        let _ = unsafe { madvise(start, len, Advice::LinuxHugepage) };
        NonNull::new(start.cast()).map(|start| Self { start, len, whole: committed })
    }

    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    /// Locks all of it in physical memory; false if the system's limit does not permit that.
    pub(super) fn lock(&self) -> bool {
        // SAFETY: the pages belong to this mapping.
        unsafe { mlock(self.start.as_ptr().cast(), self.len) }.is_ok()
    }

    /// Its bytes: none if only addresses were reserved.
    pub(super) fn bytes(&mut self) -> &mut [u8] {
        self.elements_mut()
    }

    /// As many elements as fit into a mapping that has no pointers into it; none if only addresses were reserved.
    pub(super) fn elements<T: Plain>(&self) -> &[T] {
        let len = if self.whole { self.len / size_of::<T>() } else { 0 };
        // SAFETY: all of it is readable, aligned as pages are, and borrowed; every bit pattern is a `T`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), len) }
    }

    /// [`Mapping::elements`], mutably.
    pub(super) fn elements_mut<T: Plain>(&mut self) -> &mut [T] {
        let len = if self.whole { self.len / size_of::<T>() } else { 0 };
        // SAFETY: as above, writable too, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().cast(), len) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The address and length of a part; `None` if it extends beyond the mapping.
    pub(super) fn part(&self, offset: u64, len: u64) -> Option<(*mut std::ffi::c_void, usize)> {
        let (offset, len) = (usize::try_from(offset).ok()?, usize::try_from(len).ok()?);
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: `offset` lies within the mapping.
        Some((unsafe { self.start.add(offset) }.as_ptr().cast(), len))
    }

    /// Makes a part readable and writable.
    pub(super) fn commit(&mut self, offset: u64, len: u64) -> bool {
        self.part(offset, len).is_some_and(|(start, len)| {
            // SAFETY: the part belongs to this mapping and nothing refers to it before it is committed.
            unsafe { mprotect(start, len, MprotectFlags::READ | MprotectFlags::WRITE) }.is_ok()
        })
    }

    /// Frees a part's memory, but keeps its addresses reserved.
    pub(super) fn decommit(&mut self, offset: u64, len: u64) {
        let Some((start, len)) = self.part(offset, len) else { return };
        self.whole = false;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: replaces pages of this mapping only; the arena hands out no pointers to them any more.
        let replaced = unsafe { mmap_anonymous(start, len, ProtFlags::empty(), flags) };
        debug_assert!(replaced.is_ok(), "pages are replaced within a mapping");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and pointers into it are not used after it is dropped.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping is unmapped once");
    }
}
