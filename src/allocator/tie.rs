//! Which of several equally large free blocks is used first.
//!
//! This is the only rule by which PyTorch's releases place blocks differently. Up to 2.11 the block at the lowest
//! address goes first; in 2.12 the block whose object was made first; since 2.13 the block in the oldest segment, and
//! within it the lowest address.

use crate::units::{Address, Bytes};
use crate::version::TorchVersion;

/// Orders free blocks of equal size: the block with the lowest tie goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tie(pub u64);

impl Tie {
    /// The lowest tie.
    pub const FIRST: Self = Self(0);

    /// The next higher tie.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The tie of a block that lies `size` bytes further into the segment.
    #[inline]
    const fn behind(self, size: Bytes) -> Self {
        Self(self.0 + size.0)
    }
}

/// Gives blocks their ties.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ties {
    order: TieOrder,
    next: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TieOrder {
    Address,
    /// Ties number the block objects in the order in which PyTorch makes them.
    Object,
    /// Ties are addresses as if each new segment lay above all earlier ones, so that one number holds a segment's age
    /// and the place in it. It counts the bytes of all segments ever made; no run makes more than 64 bits hold.
    Segment,
}

impl Ties {
    pub fn of(version: TorchVersion) -> Self {
        let order = match version {
            _ if version < TorchVersion::V2_12 => TieOrder::Address,
            TorchVersion::V2_12 => TieOrder::Object,
            _ => TieOrder::Segment,
        };
        Self { order, next: Tie::FIRST.0 }
    }

    /// The tie of a new segment or range.
    pub const fn segment(&mut self, address: Address, size: Bytes) -> Tie {
        match self.order {
            TieOrder::Address => Tie(address.0),
            TieOrder::Object => self.object(),
            TieOrder::Segment => {
                self.next += size.0;
                Tie(self.next - size.0)
            }
        }
    }

    /// The ties of the two parts of a block that is cut `front` bytes behind its start. The front is a new object.
    #[inline]
    pub fn cut(&mut self, whole: Tie, front: Bytes) -> (Tie, Tie) {
        if self.order == TieOrder::Object { (self.object(), whole) } else { (whole, whole.behind(front)) }
    }

    /// Like [`Ties::cut`], but the rest is the new object.
    pub fn cut_off(&mut self, whole: Tie, front: Bytes) -> (Tie, Tie) {
        if self.order == TieOrder::Object { (whole, self.object()) } else { (whole, whole.behind(front)) }
    }

    /// The tie of a block that absorbed the block below it: its own tie if PyTorch keeps its object, otherwise the lower one's.
    #[inline]
    pub fn absorbed(&self, below: Tie, own: Tie) -> Tie {
        if self.order == TieOrder::Object { own } else { below }
    }

    /// The tie of a seeded block that lies behind a block of `size` bytes.
    pub const fn found_behind(&mut self, below: Tie, size: Bytes) -> Tie {
        match self.order {
            TieOrder::Object => self.object(),
            TieOrder::Address | TieOrder::Segment => below.behind(size),
        }
    }

    const fn object(&mut self) -> Tie {
        self.next += 1;
        Tie(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ties of two segments, the later one at the lower address, each cut in two.
    fn ties(version: TorchVersion) -> [Tie; 4] {
        let mut ties = Ties::of(version);
        let older = ties.segment(Address(0x9000), Bytes(0x1000));
        let younger = ties.segment(Address(0x1000), Bytes(0x1000));
        let (a, b) = ties.cut(younger, Bytes(0x200));
        let (c, d) = ties.cut(older, Bytes(0x200));
        [a, b, c, d]
    }

    #[test]
    fn each_order_is_that_of_its_release() {
        let [a, b, c, d] = ties(TorchVersion::V2_11);
        assert!(a < b && b < c && c < d, "by address");
        let [a, b, c, d] = ties(TorchVersion::V2_12);
        assert!(d < b && b < a && a < c, "rests are the older objects");
        let [a, b, c, d] = ties(TorchVersion::V2_13);
        assert!(c < d && d < a && a < b, "the older segment first, in it by address");
    }

    #[test]
    fn a_block_that_absorbs_another_stays_the_object_it_is() {
        let (below, own) = (Tie(7), Tie(9));
        assert_eq!(Ties::of(TorchVersion::V2_12).absorbed(below, own), own);
        for version in [TorchVersion::V2_11, TorchVersion::V2_15] {
            assert_eq!(Ties::of(version).absorbed(below, own), below);
        }
        let mut ties = Ties::of(TorchVersion::V2_12);
        let (front, rest) = ties.cut_off(own, Bytes(512));
        assert_eq!((front, rest != own), (own, true));
    }
}
