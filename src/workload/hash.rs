//! Weights and data from an integer hash, so that any program can rebuild them bit for bit.
//!
//! The numbers are computed on the host. The device gets the requests of the reference, which computes them there, in the same
//! order, so that the allocator has cached the same before the first step. If these blocks do not fit, the values come from the
//! host, as for a model that is made there and moved: this hash does not decide whether a model fits.

use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{DType, ProgramStart};
use vramlab_model::{Category, NameId};
use vramlab_train::{Batch, BatchLayout, BatchSource, Context, OpResult, Shape, Tensor};

/// A hash of 32 bits with low bias.
#[must_use]
pub const fn lowbias32(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Element `index` of the sequence `seed`, in [0, 1).
#[must_use]
pub fn unit(seed: u32, index: u32) -> f64 {
    f64::from(lowbias32(index.wrapping_add(seed.wrapping_mul(0x9E37_79B9)))) / 4_294_967_296.0
}

/// Element `index` of the sequence `seed`: a sequence repeats after 2³² elements.
#[expect(clippy::cast_possible_truncation, reason = "the hash counts in 32 bits")]
pub(super) fn unit_at(seed: u32, index: usize) -> f64 {
    unit(seed, index as u32)
}

/// The same in (−1, 1).
#[expect(clippy::cast_possible_truncation, reason = "samples are f32")]
fn signed_at(seed: u32, index: usize) -> f32 {
    (2.0 * unit_at(seed, index) - 1.0) as f32
}

/// The same as an integer below `bound`.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "classes and tokens are small")]
fn below_at(seed: u32, index: usize, bound: usize) -> i64 {
    (unit_at(seed, index) * bound as f64).floor() as i64
}

/// For samples of `rows + 1` tokens each: element `index` of all but the last token of a sample, or of all but the first.
fn token_at(batch: u32, index: usize, [rows, vocabulary]: [usize; 2], by: usize) -> i64 {
    below_at(4000 + batch, index / rows * (rows + 1) + index % rows + by, vocabulary)
}

/// Writes `value(first)`, `value(first + 1)` and so on, as many as there is room for.
fn put_f32(first: usize, bytes: &mut [u8], value: impl Fn(usize) -> f32) {
    for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
        *bytes = value(first + i).to_le_bytes();
    }
}

/// The same for integers.
fn put_i64(first: usize, bytes: &mut [u8], value: impl Fn(usize) -> i64) {
    for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
        *bytes = value(first + i).to_le_bytes();
    }
}

/// Requests the blocks of the reference computation, with one or three alive at a time.
pub(super) struct Chain<'a> {
    cx: &'a Context,
    n: usize,
    last: Option<Tensor>,
    /// The blocks fit.
    on_device: bool,
}

/// Chains up to this many elements always request their blocks: together they take a segment or two.
const SMALL: usize = 1 << 16;
/// Bytes per element that a chain has alive at most, with a margin for what segments waste.
const CHAIN: u64 = 24;
const LOST: Bytes = Bytes::mib(32);

impl<'a> Chain<'a> {
    pub fn new(cx: &'a Context, n: usize) -> Self {
        let needed = Bytes(CHAIN.saturating_mul(n as u64)) + LOST;
        Self { cx, n, last: None, on_device: n < SMALL || needed <= cx.memory().headroom() }
    }

    fn block(&self, dtype: DType) -> OpResult<Option<Tensor>> {
        let block = || self.cx.memory().tensor(Shape::new(&[self.n]), dtype, Category::Temporary, "hash");
        self.on_device.then(block).transpose()
    }

    /// The next intermediate result replaces the last one.
    pub fn then(mut self, dtype: DType) -> OpResult<Self> {
        self.last = self.block(dtype)?;
        Ok(self)
    }

    /// `x ^ (x >> n)`: two blocks, then the old `x` is freed.
    fn shift_and_mix(mut self) -> OpResult<Self> {
        let shifted = self.block(DType::I64)?;
        let mixed = self.block(DType::I64)?;
        drop(shifted);
        self.last = mixed;
        Ok(self)
    }

    /// `(x · c) & mask`: two blocks, then the old `x` is freed.
    fn multiply_and_mask(self) -> OpResult<Self> {
        self.shift_and_mix()
    }

