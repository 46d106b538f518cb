//! AdamW and Lion of bitsandbytes, with moments in 8 bits (`AdamW8bit`, `Lion8bit`), in unified memory (`PagedAdamW32bit`) or
//! both (`PagedLion8bit`): parameter by parameter, without temporaries in any form.

use std::collections::BTreeMap;

use crate::config::{Hyper, KeptState, OptimizerKind};
use crate::context::Context;
use crate::error::OpResult;
use crate::memory::ManagedBlock;
use crate::shape::Shape;
use crate::tensor::Tensor;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_device::{BYTES_RUN, ByteMoment, DType, KeptMoment, KeptMoments, Operand, dynamic_map, kernels};
use vramlab_model::{Category, EventKind};

use super::rule::{ParameterGradient, StepRule};
use super::state::State;

/// Where a moment is.
enum MomentStorage {
    Own(State),
    /// In unified memory.
    Paged(ManagedBlock),
}

impl MomentStorage {
    /// The state tensor, which may be parked in host memory.
    fn own(&mut self) -> Option<&mut State> {
        match self {
            Self::Own(state) => Some(state),
            Self::Paged(_) => None,
        }
    }

    /// The moment as a kernel's operand, while kernels can reach it.
    fn operand(&self) -> Option<Operand> {
        match self {
            Self::Own(state) => state.tensor().map(Tensor::operand),
            Self::Paged(block) => Some(block.operand()),
        }
    }
}

/// The moments of one parameter: two, or one.
struct BlockwiseMoments {
    states: Vec<MomentStorage>,
    /// The largest magnitude of each block of elements, by moment, if the states are bytes.
    absmax: Vec<Tensor>,
    /// Updates so far.
    step: u64,
}

impl BlockwiseMoments {
    /// The state tensors, which may be parked in host memory.
    fn own(&mut self) -> Vec<&mut State> {
        self.states.iter_mut().filter_map(MomentStorage::own).collect()
    }
}

/// State of an optimizer of bitsandbytes.
pub(super) struct Bitsandbytes {
    kind: OptimizerKind,
    kept: KeptState,
    /// The values that bytes of the first and of the second moments stand for, for all parameters.
    codes: Vec<Tensor>,
    moments: BTreeMap<usize, BlockwiseMoments>,
    /// Parameters that the last step updated.
    updated: Vec<usize>,
}

impl Bitsandbytes {
    pub fn new(kind: OptimizerKind) -> Self {
        let kept = kind.of_bitsandbytes().unwrap_or(KeptState { in_bytes: false, paged: false });
        Self { kind, kept, codes: Vec::new(), moments: BTreeMap::new(), updated: Vec::new() }
    }

