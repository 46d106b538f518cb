//! Maps operands of kernels to memory: the only place where device addresses become slices.
//!
//! A kernel first claims every operand through [`Access`], which refuses addresses outside live segments, misaligned
//! addresses, ranges that a copy is still writing, and operands that overlap in a way that the kernel does not support.
//! Each claim returns a [`View`].
//!
//! The contract that makes views sound: the arena stays locked while a kernel runs, so that no memory is freed. No
//! written element of a claim belongs to another operand, except whole operands in kernels that load an element (or a
//! row) before they store it. Tasks of one kernel store disjoint elements.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

use super::arena::Arena;
use crate::{AttentionShape, DType, HeadView, HostMemoryRefused, MatrixView, Operand};
use vramlab_allocator::units::Address;

/// Why a kernel did not run.
#[derive(Debug)]
pub(crate) enum KernelRefusal {
    /// Its operands don't match, or lie outside of live memory.
    Operands(String),
    /// There is no memory for the scratch that it needs besides its operands.
    Memory(HostMemoryRefused),
}

impl fmt::Display for KernelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operands(why) => f.write_str(why),
            Self::Memory(refused) => refused.fmt(f),
        }
    }
}

pub(crate) type KernelResult<T = ()> = Result<T, KernelRefusal>;

/// `Err` with `why` unless `condition` holds.
pub(crate) fn require(condition: bool, why: impl FnOnce() -> String) -> KernelResult {
    if condition { Ok(()) } else { Err(KernelRefusal::Operands(why())) }
}

/// A type for which every bit pattern is valid, as elements in device memory.
///
/// # Safety
/// Implementors have no padding and no invalid bit patterns.
pub(crate) unsafe trait Element: Copy {}
// SAFETY: plain numbers.
unsafe impl Element for u8 {}
// SAFETY: plain numbers.
unsafe impl Element for u16 {}
// SAFETY: plain numbers.
unsafe impl Element for i32 {}
// SAFETY: plain numbers.
unsafe impl Element for i64 {}
// SAFETY: plain numbers.
unsafe impl Element for f32 {}
// SAFETY: plain numbers.
unsafe impl Element for f64 {}
// SAFETY: transparent over u16.
unsafe impl Element for half::f16 {}
// SAFETY: transparent over u16.
unsafe impl Element for half::bf16 {}

/// Elements of device memory that a kernel has claimed.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    start: *mut u8,
    dtype: DType,
    len: usize,
    arena: PhantomData<&'a Arena>,
}

// SAFETY: a view is a pointer into the arena, which outlives it; tasks store disjoint elements (module contract).
unsafe impl Send for View<'_> {}
// SAFETY: as above.
unsafe impl Sync for View<'_> {}

impl<'a> View<'a> {
    /// A view of `len` elements in the processor's own memory.
    pub(crate) fn over(buffer: &'a mut [u64], dtype: DType, len: usize) -> Self {
        assert!(dtype.bytes(len).get() <= 8 * buffer.len() as u64, "a buffer too short for {len} elements");
        Self { start: buffer.as_mut_ptr().cast(), dtype, len, arena: PhantomData }
    }
}

impl View<'_> {
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A view of `len` of its elements, starting at `start`.
    pub(crate) fn part(&self, start: usize, len: usize) -> Self {
        assert!(start <= self.len && len <= self.len - start, "{start}+{len} of {}", self.len);
        // SAFETY: `start` is at most `len`, and all `len` elements lie in one mapping.
        let first = unsafe { self.start.add(start * self.dtype.size() as usize) };
        Self { start: first, len, ..*self }
    }

    /// True if both start at the same element. The views of one kernel share all elements or none.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.start == other.start
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    #[inline(always)]
    fn pointer<T: Element>(&self, start: usize, n: usize) -> *mut T {
        assert!(size_of::<T>() as u64 == self.dtype.size(), "element type of another size");
        assert!(start <= self.len && n <= self.len - start, "{start}+{n} of {}", self.len);
        // SAFETY: `start` is at most `len`, and all `len` elements lie in one mapping.
        unsafe { self.start.cast::<T>().add(start) }
    }

    /// A slice of `n` elements from `start`.
    #[inline(always)]
    pub(crate) fn slice<T: Element>(&self, start: usize, n: usize) -> &[T] {
        // SAFETY: claimed, aligned and in bounds; no task stores to these elements meanwhile (module contract).
        unsafe { std::slice::from_raw_parts(self.pointer(start, n), n) }
    }

    /// A mutable slice of `n` elements from `start`.
    #[inline(always)]
    #[expect(clippy::mut_from_ref, reason = "tasks of a kernel share a view and store disjoint elements of it")]
    pub(crate) fn slice_mut<T: Element>(&self, start: usize, n: usize) -> &mut [T] {
        // SAFETY: as for `slice`; the caller's task alone touches these elements meanwhile (module contract).
        unsafe { std::slice::from_raw_parts_mut(self.pointer(start, n), n) }
    }
}

/// The elements that an operand occupies: up to four dimensions of (size, stride in elements).
#[derive(Clone, Copy)]
struct Claim {
    start: u64,
    end: u64,
    dtype: DType,
    dims: [(usize, usize); 4],
    written: bool,
}

/// Whether a kernel's operands may share memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// An output may be the same operand as an input: elements are loaded before they are stored.
    InPlace,
    /// Outputs share no memory with any other operand.
    Never,
}

