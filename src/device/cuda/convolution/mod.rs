//! Convolutions by the fastest way there is. cuDNN's heuristics don't look for engines that repeat bit for bit and do not
//! round, so for every shape several of its engines, and products of matrices, are timed once; what was the fastest is
//! remembered on disk, so that a run can be repeated.

mod products;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::choices::Choices;
use super::dnn::{Convolution, ConvolutionKey, Engines, Plan};
use super::gpu::Gpu;
use super::queue::{Arguments, Grid, Queue, Refusal, blocks_of};
use super::stopwatch::Stopwatch;
use crate::device::DType;
use crate::units::Address;
use products::Products;

/// Engines of cuDNN that are timed, and of those for the turned convolution.
const ENGINES: usize = 10;
const TURNED: usize = 4;
/// Those that are timed however long it takes, for the first shapes, whose trials load libraries, and for all others.
const LEAST_ENGINES: [usize; 2] = [4, 2];
const FIRST_SHAPES: usize = 4;
/// Milliseconds that are those of a launch: nothing is much faster.
const NEGLIGIBLE: f32 = 0.015;
/// When trials of engines for one shape end.
const PATIENCE: Duration = Duration::from_millis(100);
/// How much faster than the first another must be: less is noise.
const MARGIN: f32 = 0.97;
/// An own variable: only forms are taken whose name begins so, to test them.
const VARIABLE: &str = "VRAMLAB_CONVOLUTION";

/// What is known of each convolution.
#[derive(Default)]
pub(super) struct Convolutions {
    forms: HashMap<ConvolutionKey, Form>,
    choices: Option<Choices<4>>,
    notes: Vec<String>,
}

impl Convolutions {
    /// What was chosen, with the time that it took.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().cloned()
    }
}

/// A way to compute a convolution.
#[derive(Clone)]
enum Form {
    Engine(Rc<Plan>),
    /// An engine for [`ConvolutionKey::turned`].
    Turned(Rc<Plan>),
    Products(Products),
    /// Own kernels that multiply in tiles, and need no memory.
    Tiles,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(plan) => write!(f, "engine {}", plan.engine().index),
            Self::Turned(plan) => write!(f, "turned, engine {}", plan.engine().index),
            Self::Products(products) => products.fmt(f),
            Self::Tiles => f.write_str("tiles"),
        }
    }
}

impl Form {
    /// What is written down: its kind and which of them.
    fn words(&self) -> [u64; 2] {
        match self {
            Self::Tiles => [0, 0],
            Self::Engine(plan) => [1, plan.engine().tag],
            Self::Products(products) => [2, products.tag()],
            Self::Turned(plan) => [3, plan.engine().tag],
        }
    }

    /// Queues it; false where it is the own kernels' turn.
    fn run(&self, queue: &mut Queue<'_>, convolution: &Convolution<'_>, tf32: bool) -> Result<bool, Refusal> {
        match self {
            Self::Engine(plan) => {
                let workspace = match plan.workspace() {
                    0 => Address(0),
                    bytes => queue.scratch(bytes)?,
                };
                let addresses = [convolution.src, convolution.weight, convolution.dst].map(|operand| operand.address);
                queue.gpu.dnn.convolve(plan, addresses, workspace, queue.stream)?;
            }
            Self::Turned(plan) => run_turned(queue, convolution, plan)?,
            Self::Products(products) => products.run(queue, convolution, tf32)?,
            Self::Tiles => return Ok(false),
        }
        Ok(true)
    }
}

/// The gradient of the source by an engine for [`ConvolutionKey::turned`].
fn run_turned(queue: &mut Queue<'_>, convolution: &Convolution<'_>, plan: &Plan) -> Result<(), Refusal> {
    const THREADS: u32 = 256;
    let Convolution { shape, src, weight, dst, .. } = convolution;
    let bytes = plan.workspace().next_multiple_of(256);
    let workspace = queue.scratch(bytes + weight.len * weight.dtype.size() as usize)?;
    let turned = Address(workspace.0 + bytes as u64);
    let grid = Grid::row(blocks_of(weight.len, THREADS as usize).min(8 * queue.multiprocessors()), THREADS);
    let sides = [shape.out_channels, shape.in_channels, shape.kernel * shape.kernel];
    let arguments = sides.into_iter().fold(Arguments::new().operand(weight).at(turned), Arguments::count);
    queue.launch("conv2d_turn", &[weight.dtype], grid, &mut { arguments })?;
    queue.gpu.dnn.convolve(plan, [dst.address, turned, src.address], workspace, queue.stream)
}