    /// The whole hash of `n` elements, divided into [0, 1).
    pub fn unit(self) -> OpResult<Self> {
        let begun = self.then(DType::I64)?.then(DType::I64)?;
        begun.cx.memory().with_device(|device| device.follow_start(ProgramStart::FirstKernels));
        let hashed = begun
            .then(DType::I64)?
            .shift_and_mix()?
            .multiply_and_mask()?
            .shift_and_mix()?
            .multiply_and_mask()?
            .shift_and_mix()?;
        let integers = hashed.last.clone();
        let quotient = hashed.then(DType::F64)?.then(DType::F64)?;
        drop(integers);
        Ok(quotient)
    }
}

/// Writes a value for each element, by its number; a simulated device skips it.
fn write_f32(cx: &Context, tensor: &Tensor, value: impl Fn(usize) -> f32 + Sync) -> OpResult<()> {
    if !cx.memory().holds_bytes() {
        return Ok(());
    }
    cx.memory().fill_by_cores(tensor, |first, bytes| put_f32(first, bytes, &value))
}

/// The same, rounded to the tensor's type where that has 16 bits.
pub(super) fn write_float(cx: &Context, tensor: &Tensor, value: impl Fn(usize) -> f32 + Sync) -> OpResult<()> {
    let rounded: fn(f32) -> [u8; 2] = match tensor.dtype() {
        DType::Bf16 => |value| half::bf16::from_f32(value).to_le_bytes(),
        DType::F16 => |value| half::f16::from_f32(value).to_le_bytes(),
        _ => return write_f32(cx, tensor, value),
    };
    if !cx.memory().holds_bytes() {
        return Ok(());
    }
    cx.memory().fill_by_cores(tensor, |first, bytes| {
        for (i, bytes) in bytes.as_chunks_mut().0.iter_mut().enumerate() {
            *bytes = rounded(value(first + i));
        }
    })
}

/// The same for integers.
fn write_i64(cx: &Context, tensor: &Tensor, value: impl Fn(usize) -> i64) -> OpResult<()> {
    if !cx.memory().holds_bytes() {
        return Ok(());
    }
    cx.memory().fill(tensor, |first, bytes| put_i64(first, bytes, &value))
}

fn input(cx: &Context, shape: Shape, dtype: DType, name: &str) -> OpResult<Tensor> {
    let name: NameId = cx.memory().name(name);
    cx.memory().named_tensor(shape, dtype, Category::Input, name, StreamId::DEFAULT)
}

/// Values of the sequence `seed` in (−1, 1), made on the device.
fn signed(cx: &Context, seed: u32, shape: Shape, name: &str) -> OpResult<Tensor> {
    let n = shape.numel();
    let chain = Chain::new(cx, n).unit()?.then(DType::F64)?.then(DType::F64)?;
    let values = input(cx, shape, DType::F32, name)?;
    drop(chain);
    write_f32(cx, &values, |i| signed_at(seed, i))?;
    Ok(values)
}

/// Images of `shape` in (−1, 1), and noise of `noise` to make others from, made on the device as batch `b`.
pub(super) fn adversarial(cx: &Context, b: u32, shape: Shape, noise: Shape) -> OpResult<Batch> {
    let images = signed(cx, 2000 + b, shape, "batch input")?;
    let noise = signed(cx, 5000 + b, noise, "batch noise")?;
    Ok(Batch::new(images, noise))
}

/// Inputs of `shape` in (−1, 1) and a class for each sample, made on the device as batch `b`.
pub(super) fn labelled(cx: &Context, b: u32, shape: Shape, classes: usize) -> OpResult<Batch> {
    let samples = shape.dims().first().copied().unwrap_or(1);
    let images = signed(cx, 2000 + b, shape, "batch input")?;
    let chain = Chain::new(cx, samples).unit()?.then(DType::F64)?.then(DType::F64)?;
    let targets = input(cx, Shape::new(&[samples]), DType::I64, "batch target")?;
    drop(chain);
    write_i64(cx, &targets, |i| below_at(3000 + b, i, classes))?;
    Ok(Batch::new(images, targets))
}

/// Token batch `b`, made on the device.
pub(super) fn tokens(cx: &Context, b: u32, samples: usize, rows: usize, vocabulary: usize) -> OpResult<Batch> {
    let chain = Chain::new(cx, samples * (rows + 1)).unit()?.then(DType::F64)?.then(DType::F64)?.then(DType::I64)?;
    if samples == 1 {
        // With a single row both halves are already contiguous: two views, no copies.
        let row = match chain.last.clone() {
            Some(row) => row,
            None => input(cx, Shape::new(&[rows + 1]), DType::I64, "batch")?,
        };
        drop(chain);
        write_i64(cx, &row, |i| below_at(4000 + b, i, vocabulary))?;
        let shape = Shape::new(&[1, rows]);
        cx.memory().relabel(&row, Category::Input, cx.memory().name("batch"));
        return Ok(Batch::new(row.window(shape, 0), row.window(shape, 1)));
    }
    let shape = Shape::new(&[samples, rows]);
    let inputs = input(cx, shape, DType::I64, "batch input")?;
    let targets = input(cx, shape, DType::I64, "batch target")?;
    drop(chain);
    write_i64(cx, &inputs, |i| token_at(b, i, [rows, vocabulary], 0))?;
    write_i64(cx, &targets, |i| token_at(b, i, [rows, vocabulary], 1))?;
    Ok(Batch::new(inputs, targets))
}

