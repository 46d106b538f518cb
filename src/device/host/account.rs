//! The account of host memory: how much may be allocated, and how much has been.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use super::machine::Machine;
use vramlab_allocator::units::Bytes;

/// The assumed available memory if the system does not report it.
const UNTOLD: Bytes = Bytes::gib(2);
/// The machine is queried again after this much was allocated, or half of the reserve if that is less.
const UNSEEN: Bytes = Bytes::mib(32);
/// The largest part of the machine's memory that is left for the rest of the process and for others.
const LARGEST_RESERVE: Bytes = Bytes::mib(512);

/// A request for host memory would exceed a bound. Nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{requested} of host memory were asked for and {left} more can be taken")]
pub struct HostMemoryRefused {
    /// The requested size.
    pub requested: Bytes,
    /// The size that would have been available.
    pub left: Bytes,
}

/// The account of the host memory held by a device and by the training on it. All code whose memory depends on a model
/// or a batch charges this account first. It permits no more than the machine has, and no more than a limit.
///
/// This is a handle: clones share the account.
#[derive(Clone, Debug)]
pub struct HostAccount(Arc<Mutex<Books>>);

#[derive(Debug)]
struct Books {
    machine: Machine,
    taken: Bytes,
    /// Bytes charged since the machine was last queried.
    unseen: Bytes,
    /// The machine's memory at the start, less the reserve.
    ceiling: Bytes,
    reserve: Bytes,
    limit: Option<Bytes>,
}

impl Books {
    fn new(machine: Machine) -> Self {
        let left = machine.left().unwrap_or(UNTOLD);
        let reserve = Bytes(left.get() / 8).min(LARGEST_RESERVE);
        let (taken, unseen) = (Bytes::ZERO, Bytes::ZERO);
        Self { machine, taken, unseen, ceiling: left.saturating_sub(reserve), reserve, limit: None }
    }

    /// The bytes that the bounds leave.
    fn within_bounds(&self) -> Bytes {
        self.limit.map_or(self.ceiling, |limit| limit.min(self.ceiling)).saturating_sub(self.taken)
    }

    /// The machine's available memory now, because other processes have used some too.
    fn of_machine(&self) -> Bytes {
        self.machine.left().map_or(Bytes(u64::MAX), |left| left.saturating_sub(self.reserve))
    }

    fn take(&mut self, requested: Bytes) -> Result<(), HostMemoryRefused> {
        let mut left = self.within_bounds();
        if requested <= left && self.unseen + requested >= UNSEEN.min(Bytes(self.reserve.get() / 2)) {
            left = left.min(self.of_machine());
            self.unseen = Bytes::ZERO;
        }
        if requested > left {
            return Err(HostMemoryRefused { requested, left });
        }
        self.taken += requested;
        self.unseen += requested;
        Ok(())
    }
}

impl Default for HostAccount {
    /// The account of this machine.
    fn default() -> Self {
        Self::of(Machine::default())
    }
}

impl HostAccount {
    fn of(machine: Machine) -> Self {
        Self(Arc::new(Mutex::new(Books::new(machine))))
    }

    /// Locks the books. A panic elsewhere leaves them consistent, because every method completes its bookkeeping.
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Charges `bytes`.
    ///
    /// # Errors
    /// [`HostMemoryRefused`].
    pub fn take(&self, bytes: Bytes) -> Result<Charge, HostMemoryRefused> {
        self.books().take(bytes)?;
        Ok(Charge { account: self.clone(), bytes })
    }

    /// Limits the total charge; `None` means what the machine has. Charges beyond a new limit remain.
    pub fn set_limit(&self, limit: Option<Bytes>) {
        self.books().limit = limit;
    }

    /// The total that may be charged.
    #[must_use]
    pub fn total(&self) -> Bytes {
        let books = self.books();
        books.within_bounds() + books.taken
    }

    /// The total that is charged now.
    #[must_use]
    pub fn taken(&self) -> Bytes {
        self.books().taken
    }

    /// The bytes that can still be charged.
    #[must_use]
    pub fn left(&self) -> Bytes {
        let books = self.books();
        books.within_bounds().min(books.of_machine())
    }
}

