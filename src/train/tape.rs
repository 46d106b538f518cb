//! Autograd: a tape of ops with explicit saved tensors. A node's closure owns what the op saved.

use std::sync::Arc;

use vramlab_device::{DType, kernels};
use vramlab_model::{Category, NameId};

use super::error::OpResult;
use super::memory::Memory;
use super::parked::ParkedValues;
use super::tensor::{GradientTarget, Tensor};

/// Gradients with respect to a node's outputs, or its inputs. Few ops have more than three of either.
pub(crate) type Gradients = [Option<Tensor>; 3];

/// The most inputs of a node.
pub(crate) const INPUTS: usize = 4;

/// Computes the gradients of a node's inputs from those of its outputs, in a pass of type `P`.
pub(crate) type Backward<P> = Box<dyn FnOnce(&mut P, Gradients) -> OpResult<[Option<Tensor>; INPUTS]>>;

/// An op that was recorded.
pub(super) struct Node<P> {
    pub name: &'static str,
    pub scope: NameId,
    pub inputs: [GradientTarget; INPUTS],
    pub gradients: Gradients,
    /// Parameters that the node's layer needs on the device when the gradient of its output arrives.
    pub parameters: Vec<usize>,
    /// A second type in which an input asks for the gradient of the first output.
    wants: Option<DType>,
    /// The gradient in that type, from a kernel that wrote both.
    pub copy: Option<Tensor>,
    pub backward: Backward<P>,
}

/// The ops of the current forward pass, of type `P`.
pub(crate) struct Tape<P> {
    nodes: Vec<Node<P>>,
}

impl<P> Default for Tape<P> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<P> Tape<P> {
    /// Records an op; returns where gradients of its first output go.
    pub fn push(
        &mut self,
        name: &'static str,
        scope: NameId,
        inputs: [GradientTarget; INPUTS],
        backward: Backward<P>,
    ) -> GradientTarget {
        let gradients = Gradients::default();
        let parameters = Vec::new();
        self.nodes.push(Node { name, scope, inputs, gradients, parameters, wants: None, copy: None, backward });
        GradientTarget::Node { node: self.nodes.len() - 1, slot: 0 }
    }

    /// Notes that the last op made the output of a layer with these parameters.
    pub fn need_parameters(&mut self, parameters: Vec<usize>) {
        if let Some(node) = self.nodes.last_mut() {
            node.parameters.extend(parameters);
        }
    }

    /// Notes that the op at `source` also passes the gradient of its output on in `dtype`.
    pub fn want_copy(&mut self, source: GradientTarget, dtype: DType) {
        if let GradientTarget::Node { node, .. } = source {
            self.nodes[node].wants = Some(dtype);
        }
    }

    /// The second type in which the op at `to` asks for its gradient, while no gradient has arrived there.
    pub fn wanted_copy(&self, to: GradientTarget) -> Option<DType> {
        let GradientTarget::Node { node, slot: 0 } = to else { return None };
        let node = &self.nodes[node];
        if node.gradients[0].is_none() { node.wants } else { None }
    }

    /// Hands the op at `to` a copy of its next gradient, in the type that it asked for.
    pub fn deliver_copy(&mut self, to: GradientTarget, copy: Tensor) {
        if let GradientTarget::Node { node, .. } = to {
            self.nodes[node].copy = Some(copy);
        }
    }

    /// Number of recorded ops: the number of the next one.
    pub const fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Takes the last op off the tape, unless it is one of the first `kept`.
    pub(super) fn pop_beyond(&mut self, kept: usize) -> Option<Node<P>> {
        if self.nodes.len() > kept { self.nodes.pop() } else { None }
    }

    /// Passes another gradient to output `slot` of node number `node`.
    pub fn receive(&mut self, memory: &Memory, node: usize, slot: u8, gradient: Tensor) -> OpResult<()> {
        let node = &mut self.nodes[node];
        let sum = &mut node.gradients[usize::from(slot)];
        // A second gradient makes a copy of the first wrong.
        if slot == 0 && sum.is_some() {
            node.copy = None;
        }
        add_to(memory, sum, gradient)
    }

    /// Drops the gradients that have arrived at nodes.
    pub fn drop_gradients(&mut self) {
        for node in &mut self.nodes {
            node.gradients = Gradients::default();
            node.copy = None;
        }
    }

    /// Drops all nodes and what they saved, last first.
    pub fn clear(&mut self) {
        while self.nodes.pop().is_some() {}
    }
}

/// A rank's part of a parameter.
pub(crate) struct Shard {
    /// The rank's rows, without padding.
    pub data: Tensor,
    pub gradient: Option<Tensor>,
    /// Where the rank's gradients go in host memory, from the first one on.
    pub room: Option<Tensor>,
}

/// A parameter as autograd sees it.
pub(crate) struct Leaf {
    pub name: Arc<str>,
    pub data: Tensor,
    pub gradient: Option<Tensor>,
    /// It is not trained.
    pub frozen: bool,
    /// The element type that a 4-bit matrix's bytes are stored as (`bnb_4bit_quant_storage`): it is sharded by such elements.
    pub packed_in: Option<DType>,
    /// Tensors that a 4-bit matrix has besides its bytes.
    pub beside: Vec<Tensor>,
    /// It is this rank's rows of a table that is also a head's weight: the table's gradient covers all rows, and is added in a
    /// new tensor.
    pub shares_rows: bool,
    /// Its values in host memory, if it is on the device only while its layer runs.
    pub parked: Option<ParkedValues>,
    /// This rank's shard, if the rank holds only that between passes.
    pub shard: Option<Shard>,
    gradient_name: NameId,
    /// Its gradients lie transposed, so that the first of them is copied instead of kept.
    transposed: bool,
    /// Sum of the gradients that have arrived in the current backward pass.
    arriving: Option<Tensor>,
    /// Uses in the current forward pass whose gradients have not arrived.
    awaited: usize,
}

