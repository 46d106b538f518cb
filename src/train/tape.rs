//! Autograd: a tape of ops with explicit saved tensors, walked backwards.
//!
//! A node's closure owns what the op saved. Backward pops nodes from the end of the tape: descending order of creation, so
//! every consumer of a tensor has run before its producer. When the closure has run, its saved tensors are released,
//! before the next node runs.

use std::sync::Arc;

use crate::device::{DType, Kernel};
use crate::model::{Category, NameId};

use super::context::Context;
use super::error::OpResult;
use super::memory::Memory;
use super::tensor::{Source, Tensor};

/// Gradients with respect to a node's outputs, or its inputs. Hardly an op has more than three of either.
pub(crate) type Gradients = [Option<Tensor>; 3];

/// Inputs of a node, at most.
pub(crate) const INPUTS: usize = 4;

/// Computes the gradients of a node's inputs from those of its outputs.
pub(crate) type Backward = Box<dyn FnOnce(&mut Context, Gradients) -> OpResult<[Option<Tensor>; INPUTS]>>;

struct Node {
    name: &'static str,
    scope: NameId,
    inputs: [Source; INPUTS],
    gradients: Gradients,
    /// The type in which an input wants the gradient of the first output besides its own.
    wants: Option<DType>,
    /// That gradient, from a kernel that wrote both.
    copy: Option<Tensor>,
    backward: Backward,
}

/// The ops of the present forward pass.
#[derive(Default)]
pub(crate) struct Tape {
    nodes: Vec<Node>,
}

impl Tape {
    /// Notes an op; returns where gradients of its first output go.
    pub fn push(&mut self, name: &'static str, scope: NameId, inputs: [Source; INPUTS], backward: Backward) -> Source {
        let gradients = Gradients::default();
        self.nodes.push(Node { name, scope, inputs, gradients, wants: None, copy: None, backward });
        Source::Node { node: self.nodes.len() - 1, slot: 0 }
    }

    /// Notes that the op at `source` passes the gradient of its output on in `dtype` too.
    pub fn want_copy(&mut self, source: Source, dtype: DType) {
        if let Source::Node { node, .. } = source {
            self.nodes[node].wants = Some(dtype);
        }
    }

    /// The type in which the op at `to` wants its gradient besides its own, if what comes next is all of it.
    pub fn wanted_copy(&self, to: Source) -> Option<DType> {
        let Source::Node { node, slot: 0 } = to else { return None };
        let node = &self.nodes[node];
        if node.gradients[0].is_none() { node.wants } else { None }
    }

    /// Hands the op at `to` a copy of the gradient that comes next, in the type that it wants.
    pub fn deliver_copy(&mut self, to: Source, copy: Tensor) {
        if let Source::Node { node, .. } = to {
            self.nodes[node].copy = Some(copy);
        }
    }

    /// Ops on it: the number of the next one.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The last op, if it is not one of the first `kept`.
    fn pop_beyond(&mut self, kept: usize) -> Option<Node> {
        if self.nodes.len() > kept { self.nodes.pop() } else { None }
    }

    /// Drops all nodes and what they saved, last first.
    pub fn clear(&mut self) {
        while self.nodes.pop().is_some() {}
    }
}

/// A parameter as autograd sees it.
pub(crate) struct Leaf {
    pub name: Arc<str>,
    pub data: Tensor,
    pub gradient: Option<Tensor>,
    gradient_name: NameId,
    /// Sum of the gradients that have arrived in this backward pass.
    arriving: Option<Tensor>,
    /// Uses in the present forward pass whose gradients have not arrived.
    awaited: usize,
}

impl Leaf {
    pub fn new(name: &str, data: Tensor, gradient_name: NameId) -> Self {
        Self { name: name.into(), data, gradient: None, gradient_name, arriving: None, awaited: 0 }
    }

    /// A use of the parameter was put on the tape.
    pub fn used(&mut self) {
        self.awaited += 1;
    }

    /// Forgets an abandoned step.
    pub fn reset(&mut self) {
        self.gradient = None;
        self.arriving = None;
        self.awaited = 0;
    }

    /// Takes one gradient; the last one of a pass becomes (or is added to) `.grad`.
    fn receive(&mut self, memory: &Memory, gradient: Tensor) -> OpResult<()> {
        add_to(memory, &mut self.arriving, gradient)?;
        self.awaited = self.awaited.saturating_sub(1);
        if self.awaited > 0 {
            return Ok(());
        }
        let Some(arrived) = self.arriving.take() else { return Ok(()) };
        let shape = self.data.shape();
        match &self.gradient {
            None => {
                memory.relabel(&arrived, Category::Gradient, self.gradient_name);
                self.gradient = Some(arrived.reshaped(shape));
            }
            Some(sum) => {
                memory.launch(&Kernel::Add { a: sum.operand(), b: arrived.operand(), dst: sum.operand() })?;
            }
        }
        Ok(())
    }
}

/// Adds `gradient` to what has arrived before: in place when nobody else holds it, else in a new tensor.
fn add_to(memory: &Memory, sum: &mut Option<Tensor>, gradient: Tensor) -> OpResult<()> {
    let Some(first) = sum.take() else {
        *sum = Some(gradient);
        return Ok(());
    };
    let target = if first.is_exclusive() {
        first.clone()
    } else {
        memory.tensor(first.shape(), first.dtype(), Category::Temporary, "gradient sum")?.restrided(first.layout())
    };
    memory.launch(&Kernel::Add { a: first.flat(), b: gradient.flat(), dst: target.flat() })?;
    *sum = Some(target);
    Ok(())
}

impl Context {
    /// Runs backward from `root`, whose gradient is `gradient`; the caller's handle on `gradient` lives as long as the
    /// pass.
    ///
    /// # Errors
    /// Out of memory, a failed kernel, a stop asked for by the observer.
    pub fn backward(&mut self, root: &Tensor, gradient: &Tensor) -> OpResult<()> {
        self.backward_beyond(0, root, gradient)
    }

    /// The same for the part of the graph that was made after the first `kept` ops, which stay for a later pass.
    ///
    /// # Errors
    /// See [`Context::backward`].
    pub(crate) fn backward_beyond(&mut self, kept: usize, root: &Tensor, gradient: &Tensor) -> OpResult<()> {
        self.deliver(root.source(), gradient.clone())?;
        while let Some(node) = self.tape.pop_beyond(kept) {
            let Node { name, scope, inputs, gradients, copy, backward, .. } = node;
            if gradients.iter().all(Option::is_none) {
                continue;
            }
            let outer = self.memory().set_scope(scope);
            self.memory().begin_op(name);
            self.gradient_copy = copy;
            let outputs = backward(self, gradients)?;
            self.gradient_copy = None;
            for (input, output) in inputs.into_iter().zip(outputs) {
                if let Some(output) = output {
                    self.deliver(input, output)?;
                }
            }
            self.memory().end_op()?;
            self.memory().set_scope(outer);
        }
        Ok(())
    }

    fn deliver(&mut self, to: Source, gradient: Tensor) -> OpResult<()> {
        let memory = self.memory().clone();
        match to {
            Source::Leaf(index) => self.leaves[index].receive(&memory, gradient),
            Source::Node { node, slot } => {
                let node = &mut self.tape.nodes[node];
                let sum = &mut node.gradients[usize::from(slot)];
                // What comes second makes a copy of the first wrong.
                if slot == 0 && sum.is_some() {
                    node.copy = None;
                }
                add_to(&memory, sum, gradient)
            }
            Source::Constant | Source::Recomputed => Ok(()),
        }
    }
}
