//! Reductions (sums, products and others) of values that are known on all ranks.

use super::pieces::Pieces;

/// The operation of a reduction, and the type of its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arithmetic {
    /// ncclRedOp_t.
    pub operation: i32,
    /// ncclDataType_t.
    pub kind: i32,
}

/// Bytes of an element of an ncclDataType_t.
pub fn width(kind: i32) -> usize {
    match kind {
        2 | 3 | 7 => 4,
        4 | 5 | 8 => 8,
        6 | 9 => 2,
        _ => 1,
    }
}

/// Reduces one element of all ranks to one.
type Reduce = fn(&[&[u8]], i32) -> Option<Vec<u8>>;

macro_rules! integers {
    ($kind:ty) => {
        |all, operation| {
            let mut numbers = all.iter().filter_map(|bytes| Some(<$kind>::from_ne_bytes((*bytes).try_into().ok()?)));
            let count = all.len() as $kind;
            let first = numbers.next()?;
            let reduced = match operation {
                0 => numbers.fold(first, <$kind>::wrapping_add),
                1 => numbers.fold(first, <$kind>::wrapping_mul),
                2 => numbers.fold(first, Ord::max),
                3 => numbers.fold(first, Ord::min),
                4 => numbers.fold(first, <$kind>::wrapping_add).checked_div(count)?,
                _ => return None,
            };
            Some(reduced.to_ne_bytes().to_vec())
        }
    };
}

macro_rules! floats {
    ($kind:ty) => {
        |all, operation| {
            let mut numbers = all.iter().filter_map(|bytes| Some(<$kind>::from_ne_bytes((*bytes).try_into().ok()?)));
            let first = numbers.next()?;
            let reduced = match operation {
                0 => numbers.fold(first, |a, b| a + b),
                1 => numbers.fold(first, |a, b| a * b),
                2 => numbers.fold(first, <$kind>::max),
                3 => numbers.fold(first, <$kind>::min),
                4 => numbers.fold(first, |a, b| a + b) / all.len() as $kind,
                _ => return None,
            };
            Some(reduced.to_ne_bytes().to_vec())
        }
    };
}

impl Arithmetic {
    /// The known part of the result: the elements that are known on all ranks. Floating-point numbers of 16 and 8 bits
    /// stay unknown, and so do results of a program's own operations.
    pub fn of(self, all: &[Pieces]) -> Pieces {
        let reduce: Reduce = match self.kind {
            0 => integers!(i8),
            1 => integers!(u8),
            2 => integers!(i32),
            3 => integers!(u32),
            4 => integers!(i64),
            5 => integers!(u64),
            7 => floats!(f32),
            8 => floats!(f64),
            _ => return Pieces::default(),
        };
        let Some((first, _)) = all.split_first() else { return Pieces::default() };
        let reduced = first.0.iter().filter_map(|(at, bytes)| {
            let others: Option<Vec<Vec<u8>>> = all.iter().map(|pieces| pieces.whole(*at, bytes.len())).collect();
            let others = others?;
            let width = width(self.kind);
            let element = |from: usize| {
                let of_all: Option<Vec<&[u8]>> = others.iter().map(|bytes| bytes.get(from..from + width)).collect();
                reduce(&of_all?, self.operation)
            };
            let elements: Option<Vec<_>> = (0..bytes.len()).step_by(width).map(element).collect();
            Some((*at, elements?.concat()))
        });
        Pieces(reduced.collect())
    }
}
