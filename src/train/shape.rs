//! The dimensions of a tensor.

use std::ops::Range;

/// Up to four dimensions.
///
/// Their product may exceed 64 bits: then [`Shape::numel`] returns the largest number there is. No allocator gives
/// that much, so the size of every tensor that exists is safe to compute with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    dims: [usize; 4],
    rank: u8,
}

impl Shape {
    /// A shape of these dimensions; five do not compile.
    #[must_use]
    pub const fn new<const RANK: usize>(dims: &[usize; RANK]) -> Self {
        const { assert!(RANK <= 4, "a shape has at most four dimensions") };
        let mut all = [1; 4];
        let mut dim = 0;
        while dim < RANK {
            all[dim] = dims[dim];
            dim += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 4")]
        Self { dims: all, rank: RANK as u8 }
    }

    /// The dimensions.
    #[must_use]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..usize::from(self.rank)]
    }

    /// Number of elements.
    #[must_use]
    pub fn numel(&self) -> usize {
        product(self.dims())
    }

    /// Size of the last dimension; 1 for a scalar.
    #[must_use]
    pub fn last(&self) -> usize {
        self.dims().last().copied().unwrap_or(1)
    }

    /// Product of all dimensions but the last.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.dims().split_last().map_or(1, |(_, front)| product(front))
    }

    /// This shape with another last dimension.
    #[must_use]
    pub fn with_last(mut self, last: usize) -> Self {
        if self.rank > 0 {
            self.dims[usize::from(self.rank) - 1] = last;
        }
        self
    }

    /// This shape with another first dimension, if it has any.
    #[must_use]
    pub const fn with_first(mut self, first: usize) -> Self {
        if self.rank > 0 {
            self.dims[0] = first;
        }
        self
    }

    /// This shape with one more dimension at the end; `None` if it has four.
    #[must_use]
    pub fn with_appended(mut self, last: usize) -> Option<Self> {
        *self.dims.get_mut(usize::from(self.rank))? = last;
        self.rank += 1;
        Some(self)
    }

    /// This shape without the dimensions `gone`.
    #[must_use]
    pub fn without(&self, gone: Range<usize>) -> Self {
        let mut left = Self::new(&[]);
        for (_, &size) in self.dims().iter().enumerate().filter(|(dim, _)| !gone.contains(dim)) {
            left.dims[usize::from(left.rank)] = size;
            left.rank += 1;
        }
        left
    }

    /// Strides of images (batch, channels, height, width) whose channels lie next to each other.
    #[must_use]
    pub fn channels_last_strides(&self) -> Option<[usize; 4]> {
        let &[_, channels, height, width] = self.dims() else { return None };
        Some([channels * height * width, 1, width * channels, channels])
    }

    /// Strides of a contiguous array of this shape.
    #[must_use]
    pub fn contiguous_strides(&self) -> [usize; 4] {
        let mut strides = [0; 4];
        let mut step = 1;
        for i in (0..usize::from(self.rank)).rev() {
            strides[i] = step;
            step *= self.dims[i];
        }
        strides
    }
}

/// The product of `dims`, or the largest number there is.
fn product(dims: &[usize]) -> usize {
    dims.iter().fold(1, |product: usize, &dim| product.saturating_mul(dim))
}

impl std::fmt::Debug for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.dims()).finish()
    }
}
