//! The bounds of sizes.
//!
//! They lie far above use, and so far below 2⁶⁴ that the product of a sample's size, a batch and the bytes of an
//! element can be computed. Sizes within them that don't fit into memory are refused when memory is requested.

use vramlab_user_input::Within;

/// Elements along one dimension: channels, rows, tokens of a vocabulary.
pub type Extent = Within<1, { 1 << 24 }>;
/// Elements of padding.
pub type Padding = Within<0, { 1 << 24 }>;
/// Consecutive layers: ten times as many as the deepest nets have.
pub type Repeats = Within<1, 10_000>;
/// Samples of a step, or the parts it is cut into.
pub type BatchSize = Within<1, { 1 << 22 }>;

/// The most elements that one sample may have anywhere in a model: more than any device holds.
pub(super) const MOST_OF_A_SAMPLE: usize = 1 << 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_any_batch_can_be_computed() {
        let bytes = BatchSize::MOST.get().checked_mul(MOST_OF_A_SAMPLE).and_then(|n| n.checked_mul(8));
        assert!(bytes.is_some_and(|bytes| bytes.checked_mul(2).is_some()), "of input and target");
    }
}
