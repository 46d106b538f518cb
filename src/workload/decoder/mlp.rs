//! The part of a layer after attention.

use std::rc::Rc;

use vramlab_model::NameId;
use vramlab_train::{Context, OpResult, Repeatable, Tensor, TrainError};

use super::super::llama::{Gate, GatedMlp};
use super::super::lora::{Adaptable, Lora, Target};
use super::super::parameters::Parameters;
use super::experts::SparseMlp;
use super::sizes::{DecoderSizes, DropoutPlace};
use super::style::{LayerFusion, MlpActivation, Style};

/// An MLP, or experts in place of one.
pub(super) struct Mlp {
    kind: MlpKind,
    /// The share of its output that dropout leaves out.
    dropout: f64,
}

enum MlpKind {
    Gated(Rc<GatedMlp>),
    Plain(Rc<PlainMlp>),
    Sparse(Box<SparseMlp>),
}

/// `c_proj(gelu(c_fc(x)))`, or another activation.
struct PlainMlp {
    scope: NameId,
    activation: MlpActivation,
    names: [Target; 2],
    first: Adaptable,
    second: Adaptable,
}

impl Mlp {
    /// The MLP of a layer.
    pub fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        layer: usize,
        sizes: &DecoderSizes,
    ) -> OpResult<Self> {
        let DecoderSizes { width, hidden, style, .. } = *sizes;
        let gate =
            if style.gemma { Gate::Gelu { tanh: style.activation == MlpActivation::GeluTanh } } else { Gate::Silu };
        let ends = [width, hidden];
        let kind = match sizes.experts.filter(|experts| experts.layers.has(layer)) {
            Some(experts) => {
                MlpKind::Sparse(Box::new(SparseMlp::make(cx, all, name, (width, style.names.router), experts)?))
            }
            None if matches!(style.packing, LayerFusion::Gates | LayerFusion::All) => {
                MlpKind::Gated(Rc::new(GatedMlp::packed(cx, all, name, ends, style.packed)?))
            }
            None if style.ungated => MlpKind::Plain(Rc::new(PlainMlp::make(cx, all, name, ends, style)?)),
            None => MlpKind::Gated(Rc::new(GatedMlp::make(cx, all, name, ends, gate, style.mlp_biases)?)),
        };
        let dropout = if sizes.dropouts.place == DropoutPlace::Within { sizes.dropouts.residual } else { 0.0 };
        Ok(Self { kind, dropout })
    }

    /// The output, and a second tensor that the layer holds to its end.
    pub fn forward(&self, cx: &mut Context, input: Tensor) -> OpResult<(Tensor, Option<Tensor>)> {
        let (output, beside) = match &self.kind {
            MlpKind::Gated(mlp) => (whole_or_tiled(cx, mlp, &input)?, None),
            MlpKind::Plain(mlp) if !cx.tiles_mlps() => mlp.run(cx, input)?,
            MlpKind::Plain(mlp) => (whole_or_tiled(cx, mlp, &input)?, None),
            MlpKind::Sparse(_) if cx.tiles_mlps() => {
                let text = "experts run whole: there are no tiles of them; leave --tiled-mlp out".to_owned();
                return Err(TrainError::Workload(text).into());
            }
            MlpKind::Sparse(experts) => experts.forward(cx, &input)?,
        };
        Ok((cx.dropout(&output, self.dropout)?, beside))
    }

    /// Puts adapters on its linear layers.
    pub fn adapt(&mut self, cx: &mut Context, all: &mut Parameters, name: &str, lora: Lora) -> OpResult<()> {
        match &mut self.kind {
            MlpKind::Gated(mlp) => owned(mlp)?.adapt(cx, all, name, lora),
            MlpKind::Plain(mlp) => {
                let mlp = owned(mlp)?;
                let [first, second] = mlp.names;
                mlp.first.adapt(cx, all, name, lora, first)?;
                mlp.second.adapt(cx, all, name, lora, second)
            }
            MlpKind::Sparse(experts) => experts.adapt(cx, all, name, lora),
        }
    }
}

/// An MLP under construction, which no graph holds yet.
fn owned<T>(mlp: &mut Rc<T>) -> OpResult<&mut T> {
    Rc::get_mut(mlp).ok_or_else(|| TrainError::Workload("adapters come before the first step".to_owned()).into())
}

fn whole_or_tiled<T: Repeatable + 'static>(cx: &mut Context, mlp: &Rc<T>, input: &Tensor) -> OpResult<Tensor> {
    if cx.tiles_mlps() {
        let mlp: Rc<dyn Repeatable> = Rc::clone(mlp) as _;
        return cx.tiled(&mlp, input);
    }
    mlp.forward(cx, input)
}

impl PlainMlp {
    fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [width, hidden]: [usize; 2],
        style: Style,
    ) -> OpResult<Self> {
        let make = match style.mlp_biases {
            true if style.conv1d => Adaptable::conv1d,
            true => Adaptable::biased,
            false if style.products => Adaptable::product,
            false => Adaptable::plain,
        };
        let names = style.names.mlp;
        let first = make(cx, all, &format!("{name}.{}", names[0].word()), [width, hidden])?;
        let second = make(cx, all, &format!("{name}.{}", names[1].word()), [hidden, width])?;
        Ok(Self { scope: cx.memory().name(name), activation: style.activation, names, first, second })
    }
}

impl PlainMlp {
    /// The output for `input`, which is freed after the first layer if it has no other owner, and the input of the second layer
    /// if that lives until the output is added to the residual stream.
    fn run(&self, cx: &mut Context, input: Tensor) -> OpResult<(Tensor, Option<Tensor>)> {
        let activated = {
            let hidden = self.first.forward(cx, &input)?;
            drop(input);
            cx.within(self.scope, |cx| match self.activation {
                MlpActivation::GeluTanh => cx.gelu(&hidden, true),
                MlpActivation::Gelu => cx.gelu(&hidden, false),
                MlpActivation::NewGelu => cx.new_gelu(&hidden),
                MlpActivation::Relu => cx.relu(&hidden),
                MlpActivation::SquaredRelu => cx.squared_relu(&hidden),
                MlpActivation::BloomGelu => cx.bloom_gelu(&hidden),
            })?
        };
        let output = self.second.forward(cx, &activated)?;
        cx.put_out(self.scope, &output);
        Ok((output, (self.activation == MlpActivation::BloomGelu).then_some(activated)))
    }
}

impl Repeatable for PlainMlp {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        self.run(cx, input.clone()).map(|(output, _)| output)
    }
}
