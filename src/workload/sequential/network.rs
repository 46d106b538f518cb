//! Modules one after the other.

use std::rc::Rc;

use crate::model::NameId;
use crate::train::{Context, Model, OpResult, Segment, Tensor, TrainError, checkpoint};

use super::super::hash::Parameters;
use super::super::modules::{Activation, Embedding, LayerNorm, Linear};
use super::super::transformer::Block;
use super::plan::Module;

/// A model; its blocks can be checkpointed.
pub(super) struct Network(Vec<Stage>);

enum Stage {
    Plain(Rc<dyn Segment>),
    Block(Rc<dyn Segment>),
}

impl Network {
    /// Makes the modules; their parameters get their values later.
    pub fn make(cx: &mut Context, all: &mut Parameters, modules: &[Module]) -> OpResult<Self> {
        let mut maker = Maker { cx, all, table: None };
        let stages = modules.iter().map(|module| {
            let segment = maker.segment(module)?;
            Ok(match module {
                Module::Transformer { .. } | Module::Group { .. } => Stage::Block(segment),
                _ => Stage::Plain(segment),
            })
        });
        Ok(Self(stages.collect::<OpResult<_>>()?))
    }
}

impl Model for Network {
    fn forward(&self, cx: &mut Context, input: &Tensor, checkpointing: bool) -> OpResult<Tensor> {
        let mut x = input.clone();
        for stage in &self.0 {
            x = match stage {
                Stage::Block(block) if checkpointing => checkpoint(cx, block, &x)?,
                Stage::Block(segment) | Stage::Plain(segment) => segment.forward(cx, &x)?,
            };
        }
        Ok(x)
    }
}

/// Several modules as one.
struct Group {
    scope: NameId,
    members: Vec<Rc<dyn Segment>>,
    residual: bool,
}

impl Segment for Group {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // A module's output lives until the next one has returned: the loop of `nn.Sequential` rebinds its variable then.
        let mut x = input.clone();
        for member in &self.members {
            x = member.forward(cx, &x)?;
        }
        if self.residual { cx.within(self.scope, |cx| cx.add(input, &x)) } else { Ok(x) }
    }
}

fn activation(cx: &Context, name: &str, function: fn(&mut Context, &Tensor) -> OpResult<Tensor>) -> Rc<dyn Segment> {
    Rc::new(Activation { scope: cx.memory().name(name), function })
}

struct Maker<'a> {
    cx: &'a mut Context,
    all: &'a mut Parameters,
    /// The table of the embedding, once it is there.
    table: Option<Tensor>,
}

impl Maker<'_> {
    fn segment(&mut self, module: &Module) -> OpResult<Rc<dyn Segment>> {
        let (cx, all) = (&mut *self.cx, &mut *self.all);
        Ok(match module {
            &Module::Embedding { table, positions } => {
                let embedding = Embedding::make(cx, all, table, positions)?;
                self.table = Some(embedding.table().clone());
                Rc::new(embedding)
            }
            Module::Linear { name, sizes, bias: true } => Rc::new(Linear::make(cx, all, name, *sizes)?),
            Module::Linear { name, sizes, bias: false } => Rc::new(Linear::plain(cx, all, name, *sizes)?),
            Module::TiedLinear { name } => match &self.table {
                Some(table) => Rc::new(Linear::tied(cx, name, table.clone())),
                None => {
                    return Err(TrainError::Workload(format!("{name} has no embedding to share a table with")).into());
                }
            },
            Module::Relu { name } => activation(cx, name, Context::relu),
            Module::Gelu { name, tanh: true } => activation(cx, name, |cx, x| cx.gelu(x, true)),
            Module::Gelu { name, tanh: false } => activation(cx, name, |cx, x| cx.gelu(x, false)),
            Module::LayerNorm { name, width } => Rc::new(LayerNorm::make(cx, all, name, *width)?),
            Module::Transformer { name, style } => Rc::new(Block::make(cx, all, name, *style)?),
            Module::Group { name, members, residual } => {
                let scope = cx.memory().name(name);
                let members = members.iter().map(|member| self.segment(member)).collect::<OpResult<_>>()?;
                Rc::new(Group { scope, members, residual: *residual })
            }
        })
    }
}
