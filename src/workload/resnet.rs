//! ResNets of bottleneck blocks: a stem, four stages, a head over the mean of every channel.

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Batch, BatchLayout, BatchSource, Checkpointing, Context, Layouts, Model, OpResult, Repeatable, Shape, Task, Tensor,
    TrainError, Workload, checkpoint,
};

use super::bounds::{Extent, MOST_OF_A_SAMPLE, Repeats};
use super::error::CatalogError;
use super::hash::{self, Cycle};
use super::image_modules::{BatchNorm, Convolution, Direction};
use super::modules::Linear;
use super::parameters::{Parameters, Spread};
use super::sizes::{Size, Sizes};

/// Sizes of a ResNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNetSizes {
    /// Blocks of each stage: 3, 4, 6, 3 make ResNet-50, 3, 8, 36, 3 ResNet-152.
    pub stages: [Repeats; 4],
    /// Classes.
    pub classes: Extent,
    /// Channels after the stem; those within a block of stage i are this times 2ⁱ.
    pub width: Extent,
    /// Rows and columns of an image.
    pub image: Extent,
}

impl ResNetSizes {
    /// Those of the workload `name`.
    pub(super) fn of(name: &str, sizes: Sizes) -> Result<Self, CatalogError> {
        let checked = sizes.only(name, &[Size::Stages, Size::Width, Size::Image, Size::Classes])?;
        Ok(Self {
            stages: checked.stages()?,
            classes: checked.need(Size::Classes)?,
            width: checked.need(Size::Width)?,
            image: checked.need(Size::Image)?,
        })
    }
}

/// The ResNet workload.
#[derive(Clone, Debug)]
pub struct ResNet {
    name: String,
    sizes: ResNetSizes,
}

/// Channels of an image.
const COLOURS: usize = 3;
/// A block's output channels per channel within it.
const EXPANSION: usize = 4;

impl ResNet {
    /// A workload of these sizes.
    ///
    /// # Errors
    /// [`TrainError::Workload`] for images that no device holds.
    pub fn new(name: &str, sizes: ResNetSizes) -> Result<Self, TrainError> {
        let side = sizes.image.get();
        if COLOURS * side * side > MOST_OF_A_SAMPLE {
            return Err(TrainError::Workload(format!(
                "an image of {side} × {side} pixels is more than any device holds; give a smaller one"
            )));
        }
        Ok(Self { name: name.into(), sizes })
    }

    /// Its sizes.
    #[must_use]
    pub const fn sizes(&self) -> ResNetSizes {
        self.sizes
    }

    fn sample(&self) -> [usize; 3] {
        let side = self.sizes.image.get();
        [COLOURS, side, side]
    }
}

/// A convolution and the norm after it.
struct ConvolutionNorm {
    convolution: Convolution,
    norm: BatchNorm,
}

impl ConvolutionNorm {
    fn make(
        cx: &mut Context,
        all: &mut Parameters,
        [convolution, norm]: [&str; 2],
        [inputs, outputs]: [usize; 2],
        windows: [usize; 3],
    ) -> OpResult<Self> {
        let channels = [inputs, outputs];
        Ok(Self {
            convolution: Convolution::make(cx, all, convolution, Direction::Down, channels, windows)?,
            norm: BatchNorm::make(cx, all, norm, outputs)?,
        })
    }

    fn forward(&self, cx: &mut Context, input: &Tensor) -> OpResult<Tensor> {
        let output = self.convolution.forward(cx, input)?;
        self.norm.forward(cx, &output)
    }

    /// ReLU of the norm, or of its sum with `residual`.
    fn activated(&self, cx: &mut Context, input: &Tensor, residual: Option<&Tensor>) -> OpResult<Tensor> {
        let output = self.convolution.forward(cx, input)?;
        self.norm.activated(cx, &output, residual, 0.0)
    }
}

/// Three convolutions, the middle one of few channels, and a residual connection around them.
struct Bottleneck {
    scope: NameId,
    narrow: ConvolutionNorm,
    spatial: ConvolutionNorm,
    wide: ConvolutionNorm,
    /// If the block changes the shape, a convolution on the shortcut does so too: a module of its own.
    shortcut: Option<(NameId, ConvolutionNorm)>,
}

impl Bottleneck {
    fn make(
        cx: &mut Context,
        all: &mut Parameters,
        name: &str,
        [inputs, middle]: [usize; 2],
        stride: usize,
    ) -> OpResult<Self> {
        let (outputs, scope) = (middle * EXPANSION, cx.memory().name(name));
        let mut part = |[c, b]: [&str; 2], channels, windows| {
            ConvolutionNorm::make(cx, all, [&format!("{name}.{c}"), &format!("{name}.{b}")], channels, windows)
        };
        Ok(Self {
            scope,
            narrow: part(["c1", "b1"], [inputs, middle], [1, 1, 0])?,
            spatial: part(["c2", "b2"], [middle, middle], [3, stride, 1])?,
            wide: part(["c3", "b3"], [middle, outputs], [1, 1, 0])?,
            shortcut: if stride != 1 || inputs != outputs {
                let normed = part(["down.0", "down.1"], [inputs, outputs], [1, stride, 0])?;
                Some((cx.memory().name(&format!("{name}.down")), normed))
            } else {
                None
            },
        })
    }
}