impl Leaf {
    pub fn new(name: &str, data: Tensor, gradient_name: NameId) -> Self {
        Self {
            name: name.into(),
            data,
            gradient: None,
            frozen: false,
            packed_in: None,
            beside: Vec::new(),
            shares_rows: false,
            parked: None,
            shard: None,
            gradient_name,
            transposed: false,
            arriving: None,
            awaited: 0,
        }
    }

    /// Rows to divide among ranks: those of the first dimension, or the elements of the type that a 4-bit matrix is stored as.
    pub fn shard_rows(&self) -> usize {
        match self.packed_in {
            Some(_) => self.data.numel().div_ceil(self.shard_row()),
            None => self.data.shape().dims().first().copied().unwrap_or(1),
        }
    }

    /// Elements of one of these rows.
    pub fn shard_row(&self) -> usize {
        match self.packed_in {
            Some(dtype) => usize::try_from(dtype.size()).unwrap_or(1),
            None => self.data.numel() / self.shard_rows().max(1),
        }
    }

    /// Returns the number of uses whose gradients have not arrived, and replaces it by `awaited`.
    pub const fn swap_awaited(&mut self, awaited: usize) -> usize {
        std::mem::replace(&mut self.awaited, awaited)
    }

    /// Counts a use of the parameter by an op on the tape.
    pub fn used(&mut self) {
        self.awaited += 1;
    }

    /// Notes that gradients arrive as those of a transposed view of the parameter (`einsum`).
    pub const fn gradients_come_transposed(&mut self) {
        self.transposed = true;
    }

    /// What an optimizer updates, and its gradient: the shard's if there is one.
    pub const fn trained(&self) -> (&Tensor, Option<&Tensor>) {
        match &self.shard {
            Some(Shard { data, gradient, .. }) => (data, gradient.as_ref()),
            None => (&self.data, self.gradient.as_ref()),
        }
    }

    /// Adds to the gradient of the rank's shard.
    pub fn shard_gradient(&mut self, gradient: Tensor) {
        if let Some(shard) = &mut self.shard {
            shard.gradient = Some(gradient);
        }
    }

    /// Drops the gradient.
    pub fn drop_gradient(&mut self) {
        self.gradient = None;
        if let Some(shard) = &mut self.shard {
            shard.gradient = None;
        }
    }

    /// Forgets an abandoned step.
    pub fn reset(&mut self) {
        self.drop_gradient();
        self.arriving = None;
        self.awaited = 0;
    }

    /// Frees the block on the device if the values wait in host memory.
    pub fn let_go(&self) {
        if self.parked.is_some() {
            self.data.storage().empty();
        }
    }

    /// Takes one gradient. The last one of a pass becomes (or is added to) `.grad`, and the block of a parameter that was brought
    /// for its layer is freed. True for the last one.
    pub fn receive(&mut self, memory: &Memory, gradient: Tensor) -> OpResult<bool> {
        match self.arriving.take_if(|_| self.shares_rows) {
            Some(first) => {
                let new = |what| memory.tensor(first.shape(), first.dtype(), Category::Temporary, what);
                let own = new("gradient of own rows")?;
                memory.launch(kernels::Elementwise::Cast { src: gradient.operand(), dst: own.operand() })?;
                let sum = new("gradient sum")?;
                memory.launch(kernels::Elementwise::Add {
                    a: first.operand(),
                    b: own.operand(),
                    dst: sum.operand(),
                })?;
                self.arriving = Some(sum);
            }
            None => add_to(memory, &mut self.arriving, gradient)?,
        }
        self.awaited = self.awaited.saturating_sub(1);
        if self.awaited > 0 {
            return Ok(false);
        }
        let Some(arrived) = self.arriving.take() else { return Ok(false) };
        let shape = self.data.shape();
        match &self.gradient {
            None if self.transposed && shape.dims().iter().all(|&dim| dim > 1) => {
                let (dtype, stream) = (arrived.dtype(), arrived.stream());
                let copy = memory.named_tensor(shape, dtype, Category::Gradient, self.gradient_name, stream)?;
                memory.launch(kernels::Elementwise::Cast { src: arrived.flat(), dst: copy.operand() })?;
                self.gradient = Some(copy);
            }
            None => {
                memory.relabel(&arrived, Category::Gradient, self.gradient_name);
                self.gradient = Some(arrived.reshaped(shape));
            }
            Some(sum) => {
                memory.launch(kernels::Elementwise::Add {
                    a: sum.operand(),
                    b: arrived.operand(),
                    dst: sum.operand(),
                })?;
            }
        }
        self.let_go();
        Ok(true)
    }
}

/// Adds `gradient` to the sum so far: in place if the sum has no other owner, else in a new tensor.
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
    memory.launch(kernels::Elementwise::Add { a: first.flat(), b: gradient.flat(), dst: target.flat() })?;
    *sum = Some(target);
    Ok(())
}
