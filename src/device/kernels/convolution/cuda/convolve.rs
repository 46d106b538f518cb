//! Chooses the form in which a convolution is computed, and computes it.

use std::rc::Rc;
use std::time::Instant;

use super::trial::{Nanoseconds, Trial};
use crate::DType;
use crate::cuda::choices::Choices;
use crate::cuda::convolution::{Form, Products};
use crate::cuda::dnn::{ConvolutionCall, ConvolutionKey, ExecutionPlan};
use crate::cuda::gpu::Gpu;
use crate::cuda::queue::{Queue, Refusal};

/// The number of cuDNN's engines that are timed; the same number again for the turned convolution.
const ENGINES: usize = 10;
const TURNED: usize = 4;
/// Engines that are timed regardless of the time: for the first shapes, whose trials load libraries, and for all
/// others.
const LEAST_ENGINES: [usize; 2] = [4, 2];
const FIRST_SHAPES: usize = 4;
/// vramlab's environment variable: only forms whose name starts with its value are used, to test them.
const VARIABLE: &str = "VRAMLAB_CONVOLUTION";

/// Computes one product of a convolution; false if own kernels must compute it.
pub(super) fn convolve(queue: &mut Queue<'_>, convolution: &ConvolutionCall<'_>) -> Result<bool, Refusal> {
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
        // Out of memory: tiles need less.
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

/// The choice of an earlier run, or the fastest form. Computing a convolution several times changes nothing.
fn choose(queue: &mut Queue<'_>, key: &ConvolutionKey, convolution: &ConvolutionCall<'_>) -> Result<Form, Refusal> {
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
    // The library's engines for 16 bits are good, so trials of other forms would only take time.
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

/// Choices for the device and its libraries, read when they are first needed.
fn choices(gpu: &mut Gpu) -> &mut Choices<4> {
    let Gpu { convolutions, dnn, blas, properties, .. } = gpu;
    convolutions.choices.get_or_insert_with(|| {
        let dnn = dnn.version().map_or_else(|| "none".to_owned(), |version| version.to_string());
        Choices::open("convolution", &properties.name, &format!("{dnn}-{}", blas.version()))
    })
}

/// The form of a stored choice; `None` if it no longer exists.
fn recall(queue: &mut Queue<'_>, key: &ConvolutionKey, [kind, tag, ..]: [u64; 4]) -> Option<Form> {
    match kind {
        1 => plan(queue, key, tag).map(Form::Engine),
        3 => plan(queue, &key.turned()?, tag).map(Form::Turned),
        2 => Products::all(key).into_iter().find(|products| products.tag() == tag).map(Form::Products),
        _ => None,
    }
}

/// The engine with this tag.
fn plan(queue: &mut Queue<'_>, key: &ConvolutionKey, tag: u64) -> Option<Rc<ExecutionPlan>> {
    let mut engines = queue.gpu.dnn.engines(key)?;
    queue.gpu.dnn.next(&mut engines, Some(tag)).map(Rc::new)
}