    /// The names for each moment: the state, the magnitudes of its blocks, and the table for its bytes, with signs or without.
    const fn named(&self) -> &'static [(&'static str, &'static str, &'static str, bool)] {
        const BOTH: [(&str, &str, &str, bool); 2] =
            [("state1", "absmax1", "optimizer.qmap1", true), ("state2", "absmax2", "optimizer.qmap2", false)];
        if self.kind.is_lion() { BOTH.split_at(1).0 } else { &BOTH }
    }

    /// The name of its step.
    pub const fn name(&self) -> &'static str {
        match (self.kind.is_lion(), self.kept) {
            (false, KeptState { in_bytes: true, paged: false }) => "adamw8bit",
            (false, KeptState { in_bytes: true, paged: true }) => "paged adamw8bit",
            (false, KeptState { in_bytes: false, .. }) => "paged adamw32bit",
            (true, KeptState { in_bytes: true, paged: false }) => "lion8bit",
            (true, KeptState { in_bytes: true, paged: true }) => "paged lion8bit",
            (true, KeptState { in_bytes: false, paged: true }) => "paged lion32bit",
            (true, KeptState { in_bytes: false, paged: false }) => "lion32bit",
        }
    }

    /// Begins another step of the training.
    pub fn begin(&mut self) {
        self.updated.clear();
    }

    /// The moments that are tensors, by parameter.
    pub fn states(&mut self) -> impl Iterator<Item = (usize, Vec<&mut State>)> {
        self.moments.iter_mut().map(|(index, moments)| (*index, moments.own()))
    }

    pub fn step(
        &mut self,
        cx: &Context,
        hyper: &Hyper,
        rule: StepRule,
        parameters: &[ParameterGradient],
    ) -> OpResult<()> {
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

    /// Undoes the count of the last step, which changed nothing.
    pub fn take_back(&mut self) {
        for index in self.updated.drain(..) {
            if let Some(moments) = self.moments.get_mut(&index) {
                moments.step -= 1;
            }
        }
    }

    /// Creates the state of a parameter that is updated for the first time.
    fn bear(&mut self, cx: &Context, parameter: &ParameterGradient) -> OpResult<()> {
        if self.moments.contains_key(&parameter.index) {
            return Ok(());
        }
        let len = parameter.data.numel();
        let in_bytes = self.kept.has_bytes(len);
        let named = self.named();
        if in_bytes && self.codes.is_empty() {
            self.codes = named.iter().map(|&(.., table, signed)| code(cx, table, signed)).collect::<OpResult<_>>()?;
        }
        let dtype = if in_bytes { DType::U8 } else { DType::F32 };
        let place = |what| {
            Ok(if self.kept.is_paged(len) {
                MomentStorage::Paged(ManagedBlock::new(cx.memory(), len, dtype)?)
            } else {
                MomentStorage::Own(parameter.state_in(cx, dtype, what)?)
            })
        };
        let states: Vec<MomentStorage> = named.iter().map(|&(state, ..)| place(state)).collect::<OpResult<_>>()?;
        let runs = Shape::new(&[len.div_ceil(BYTES_RUN)]);
        let magnitudes = named.iter().filter(|_| in_bytes);
        let absmax: Vec<Tensor> =
            magnitudes.map(|&(_, absmax, ..)| kept(cx, runs, &parameter.named(cx, absmax))).collect::<OpResult<_>>()?;
        for dst in states.iter().filter_map(MomentStorage::operand).chain(absmax.iter().map(Tensor::operand)) {
            cx.launch(kernels::Elementwise::Fill { dst, value: 0.0 })?;
        }
        self.moments.insert(parameter.index, BlockwiseMoments { states, absmax, step: 0 });
        Ok(())
    }

    fn update(&mut self, cx: &Context, hyper: &Hyper, rule: StepRule, parameter: &ParameterGradient) -> OpResult<()> {
        let Some(moments) = self.moments.get_mut(&parameter.index) else { return Ok(()) };
        moments.step += 1;
        self.updated.push(parameter.index);
        let states: Vec<Operand> = moments.states.iter().filter_map(MomentStorage::operand).collect();
        let bytes = |which: usize| {
            Some(ByteMoment {
                bytes: *states.get(which)?,
                codes: self.codes.get(which)?.operand(),
                absmax: moments.absmax.get(which)?.operand(),
            })
        };
        let (parameter, gradient) = (parameter.data.operand(), parameter.gradient.operand());
        match (&states[..], bytes(0), bytes(1)) {
            (&[first, second], first_bytes, second_bytes) => {
                let moments_kept = match (first_bytes, second_bytes) {
                    (Some(first), Some(second)) => KeptMoments::Bytes([first, second]),
                    _ => KeptMoments::Wide([first, second]),
                };
                let rule = rule.of_adam(hyper, true, moments.step);
                cx.launch(kernels::Blockwise::AdamOfBytes { parameter, gradient, moments: moments_kept, rule })
            }
            (&[first], bytes, _) => {
                let moment = bytes.map_or(KeptMoment::Wide(first), KeptMoment::Bytes);
                cx.launch(kernels::Blockwise::Lion { parameter, gradient, moment, rule: rule.of_lion(hyper) })
            }
            _ => Ok(()),
        }
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