/// Token batch `b`, moved from the host.
pub(super) fn moved_tokens(cx: &Context, b: u32, samples: usize, rows: usize, vocabulary: usize) -> OpResult<Batch> {
    let shape = Shape::new(&[samples, rows]);
    let tokens = |name, by| {
        let tokens = input(cx, shape, DType::I64, name)?;
        write_i64(cx, &tokens, |i| token_at(b, i, [rows, vocabulary], by))?;
        OpResult::Ok(tokens)
    };
    Ok(Batch::new(tokens("batch input", 0)?, tokens("batch target", 1)?))
}

/// Token batch `b` with its own tokens as labels, copied from the host. Its mask of padding marks none.
pub(super) fn own_tokens(cx: &Context, b: u32, samples: usize, rows: usize, vocabulary: usize) -> OpResult<Batch> {
    let shape = Shape::new(&[samples, rows]);
    let tokens = |name| {
        let tokens = input(cx, shape, DType::I64, name)?;
        write_i64(cx, &tokens, |i| token_at(b, i, [rows, vocabulary], 0))?;
        OpResult::Ok(tokens)
    };
    let of_input = tokens("batch input")?;
    let mask = cx.passes_attention_mask().then(|| {
        let tensor = input(cx, shape, DType::I64, "batch mask")?;
        write_i64(cx, &tensor, |_| 1)?;
        OpResult::Ok(tensor)
    });
    let mask = mask.transpose()?;
    Ok(Batch { mask, ..Batch::new(of_input, tokens("batch labels")?) })
}

/// Four batches of a kind, made by `make` from their numbers.
pub(super) fn four(mut make: impl FnMut(u32) -> OpResult<Batch>) -> OpResult<Vec<Batch>> {
    (0..4).map(&mut make).collect()
}

/// Makes reference batch `b` where it is wanted: input and target.
type MakeBatch = Box<dyn Fn(u32, &BatchLayout, &mut [u8], &mut [u8]) + Send>;

/// The four reference batches repeated, for the loader thread. None is kept: the loader has the memory for batches.
pub(super) struct Cycle {
    make: MakeBatch,
    next: u32,
}

impl Cycle {
    /// Token batches.
    pub fn tokens(vocabulary: usize) -> Self {
        Self::new(move |b, layout, input, target| {
            let rows = layout.input.0.last();
            put_i64(0, input, |i| token_at(b, i, [rows, vocabulary], 0));
            put_i64(0, target, |i| token_at(b, i, [rows, vocabulary], 1));
        })
    }

    /// Samples of values in (−1, 1), and a class for each.
    pub fn labelled(classes: usize) -> Self {
        Self::new(move |b, _, input, target| {
            put_f32(0, input, |i| signed_at(2000 + b, i));
            put_i64(0, target, |i| below_at(3000 + b, i, classes));
        })
    }

    /// Images, and noise, of values in (−1, 1).
    pub fn adversarial() -> Self {
        Self::new(|b, _, images, noise| {
            put_f32(0, images, |i| signed_at(2000 + b, i));
            put_f32(0, noise, |i| signed_at(5000 + b, i));
        })
    }

    fn new(make: impl Fn(u32, &BatchLayout, &mut [u8], &mut [u8]) + Send + 'static) -> Self {
        Self { make: Box::new(make), next: 0 }
    }
}

impl BatchSource for Cycle {
    fn fill(&mut self, layout: &BatchLayout, input: &mut [u8], target: &mut [u8]) -> Result<(), String> {
        (self.make)(self.next % 4, layout, input, target);
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    fn skip(&mut self, batches: u64, _: &BatchLayout) {
        // The four batches repeat.
        self.next = self.next.wrapping_add((batches % 4) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_reference_hash() {
        assert_eq!(lowbias32(0), 0);
        assert_eq!(lowbias32(1), 0x688990c0);
        assert_eq!(unit(1000, 7), 0.6587341038975865);
    }
}
