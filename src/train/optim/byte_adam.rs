//! AdamW with moments in 8 bits, as bitsandbytes has it (`AdamW8bit`): parameter by parameter, without temporaries in any form.

use std::collections::BTreeMap;

use crate::config::Hyper;
use crate::context::Context;
use crate::error::OpResult;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::StreamId;
use vramlab_device::{BYTES_RUN, ByteMoment, DType, KeptMoments, Kernel, dynamic_map};
use vramlab_model::Category;

use super::rule::{StepRule, Trained};
use super::state::State;

/// Parameters of fewer elements have moments in f32.
const LEAST: usize = 4096;

/// What both moments of one parameter are made of.
struct Moments {
    states: [State; 2],
    /// The largest magnitudes of runs, where the states are bytes.
    absmax: Option<[Tensor; 2]>,
    /// Updates so far.
    step: u64,
}

/// State of AdamW in 8 bits.
#[derive(Default)]
pub(super) struct ByteAdam {
    /// What the bytes of first and of second moments stand for, for all parameters.
    codes: Option<[Tensor; 2]>,
    moments: BTreeMap<usize, Moments>,
    /// Parameters of the last step.
    updated: Vec<usize>,
}

impl ByteAdam {
    /// Another step of the training begins.
    pub fn begin(&mut self) {
        self.updated.clear();
    }

    /// The moments, by parameter.
    pub fn states(&mut self) -> impl Iterator<Item = (usize, &mut [State; 2])> {
        self.moments.iter_mut().map(|(index, moments)| (*index, &mut moments.states))
    }

    pub fn step(&mut self, cx: &Context, hyper: &Hyper, rule: StepRule, parameters: &[Trained]) -> OpResult<()> {
        for parameter in parameters {
            self.bear(cx, parameter)?;
            self.update(cx, hyper, rule, parameter)?;
        }
        Ok(())
    }

    /// The last step changed nothing.
    pub fn take_back(&mut self) {
        for index in self.updated.drain(..) {
            if let Some(moments) = self.moments.get_mut(&index) {
                moments.step -= 1;
            }
        }
    }

    /// Makes the state of a parameter that is updated for the first time.
    fn bear(&mut self, cx: &Context, parameter: &Trained) -> OpResult<()> {
        if self.moments.contains_key(&parameter.index) {
            return Ok(());
        }
        let len = parameter.data.numel();
        let in_bytes = len >= LEAST;
        if in_bytes && self.codes.is_none() {
            self.codes = Some([code(cx, "optimizer.qmap1", true)?, code(cx, "optimizer.qmap2", false)?]);
        }
        let dtype = if in_bytes { DType::U8 } else { DType::F32 };
        let states = [parameter.state_in(cx, dtype, "state1")?, parameter.state_in(cx, dtype, "state2")?];
        let absmax = match in_bytes {
            true => {
                let runs = Shape::new(&[len.div_ceil(BYTES_RUN)]);
                Some([
                    kept(cx, runs, &parameter.named(cx, "absmax1"))?,
                    kept(cx, runs, &parameter.named(cx, "absmax2"))?,
                ])
            }
            false => None,
        };
        for zeros in states.iter().filter_map(State::tensor).chain(absmax.iter().flatten()) {
            cx.launch(&Kernel::Fill { dst: zeros.operand(), value: 0.0 })?;
        }
        self.moments.insert(parameter.index, Moments { states, absmax, step: 0 });
        Ok(())
    }

    fn update(&mut self, cx: &Context, hyper: &Hyper, rule: StepRule, parameter: &Trained) -> OpResult<()> {
        let Some(moments) = self.moments.get_mut(&parameter.index) else { return Ok(()) };
        moments.step += 1;
        self.updated.push(parameter.index);
        let [Some(first), Some(second)] = moments.states.each_ref().map(State::tensor) else { return Ok(()) };
        let kept = match (&moments.absmax, &self.codes) {
            (Some(absmax), Some(codes)) => {
                let moment = |bytes: &Tensor, which: usize| ByteMoment {
                    bytes: bytes.operand(),
                    codes: codes[which].operand(),
                    absmax: absmax[which].operand(),
                };
                KeptMoments::Bytes([moment(first, 0), moment(second, 1)])
            }
            _ => KeptMoments::Wide([first.operand(), second.operand()]),
        };
        cx.launch(&Kernel::AdamOfBytes {
            parameter: parameter.data.operand(),
            gradient: parameter.gradient.operand(),
            moments: kept,
            rule: rule.of_adam(hyper, true, moments.step),
        })
    }
}

/// The values that bytes stand for, on the device.
fn code(cx: &Context, name: &str, signed: bool) -> OpResult<Tensor> {
    let values = dynamic_map(signed);
    let code = kept(cx, Shape::new(&[values.len()]), name)?;
    cx.write_values(&code, &values)?;
    Ok(code)
}

/// State in f32 that is never parked.
fn kept(cx: &Context, shape: Shape, name: &str) -> OpResult<Tensor> {
    let name = cx.memory().name(name);
    cx.memory().named_tensor(shape, DType::F32, Category::OptimizerState, name, StreamId::DEFAULT)
}
