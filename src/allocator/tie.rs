//! Which of several equally large free blocks is taken first.
//!
//! The one rule by which PyTorch's releases place blocks differently. Up to 2.11 the lowest address goes first, in 2.12
//! the block whose object was made first, from 2.13 on the block in the oldest segment, in it the lowest address.

use crate::units::{Address, Bytes};
use crate::version::TorchVersion;

/// Stands behind the size in the order of free blocks: of equally large ones the lowest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tie(pub u64);

impl Tie {
    /// Before all others.
    pub const FIRST: Self = Self(0);

    /// The one right behind.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// That of a block `size` bytes further into the segment.
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
    /// By number, in the order in which PyTorch makes its block objects.
    Object,
    /// As if each new segment lay above all before it: a segment's age and the place in it are one number then. It
    /// counts the bytes of all segments ever made, of which 64 bits hold more than any run makes.
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

    /// That of a new segment or range.
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

    /// Those of the two parts of a block that is cut `front` bytes behind its start. The front is a new object.
    #[inline]
    pub fn cut(&mut self, whole: Tie, front: Bytes) -> (Tie, Tie) {
        if self.order == TieOrder::Object { (self.object(), whole) } else { (whole, whole.behind(front)) }
    }

    /// The same where the rest is the new object.
    pub fn cut_off(&mut self, whole: Tie, front: Bytes) -> (Tie, Tie) {
        if self.order == TieOrder::Object { (whole, self.object()) } else { (whole, whole.behind(front)) }
    }

    /// That of a block which absorbs the one below it: its own where it stays the same object.
    #[inline]
    pub fn absorbed(&self, below: Tie, own: Tie) -> Tie {
        if self.order == TieOrder::Object { own } else { below }
    }

    /// That of a block which was found behind another one of so many bytes.
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
