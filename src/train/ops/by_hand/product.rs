//! `einsum(x, weight, "... in, out in -> ... out")`: a batched product with one matrix.

use crate::context::Context;
use crate::error::OpResult;
use crate::tape::Gradients;
use crate::tensor::Tensor;

impl Context {
    /// `input` (…, in) times `weight` (out, in) transposed. Runs in 16 bits under autocast. The weight's gradient arrives
    /// transposed, so autograd copies the first one of a step.
    ///
    /// # Errors
    /// Out of memory, a failed kernel.
    pub fn einsum_linear(&mut self, input: &Tensor, weight: &Tensor) -> OpResult<Tensor> {
        if let Some(parameter) = weight.parameter() {
            self.leaves[parameter].gradients_come_transposed();
        }
        let input = self.cast_to_lower(input, "input copy")?;
        let weight = self.cast_to_lower(weight, "weight copy")?;
        self.op("einsum", |cx| {
            let differentiates = cx.differentiates(&[&input, &weight]);
            let save = |cx: &mut Self, wanted: bool, tensor: &Tensor| {
                (differentiates && wanted).then(|| cx.save(tensor)).transpose()
            };
            let saved_input = save(cx, weight.requires_grad(), &input)?;
            let saved_weight = save(cx, input.requires_grad(), &weight.transpose())?;
            let output = cx.product(&input, &weight, None)?;
            if !differentiates {
                return Ok(output);
            }
            let shape = input.shape();
            let source = cx.record("einsumBackward", [Some(&weight), Some(&input), None], move |cx, grads| {
                let [Some(grad), ..] = grads else { return Ok(Gradients::default()) };
                let x = saved_input.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                let w = saved_weight.as_ref().map(|saved| saved.unpack(cx)).transpose()?;
                // The second argument's gradient comes first: names are in alphabetical order, and mat2 sorts before self.
                let to_weight = x.as_ref().map(|x| cx.weight_gradient(&grad, x, grad.dtype())).transpose()?;
                // The gradient passes views, because the product has three dimensions.
                let to_input = w.as_ref().map(|w| cx.input_gradient(&grad, w, shape)).transpose()?;
                // Recomputed tensors of a checkpoint are freed once both gradients are computed.
                drop((x, w));
                Ok([to_weight, to_input.map(Tensor::marked_as_view), None])
            });
            Ok(output.with_source(source))
        })
    }
}
