//! RMS norm, without a variable for the mean square.

use crate::context::Context;
use crate::error::OpResult;
use crate::ops::rms_norm::WeightSide;
use crate::tensor::Tensor;
use vramlab_device::DType;

impl Context {
    /// `x = input.float(); rms = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps); x = x * rms; (weight * x).to(input.dtype)`.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn rms_norm_by_hand(&mut self, input: &Tensor, weight: &Tensor, eps: f64) -> OpResult<Tensor> {
        let dtype = input.dtype();
        let narrow = matches!(dtype, DType::F16 | DType::Bf16);
        let x = if narrow { self.cast(input, DType::F32, "norm input in f32")? } else { input.clone() };
        let factors = {
            let square = self.square(&x)?;
            let last = square.shape().dims().len().saturating_sub(1);
            let mean = self.mean(&square, last..last + 1)?;
            drop(square);
            let shifted = self.add_number(&mean, eps)?;
            drop(mean);
            self.rsqrt(&shifted)?
        };
        let normalised = self.scale_rows(&x, &factors)?;
        drop(x);
        // The reciprocal roots are a variable of the norm's forward, and so is their product with the input.
        let wide = self.scale_columns(&normalised, weight, WeightSide::First)?;
        let output = if wide.dtype() == dtype { wide } else { self.cast(&wide, dtype, "norm output")? };
        drop((normalised, factors));
        Ok(output)
    }
}
