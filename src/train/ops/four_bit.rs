//! Linear layers with a 4-bit weight, as bitsandbytes' `Linear4bit` keeps and multiplies it.

use std::rc::Rc;

use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tape::Gradients;
use crate::tensor::Tensor;
use vramlab_allocator::units::StreamId;
use vramlab_device::{BYTES_RUN, DType, Magnitudes, NF4, NF4_RUN, dynamic_map, kernels};
use vramlab_model::Category;

/// A matrix in NF4: two elements per byte, and the largest magnitude of each run of 64.
#[derive(Clone)]
pub struct FourBitWeight {
    shape: Shape,
    /// The type of the original, and of the matrix when backward unpacks it.
    dtype: DType,
    packed: Tensor,
    /// The element type that the bytes are stored as (`bnb_4bit_quant_storage`).
    storage: DType,
    magnitudes: Runs,
    /// The table of values: bitsandbytes keeps one with every matrix.
    codes: Tensor,
}

/// The largest magnitudes of the matrix's runs.
#[derive(Clone)]
enum Runs {
    Plain(Tensor),
    Nested(Rc<NestedQuantization>),
}

/// The magnitudes in 8 bits (double quantisation).
struct NestedQuantization {
    bytes: Tensor,
    codes: Tensor,
    absmax: Tensor,
    offset: Tensor,
}

impl FourBitWeight {
    /// A matrix of `shape` on the meta device, which [`Context::quantize`] fills from a matrix of type `dtype`. Its bytes are
    /// stored as elements of type `storage`.
    #[must_use]
    pub fn meta(cx: &Context, shape: Shape, [dtype, storage]: [DType; 2], nested: bool) -> Self {
        let meta = |len: usize, dtype| cx.memory().meta(Shape::new(&[len]), dtype);
        let runs = shape.numel().div_ceil(NF4_RUN);
        let magnitudes = if nested {
            Runs::Nested(Rc::new(NestedQuantization {
                bytes: meta(runs, DType::U8),
                codes: meta(256, DType::F32),
                absmax: meta(runs.div_ceil(BYTES_RUN), DType::F32),
                offset: meta(1, DType::F32),
            }))
        } else {
            Runs::Plain(meta(runs, DType::F32))
        };
        let packed = cx.memory().meta(Shape::new(&[shape.numel().div_ceil(2), 1]), DType::U8);
        Self { shape, dtype, packed, storage, magnitudes, codes: meta(NF4.len(), DType::F32) }
    }

    /// The shape (out, in).
    #[must_use]
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// The tensor of its parameter.
    #[must_use]
    pub const fn packed(&self) -> &Tensor {
        &self.packed
    }

    /// The same matrix with the parameter `packed`, a handle to the same bytes.
    #[must_use]
    pub fn of_parameter(self, packed: Tensor) -> Self {
        Self { packed, ..self }
    }

    /// The tensors of the quantisation, in the order in which they are copied.
    fn state(&self) -> Vec<&Tensor> {
        match &self.magnitudes {
            Runs::Plain(absmax) => vec![absmax, &self.codes],
            Runs::Nested(nested) => vec![&nested.bytes, &self.codes, &nested.offset, &nested.absmax, &nested.codes],
        }
    }

    fn magnitudes(&self) -> Magnitudes {
        match &self.magnitudes {
            Runs::Plain(absmax) => Magnitudes::Plain(absmax.operand()),
            Runs::Nested(nested) => Magnitudes::Nested {
                bytes: nested.bytes.operand(),
                codes: nested.codes.operand(),
                absmax: nested.absmax.operand(),
                offset: nested.offset.operand(),
            },
        }
    }
}

