//! Attention masks, op by op as transformers makes them (`masking_utils.py`).
//!
//! Padding comes after a sample's tokens, so no token sees it, with any mask. What padding itself sees does not matter: its
//! labels don't count, so its gradients are zero. A mask of padding is therefore only blocks and time here, and the values are
//! those of a causal mask.

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_device::{DType, Earlier};

use super::embedding::{SCAN_TILE, scan_storage};
use super::reduce::{Scratch, sum_scratch};

/// Which positions see which others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskShape {
    /// Sequences.
    pub batch: usize,
    /// Positions of each.
    pub rows: usize,
    /// Which positions before it a position sees.
    pub earlier: Earlier,
    /// Each sequence has its own mask, because the program marks padding.
    pub padding: bool,
}

impl MaskShape {
    const fn sees(self, row: usize, column: usize) -> bool {
        column <= row && column >= self.earlier.first_seen(row)
    }
}

/// A boolean mask for `scaled_dot_product_attention`, which a forward pass makes once: `sdpa_mask`.
#[derive(Clone)]
pub struct SdpaMask {
    shape: MaskShape,
    /// The mask is never read.
    _seen: Tensor,
}

impl SdpaMask {
    /// Which positions before it a position sees.
    #[must_use]
    pub const fn earlier(&self) -> Earlier {
        self.shape.earlier
    }
}

impl Context {
    /// The mask that SDPA gets.
    ///
    /// # Errors
    /// Out of memory.
    pub fn sdpa_mask(&mut self, shape: MaskShape) -> OpResult<SdpaMask> {
        self.op("mask", |cx| Ok(SdpaMask { shape, _seen: cx.seen(shape)? }))
    }

    /// The values that SDPA adds to scores in `dtype`, (batch, rows, rows): 0 where a position sees another, else
    /// minus infinity (`convert_boolean_attn_mask`). The values are only written if a kernel reads them: fused
    /// kernels know the window.
    pub(super) fn added_mask(&self, mask: &SdpaMask, dtype: DType, read: bool) -> OpResult<Tensor> {
        let MaskShape { batch, rows, .. } = mask.shape;
        let scalar = |what| self.temporary(Shape::new(&[]), dtype, what);
        let scalars = (scalar("zero")?, scalar("minus infinity")?);
        let added = self.activation(Shape::new(&[batch, rows, rows]), dtype, "attention mask")?;
        drop(scalars);
        if read {
            self.write_mask(&added, mask.shape, &minus_infinity(dtype))?;
        }
        Ok(added)
    }

    /// Writes `hidden` where a position does not see another, and zeros elsewhere.
    fn write_mask(&self, mask: &Tensor, shape: MaskShape, hidden: &[u8]) -> OpResult<()> {
        let rows = shape.rows;
        self.memory().fill(mask, |first, bytes| {
            for (i, element) in bytes.chunks_exact_mut(hidden.len()).enumerate() {
                let at = (first + i) % (rows * rows);
                if shape.sees(at / rows, at % rows) {
                    element.fill(0);
                } else {
                    element.copy_from_slice(hidden);
                }
            }
        })
    }

    /// The values added to scores: 0 where a position sees another, else the lowest number of `dtype`. The mask is (batch, rows, rows).
    ///
    /// # Errors
    /// Out of memory, a failed copy.
    pub fn attention_mask(&mut self, shape: MaskShape, dtype: DType) -> OpResult<Tensor> {
        self.op("mask", |cx| {
            let seen = cx.seen(shape)?;
            let scalar = |what| cx.temporary(Shape::new(&[]), dtype, what);
            let scalars = (scalar("zero")?, scalar("least number")?);
            let MaskShape { batch, rows, .. } = shape;
            let mask = cx.activation(Shape::new(&[batch, rows, rows]), dtype, "attention mask")?;
            drop((scalars, seen));
            cx.write_mask(&mask, shape, &least(dtype))?;
            Ok(mask)
        })
    }

    /// `mask.to(torch.bool)`: the program's mask of padding in the form that a forward pass uses.
    ///
    /// # Errors
    /// Out of memory.
    pub fn boolean_mask(&mut self, mask: &Tensor) -> OpResult<Tensor> {
        self.op("mask", |cx| cx.temporary(mask.shape(), DType::U8, "positions with a token"))
    }

    /// Asks on the device, for the host, whether all positions of a mask have a token, by counting them. If not, it asks again
    /// for those before the end of the rows.
    ///
    /// # Errors
    /// Out of memory.
    pub fn find_padding(&mut self, mask: &Tensor, pads: bool) -> OpResult<()> {
        self.op("find padding", |cx| {
            for _ in 0..=usize::from(pads) {
                let number = cx.temporary(Shape::new(&[]), DType::I64, "number of tokens")?;
                let counted = cx.temporary(mask.shape(), DType::I64, "tokens as numbers")?;
                let scratch = sum_scratch(mask.numel(), 8, cx.workspaces.policy);
                let scratch = scratch.map(|Scratch { partials, semaphores }| {
                    OpResult::Ok((cx.scratch(partials, "sum partials")?, cx.scratch(semaphores, "sum semaphores")?))
                });
                drop(scratch.transpose()?);
                drop(counted);
                drop(cx.temporary(Shape::new(&[]), DType::U8, "all have a token")?);
                drop(number);
            }
            Ok(())
        })
    }