/// Computes one product of a convolution; false where own kernels must.
pub(super) fn convolve(queue: &mut Queue<'_>, convolution: &Convolution<'_>) -> Result<bool, Refusal> {
    let tf32 = queue.gpu.precision.convolutions_in_tf32;
    let Some(key) = ConvolutionKey::of(convolution, tf32) else { return Ok(false) };
    let form = match queue.gpu.convolutions.forms.get(&key) {
        Some(form) => form.clone(),
        None => {
            let form = choose(queue, &key, convolution)?;
            queue.gpu.convolutions.forms.insert(key, form.clone());
            form
        }
    };
    match form.run(queue, convolution, tf32) {
        Err(Refusal::Driver(failure)) if failure.lost() => Err(failure.into()),
        // Out of memory: tiles get along with less.
        Err(Refusal::Driver(_)) => Ok(false),
        Err(refusal) => {
            let convolutions = &mut queue.gpu.convolutions;
            convolutions.notes.push(format!("{key}: {form} failed: {refusal}"));
            convolutions.forms.insert(key, Form::Tiles);
            Ok(false)
        }
        done => done,
    }
}

/// What an earlier run has chosen, or the fastest. Computing a convolution several times changes nothing.
fn choose(queue: &mut Queue<'_>, key: &ConvolutionKey, convolution: &Convolution<'_>) -> Result<Form, Refusal> {
    let wanted = std::env::var(VARIABLE).ok().filter(|wanted| !wanted.is_empty());
    let known = if wanted.is_none() { choices(queue.gpu).get(key) } else { None };
    if let Some((form, words)) = known.and_then(|words| Some((recall(queue, key, words)?, words))) {
        let [best, first] = [words[2], words[3]].map(Nanoseconds);
        queue.gpu.convolutions.notes.push(format!("{key}: {form}, {best} when it was chosen; the first took {first}"));
        return Ok(form);
    }
    let least = LEAST_ENGINES[usize::from(queue.gpu.convolutions.forms.len() >= FIRST_SHAPES)];
    let mut trial = Trial::new(wanted, key.tf32, least)?;
    let mut engines = queue.gpu.dnn.engines(key);
    trial.engines(queue, convolution, engines.as_mut(), 1, Form::Engine)?;
    trial.begun = Instant::now();
    if !trial.is_negligible() {
        trial.engines(queue, convolution, engines.as_mut(), ENGINES - 1, Form::Engine)?;
    }
    // The library's engines for 16 bits are good: trials would only take time.
    if trial.best.is_none() || (key.dtype == DType::F32 && !trial.is_negligible()) {
        let mut turned = key.turned().and_then(|turned| queue.gpu.dnn.engines(&turned));
        (trial.begun, trial.engines) = (Instant::now(), 0);
        trial.engines(queue, convolution, turned.as_mut(), TURNED, Form::Turned)?;
        for products in Products::all(key) {
            trial.time(queue, convolution, Form::Products(products))?;
        }
    }
    queue.gpu.scratch.shrink()?;
    let summary = format!("{key}: {trial}");
    queue.gpu.convolutions.notes.push(summary);
    let Some((form, best)) = trial.best else { return Ok(Form::Tiles) };
    if trial.wanted.is_none() {
        let [kind, tag] = form.words();
        let [best, first] = [best, trial.first].map(|time| Nanoseconds::of(time).0);
        choices(queue.gpu).keep(key, [kind, tag, best, first]);
    }
    Ok(form)
}

/// Choices of the device and its libraries, read where they are first asked for.
fn choices(gpu: &mut Gpu) -> &mut Choices<4> {
    let Gpu { convolutions, dnn, blas, properties, .. } = gpu;
    convolutions.choices.get_or_insert_with(|| {
        let dnn = dnn.version().map_or_else(|| "none".to_owned(), |version| version.to_string());
        Choices::open("convolution", &properties.name, &format!("{dnn}-{}", blas.version()))
    })
}

