//! Classes of sizes, and sets of small numbers as bits.

use crate::rounding::MIN_BLOCK;
use crate::units::Bytes;

/// A class of sizes. A lower class has smaller sizes. The sizes between two powers of two form a group of
/// [`SizeClass::IN_GROUP`] classes: enough that few blocks share a class, few enough that all classes stay in the
/// processor's nearest cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeClass {
    pub group: usize,
    /// The class's index within the group.
    pub class: usize,
}

impl SizeClass {
    /// How many classes a group has.
    pub const IN_GROUP: usize = 1 << CLASS_BITS;

    #[inline]
    pub const fn of(size: Bytes) -> Self {
        let units = size.0 / MIN_BLOCK;
        if units < Self::IN_GROUP as u64 {
            return Self { group: 0, class: units as usize };
        }
        let power = units.ilog2();
        let class = (units >> (power - CLASS_BITS)) as usize % Self::IN_GROUP;
        Self { group: (power - CLASS_BITS) as usize + 1, class }
    }
}

const CLASS_BITS: u32 = 4;

/// A set of small numbers, as the bits of a word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Members<W>(W);

macro_rules! members {
    ($word:ty) => {
        impl Members<$word> {
            #[inline]
            pub const fn add(&mut self, number: usize) {
                self.0 |= 1 << number;
            }

            #[inline]
            pub const fn remove(&mut self, number: usize) {
                self.0 &= !(1 << number);
            }

            /// The first member above `number`. `number` must not exceed the word's highest bit.
            #[inline]
            pub const fn first_behind(self, number: usize) -> Option<usize> {
                // In two shifts, because all bits may be shifted out.
                Self(self.0 >> number >> 1 << 1 << number).first()
            }

            #[inline]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            #[inline]
            pub const fn first(self) -> Option<usize> {
                if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
            }

            /// All members in order.
            pub fn iter(self) -> impl DoubleEndedIterator<Item = usize> {
                (0..<$word>::BITS as usize).filter(move |number| self.0 >> number & 1 == 1)
            }
        }
    };
}

members!(u16);
members!(u64);

impl Members<u16> {
    #[inline]
    pub const fn has(self, number: usize) -> bool {
        self.0 >> number & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_rise_with_sizes_up_to_all_that_there_are() {
        let exact = (0..5000).map(|units| units * MIN_BLOCK);
        let powers = (4..55).flat_map(|power| (0..128).map(move |part| (1 << (power + 9)) + ((part << power) << 2)));
        let mut sizes: Vec<u64> = exact.chain(powers).chain([u64::MAX]).collect();
        sizes.sort_unstable();
        let classes: Vec<SizeClass> = sizes.iter().map(|size| SizeClass::of(Bytes(*size))).collect();
        assert!(classes.is_sorted_by_key(|class| (class.group, class.class)));
        assert!(classes.iter().all(|class| class.group < 64 && class.class < SizeClass::IN_GROUP));
        assert_ne!(SizeClass::of(Bytes::mib(1)), SizeClass::of(Bytes(Bytes::mib(1).0 / 16 * 17)));
    }

    #[test]
    fn a_set_tells_what_comes_behind() {
        let mut set = Members::<u16>::default();
        assert!(set.is_empty() && set.first().is_none() && set.first_behind(15).is_none());
        for number in [0, 5, 15] {
            set.add(number);
        }
        assert_eq!([set.first(), set.first_behind(0), set.first_behind(5)], [Some(0), Some(5), Some(15)]);
        assert_eq!(set.first_behind(15), None);
        set.remove(5);
        assert!(set.iter().eq([0, 15]) && set.iter().rev().eq([15, 0]) && !set.has(5));
    }
}
