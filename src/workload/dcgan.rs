//! DCGAN: a generator of transposed convolutions, and a discriminator of convolutions.

use std::rc::Rc;

use vramlab_device::DType;
use vramlab_model::NameId;
use vramlab_train::{
    Adversaries, Batch, BatchLayout, BatchSource, Checkpointing, Context, Layouts, Model, OpResult, Repeatable, Shape,
    Task, Tensor, TrainError, Workload,
};

use super::bounds::Extent;
use super::hash::{self, Cycle};
use super::image_modules::{BatchNorm, Convolution, Direction};
use super::parameters::{Parameters, Spread};

/// The DCGAN workload.
#[derive(Clone, Debug)]
pub struct Dcgan {
    name: String,
    width: usize,
}

/// Channels of an image.
const COLOURS: usize = 3;
/// Rows and columns of an image.
const IMAGE: usize = 64;
/// Elements of the noise that an image is made from.
const NOISE: usize = 100;
/// The factor on negative values in the discriminator.
const SLOPE: f32 = 0.2;

impl Dcgan {
    /// A workload whose largest images have `width` channels in both nets, and whose smallest have eight times as many.
    #[must_use]
    pub fn new(name: &str, width: Extent) -> Self {
        Self { name: name.into(), width: width.get() }
    }

    fn images(samples: usize) -> [usize; 4] {
        [samples, COLOURS, IMAGE, IMAGE]
    }

    fn noise(samples: usize) -> [usize; 4] {
        [samples, NOISE, 1, 1]
    }

    fn generator(&self, cx: &mut Context) -> OpResult<NetSequence> {
        let mut net = NetMaker::new(cx, "generator", Direction::Up);
        net.convolution([NOISE, self.width * 8], [4, 1, 0])?;
        for factor in [4, 2, 1] {
            net.norm(self.width * factor * 2)?;
            net.function(Function::Relu);
            net.convolution([self.width * factor * 2, self.width * factor], [4, 2, 1])?;
        }
        net.norm(self.width)?;
        net.function(Function::Relu);
        net.convolution([self.width, COLOURS], [4, 2, 1])?;
        net.function(Function::Tanh);
        net.finish()
    }

    fn discriminator(&self, cx: &mut Context) -> OpResult<NetSequence> {
        let mut net = NetMaker::new(cx, "discriminator", Direction::Down);
        net.convolution([COLOURS, self.width], [4, 2, 1])?;
        net.function(Function::LeakyRelu);
        for factor in [1, 2, 4] {
            net.convolution([self.width * factor, self.width * factor * 2], [4, 2, 1])?;
            net.norm(self.width * factor * 2)?;
            net.function(Function::LeakyRelu);
        }
        net.convolution([self.width * 8, 1], [4, 1, 0])?;
        net.finish()
    }
}

/// An elementwise function.
#[derive(Clone, Copy)]
enum Function {
    Relu,
    LeakyRelu,
    Tanh,
}

enum NetModule {
    Convolution(Box<Convolution>),
    Norm(Box<BatchNorm>),
    Function(NameId, Function),
}

impl NetModule {
    /// The factor on negative values, if the function does nothing else.
    const fn slope(&self) -> Option<f32> {
        match self {
            Self::Function(_, Function::Relu) => Some(0.0),
            Self::Function(_, Function::LeakyRelu) => Some(SLOPE),
            _ => None,
        }
    }
}

/// Modules one after the other.
struct NetSequence {
    scope: NameId,
    modules: Vec<NetModule>,
}

impl Model for NetSequence {
    fn forward(&self, cx: &mut Context, input: &Tensor, _: Checkpointing) -> OpResult<Tensor> {
        let mut x = if cx.fuses_norms() { cx.channels_last(input, "input, channels last")? } else { input.clone() };
        let mut modules = self.modules.iter().peekable();
        while let Some(module) = modules.next() {
            x = match module {
                NetModule::Norm(norm) if cx.fuses_norms() => {
                    let slope = modules.peek().and_then(|next| next.slope());
                    if slope.is_some() {
                        modules.next();
                    }
                    norm.activated(cx, &x, None, slope.unwrap_or(1.0))?
                }
                NetModule::Convolution(convolution) => convolution.forward(cx, &x)?,
                NetModule::Norm(norm) => norm.forward(cx, &x)?,
                &NetModule::Function(scope, function) => cx.module(scope, |cx| match function {
                    Function::Relu => cx.relu_in_place(x),
                    Function::LeakyRelu => cx.leaky_relu_in_place(x, SLOPE),
                    Function::Tanh => cx.tanh(&x),
                })?,
            };
        }
        cx.put_out(self.scope, &x);
        Ok(x)
    }
}

/// Makes a net's modules, which are named by their indices.
struct NetMaker<'a> {
    cx: &'a mut Context,
    parameters: Parameters,
    name: &'static str,
    direction: Direction,
    modules: Vec<NetModule>,
}

impl<'a> NetMaker<'a> {
    fn new(cx: &'a mut Context, name: &'static str, direction: Direction) -> Self {
        Self { cx, parameters: Parameters::new(Spread::FanIn), name, direction, modules: Vec::new() }
    }

    fn name(&self) -> String {
        format!("{}.{}", self.name, self.modules.len())
    }

    fn convolution(&mut self, channels: [usize; 2], windows: [usize; 3]) -> OpResult<()> {
        let name = self.name();
        let made = Convolution::make(self.cx, &mut self.parameters, &name, self.direction, channels, windows)?;
        self.modules.push(NetModule::Convolution(Box::new(made)));
        Ok(())
    }

    fn norm(&mut self, channels: usize) -> OpResult<()> {
        let name = self.name();
        let made = BatchNorm::make(self.cx, &mut self.parameters, &name, channels)?;
        self.modules.push(NetModule::Norm(Box::new(made)));
        Ok(())
    }

    fn function(&mut self, function: Function) {
        let name = self.cx.memory().name(&self.name());
        self.modules.push(NetModule::Function(name, function));
    }

    fn finish(self) -> OpResult<NetSequence> {
        self.parameters.initialise(self.cx)?;
        Ok(NetSequence { scope: self.cx.memory().name(self.name), modules: self.modules })
    }
}

impl Workload for Dcgan {
    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, cx: &mut Context) -> OpResult<Task> {
        let generator = self.generator(cx)?;
        let generator_parameters = cx.parameter_count();
        let discriminator = self.discriminator(cx)?;
        Ok(Task::Adversarial(Adversaries {
            generator: Rc::new(generator),
            discriminator: Rc::new(discriminator),
            generator_parameters,
        }))
    }

    fn resident_batches(&self, cx: &mut Context, samples: usize) -> OpResult<Vec<Batch>> {
        hash::four(|b| self.fresh_batch(cx, b, samples, 0))
    }

    fn fresh_batch(&self, cx: &mut Context, batch: u32, samples: usize, _: u64) -> OpResult<Batch> {
        hash::adversarial(cx, batch, Shape::new(&Self::images(samples)), Shape::new(&Self::noise(samples)))
    }

    fn batch_layouts(&self, samples: usize) -> Layouts {
        let [images, noise] = [Shape::new(&Self::images(samples)), Shape::new(&Self::noise(samples))];
        Layouts::Alike(BatchLayout::new((images, DType::F32), (noise, DType::F32)))
    }

    fn batch_source(&self) -> Result<Box<dyn BatchSource>, TrainError> {
        Ok(Box::new(Cycle::adversarial()))
    }

    fn items_per_sample(&self) -> usize {
        1
    }
}
