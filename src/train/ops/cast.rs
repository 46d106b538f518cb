//! Casts: which ops run in 16 bits under autocast, and copies in other types.

use crate::autocast::Autocast;
use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::split::Likeness;
use crate::tape::Gradients;
use crate::tensor::{GradientTarget, Tensor};
use vramlab_device::{DType, kernels};
use vramlab_model::Category;

impl Context {
    /// Runs `region` under autocast to `dtype` (off when `None`), with its own cache of weight copies, which is
    /// dropped at the end.
    ///
    /// # Errors
    /// What `region` returns.
    pub fn autocast<T>(&mut self, dtype: Option<DType>, region: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        let outer = std::mem::replace(&mut self.autocast, Autocast::region(dtype));
        let result = region(self);
        self.autocast = outer;
        // A region around the whole step keeps the copies.
        if self.autocast.dtype().is_none() && !self.autocasts_backward {
            self.inputs.values_mut().for_each(|copy| *copy = None);
        }
        result
    }

    /// Runs a region with autocast off, even within a region where it is on: `torch.autocast("cuda", enabled=False)`. The copies
    /// of the outer region stay.
    ///
    /// # Errors
    /// What `region` returns.
    pub fn without_autocast<T>(&mut self, region: impl FnOnce(&mut Self) -> OpResult<T>) -> OpResult<T> {
        self.autocast(None, region)
    }

    /// The input of an op that runs in 16 bits under autocast: `input` itself, its cached copy, or a new copy.
    pub(crate) fn cast_to_lower(&mut self, input: &Tensor, what: &'static str) -> OpResult<Tensor> {
        let Some(dtype) = self.autocast.dtype() else { return Ok(input.clone()) };
        if input.dtype() != DType::F32 {
            return Ok(input.clone());
        }
        let GradientTarget::Leaf(parameter) = input.source() else {
            let number = input.storage().number();
            if let Some(copy) = self.inputs.get(&number) {
                if let Some([copy, _]) = copy {
                    return Ok(copy.clone());
                }
                let copy = self.cast(input, dtype, what)?;
                self.inputs.insert(number, Some([copy.clone(), input.clone()]));
                return Ok(copy);
            }
            return match self.autocast.twin_of(input) {
                Some(twin) => Ok(twin),
                None => self.cast(input, dtype, what),
            };
        };
        if let Some(copy) = self.autocast.copy_of(parameter)
            && !copy.is_channels_last()
        {
            return Ok(copy.clone());
        }
        let kept = self.weight_copies.as_ref().and_then(|copies| copies.get(&parameter)).cloned();
        let copy = match kept.filter(|copy| copy.dtype() == dtype) {
            Some(copy) => self.record_cast(input, copy),
            None => self.cast(input, dtype, what)?,
        };
        if let Some(copies) = &mut self.weight_copies {
            copies.insert(parameter, copy.detach());
        }
        self.autocast.keep_copy(parameter, &copy);
        Ok(copy)
    }

    /// A weight with the channels last, in 16 bits under autocast: its cached copy, or a new copy.
    pub(crate) fn weight_channels_last(&mut self, weight: &Tensor) -> OpResult<Tensor> {
        let GradientTarget::Leaf(parameter) = weight.source() else { return self.channels_last(weight, "weight copy") };
        if self.autocast.dtype().is_none() {
            return self.channels_last(weight, "weight copy");
        }
        if let Some(copy) = self.autocast.copy_of(parameter)
            && copy.is_channels_last()
        {
            return Ok(copy.clone());
        }
        let copy = self.channels_last(weight, "weight copy")?;
        self.autocast.keep_copy(parameter, &copy);
        Ok(copy)
    }

    /// The input of an op that runs in f32 under autocast.
    pub(crate) fn cast_to_f32(&mut self, input: &Tensor, what: &'static str) -> OpResult<Tensor> {
        if self.autocast.dtype().is_none() || !matches!(input.dtype(), DType::F16 | DType::Bf16) {
            return Ok(input.clone());
        }
        self.cast(input, DType::F32, what)
    }

    /// A copy of `input` in another type; its gradient is cast back.
    ///
    /// # Errors
    /// Out of memory, or a device that fails.
    pub fn cast(&mut self, input: &Tensor, dtype: DType, what: &'static str) -> OpResult<Tensor> {
        self.op("cast", |cx| {
            if !input.is_dense() {
                // Gaps between rows, as between those of padded logits, are left out.
                let output = cx.activation(input.shape(), dtype, what)?;
                cx.arrange(input, &output)?;
                return Ok(cx.record_cast(input, output));
            }
            let output = cx.laid_out_as(input, dtype, what)?;
            cx.launch(kernels::Elementwise::Cast { src: input.flat(), dst: output.flat() })?;
            Ok(cx.record_cast(input, output))
        })
    }

    /// Whether ops of this region may run in 16 bits.
    #[must_use]
    pub const fn autocasts(&self) -> bool {
        self.autocast.dtype().is_some()
    }

    /// A copy of `input` (`input.clone()`); its gradient passes unchanged.
    ///
    /// # Errors
    /// Out of memory, or a device that fails.
    pub fn clone_of(&mut self, input: &Tensor, what: &'static str) -> OpResult<Tensor> {
        self.op("clone", |cx| {
            let output = cx.laid_out_as(input, input.dtype(), what)?;
            cx.launch(kernels::Elementwise::Cast { src: input.flat(), dst: output.flat() })?;
            if !cx.differentiates(&[input]) {
                return Ok(output);
            }
            let source =
                cx.record("cloneBackward", [Some(input), None, None], |_, [gradient, ..]| Ok([gradient, None, None]));
            Ok(output.with_source(source))
        })
    }

    /// Records `copy` as `input` in another type.
    pub(crate) fn record_cast(&mut self, input: &Tensor, copy: Tensor) -> Tensor {
        if !self.differentiates(&[input]) {
            return copy;
        }
        let original = input.dtype();
        let source = self.record("castBackward", [Some(input), None, None], move |cx, [gradient, ..]| {
            let Some(gradient) = gradient else { return Ok(Gradients::default()) };
            if cx.likeness == Likeness::Next {
                cx.likeness = Likeness::Asked;
                drop(cx.temporary(Shape::new(&[1]), DType::F32, "an element for FakeTensor")?);
            }
            Ok([Some(cx.cast_gradient(&gradient, original)?), None, None])
        });
        copy.with_source(source)
    }

    /// A gradient in another type: the gradient itself if it has that type.
    pub(crate) fn cast_gradient(&self, gradient: &Tensor, dtype: DType) -> OpResult<Tensor> {
        if gradient.dtype() == dtype {
            return Ok(gradient.clone());
        }
        let cast = self.memory().tensor(gradient.shape(), dtype, Category::Temporary, "gradient cast")?;
        if !gradient.is_dense() {
            self.arrange(gradient, &cast)?;
            return Ok(cast);
        }
        let cast = cast.restrided(gradient.layout());
        self.launch(kernels::Elementwise::Cast { src: gradient.flat(), dst: cast.flat() })?;
        Ok(cast)
    }
}
