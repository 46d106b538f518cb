//! The rotary frequencies of a model, with the blocks in which transformers computes them on the device.

use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Context, OpResult, Shape, Tensor};

use super::super::hash::write_float;
use super::sizes::DecoderSizes;

/// A block that is taken, or given back by its number.
#[derive(Clone, Copy)]
enum Step {
    /// A value for each frequency.
    Values,
    /// The same as whole numbers of 64 bits.
    Counts,
    /// Yes or no for each frequency.
    Flags,
    /// A number of 64 bits.
    Scalar,
    Drop(usize),
}

use Step::{Counts, Drop, Flags, Scalar, Values};

/// `1 / theta ** (arange(0, size, 2) / size)`.
const PLAIN: &[Step] =
    &[Values, Values, Drop(0), Values, Scalar, Drop(3), Drop(1), Values, Values, Drop(4), Drop(2), Drop(5)];

/// The same of whole numbers, then the wavelengths, the long ones divided, those between smoothed.
#[rustfmt::skip]
const LLAMA3: &[Step] = &[
    Counts, Values, Drop(0), Values, Drop(1), Values, Scalar, Drop(4), Drop(2), Values, Values, Drop(5), Drop(3),
    Values, Values, Drop(7), Flags, Values, Values, Drop(9), Drop(10),
    Values, Values, Drop(12), Values, Drop(13), Values, Drop(14), Values, Values, Drop(16), Values, Drop(17), Values, Values, Drop(18), Drop(19),
    Flags, Flags, Drop(21), Flags, Flags, Drop(23), Flags, Drop(22), Drop(24), Values,
    Drop(11), Drop(6), Drop(8), Drop(15), Drop(20), Drop(25), Drop(26),
];

/// The frequencies, and the second copy of them that transformers keeps.
pub(super) fn frequencies(cx: &mut Context, sizes: &DecoderSizes) -> OpResult<Tensor> {
    let values = sizes.frequencies();
    let shape = Shape::new(&[values.len()]);
    let steps = if sizes.scaling.is_some() { LLAMA3 } else { PLAIN };
    // What comes out is the buffer itself.
    let (last, before) = steps.split_last().map_or((None, steps), |(last, before)| (Some(last), before));
    let mut blocks = Blocks { cx, shape, taken: Vec::new() };
    let result = steps.iter().rposition(|step| !matches!(step, Drop(_))).unwrap_or(0);
    debug_assert!(matches!(last, Some(Drop(_))), "the result is given back last");
    blocks.run(&before[..result])?;
    let frequencies = blocks.cx.buffer("model.rotary_emb.inv_freq", shape, DType::F32, 0.0)?;
    blocks.taken.push(None);
    blocks.run(&before[result + 1..])?;
    drop(blocks);
    cx.buffer("model.rotary_emb.original_inv_freq", shape, DType::F32, 0.0)?;
    // Initialising the weights computes them once more.
    Blocks { cx, shape, taken: Vec::new() }.run(steps)?;
    write_float(cx, &frequencies, |i| values.get(i).copied().unwrap_or(0.0))?;
    Ok(frequencies)
}

/// The same two in a model that was made on the meta device: they come from the host.
pub(super) fn loaded(cx: &mut Context, sizes: &DecoderSizes) -> OpResult<Tensor> {
    let values = sizes.frequencies();
    let shape = Shape::new(&[values.len()]);
    let frequencies = cx.buffer("model.rotary_emb.inv_freq", shape, DType::F32, 0.0)?;
    cx.buffer("model.rotary_emb.original_inv_freq", shape, DType::F32, 0.0)?;
    write_float(cx, &frequencies, |i| values.get(i).copied().unwrap_or(0.0))?;
    Ok(frequencies)
}

/// Blocks by their numbers.
struct Blocks<'a> {
    cx: &'a mut Context,
    shape: Shape,
    taken: Vec<Option<Tensor>>,
}

impl Blocks<'_> {
    fn run(&mut self, steps: &[Step]) -> OpResult<()> {
        for step in steps {
            let (shape, dtype) = match *step {
                Values => (self.shape, DType::F32),
                Counts => (self.shape, DType::I64),
                Flags => (self.shape, DType::U8),
                Scalar => (Shape::new(&[]), DType::F64),
                Drop(number) => {
                    if let Some(block) = self.taken.get_mut(number) {
                        *block = None;
                    }
                    continue;
                }
            };
            let block = self.cx.memory().tensor(shape, dtype, Category::Temporary, "rotary frequencies")?;
            self.taken.push(Some(block));
        }
        Ok(())
    }
}
