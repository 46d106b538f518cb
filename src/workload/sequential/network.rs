//! Modules one after the other.

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Batch, Checkpointing, Context, Cut, Model, OpResult, Repeatable, Shape, StagePart, Tensor, TrainError, checkpoint,
};

use super::super::image_modules::{BatchNorm, Convolution, Direction, MaxPool, Patches};
use super::super::llama::{Gate, GatedMlp, Norm, NormKind};
use super::super::modules::{Activation, Embedding, LayerNorm, Linear, Mean};
use super::super::parameters::Parameters;
use super::super::transformer::TransformerBlock;
use super::plan::ModuleSpec;

/// A model; its blocks can be checkpointed.
pub(super) struct Network {
    stages: Vec<NetworkStage>,
    /// The width of embedded tokens.
    width: Option<usize>,
}

enum NetworkStage {
    Plain(Rc<dyn Repeatable>),
    /// A unit that FSDP wraps, with its number.
    Block(usize, Rc<dyn Repeatable>),
}

impl Network {
    /// Makes the modules; their parameters get their values later.
    pub fn make(cx: &mut Context, all: &mut Parameters, modules: &[ModuleSpec]) -> OpResult<Self> {
        // The vectors for places belong to the model itself: first among the parameters, last on the device.
        let cut = modules.iter().position(|module| matches!(module, ModuleSpec::Patches { .. }));
        let positions = cut.map(|_| all.reserve());
        let mut maker = Maker { cx, all, table: None };
        let (mut stages, mut patches) = (Vec::with_capacity(modules.len()), None);
        for module in modules {
            match module {
                ModuleSpec::Patches { name, channels, side, rows } => {
                    let windows = [*side, *side, 0];
                    let convolution = Convolution::biased(maker.cx, maker.all, name, *channels, windows)?;
                    patches = Some((convolution, [*rows, channels[1]]));
                }
                ModuleSpec::Transformer { .. } | ModuleSpec::Group { .. } => {
                    let first = maker.all.len();
                    let block = maker.segment(module)?;
                    // Parameters are numbered after those of models that already exist.
                    let before = maker.cx.parameter_count();
                    let unit = maker.cx.unit(before + first..before + maker.all.len());
                    stages.push(NetworkStage::Block(unit, block));
                }
                _ => stages.push(NetworkStage::Plain(maker.segment(module)?)),
            }
        }
        if let (Some(cut), Some(slot), Some((convolution, shape))) = (cut, positions, patches) {
            let positions = all.weight_in(slot, cx, "pos", &shape)?;
            stages.insert(cut, NetworkStage::Plain(Rc::new(Patches { convolution, positions })));
        }
        let width = modules.iter().find_map(|module| match module {
            ModuleSpec::Embedding { table: [_, width], .. } => Some(*width),
            _ => None,
        });
        Ok(Self { stages, width })
    }
}

impl Model for Network {
    fn forward(&self, cx: &mut Context, input: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor> {
        cx.model_forward(|cx| {
            let (mut x, mut blocks) = (input.clone(), 0..);
            for (i, stage) in self.stages.iter().enumerate() {
                x =
                    match stage {
                        NetworkStage::Block(unit, block) => {
                            let again = blocks.next().is_some_and(|number| checkpointing.of(number));
                            cx.unit_forward(*unit, &x, |cx, x| {
                                if again { checkpoint(cx, block, x) } else { block.forward(cx, x) }
                            })?
                        }
                        NetworkStage::Plain(head) if i + 1 == self.stages.len() => {
                            cx.classify(|cx| head.forward(cx, &x))?
                        }
                        NetworkStage::Plain(segment) => segment.forward(cx, &x)?,
                    };
            }
            cx.put_out(NameId::NONE, &x);
            Ok(x)
        })
    }

    fn stage_forward(
        &self,
        cx: &mut Context,
        batch: &Batch,
        part: &StagePart,
        checkpointing: Checkpointing,
    ) -> OpResult<Tensor> {
        cx.model_forward(|cx| {
            let (mut x, mut behind, mut blocks) = (batch.input.clone(), false, 0..);
            for stage in &self.stages {
                match stage {
                    NetworkStage::Block(unit, block) => {
                        behind = true;
                        if part.units.contains(unit) {
                            let again = blocks.next().is_some_and(|number| checkpointing.of(number));
                            x = if again { checkpoint(cx, block, &x)? } else { block.forward(cx, &x)? };
                        }
                    }
                    NetworkStage::Plain(segment) if (behind && part.last) || (!behind && part.first) => {
                        if behind {
                            // The variable of the stage's forward lives to its end.
                            cx.keep_local(x.clone());
                        }
                        x = segment.forward(cx, &x)?;
                    }
                    NetworkStage::Plain(_) => {}
                }
            }
            Ok(x)
        })
    }

    fn cut(&self) -> Option<Cut> {
        self.width.map(|_| Cut::Rebuilt)
    }

    fn stage_input(&self, tokens: &Tensor) -> Option<(Shape, DType)> {
        tokens.shape().with_appended(self.width?).map(|shape| (shape, DType::F32))
    }
}

/// Several modules as one.
struct Group {
    scope: NameId,
    members: Vec<Rc<dyn Repeatable>>,
    residual: bool,
    autocast: bool,
}

impl Repeatable for Group {
    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        if self.autocast {
            return self.run(cx, input);
        }
        // `with torch.autocast("cuda", enabled=False)`, with `.float()` on the input.
        cx.without_autocast(|cx| {
            let input = cx.float(input)?;
            self.run(cx, &input)
        })
    }
}

