//! A step of two models trained against each other: first the discriminator, then the generator.
//!
//! The discriminator learns from real images and from generated ones, whose gradient stops before the generator; then the
//! generator learns from the updated discriminator's judgement of the same generated images.

use std::rc::Rc;

use crate::config::Checkpointing;
use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::workload::{Model, Outcome};
use vramlab_device::{DType, kernels};
use vramlab_model::Phase;

use super::state::Trainer;

/// Index of the generator among the optimizers.
const GENERATOR: usize = 0;
const DISCRIMINATOR: usize = 1;

/// The discriminator's target: 1 for real samples, 0 for generated ones.
const REAL: f64 = 1.0;
const MADE: f64 = 0.0;

impl Trainer {
    pub(super) fn adversarial_step(&mut self, [generator, discriminator]: &[Rc<dyn Model>; 2]) -> OpResult<Outcome> {
        self.begin(Phase::Data);
        let batch = self.next_batch(0)?;
        self.end(Phase::Data)?;

        self.begin(Phase::Forward);
        let (made, ops_of_generator, verdicts, loss_of_discriminator) = self.forward_pass(|cx| {
            let made = generator.forward(cx, &batch.target, Checkpointing::Off)?;
            let ops_of_generator = cx.tape.len();
            let of_real = judge(cx, &**discriminator, &batch.input)?;
            let of_made = judge(cx, &**discriminator, &made.detach())?;
            let real = loss(cx, &of_real, REAL)?;
            let unreal = loss(cx, &of_made, MADE)?;
            let sum = cx.add(&real, &unreal)?;
            Ok((made, ops_of_generator, (of_real, of_made), sum))
        })?;
        self.end(Phase::Forward)?;
        self.adversarial_backward(&loss_of_discriminator, ops_of_generator)?;
        self.begin(Phase::Optimizer);
        let (discriminator_learned, found_by_discriminator) = self.optimize(DISCRIMINATOR)?;
        self.end(Phase::Optimizer)?;
        self.begin(Phase::ZeroGrad);
        self.zero_grad(DISCRIMINATOR)?;
        self.end(Phase::ZeroGrad)?;

        self.begin(Phase::Forward);
        let (verdict, loss_of_generator) = self.forward_pass(|cx| {
            let verdict = judge(cx, &**discriminator, &made)?;
            let loss = loss(cx, &verdict, REAL)?;
            Ok((verdict, loss))
        })?;
        self.end(Phase::Forward)?;
        self.adversarial_backward(&loss_of_generator, 0)?;
        self.begin(Phase::Optimizer);
        let (generator_learned, found_by_generator) = self.optimize(GENERATOR)?;
        let found = found_by_discriminator.into_iter().chain(found_by_generator).collect();
        self.scaler.update(&mut self.cx, found, !(discriminator_learned && generator_learned))?;
        self.end(Phase::Optimizer)?;

        self.begin(Phase::ZeroGrad);
        self.zero_grad(GENERATOR)?;
        self.zero_grad(DISCRIMINATOR)?;
        let total = self.cx.no_grad(|cx| cx.add(&loss_of_discriminator, &loss_of_generator))?;
        self.cx.retain_output(&made);
        self.cx.retain_loss(&loss_of_discriminator);
        self.cx.retain_loss(&loss_of_generator);
        drop((made, verdicts, loss_of_discriminator, verdict, loss_of_generator));
        self.end(Phase::ZeroGrad)?;

        let loss = self.memory().read_f32(&total)?;
        self.total = Some(total);
        Ok(Outcome { loss: Some(loss), skipped: !(discriminator_learned && generator_learned), ..Outcome::default() })
    }

    /// Runs backward from `loss`, scaled if the gradients are; the first `kept` ops stay for a later pass.
    fn adversarial_backward(&mut self, loss: &Tensor, kept: usize) -> OpResult<()> {
        self.begin(Phase::Backward);
        {
            let root = if self.config.amp.scales() { self.scaler.scale(&mut self.cx, loss)? } else { loss.clone() };
            let one = self.cx.temporary(root.shape(), root.dtype(), "gradient of the loss")?;
            self.cx.launch(kernels::Elementwise::Fill { dst: one.operand(), value: 1.0 })?;
            self.cx.on_backward_thread(|cx| cx.backward_beyond(kept, &root, &one))?;
        }
        self.end(Phase::Backward)
    }
}

/// One logit for each image.
fn judge(cx: &mut Context, discriminator: &dyn Model, images: &Tensor) -> OpResult<Tensor> {
    let logits = discriminator.forward(cx, images, Checkpointing::Off)?;
    Ok(logits.reshaped(Shape::new(&[logits.numel()])))
}

/// The loss of the logits if `truth` is the target of all of them.
fn loss(cx: &mut Context, logits: &Tensor, truth: f64) -> OpResult<Tensor> {
    let logits = cx.float(logits)?;
    let target = cx.activation(logits.shape(), DType::F32, "target")?;
    cx.launch(kernels::Elementwise::Fill { dst: target.operand(), value: truth })?;
    cx.binary_cross_entropy_with_logits(&logits, &target)
}