/// Hands out views of one kernel's operands and checks that they are compatible.
pub(crate) struct Access<'a> {
    arena: &'a Arena,
    sharing: Sharing,
    claims: Vec<Claim>,
}

impl<'a> Access<'a> {
    pub(crate) fn new(arena: &'a Arena, sharing: Sharing) -> Self {
        Self { arena, sharing, claims: Vec::with_capacity(12) }
    }

    /// Claims an operand for reading.
    pub(crate) fn read(&mut self, operand: &Operand) -> KernelResult<View<'a>> {
        self.claim(operand.address, operand.dtype, [(1, 0), (1, 0), (1, 0), (operand.len, 1)], false)
    }

    /// Claims an operand for writing (or reading and writing).
    pub(crate) fn write(&mut self, operand: &Operand) -> KernelResult<View<'a>> {
        self.claim(operand.address, operand.dtype, [(1, 0), (1, 0), (1, 0), (operand.len, 1)], true)
    }

    /// Claims a batch of `rows` × `cols` matrices.
    pub(crate) fn matrix(
        &mut self,
        view: &MatrixView,
        [batch, rows, cols]: [usize; 3],
        written: bool,
    ) -> KernelResult<View<'a>> {
        let dims = [(1, 0), (batch, view.batch_stride), (rows, view.row_stride), (cols, view.col_stride)];
        self.claim(view.address, view.dtype, dims, written)
    }

    /// Claims one operand of an attention.
    pub(crate) fn heads(&mut self, view: &HeadView, shape: &AttentionShape, written: bool) -> KernelResult<View<'a>> {
        let dims = [
            (shape.batch, view.batch_stride),
            (shape.heads, view.head_stride),
            (shape.rows, view.row_stride),
            (shape.head_size, 1),
        ];
        self.claim(view.address, view.dtype, dims, written)
    }

    /// Claims an operand of any four dimensions of (size, stride).
    pub(crate) fn claim(
        &mut self,
        address: Address,
        dtype: DType,
        dims: [(usize, usize); 4],
        written: bool,
    ) -> KernelResult<View<'a>> {
        let len =
            extent(&dims).ok_or_else(|| KernelRefusal::Operands(format!("the operand at {address} is too large")))?;
        let refuse = |why: &str| KernelRefusal::Operands(format!("the operand of {len} {dtype:?} at {address} {why}"));
        let bytes = (len as u64).checked_mul(dtype.size()).ok_or_else(|| refuse("is too large"))?;
        let start = if len == 0 {
            std::ptr::without_provenance_mut(dtype.size() as usize)
        } else {
            self.arena.pointer(address, bytes).map_err(|why| refuse(why.0))?
        };
        if !start.addr().is_multiple_of(dtype.size() as usize) {
            return Err(refuse("is not aligned to its element type"));
        }
        if written && !injective(&dims) {
            return Err(refuse("is written, and its strides let elements share memory"));
        }
        let claim = Claim { start: address.0, end: address.0 + bytes, dtype, dims, written };
        for other in &self.claims {
            if self.collide(&claim, other) {
                return Err(refuse("shares memory with another operand of this kernel, which can't work in place"));
            }
        }
        self.claims.push(claim);
        Ok(View { start, dtype, len, arena: PhantomData })
    }

    fn collide(&self, a: &Claim, b: &Claim) -> bool {
        if !(a.written || b.written) || a.start >= b.end || b.start >= a.end {
            return false;
        }
        let same_layout = a.dtype == b.dtype && a.dims == b.dims;
        if same_layout && a.start == b.start {
            return self.sharing == Sharing::Never || (a.written && b.written);
        }
        // Views interleaved in one buffer, like q, k and v of a packed projection.
        let apart = a.start.abs_diff(b.start);
        !(same_layout && apart.is_multiple_of(a.dtype.size()) && {
            let mut dims = [(2, (apart / a.dtype.size()) as usize); 5];
            dims[1..].copy_from_slice(&a.dims);
            injective(&dims)
        })
    }
}

/// The number of elements from the first to the last, inclusive; `None` if that overflows.
fn extent(dims: &[(usize, usize)]) -> Option<usize> {
    if dims.iter().any(|&(size, _)| size == 0) {
        return Some(0);
    }
    dims.iter().try_fold(1_usize, |end, &(size, stride)| end.checked_add((size - 1).checked_mul(stride)?))
}

/// True if no two indices reach the same element: each stride exceeds the reach of all smaller ones.
fn injective<const N: usize>(dims: &[(usize, usize); N]) -> bool {
    let mut dims = *dims;
    dims.sort_unstable_by_key(|&(_, stride)| stride);
    let mut reach = 0;
    for (size, stride) in dims {
        if size > 1 {
            if stride <= reach {
                return false;
            }
            reach += (size - 1) * stride;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_injective_only_if_no_element_is_reached_twice() {
        assert!(injective(&[(3, 4), (4, 1)]));
        assert!(injective(&[(4, 1), (3, 4)]));
        assert!(!injective(&[(3, 3), (4, 1)]));
        assert!(!injective(&[(3, 0), (4, 1)]));
        assert!(injective(&[(1, 0), (4, 1)]));
        assert_eq!(extent(&[(3, 4), (4, 1)]), Some(12));
        assert_eq!(extent(&[(0, 4), (4, 1)]), Some(0));
        assert_eq!(extent(&[(usize::MAX, 4), (4, 1)]), None);
    }
}
