//! A supervised step: every micro-batch forward and backward, then the optimizer.

use std::rc::Rc;

use crate::config::Retain;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::workload::{Batch, Model, Outcome};
use vramlab_device::{DType, kernels};
use vramlab_model::{Category, Phase};

use super::state::{LoopStyle, Trainer};

impl Trainer {
    pub(super) fn supervised_step(&mut self, model: &Rc<dyn Model>) -> OpResult<Outcome> {
        let mut plain_loss = None;
        for micro in 0..self.config.accumulation.max(1) {
            self.cx.synchronises = micro + 1 == self.config.accumulation.max(1);
            plain_loss = self.micro_batch(model, micro)?;
        }

        self.cx.forget_copies();
        let optimizer_ran = self.update()?;
        let total = self.total.as_ref().map(|total| self.memory().read_f32(total)).transpose()?;
        let loss = total.or(plain_loss);
        Ok(Outcome { loss, skipped: !optimizer_ran, ..Outcome::default() })
    }

    /// Runs the optimizer's step and `zero_grad`; returns whether the optimizer ran.
    pub(super) fn update(&mut self) -> OpResult<bool> {
        self.begin(Phase::Optimizer);
        let (optimizer_ran, found_inf) = self.optimize(0)?;
        self.cx.at_seam(|hooks, cx| hooks.after_optimizer(cx))?;
        self.scaler.update(&mut self.cx, found_inf.into_iter().collect(), !optimizer_ran)?;
        self.end(Phase::Optimizer)?;

        self.begin(Phase::ZeroGrad);
        self.zero_grad(0)?;
        self.end(Phase::ZeroGrad)?;
        Ok(optimizer_ran)
    }

    /// One forward and backward pass; returns the loss if it is not summed on the device.
    fn micro_batch(&mut self, model: &Rc<dyn Model>, micro: usize) -> OpResult<Option<f32>> {
        self.begin(Phase::Data);
        let batch = self.next_batch(micro)?;
        self.end(Phase::Data)?;

        self.begin(Phase::Forward);
        let config = self.config;
        #[expect(clippy::cast_precision_loss, reason = "a handful of micro-batches")]
        let share = 1.0 / config.accumulation.max(1) as f64;
        let style = match self.style {
            LoopStyle::Logging if config.accumulation > 1 => LoopStyle::Accumulating,
            style => style,
        };
        let (logits, loss) = self.forward_pass(|cx| {
            let input = cx.enter_model(batch.input.clone())?;
            let given = Batch { input, ..batch.clone() };
            let (logits, loss) = model.learn(cx, &given, config.checkpointing)?;
            drop(given);
            // If only the loss is kept, the output is dropped with all it holds, unless a cycle holds it.
            let logits = (!config.drop_output || config.retain == Retain::Cycles).then_some(logits);
            if logits.is_none() {
                cx.drop_output();
            }
            let loss = match style {
                LoopStyle::Accumulating => cx.scale(&loss, share, "mean loss")?,
                LoopStyle::Plain | LoopStyle::Logging => loss,
            };
            Ok((logits, loss))
        })?;
        self.end(Phase::Forward)?;

        self.begin(Phase::Backward);
        {
            let root = if config.amp.scales() { self.scaler.scale(&mut self.cx, &loss)? } else { loss.clone() };
            let one = self.cx.temporary(root.shape(), root.dtype(), "gradient of the loss")?;
            self.cx.launch(kernels::Elementwise::Fill { dst: one.operand(), value: 1.0 })?;
            self.cx.on_backward_thread(|cx| cx.backward(&root, &one))?;
        }
        let plain_loss = match style {
            LoopStyle::Accumulating => {
                self.add_to_total(&loss)?;
                None
            }
            LoopStyle::Plain => Some(self.memory().read_f32(&loss)?),
            LoopStyle::Logging => {
                self.total = Some(loss.detach());
                None
            }
        };
        if let Some(logits) = &logits {
            self.cx.retain_output(logits);
        }
        self.cx.retain_loss(&loss);
        match style {
            LoopStyle::Accumulating | LoopStyle::Logging => {
                drop((logits, loss));
                self.cx.drop_output();
                self.cx.held_by_graph.clear();
                self.end(Phase::Backward)?;
            }
            // The recordings of the shortest loop end backward before its variables are dropped.
            LoopStyle::Plain => {
                self.end(Phase::Backward)?;
                drop((logits, loss));
                self.cx.drop_output();
                self.cx.held_by_graph.clear();
            }
        }
        Ok(plain_loss)
    }

    fn add_to_total(&mut self, loss: &Tensor) -> OpResult<()> {
        let memory = self.memory();
        let sum = memory.tensor(Shape::new(&[]), DType::F32, Category::Other, "summed loss")?;
        match &self.total {
            Some(total) => {
                memory.launch(kernels::Elementwise::Add {
                    a: total.operand(),
                    b: loss.operand(),
                    dst: sum.operand(),
                })?;
            }
            None => {
                memory.launch(kernels::Elementwise::Scale { src: loss.operand(), dst: sum.operand(), factor: 1.0 })?
            }
        }
        self.total = Some(sum);
        Ok(())
    }
}
