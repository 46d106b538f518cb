//! The transformer block that GPT, BERT and ViT share.

use vramlab_model::NameId;
use vramlab_train::{
    AddNormOutput, Context, NormOutputs, OpResult, Repeatable, Tensor, TensorSplit, TrainError, UnevenSplit, World,
};

use super::modules::{LayerNorm, Linear};
use super::parameters::Parameters;

/// The differences between blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockStyle {
    /// Channels.
    pub width: usize,
    /// Attention heads; they divide the width.
    pub heads: usize,
    /// A position attends only to itself and those before.
    pub causal: bool,
    /// Normalise the sums (BERT) instead of the inputs of attention and MLP.
    pub post_norm: bool,
    /// GELU by its tanh form.
    pub tanh: bool,
}

/// Attention and an MLP of four times the width, each with a residual connection and a norm.
pub(super) struct TransformerBlock {
    scope: NameId,
    style: BlockStyle,
    ln1: LayerNorm,
    ln2: LayerNorm,
    qkv: Linear,
    proj: Linear,
    fc: Linear,
    out: Linear,
}

impl TransformerBlock {
    pub fn make(cx: &mut Context, all: &mut Parameters, name: &str, style: BlockStyle) -> OpResult<Self> {
        if let Some(world) = cx.tensor_world() {
            return Self::split(cx, all, name, style, world);
        }
        let d = style.width;
        Ok(Self {
            scope: cx.memory().name(name),
            style,
            ln1: LayerNorm::make(cx, all, &format!("{name}.ln1"), d)?,
            ln2: LayerNorm::make(cx, all, &format!("{name}.ln2"), d)?,
            qkv: Linear::make(cx, all, &format!("{name}.qkv"), [d, 3 * d])?,
            proj: Linear::make(cx, all, &format!("{name}.proj"), [d, d])?,
            fc: Linear::make(cx, all, &format!("{name}.fc"), [d, 4 * d])?,
            out: Linear::make(cx, all, &format!("{name}.out"), [4 * d, d])?,
        })
    }

    /// A block with this rank's heads, and its columns of the MLP.
    fn split(cx: &mut Context, all: &mut Parameters, name: &str, style: BlockStyle, world: World) -> OpResult<Self> {
        let (d, ranks) = (style.width, world.size());
        if !style.heads.is_multiple_of(ranks) {
            let remedy = "give --heads or a world so that each rank has as many".to_owned();
            let uneven = UnevenSplit { count: style.heads, what: "attention heads", ranks, remedy };
            return Err(TrainError::Workload(uneven.to_string()).into());
        }
        let style = BlockStyle { heads: style.heads / ranks, ..style };
        let block = Self {
            scope: cx.memory().name(name),
            style,
            ln1: LayerNorm::make(cx, all, &format!("{name}.ln1"), d)?,
            ln2: LayerNorm::make(cx, all, &format!("{name}.ln2"), d)?,
            qkv: Linear::column_parallel(cx, all, &format!("{name}.qkv"), [d, 3 * d], 3 * d / ranks)?,
            proj: Linear::row_parallel(cx, all, &format!("{name}.proj"), [d, d], d / ranks)?,
            fc: Linear::column_parallel(cx, all, &format!("{name}.fc"), [d, 4 * d], 4 * d / ranks)?,
            out: Linear::row_parallel(cx, all, &format!("{name}.out"), [4 * d, d], 4 * d / ranks)?,
        };
        block.qkv.split(cx, TensorSplit::Heads);
        block.fc.split(cx, TensorSplit::Outputs);
        Linear::split_inputs(cx, [&block.proj, &block.out]);
        Ok(block)
    }

    /// Attention, then the MLP, on this rank's heads and columns.
    fn split_attention(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let x = cx.copy_to_ranks(x)?;
        let qkv = self.qkv.forward(cx, &x)?;
        let BlockStyle { heads, causal, .. } = self.style;
        let y = cx.within(self.scope, |cx| cx.attention(&qkv, heads, causal))?;
        let merged = cx.within(self.scope, |cx| cx.merge_heads(&y))?;
        self.proj.reduced_forward(cx, merged.clone())
    }

    fn split_mlp(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let activated = {
            let x = cx.copy_to_ranks(x)?;
            if cx.is_fused() {
                self.fc.fused_gelu(cx, &x, self.style.tanh)?
            } else {
                let hidden = self.fc.forward(cx, &x)?;
                cx.within(self.scope, |cx| cx.gelu(&hidden, self.style.tanh))?
            }
        };
        self.out.reduced_forward(cx, activated)
    }

    fn attention(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        if cx.tensor_world().is_some() {
            return self.split_attention(cx, x);
        }
        // Queries, keys and values are views held by local variables: the packed projection lives to the end.
        let qkv = self.qkv.forward(cx, x)?;
        let BlockStyle { heads, causal, .. } = self.style;
        let y = cx.within(self.scope, |cx| cx.attention(&qkv, heads, causal))?;
        let merged = cx.within(self.scope, |cx| cx.merge_heads(&y))?;
        self.proj.forward(cx, &merged)
    }

    fn mlp(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        if cx.tensor_world().is_some() {
            return self.split_mlp(cx, x);
        }
        if cx.is_fused() {
            let activated = self.fc.fused_gelu(cx, x, self.style.tanh)?;
            return self.out.forward(cx, &activated);
        }
        let hidden = self.fc.forward(cx, x)?;
        let activated = cx.within(self.scope, |cx| cx.gelu(&hidden, self.style.tanh))?;
        // No variable holds the argument of gelu; that of the next layer lives until the layer has returned.
        drop(hidden);
        self.out.forward(cx, &activated)
    }

    /// `x + sublayer(norm(x))`, or `norm(x + sublayer(x))`. The input of the norm or of the sublayer is an argument: it
    /// lives until that has returned, and the sublayer's output until the sum is computed.
    fn residual(
        &self,
        cx: &mut Context,
        x: &Tensor,
        norm: &LayerNorm,
        sublayer: impl Fn(&Self, &mut Context, &Tensor) -> OpResult<Tensor>,
    ) -> OpResult<Tensor> {
        let sum = {
            let output = if self.style.post_norm {
                sublayer(self, cx, x)?
            } else {
                let normalised = norm.forward(cx, x)?;
                sublayer(self, cx, &normalised)?
            };
            cx.within(self.scope, |cx| cx.add(x, &output))?
        };
        if self.style.post_norm { norm.forward(cx, &sum) } else { Ok(sum) }
    }

    /// The same block with sums and norms as one op each.
    fn fused(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        if self.style.post_norm {
            let y = self.attention(cx, x)?;
            let x = self.ln1.fused(cx, x, Some(&y), NormOutputs::Both)?.output;
            drop(y);
            let y = self.mlp(cx, &x)?;
            return Ok(self.ln2.fused(cx, &x, Some(&y), NormOutputs::Both)?.output);
        }
        let AddNormOutput { sum: x, output } = self.ln1.fused(cx, x, None, NormOutputs::Lower)?;
        let y = self.attention(cx, &output)?;
        let AddNormOutput { sum: x, output } = self.ln2.fused(cx, &x, Some(&y), NormOutputs::Lower)?;
        drop(y);
        let y = self.mlp(cx, &output)?;
        cx.within(self.scope, |cx| cx.add(&x, &y))
    }
}

impl Repeatable for TransformerBlock {
    fn forward(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let output = if cx.is_fused() {
            self.fused(cx, x)?
        } else {
            let x = self.residual(cx, x, &self.ln1, Self::attention)?;
            self.residual(cx, &x, &self.ln2, Self::mlp)?
        };
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}
