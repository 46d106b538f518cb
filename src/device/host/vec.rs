//! Vectors in host memory that is charged to an account.

use std::ops::{Deref, DerefMut};

use super::account::{Charge, HostAccount, HostMemoryRefused};
use crate::mapping::{Mapping, Plain};
use vramlab_allocator::units::Bytes;

/// From this size on, memory has its own mapping, which returns to the system when it is dropped.
const MAPPED: usize = 256 * 1024;

/// Elements in host memory that is charged to an account, initially zero. Dropping it frees the memory.
pub struct HostVec<T> {
    storage: Storage<T>,
    charge: Option<Charge>,
}

enum Storage<T> {
    Heap(Vec<T>),
    Mapped { mapping: Mapping, len: usize },
}

impl<T> Default for HostVec<T> {
    fn default() -> Self {
        Self { storage: Storage::Heap(Vec::new()), charge: None }
    }
}

impl HostAccount {
    /// `len` zeroed elements.
    ///
    /// # Errors
    /// [`HostMemoryRefused`] if a bound forbids it, or if the system has no memory after all.
    pub fn vec<T: Plain>(&self, len: usize) -> Result<HostVec<T>, HostMemoryRefused> {
        if len == 0 {
            return Ok(HostVec::default());
        }
        let size = len.saturating_mul(size_of::<T>());
        let requested = Bytes(size as u64);
        let charge = Some(self.take(requested)?);
        let refused = HostMemoryRefused { requested, left: Bytes::ZERO };
        let storage = if size < MAPPED {
            let mut values = Vec::new();
            values.try_reserve_exact(len).map_err(|_| refused)?;
            values.resize(len, T::default());
            Storage::Heap(values)
        } else {
            Storage::Mapped { mapping: Mapping::new(requested, true).ok_or(refused)?, len }
        };
        Ok(HostVec { storage, charge })
    }
}

impl<T> HostVec<T> {
    /// The size of its memory.
    #[must_use]
    pub fn held(&self) -> Bytes {
        self.charge.as_ref().map_or(Bytes::ZERO, Charge::bytes)
    }
}

impl<T: Plain> Deref for HostVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.storage {
            Storage::Heap(values) => values,
            Storage::Mapped { mapping, len } => &mapping.elements()[..*len],
        }
    }
}

impl<T: Plain> DerefMut for HostVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.storage {
            Storage::Heap(values) => values,
            Storage::Mapped { mapping, len } => &mut mapping.elements_mut()[..*len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_zero_at_first_and_keep_what_is_written_small_and_large() {
        let account = HostAccount::default();
        for len in [0, 1, 1000, 40_000, 1_000_001] {
            let mut values = account.vec::<f64>(len).unwrap();
            assert_eq!(values.len(), len);
            assert!(values.iter().all(|&x| x == 0.0));
            values.iter_mut().enumerate().for_each(|(i, x)| *x = i as f64);
            assert!(values.iter().enumerate().all(|(i, &x)| x == i as f64));
            assert_eq!((account.taken(), values.held()), (Bytes(8 * len as u64), Bytes(8 * len as u64)));
        }
        assert_eq!(account.taken(), Bytes::ZERO);
    }

    #[test]
    fn what_no_machine_has_is_refused() {
        let account = HostAccount::default();
        account.set_limit(Some(Bytes::mib(1)));
        assert!(account.vec::<u8>(1 << 20).is_ok());
        assert!(account.vec::<u8>((1 << 20) + 1).is_err());
        assert!(account.vec::<u64>(usize::MAX).is_err());
        assert_eq!(account.taken(), Bytes::ZERO);
    }
}