/// The form of a choice that was written down; `None` where there is none any more.
fn recall(queue: &mut Queue<'_>, key: &ConvolutionKey, [kind, tag, ..]: [u64; 4]) -> Option<Form> {
    match kind {
        1 => plan(queue, key, tag).map(Form::Engine),
        3 => plan(queue, &key.turned()?, tag).map(Form::Turned),
        2 => Products::all(key).into_iter().find(|products| products.tag() == tag).map(Form::Products),
        _ => None,
    }
}

/// The engine with this tag.
fn plan(queue: &mut Queue<'_>, key: &ConvolutionKey, tag: u64) -> Option<Rc<Plan>> {
    let mut engines = queue.gpu.dnn.engines(key)?;
    queue.gpu.dnn.next(&mut engines, Some(tag)).map(Rc::new)
}

/// A time as it is written down.
#[derive(Clone, Copy)]
struct Nanoseconds(u64);

impl Nanoseconds {
    /// Of milliseconds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are short and not negative")]
    fn of(milliseconds: f32) -> Self {
        Self((f64::from(milliseconds) * 1e6) as u64)
    }
}

impl fmt::Display for Nanoseconds {
    #[expect(clippy::cast_precision_loss, reason = "times are short")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0 as f64 / 1e6)
    }
}

/// Forms of one convolution that are timed against each other.
struct Trial {
    wanted: Option<String>,
    tf32: bool,
    /// Engines that are timed however long it takes.
    least: usize,
    stopwatch: Stopwatch,
    begun: Instant,
    engines: usize,
    /// The fastest and its time.
    best: Option<(Form, f32)>,
    /// Time of the first.
    first: f32,
    /// All that ran, with their times; what was refused, and why.
    told: Vec<String>,
}

impl Trial {
    fn new(wanted: Option<String>, tf32: bool, least: usize) -> Result<Self, Refusal> {
        Ok(Self {
            wanted,
            tf32,
            least,
            stopwatch: Stopwatch::new()?,
            begun: Instant::now(),
            engines: 0,
            best: None,
            first: 0.0,
            told: Vec::new(),
        })
    }

    /// There is nothing to gain.
    fn is_negligible(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, best)| *best < NEGLIGIBLE)
    }

    /// Forms of this name are of interest.
    fn wants(&self, name: &str) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| name.starts_with(wanted.as_str()))
    }

    /// Times the next `count` engines, as `form` has it, as long as there is time.
    fn engines(
        &mut self,
        queue: &mut Queue<'_>,
        convolution: &Convolution<'_>,
        engines: Option<&mut Engines>,
        count: usize,
        form: fn(Rc<Plan>) -> Form,
    ) -> Result<(), Refusal> {
        // Their names are known only when they have been set up.
        let unwanted = self.wanted.as_ref().is_some_and(|wanted| !["engine", "turned"].contains(&wanted.as_str()));
        let Some(engines) = engines.filter(|_| !unwanted) else { return Ok(()) };
        for _ in 0..count {
            if self.engines >= self.least && self.begun.elapsed() > PATIENCE {
                break;
            }
            let Some(plan) = queue.gpu.dnn.next(engines, None) else {
                if self.engines == 0 {
                    self.told.push(engines.refusal().to_string());
                }
                break;
            };
            self.engines += 1;
            self.time(queue, convolution, form(Rc::new(plan)))?;
        }
        Ok(())
    }

    fn time(&mut self, queue: &mut Queue<'_>, convolution: &Convolution<'_>, form: Form) -> Result<(), Refusal> {
        let name = form.to_string();
        if !self.wants(&name) {
            return Ok(());
        }
        // The first is taken unless another is clearly faster.
        let bar = self.best.as_ref().map_or(f32::INFINITY, |(_, best)| best.min(MARGIN * self.first));
        let (stream, tf32) = (queue.stream, self.tf32);
        match self.stopwatch.best(stream, bar, || form.run(queue, convolution, tf32).map(|_| ())) {
            Ok(time) => {
                self.told.push(format!("{name} {}", Nanoseconds::of(time)));
                if self.best.is_none() {
                    self.first = time;
                }
                if time < bar {
                    self.best = Some((form, time));
                }
            }
            Err(Refusal::Driver(failure)) if failure.lost() => return Err(failure.into()),
            Err(refusal) => self.told.push(format!("{name} not: {refusal}")),
        }
        Ok(())
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.best {
            Some((form, time)) => write!(f, "{form}, {}", Nanoseconds::of(*time))?,
            None => f.write_str("tiles")?,
        }
        write!(f, ", of: {}", self.told.join("; "))
    }
}