impl Context {
    /// Quantises `weight`, a matrix on the device, into `into` and frees it, with the blocks of `quantize_4bit`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn quantize(&mut self, weight: Tensor, into: &FourBitWeight, name: &str) -> OpResult<()> {
        let runs = weight.numel().div_ceil(NF4_RUN);
        let absmax = self.constant(runs, DType::F32, &format!("{name}.absmax"))?;
        self.memory().materialise(&into.packed, name)?;
        self.launch(kernels::Blockwise::QuantizeNf4 {
            src: weight.operand(),
            dst: into.packed.operand(),
            absmax: absmax.operand(),
        })?;
        let codes = self.constant(NF4.len(), DType::F32, &format!("{name}.quant_map"))?;
        self.write_values(&codes, &NF4)?;
        // The table is divided by its largest magnitude, which is 1.
        let magnitudes = self.temporary(codes.shape(), DType::F32, "magnitudes of codes")?;
        let most = self.temporary(Shape::new(&[]), DType::F32, "largest code")?;
        drop((magnitudes, most));
        into.codes.replace(&codes);
        match &into.magnitudes {
            Runs::Plain(runs) => runs.replace(&absmax),
            Runs::Nested(nested) => self.quantize_magnitudes(absmax, nested, name)?,
        }
        drop(weight);
        Ok(())
    }

    /// Quantises the largest magnitudes `absmax` to 8 bits, around their mean.
    fn quantize_magnitudes(&mut self, absmax: Tensor, into: &NestedQuantization, name: &str) -> OpResult<()> {
        let len = absmax.numel();
        let mean = self.constant(1, DType::F32, &format!("{name}.nested_offset"))?;
        self.launch(kernels::Sums::Mean {
            src: absmax.operand(),
            dst: mean.operand(),
            outer: 1,
            middle: len,
            inner: 1,
        })?;
        let difference = self.temporary(absmax.shape(), DType::F32, "magnitudes around their mean")?;
        // `absmax - mean`, computed as `-(-absmax + mean)`: there is a kernel for sums only.
        let (src, dst) = (absmax.operand(), difference.operand());
        self.launch(kernels::Elementwise::Scale { src, dst, factor: -1.0 })?;
        self.launch(kernels::Elementwise::Add { a: dst, b: mean.operand(), dst })?;
        self.launch(kernels::Elementwise::Scale { src: dst, dst, factor: -1.0 })?;
        into.offset.replace(&mean);
        let table = match self.byte_codes.clone() {
            Some(table) => table,
            None => {
                let table = self.constant(256, DType::F32, "bitsandbytes.functional.name2qmap")?;
                self.write_values(&table, &dynamic_map(true))?;
                self.byte_codes = Some(table.clone());
                table
            }
        };
        let most = self.constant(len.div_ceil(BYTES_RUN), DType::F32, &format!("{name}.nested_absmax"))?;
        let coded = self.constant(len, DType::U8, &format!("{name}.absmax"))?;
        self.launch(kernels::Blockwise::QuantizeBytes {
            src: difference.operand(),
            codes: table.operand(),
            dst: coded.operand(),
            absmax: most.operand(),
        })?;
        let own = self.constant(256, DType::F32, &format!("{name}.nested_quant_map"))?;
        self.launch(kernels::Elementwise::Cast { src: table.operand(), dst: own.operand() })?;
        for (place, made) in [(&into.absmax, most), (&into.bytes, coded), (&into.codes, own)] {
            place.replace(&made);
        }
        drop(difference);
        Ok(())
    }

    /// A tensor that a quantised parameter keeps besides its bytes.
    fn constant(&self, len: usize, dtype: DType, name: &str) -> OpResult<Tensor> {
        let name = self.memory().name(name);
        self.memory().named_tensor(Shape::new(&[len]), dtype, Category::Parameter, name, StreamId::DEFAULT)
    }

    pub(crate) fn write_values(&self, tensor: &Tensor, values: &[f32]) -> OpResult<()> {
        if !self.memory().holds_bytes() {
            return Ok(());
        }
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.memory().write(tensor, &bytes)
    }

    /// `input` (…, in) times a packed `weight` (out, in) transposed, plus `bias` (out), in the type of the input. The weight gets
    /// no gradient; the input is not saved.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn linear_4bit(&mut self, input: &Tensor, weight: &FourBitWeight, bias: Option<&Tensor>) -> OpResult<Tensor> {
        let sizes = [input.shape().rows(), weight.shape.rows(), input.shape().last()];
        self.op("linear_4bit", |cx| {
            let output = if cx.workspaces.policy.multiplies_packed(input.dtype(), sizes) {
                cx.packed_product(input, weight, bias, sizes)?
            } else {
                let (magnitudes, bytes) = cx.magnitudes(weight, false)?;
                let whole = cx.unpacked(weight, &magnitudes, input.dtype())?;
                let output = cx.product(input, &whole, bias)?;
                drop(magnitudes);
                drop(bytes);
                output
            };
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let (weight, shape) = (weight.clone(), input.shape());
            let source = cx.record("linear_4bitBackward", [Some(input), None, None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let whole = {
                    let whole = {
                        let (magnitudes, _) = cx.magnitudes(&weight, true)?;
                        cx.unpacked(&weight, &magnitudes, weight.dtype)?
                    };
                    cx.cast_gradient(&whole, grad.dtype())?
                };
                let to_input = cx.input_gradient(&grad, &whole.transpose(), shape)?;
                drop(whole);
                Ok([Some(to_input), None, None])
            });
            Ok(output.with_source(source))
        })
    }

    /// Runs one kernel that unpacks as it multiplies.
    fn packed_product(
        &self,
        input: &Tensor,
        weight: &FourBitWeight,
        bias: Option<&Tensor>,
        [m, n, k]: [usize; 3],
    ) -> OpResult<Tensor> {
        let output = self.activation(input.shape().with_last(n), input.dtype(), "output")?;
        self.launch(kernels::Blockwise::GemmNf4 {
            m,
            n,
            k,
            a: input.operand(),
            w: weight.packed.operand(),
            magnitudes: weight.magnitudes(),
            bias: bias.map(Tensor::operand),
            dst: output.operand(),
        })?;
        Ok(output)
    }

    /// The magnitudes of the runs in f32, and the tensor they were computed from, if it lives on: whether the mean is added `in_place`.
    fn magnitudes(&self, weight: &FourBitWeight, in_place: bool) -> OpResult<(Tensor, Option<Tensor>)> {
        let NestedQuantization { bytes, codes, absmax, offset } = match &weight.magnitudes {
            Runs::Plain(absmax) => return Ok((absmax.clone(), None)),
            Runs::Nested(nested) => &**nested,
        };
        let around = self.temporary(bytes.shape(), DType::F32, "unpacked magnitudes")?;
        self.launch(kernels::Blockwise::DequantizeBytes {
            src: bytes.operand(),
            codes: codes.operand(),
            absmax: absmax.operand(),
            dst: around.operand(),
        })?;
        let sum = if in_place {
            around.clone()
        } else {
            self.temporary(bytes.shape(), DType::F32, "unpacked magnitudes around their mean")?
        };
        self.launch(kernels::Elementwise::Add { a: around.operand(), b: offset.operand(), dst: sum.operand() })?;
        Ok((sum, Some(around).filter(|_| !in_place)))
    }

    /// The matrix in its original type (`dequantize_4bit`).
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn dequantized(&mut self, weight: &FourBitWeight) -> OpResult<Tensor> {
        self.op("dequantize_4bit", |cx| {
            let (magnitudes, _) = cx.magnitudes(weight, true)?;
            cx.unpacked(weight, &magnitudes, weight.dtype)
        })
    }

    /// The blocks of `copy.deepcopy` of a layer, in its order: for every tensor its bytes and, for a moment, a tensor of one
    /// element that takes them over. The tensors of the quantisation are copied on the way to the parameter, and once more with
    /// the layer.
    ///
    /// # Errors
    /// Out of memory.
    pub fn copy_of_four_bit(&mut self, weight: &FourBitWeight, bias: Option<&Tensor>) -> OpResult<Vec<Tensor>> {
        let state = weight.state();
        self.op("deepcopy", |cx| {
            let copy = |tensor: &Tensor| cx.temporary(tensor.shape(), tensor.dtype(), "copy of a layer in 4 bits");
            let filled_as = |tensor: &Tensor, dtype| {
                let bytes = copy(tensor)?;
                drop(cx.temporary(Shape::new(&[]), dtype, "tensor that gets a copy")?);
                OpResult::Ok(bytes)
            };
            let filled = |tensor: &Tensor| filled_as(tensor, tensor.dtype());
            let mut copies = state.iter().copied().map(filled).collect::<OpResult<Vec<_>>>()?;
            copies.push(filled_as(&weight.packed, weight.storage)?);
            // A parameter is cloned.
            copies.extend(bias.map(copy).transpose()?);
            for tensor in state {
                copies.push(filled(tensor)?);
            }
            Ok(copies)
        })
    }

    /// Registers a 4-bit matrix as the next parameter, a frozen one.
    pub fn adopt_four_bit(&mut self, weight: &FourBitWeight, name: &str) {
        self.adopt_frozen(weight.packed().clone(), name);
        if let Some(leaf) = self.leaves.last_mut() {
            leaf.packed_in = Some(weight.storage);
            leaf.beside = weight.state().into_iter().cloned().collect();
        }
    }

    fn unpacked(&self, weight: &FourBitWeight, magnitudes: &Tensor, dtype: DType) -> OpResult<Tensor> {
        let whole = self.temporary(weight.shape, dtype, "unpacked weight")?;
        self.launch(kernels::Blockwise::DequantizeNf4 {
            src: weight.packed.operand(),
            absmax: magnitudes.operand(),
            dst: whole.operand(),
        })?;
        Ok(whole)
    }
}