    /// Looks for where the tokens of each sample begin, for masks of chunks: behind the positions before which a boolean `mask`
    /// (samples, rows) counts no token, or at the first position without one.
    ///
    /// # Errors
    /// Out of memory.
    pub fn begins_of_tokens(&mut self, samples: usize, mask: Option<&Tensor>) -> OpResult<Tensor> {
        self.op("mask", |cx| {
            let begins = |cx: &Self| cx.temporary(Shape::new(&[samples]), DType::I64, "where tokens begin");
            let Some(mask) = mask else { return begins(cx) };
            let counted = cx.temporary(mask.shape(), DType::I64, "tokens so far")?;
            drop(cx.temporary(mask.shape(), DType::I64, "tokens as numbers")?);
            // CUB sums one row, a kernel of PyTorch's several.
            if samples == 1 {
                drop(cx.scratch(scan_storage(mask.numel().div_ceil(SCAN_TILE)), "scan storage")?);
            }
            let none = cx.temporary(mask.shape(), DType::U8, "no tokens")?;
            let before = cx.temporary(mask.shape(), DType::U8, "positions before tokens")?;
            drop((counted, none));
            let begins = begins(cx)?;
            drop(cx.temporary(mask.shape(), DType::I64, "those as numbers")?);
            drop(before);
            Ok(begins)
        })
    }

    /// The blocks of a boolean mask, (rows, rows), or (batch, rows, rows) with padding. It is never read.
    fn seen(&self, MaskShape { batch, rows, earlier, padding }: MaskShape) -> OpResult<Tensor> {
        let list = |len, what| self.temporary(Shape::new(&[len]), DType::I64, what);
        let square = |what| self.temporary(Shape::new(&[rows, rows]), DType::U8, what);
        let all = |what| self.temporary(Shape::new(&[]), DType::U8, what);
        let counted = |what| {
            let counted = list(rows, what)?;
            let shifted = list(rows, what);
            drop(counted);
            shifted
        };
        let indices = (list(batch, "sequences")?, list(1, "heads")?, counted("rows")?, counted("columns")?);
        let outer = if padding { Some(all("all positions")?) } else { None };
        let mut seen = match earlier {
            Earlier::All => square("positions before")?,
            Earlier::Chunk(_) => {
                // Chunks begin where the tokens of each sample do, so that each has a mask of its own.
                let each = |what| self.temporary(Shape::new(&[batch, rows, rows]), DType::U8, what);
                let all = all("all positions")?;
                let chunks = |what| {
                    let begins = list(batch, "where tokens begin")?;
                    let behind = list(batch * rows, "positions of tokens")?;
                    drop(begins);
                    let chunks = list(batch * rows, what);
                    drop(behind);
                    chunks
                };
                let (of_keys, of_rows) = (chunks("chunks of keys")?, chunks("chunks of rows")?);
                let same = each("positions of the same chunk")?;
                drop((of_keys, of_rows));
                let both = each("all of them")?;
                drop((same, all));
                let before = square("positions before")?;
                let seen = each("positions seen")?;
                drop((before, both));
                seen
            }
            Earlier::Window(_) => {
                let all = all("all positions")?;
                let first = list(rows, "first of each window")?;
                let near = square("positions within the window")?;
                drop(first);
                let both = square("all of them")?;
                drop((near, all));
                let before = square("positions before")?;
                let seen = square("positions seen")?;
                drop((before, both));
                seen
            }
        };
        if let Some(outer) = outer {
            let both = match earlier {
                Earlier::Chunk(_) => self.temporary(Shape::new(&[batch, rows, rows]), DType::U8, "all of them")?,
                Earlier::All | Earlier::Window(_) => square("all of them")?,
            };
            drop((seen, outer));
            let padded = {
                let each = |what| list(batch * rows, what);
                // For one sequence the positions already are a list.
                let positions = (batch > 1).then(|| each("positions of tokens"));
                let _indices = (each("sequences of tokens")?, positions.transpose()?);
                self.temporary(Shape::new(&[batch, rows]), DType::U8, "positions with a token")?
            };
            seen = self.temporary(Shape::new(&[batch, rows, rows]), DType::U8, "positions seen")?;
            drop((both, padded));
        }
        drop(indices);
        Ok(seen)
    }
}

/// The bytes of minus infinity, the value of a hidden position.
pub(super) fn minus_infinity(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F64 => f64::NEG_INFINITY.to_le_bytes().to_vec(),
        DType::F16 => half::f16::NEG_INFINITY.to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::NEG_INFINITY.to_le_bytes().to_vec(),
        _ => f32::NEG_INFINITY.to_le_bytes().to_vec(),
    }
}

/// The bytes of the lowest finite number of a type.
fn least(dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F64 => f64::MIN.to_le_bytes().to_vec(),
        DType::F16 => half::f16::MIN.to_le_bytes().to_vec(),
        DType::Bf16 => half::bf16::MIN.to_le_bytes().to_vec(),
        _ => f32::MIN.to_le_bytes().to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_ends_before_what_lies_further_back() {
        let seen = |earlier| {
            let shape = MaskShape { batch: 1, rows: 4, earlier, padding: false };
            (0..4).map(|column| shape.sees(3, column)).collect::<Vec<_>>()
        };
        assert_eq!(seen(Earlier::All), [true; 4]);
        assert_eq!(seen(Earlier::Window(2)), [false, false, true, true]);
        assert_eq!(seen(Earlier::Chunk(3)), [false, false, false, true]);
        assert_eq!(seen(Earlier::Chunk(2)), [false, false, true, true]);
        assert!(!MaskShape { batch: 1, rows: 4, earlier: Earlier::Window(9), padding: true }.sees(1, 2));
    }
}
