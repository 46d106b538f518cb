//! A step of one stage of a pipeline: micro-batches forward and backward in the order of the schedule, then the optimizer.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::error::OpResult;
use crate::parallel::PipelineStage;
use crate::schedule::{Action, micro_batches};
use crate::workload::{Model, Outcome};
use vramlab_model::Phase;

use super::state::Trainer;

impl Trainer {
    pub(super) fn pipeline_step(&mut self, mut stage: PipelineStage, model: &Rc<dyn Model>) -> OpResult<Outcome> {
        let ran = self.run_stage(&mut stage, model);
        if ran.is_err() {
            stage.abandon();
        }
        self.stage = Some(stage);
        let loss = ran?;
        let optimizer_ran = self.update()?;
        Ok(Outcome { loss, skipped: !optimizer_ran, ..Outcome::default() })
    }

    /// Runs all micro-batches; returns their mean loss on the last stage.
    fn run_stage(&mut self, stage: &mut PipelineStage, model: &Rc<dyn Model>) -> OpResult<Option<f32>> {
        self.begin(Phase::Data);
        let batch = self.next_batch(0)?;
        self.end(Phase::Data)?;
        let scales = self.config.amp.scales();
        if scales {
            // Only the last stage has a loss, but every rank divides its gradients by the scale.
            self.scaler.prepare(&mut self.cx)?;
        }

        let parts = batch.cut(micro_batches(self.config.accumulation));
        // Autocast is around the whole step: its copies of weights serve all micro-batches.
        self.cx.autocasts_backward = self.config.amp.dtype().is_some();
        self.cx.weight_copies = self.config.amp.dtype().map(|_| BTreeMap::new());
        self.begin(Phase::Forward);
        let checkpointing = self.config.checkpointing;
        self.forward_pass(|cx| stage.begin(cx, &**model, &parts, checkpointing))?;
        self.end(Phase::Forward)?;

        let actions = stage.actions(parts.len());
        let mut loss = None;
        for (i, action) in actions.iter().enumerate() {
            match *action {
                Action::Forward(number) => {
                    self.begin(Phase::Forward);
                    if let Some(micro_batch) = parts.get(number) {
                        let mut scaler = std::mem::take(&mut self.scaler);
                        let scaled = scales.then_some(&mut scaler);
                        let ran = self.forward_pass(|cx| stage.forward(cx, &**model, (number, micro_batch), scaled));
                        self.scaler = scaler;
                        ran?;
                    }
                    self.end(Phase::Forward)?;
                }
                Action::Backward(number) => {
                    self.begin(Phase::Backward);
                    stage.backward(&mut self.cx, number)?;
                    if i + 1 == actions.len() {
                        loss = self.end_of_schedule(stage)?;
                    }
                    self.end(Phase::Backward)?;
                }
            }
        }
        Ok(loss)
    }

    fn end_of_schedule(&mut self, stage: &mut PipelineStage) -> OpResult<Option<f32>> {
        let losses = stage.end(&mut self.cx)?;
        self.cx.forget_copies();
        if !stage.is_last() {
            return Ok(None);
        }
        let values: Vec<f32> = losses.iter().map(|loss| self.memory().read_f32(loss)).collect::<OpResult<_>>()?;
        #[expect(clippy::cast_precision_loss, reason = "a handful of micro-batches")]
        let mean = values.iter().sum::<f32>() / values.len().max(1) as f32;
        #[expect(clippy::cast_possible_truncation, reason = "a power of two")]
        let scale = self.scaler.current_scale().unwrap_or(1.0) as f32;
        Ok(Some(mean / scale))
    }
}
