//! AdamW as bitsandbytes has it, with moments in 8 bits (`AdamW8bit`), in unified memory (`PagedAdamW32bit`) or both
//! (`PagedAdamW8bit`): parameter by parameter, without temporaries in any form.

use std::collections::BTreeMap;

use crate::config::{Hyper, KeptState};
use crate::context::Context;
use crate::error::OpResult;
use crate::memory::ManagedBlock;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{BYTES_RUN, ByteMoment, DType, KeptMoments, Operand, dynamic_map, kernels};
use vramlab_model::{Category, EventKind};

use super::rule::{StepRule, Trained};
use super::state::State;

/// Where a moment is.
enum Place {
    Own(State),
    /// In unified memory.
    Paged(ManagedBlock),
}

impl Place {
    /// The tensor that may be parked.
    fn own(&mut self) -> Option<&mut State> {
        match self {
            Self::Own(state) => Some(state),
            Self::Paged(_) => None,
        }
    }

    /// What kernels are given, while it is where they reach it.
    fn operand(&self) -> Option<Operand> {
        match self {
            Self::Own(state) => state.tensor().map(Tensor::operand),
            Self::Paged(block) => Some(block.operand()),
        }
    }
}

/// What both moments of one parameter are made of.
struct Moments {
    states: [Place; 2],
    /// The largest magnitudes of runs, where the states are bytes.
    absmax: Option<[Tensor; 2]>,
    /// Updates so far.
    step: u64,
}

impl Moments {
    /// The tensors that may be parked.
    fn own(&mut self) -> Vec<&mut State> {
        self.states.iter_mut().filter_map(Place::own).collect()
    }
}

/// State of AdamW of bitsandbytes.
pub(super) struct BitsandbytesAdam {
    kept: KeptState,
    /// What the bytes of first and of second moments stand for, for all parameters.
    codes: Option<[Tensor; 2]>,
    moments: BTreeMap<usize, Moments>,
    /// Parameters of the last step.
    updated: Vec<usize>,
}

impl BitsandbytesAdam {
    pub const fn new(kept: KeptState) -> Self {
        Self { kept, codes: None, moments: BTreeMap::new(), updated: Vec::new() }
    }

    /// What its step is called.
    pub const fn name(&self) -> &'static str {
        match self.kept {
            KeptState { in_bytes: true, paged: false } => "adamw8bit",
            KeptState { in_bytes: true, paged: true } => "paged adamw8bit",
            KeptState { in_bytes: false, .. } => "paged adamw32bit",
        }
    }

    /// Another step of the training begins.
    pub fn begin(&mut self) {
        self.updated.clear();
    }

    /// The moments that are tensors, by parameter.
    pub fn states(&mut self) -> impl Iterator<Item = (usize, Vec<&mut State>)> {
        self.moments.iter_mut().map(|(index, moments)| (*index, moments.own()))
    }

    pub fn step(&mut self, cx: &Context, hyper: &Hyper, rule: StepRule, parameters: &[Trained]) -> OpResult<()> {
        let before = cx.memory().managed();
        for parameter in parameters {
            self.bear(cx, parameter)?;
            self.update(cx, hyper, rule, parameter)?;
        }
        let born = cx.memory().managed().saturating_sub(before);
        if born > Bytes::ZERO {
            let text = format!(
                "{born} of optimizer state are in unified memory, which PyTorch's allocator does not count; the driver keeps them on the card while there is room"
            );
            cx.memory().emit(EventKind::Note { text: text.into() });
            cx.memory().tell_host();
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
        let in_bytes = self.kept.has_bytes(len);
        if in_bytes && self.codes.is_none() {
            self.codes = Some([code(cx, "optimizer.qmap1", true)?, code(cx, "optimizer.qmap2", false)?]);
        }
        let dtype = if in_bytes { DType::U8 } else { DType::F32 };
        let states = if self.kept.is_paged(len) {
            let block = || OpResult::Ok(Place::Paged(ManagedBlock::new(cx.memory(), len, dtype)?));
            [block()?, block()?]
        } else {
            let state = |what| OpResult::Ok(Place::Own(parameter.state_in(cx, dtype, what)?));
            [state("state1")?, state("state2")?]
        };
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
        let runs = absmax.iter().flatten().map(Tensor::operand);
        for dst in states.iter().filter_map(Place::operand).chain(runs) {
            cx.launch(kernels::Elementwise::Fill { dst, value: 0.0 })?;
        }
        self.moments.insert(parameter.index, Moments { states, absmax, step: 0 });
        Ok(())
    }

    fn update(&mut self, cx: &Context, hyper: &Hyper, rule: StepRule, parameter: &Trained) -> OpResult<()> {
        let Some(moments) = self.moments.get_mut(&parameter.index) else { return Ok(()) };
        moments.step += 1;
        self.updated.push(parameter.index);
        let [Some(first), Some(second)] = moments.states.each_ref().map(Place::operand) else { return Ok(()) };
        let kept = match (&moments.absmax, &self.codes) {
            (Some(absmax), Some(codes)) => {
                let moment = |bytes: Operand, which: usize| ByteMoment {
                    bytes,
                    codes: codes[which].operand(),
                    absmax: absmax[which].operand(),
                };
                KeptMoments::Bytes([moment(first, 0), moment(second, 1)])
            }
            _ => KeptMoments::Wide([first, second]),
        };
        cx.launch(kernels::Blockwise::AdamOfBytes {
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