impl Bottleneck {
    fn relu(&self, cx: &mut Context, y: Tensor) -> OpResult<Tensor> {
        cx.within(self.scope, |cx| cx.relu_in_place(y))
    }

    fn eager(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let y = self.narrow.forward(cx, x)?;
        let y = self.relu(cx, y)?;
        let y = {
            let spatial = self.spatial.forward(cx, &y)?;
            drop(y);
            self.relu(cx, spatial)?
        };
        let y = {
            let wide = self.wide.forward(cx, &y)?;
            drop(y);
            wide
        };
        let y = match &self.shortcut {
            Some((module, shortcut)) => {
                let shortcut = shortcut.forward(cx, x)?;
                cx.put_out(*module, &shortcut);
                cx.within(self.scope, |cx| cx.add_in_place(y, &shortcut))?
            }
            None => cx.within(self.scope, |cx| cx.add_in_place(y, x))?,
        };
        self.relu(cx, y)
    }

    /// The same with a norm and the ops after it as one op.
    fn fused(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let y = self.narrow.activated(cx, x, None)?;
        let y = {
            let spatial = self.spatial.activated(cx, &y, None)?;
            drop(y);
            spatial
        };
        match &self.shortcut {
            Some((_, shortcut)) => {
                let residual = shortcut.convolution.forward(cx, x)?;
                let residual = shortcut.norm.activated(cx, &residual, None, 1.0)?;
                self.wide.activated(cx, &y, Some(&residual))
            }
            None => self.wide.activated(cx, &y, Some(x)),
        }
    }
}

impl Repeatable for Bottleneck {
    fn forward(&self, cx: &mut Context, x: &Tensor) -> OpResult<Tensor> {
        let output = if cx.fuses_norms() { self.fused(cx, x)? } else { self.eager(cx, x)? };
        cx.put_out(self.scope, &output);
        Ok(output)
    }
}

struct ResNetModules {
    stem: ConvolutionNorm,
    blocks: Vec<Rc<dyn Repeatable>>,
    head: Linear,
}

impl Model for ResNetModules {
    fn forward(&self, cx: &mut Context, images: &Tensor, checkpointing: Checkpointing) -> OpResult<Tensor> {
        let mut x = {
            let stem = if cx.fuses_norms() {
                let images = cx.channels_last(images, "images, channels last")?;
                self.stem.activated(cx, &images, None)?
            } else {
                let stem = self.stem.forward(cx, images)?;
                cx.relu_in_place(stem)?
            };
            cx.max_pool2d(&stem, 3, 2, 1)?
        };
        for (number, block) in self.blocks.iter().enumerate() {
            x = if checkpointing.of(number) { checkpoint(cx, block, &x)? } else { block.forward(cx, &x)? };
        }
        let features = cx.mean(&x, 2..4)?;
        let logits = self.head.forward(cx, &features)?;
        cx.put_out(NameId::NONE, &logits);
        Ok(logits)
    }
}

impl Workload for ResNet {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let (stages, mut all) = (self.sizes.stages.map(Repeats::get), Parameters::new(Spread::FanIn));
        let (width, classes) = (self.sizes.width.get(), self.sizes.classes.get());
        let stem = ConvolutionNorm::make(cx, &mut all, ["stem", "bn"], [COLOURS, width], [7, 2, 3])?;
        let mut blocks = Vec::with_capacity(stages.iter().sum());
        let mut inputs = width;
        for (stage, count) in stages.into_iter().enumerate() {
            let middle = width << stage;
            for i in 0..count {
                let stride = if stage > 0 && i == 0 { 2 } else { 1 };
                let name = format!("blocks.{}", blocks.len());
                blocks.push(
                    Rc::new(Bottleneck::make(cx, &mut all, &name, [inputs, middle], stride)?) as Rc<dyn Repeatable>
                );
                inputs = middle * EXPANSION;
            }
        }
        let head = Linear::make(cx, &mut all, "head", [inputs, classes])?;
        all.initialise(cx)?;
        Ok(Task::Supervised(Rc::new(ResNetModules { stem, blocks, head })))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        hash::four(|b| self.fresh_batch(cx, b, samples, 0))
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, _: u64) -> OpResult<Batch> {
        let [channels, height, width] = self.sample();
        hash::labelled(cx, batch, Shape::new(&[samples, channels, height, width]), self.sizes.classes.get())
    }

    fn batch_layouts(&self, samples: usize) -> Layouts {
        let [channels, height, width] = self.sample();
        let images = Shape::new(&[samples, channels, height, width]);
        Layouts::Alike(BatchLayout::new((images, DType::F32), (Shape::new(&[samples]), DType::I64)))
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        Ok(Box::new(Cycle::labelled(self.sizes.classes.get())))
    }

    fn least_micro_batch(&self) -> usize {
        // Stem, pooling and three stages halve the sides.
        if self.sizes.image.get() <= 32 { 2 } else { 1 }
    }

    fn items_per_sample(&self) -> usize {
        1
    }
}