impl Group {
    fn run(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        // A module's output lives until the next module has returned: only then does the loop of `nn.Sequential` rebind its variable.
        let mut x = input.clone();
        for member in &self.members {
            x = member.forward(cx, &x)?;
        }
        if self.residual {
            x = cx.within(self.scope, |cx| cx.add(input, &x))?;
        }
        cx.put_out(self.scope, &x);
        Ok(x)
    }
}

fn activation(cx: &Context, name: &str, function: fn(&mut Context, &Tensor) -> OpResult<Tensor>) -> Rc<dyn Repeatable> {
    Rc::new(Activation { scope: cx.memory().name(name), function })
}

struct Maker<'a> {
    cx: &'a mut Context,
    all: &'a mut Parameters,
    /// The table of the embedding, once it is made.
    table: Option<Tensor>,
}

impl Maker<'_> {
    fn segment(&mut self, module: &ModuleSpec) -> OpResult<Rc<dyn Repeatable>> {
        let (cx, all) = (&mut *self.cx, &mut *self.all);
        Ok(match module {
            &ModuleSpec::Embedding { table, positions } => {
                let embedding = Embedding::make(cx, all, table, positions)?;
                self.table = Some(embedding.table().clone());
                Rc::new(embedding)
            }
            ModuleSpec::Linear { name, sizes, bias: true } => Rc::new(Linear::make(cx, all, name, *sizes)?),
            ModuleSpec::Linear { name, sizes, bias: false } => Rc::new(Linear::plain(cx, all, name, *sizes)?),
            ModuleSpec::TiedLinear { name } => match &self.table {
                Some(table) => Rc::new(Linear::tied(cx, name, table.clone())),
                None => {
                    return Err(TrainError::Workload(format!("{name} has no embedding to share a table with")).into());
                }
            },
            ModuleSpec::Relu { name, saves_input: false } => activation(cx, name, Context::relu),
            ModuleSpec::Relu { name, saves_input: true } => activation(cx, name, Context::relu_saving_input),
            ModuleSpec::Gelu { name, tanh: true } => activation(cx, name, |cx, x| cx.gelu(x, true)),
            ModuleSpec::Gelu { name, tanh: false } => activation(cx, name, |cx, x| cx.gelu(x, false)),
            ModuleSpec::LayerNorm { name, width } => Rc::new(LayerNorm::make(cx, all, name, *width)?),
            ModuleSpec::RmsNorm { name, width } => {
                Rc::new(Norm::make(cx, all, name, *width, (NormKind::Plain, Norm::EPS))?)
            }
            ModuleSpec::GatedMlp { name, sizes } => Rc::new(GatedMlp::make(cx, all, name, *sizes, Gate::Silu, false)?),
            ModuleSpec::Transformer { name, style } => Rc::new(TransformerBlock::make(cx, all, name, *style)?),
            ModuleSpec::Tanh { name } => activation(cx, name, Context::tanh),
            ModuleSpec::Conv { name, channels, windows, bias: true } => {
                Rc::new(Convolution::biased(cx, all, name, *channels, *windows)?)
            }
            ModuleSpec::Conv { name, channels, windows, bias: false } => {
                Rc::new(Convolution::make(cx, all, name, Direction::Down, *channels, *windows)?)
            }
            ModuleSpec::BatchNorm { name, channels, .. } => Rc::new(BatchNorm::make(cx, all, name, *channels)?),
            ModuleSpec::MaxPool { name, windows } => {
                Rc::new(MaxPool { scope: cx.memory().name(name), windows: *windows })
            }
            ModuleSpec::Mean { name } => Rc::new(Mean { scope: cx.memory().name(name) }),
            ModuleSpec::Patches { name, .. } => {
                return Err(TrainError::Workload(format!("{name} is part of a block; let it stand alone")).into());
            }
            ModuleSpec::Group { name, members, residual, autocast } => {
                let scope = cx.memory().name(name);
                let members = members.iter().map(|member| self.segment(member)).collect::<OpResult<_>>()?;
                Rc::new(Group { scope, members, residual: *residual, autocast: *autocast })
            }
        })
    }
}