/// Memory charged to an account; dropping it releases the charge.
#[derive(Debug)]
pub struct Charge {
    account: HostAccount,
    bytes: Bytes,
}

impl Charge {
    /// The charged bytes.
    #[must_use]
    pub const fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Charges `more`.
    ///
    /// # Errors
    /// [`HostMemoryRefused`]; earlier charges remain.
    pub fn grow(&mut self, more: Bytes) -> Result<(), HostMemoryRefused> {
        self.account.books().take(more)?;
        self.bytes += more;
        Ok(())
    }

    /// Releases `less` of the charge.
    pub fn shrink(&mut self, less: Bytes) {
        let less = less.min(self.bytes);
        self.bytes -= less;
        let mut books = self.account.books();
        books.taken -= less;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An account of a machine that reports what the file says.
    fn account(available: &str) -> (tempfile::TempDir, HostAccount) {
        let root = tempfile::tempdir().unwrap();
        tell(&root, available);
        let account = HostAccount::of(Machine::told_in(root.path()));
        (root, account)
    }

    fn tell(root: &tempfile::TempDir, available: &str) {
        std::fs::write(root.path().join("meminfo"), format!("MemAvailable: {available} kB\n")).unwrap();
    }

    #[test]
    fn an_account_gives_what_the_machine_has_less_a_reserve_and_takes_it_back() {
        let (_root, account) = account("81920");
        assert_eq!(account.total(), Bytes::mib(70));
        let charge = account.take(Bytes::mib(60)).unwrap();
        let refused = account.take(Bytes::mib(11)).unwrap_err();
        assert_eq!(refused, HostMemoryRefused { requested: Bytes::mib(11), left: Bytes::mib(10) });
        let rest = account.take(Bytes::mib(10)).unwrap();
        assert_eq!(account.left(), Bytes::ZERO);
        drop((charge, rest));
        assert_eq!((account.taken(), account.left()), (Bytes::ZERO, Bytes::mib(70)));
    }

    #[test]
    fn large_machines_keep_no_more_than_the_largest_reserve() {
        let (_root, account) = account(&(64 << 20).to_string());
        assert_eq!(account.total(), Bytes::gib(64) - LARGEST_RESERVE);
    }

    #[test]
    fn a_limit_bounds_what_is_taken_from_then_on() {
        let (_root, account) = account("8388608");
        let _charge = account.take(Bytes::mib(60)).unwrap();
        account.set_limit(Some(Bytes::mib(50)));
        assert_eq!(account.take(Bytes(1)).unwrap_err().left, Bytes::ZERO);
        account.set_limit(Some(Bytes::mib(61)));
        assert!(account.take(Bytes::mib(1)).is_ok());
        account.set_limit(None);
        assert!(account.take(Bytes::gib(1)).is_ok());
    }

    #[test]
    fn what_others_take_meanwhile_is_seen_before_much_is_given() {
        let (root, account) = account("8388608");
        tell(&root, "614400");
        let refused = account.take(Bytes::mib(101)).unwrap_err();
        assert_eq!(refused.left, Bytes::mib(600) - LARGEST_RESERVE);
        tell(&root, "532480");
        let pieces: Vec<Charge> = (0..40).map_while(|_| account.take(Bytes::mib(10)).ok()).collect();
        assert_eq!(pieces.len(), 3, "small pieces are seen together");
    }

    #[test]
    fn charges_grow_and_shrink_and_never_give_back_more_than_they_took() {
        let (_root, account) = account("81920");
        let mut charge = account.take(Bytes::mib(1)).unwrap();
        charge.grow(Bytes::mib(9)).unwrap();
        assert!(charge.grow(Bytes::mib(61)).is_err());
        charge.shrink(Bytes::mib(4));
        assert_eq!(account.taken(), Bytes::mib(6));
        charge.shrink(Bytes::gib(1));
        assert_eq!(account.taken(), Bytes::ZERO);
        drop(charge);
        assert_eq!(account.taken(), Bytes::ZERO);
    }
}
