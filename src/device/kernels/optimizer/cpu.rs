//! Optimizer steps and GradScaler's kernels, rounding where PyTorch's separate operations round.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cpu::arena::Arena;
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::{real, scalar};
use crate::cpu::operand::{Access, KernelResult, Sharing, View, require};
use crate::cpu::real::Real;
use crate::{AdamParameters, DType, GradScaling, NORM_RUN, Operand, ParameterUpdate};

/// Elements that one task handles.
const TASK: usize = 16 * 1024;
/// Elements that are converted and computed at once.
const CHUNK: usize = 512;

/// The views of one parameter.
struct Update<'a> {
    parameter: View<'a>,
    gradient: View<'a>,
    first: Option<View<'a>>,
    second: Option<View<'a>>,
}

impl<'a> Update<'a> {
    fn claim(arena: &'a Arena, update: &ParameterUpdate) -> KernelResult<Self> {
        let n = update.parameter.len;
        let others = [Some(update.gradient), update.first, update.second];
        require(others.iter().flatten().all(|operand| operand.len == n), || {
            format!("state or gradient of the parameter at {} is not of its {n} elements", update.parameter.address)
        })?;
        let mut access = Access::new(arena, Sharing::Never);
        Ok(Self {
            parameter: access.write(&update.parameter)?,
            gradient: access.read(&update.gradient)?,
            first: update.first.map(|operand| access.write(&operand)).transpose()?,
            second: update.second.map(|operand| access.write(&operand)).transpose()?,
        })
    }
}

fn claim_all<'a>(arena: &'a Arena, updates: &[ParameterUpdate]) -> KernelResult<Vec<Update<'a>>> {
    updates.iter().map(|update| Update::claim(arena, update)).collect()
}

/// False if a gradient scaler found an overflow, so that there is no update. Otherwise, gradients are unscaled first.
fn unscaled(
    cores: &Cores,
    arena: &Arena,
    updates: &[ParameterUpdate],
    scaling: Option<GradScaling>,
) -> KernelResult<bool> {
    fn go<R: Real>(cores: &Cores, gradients: &[View<'_>], scale: f64) {
        let scale = R::of(scale);
        let lengths: Vec<usize> = gradients.iter().map(View::len).collect();
        chunks(
            cores,
            &lengths,
            1,
            #[inline(always)]
            |tensor, start, len| {
                let mut values = [R::ZERO; CHUNK];
                let values = &mut values[..len];
                R::load(&gradients[tensor], start, values);
                values.iter_mut().for_each(|x| *x /= scale);
                R::store(&gradients[tensor], start, values);
            },
        );
    }
    let Some(GradScaling { scale, found_inf }) = scaling else { return Ok(true) };
    require([scale.len, found_inf.len] == [1; 2], || "scale and flag have one element each".into())?;
    let mut access = Access::new(arena, Sharing::Never);
    if scalar(&access.read(&found_inf)?) != 0.0 {
        return Ok(false);
    }
    let scale = scalar(&access.read(&scale)?);
    let gradients: Vec<Operand> = updates.iter().map(|update| update.gradient).collect();
    let views = gradients.iter().map(|gradient| access.write(gradient)).collect::<KernelResult<Vec<_>>>()?;
    real!(gradients.iter().map(|gradient| gradient.dtype), go(cores, &views, scale));
    Ok(true)
}

/// Calls `body` with (tensor, start, length) of each chunk of all tensors, in parallel if that is worth it.
#[inline(always)]
fn chunks(cores: &Cores, lengths: &[usize], nanos: usize, body: impl Fn(usize, usize, usize) + Sync) {
    let tasks: Vec<(usize, usize)> = lengths
        .iter()
        .enumerate()
        .flat_map(|(tensor, &len)| (0..len).step_by(TASK).map(move |start| (tensor, start)))
        .collect();
    cores.for_each(
        tasks.len(),
        lengths.iter().sum::<usize>() * nanos,
        #[inline(always)]
        |task| {
            let (tensor, mut start) = tasks[task];
            let end = lengths[tensor].min(start + TASK);
            while start < end {
                let len = CHUNK.min(end - start);
                body(tensor, start, len);
                start += len;
            }
        },
    );
}

fn types(updates: &[ParameterUpdate]) -> impl Iterator<Item = DType> {
    updates.iter().flat_map(|update| [update.parameter.dtype, update.gradient.dtype])
}

fn lengths(updates: &[Update<'_>]) -> Vec<usize> {
    updates.iter().map(|update| update.parameter.len()).collect()
}

/// Hyper-parameters of [`Optimizer::Sgd`](crate::kernels::Optimizer::Sgd).
#[derive(Clone, Copy)]
pub(super) struct SgdRule {
    pub(super) lr: f64,
    pub(super) momentum: f64,
    pub(super) weight_decay: f64,
    pub(super) first_step: bool,
}

pub(super) fn sgd(
    cores: &Cores,
    arena: &Arena,
    updates: &[ParameterUpdate],
    rule: SgdRule,
    scaling: Option<GradScaling>,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, updates: &[Update<'_>], rule: SgdRule) {
        let [lr, momentum, decay] = [rule.lr, rule.momentum, rule.weight_decay].map(R::of);
        chunks(
            cores,
            &lengths(updates),
            1,
            #[inline(always)]
            |tensor, start, len| {
                let update = &updates[tensor];
                let (mut p, mut g, mut buffer) = ([R::ZERO; CHUNK], [R::ZERO; CHUNK], [R::ZERO; CHUNK]);
                let (p, g, buffer) = (&mut p[..len], &mut g[..len], &mut buffer[..len]);
                R::load(&update.parameter, start, p);
                R::load(&update.gradient, start, g);
                if rule.weight_decay != 0.0 {
                    g.iter_mut().zip(p.iter()).for_each(|(g, &p)| *g += decay * p);
                }
                if let Some(first) = &update.first {
                    if !rule.first_step {
                        R::load(first, start, buffer);
                        g.iter_mut().zip(buffer.iter()).for_each(|(g, &b)| *g += momentum * b);
                    }
                    R::store(first, start, g);
                }
                p.iter_mut().zip(g.iter()).for_each(|(p, &g)| *p -= lr * g);
                R::store(&update.parameter, start, p);
            },
        );
    }
    if unscaled(cores, arena, updates, scaling)? {
        let views = claim_all(arena, updates)?;
        real!(types(updates), go(cores, &views, rule));
    }
    Ok(())
}

/// Adam's scalars for one step, computed in f64 on the host as PyTorch does.
pub(in crate::kernels) struct AdamScalars<R> {
    pub(in crate::kernels) keep: R,
    decay: R,
    first_weight: R,
    beta2: R,
    second_weight: R,
    root_correction: R,
    eps: R,
    step_size: R,
}

impl<R: Real> AdamScalars<R> {
    pub(in crate::kernels) fn new(parameters: &AdamParameters) -> Self {
        let &AdamParameters { lr, beta1, beta2, eps, weight_decay, decoupled, step } = parameters;
        #[expect(clippy::cast_precision_loss, reason = "fewer than 2⁵³ steps")]
        let step = step as f64;
        let (keep, decay) = if decoupled { (1.0 - lr * weight_decay, 0.0) } else { (1.0, weight_decay) };
        Self {
            keep: R::of(keep),
            decay: R::of(decay),
            first_weight: R::of(1.0 - beta1),
            beta2: R::of(beta2),
            second_weight: R::of(1.0 - beta2),
            root_correction: R::of((1.0 - beta2.powf(step)).sqrt()),
            eps: R::of(eps),
            step_size: R::of(lr / (1.0 - beta1.powf(step))),
        }
    }

    /// Updates moments, then weights by these moments. All slices are equally long, and gradients are already unscaled.
    #[inline(always)]
    pub(in crate::kernels) fn update(&self, [p, m, v]: [&mut [R]; 3], g: &[R]) {
        for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
            *m += self.first_weight * (g - *m);
            *v = *v * self.beta2 + self.second_weight * g * g;
            let root = v.sqrt() / self.root_correction + self.eps;
            *p -= self.step_size * (*m / root);
        }
    }
}

pub(super) fn adam(
    cores: &Cores,
    arena: &Arena,
    updates: &[ParameterUpdate],
    parameters: &AdamParameters,
    scaling: Option<GradScaling>,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, updates: &[Update<'_>], moments: &[[View<'_>; 2]], parameters: &AdamParameters) {
        let s = AdamScalars::<R>::new(parameters);
        let decays_gradient = !parameters.decoupled && parameters.weight_decay != 0.0;
        chunks(
            cores,
            &lengths(updates),
            3,
            #[inline(always)]
            |tensor, start, len| {
                let (update, [first, second]) = (&updates[tensor], &moments[tensor]);
                let mut scratch = [[R::ZERO; CHUNK]; 4];
                let [p, g, m, v] = &mut scratch;
                let (p, g, m, v) = (&mut p[..len], &mut g[..len], &mut m[..len], &mut v[..len]);
                R::load(&update.parameter, start, p);
                R::load(&update.gradient, start, g);
                R::load(first, start, m);
                R::load(second, start, v);
                if decays_gradient {
                    g.iter_mut().zip(p.iter()).for_each(|(g, &p)| *g += s.decay * p);
                }
                p.iter_mut().for_each(|p| *p *= s.keep);
                s.update([&mut *p, &mut *m, &mut *v], g);
                R::store(&update.parameter, start, p);
                R::store(first, start, m);
                R::store(second, start, v);
            },
        );
    }
    if !unscaled(cores, arena, updates, scaling)? {
        return Ok(());
    }
    let views = claim_all(arena, updates)?;
    let moments: Option<Vec<[View<'_>; 2]>> =
        views.iter().map(|update| Some([update.first?, update.second?])).collect();
    let Some(moments) = moments else { return require(false, || "Adam needs both moments of each parameter".into()) };
    require(parameters.step > 0, || "Adam counts its updates from 1".into())?;
    real!(types(updates), go(cores, &views, &moments, parameters));
    Ok(())
}

pub(super) fn unscale(
    cores: &Cores,
    arena: &Arena,
    gradients: &[Operand],
    inverse_scale: Operand,
    found_inf: Operand,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, gradients: &[View<'_>], factor: f64) -> bool {
        let found = AtomicBool::new(false);
        let factor = R::of(factor);
        let lengths: Vec<usize> = gradients.iter().map(View::len).collect();
        chunks(
            cores,
            &lengths,
            1,
            #[inline(always)]
            |tensor, start, len| {
                let mut values = [R::ZERO; CHUNK];
                let values = &mut values[..len];
                R::load(&gradients[tensor], start, values);
                let finite = values.iter().fold(true, |finite, x| finite & x.is_finite());
                if !finite {
                    found.store(true, Ordering::Relaxed);
                }
                values.iter_mut().for_each(|x| *x *= factor);
                R::store(&gradients[tensor], start, values);
            },
        );
        found.into_inner()
    }
    require(inverse_scale.len == 1 && found_inf.len == 1, || "scale and flag have one element each".into())?;
    let mut access = Access::new(arena, Sharing::Never);
    let (factor, flag) = (access.read(&inverse_scale)?, access.write(&found_inf)?);
    let views = gradients.iter().map(|gradient| access.write(gradient)).collect::<KernelResult<Vec<_>>>()?;
    let factor = scalar(&factor);
    let found = real!(gradients.iter().map(|gradient| gradient.dtype), go(cores, &views, factor));
    if found {
        f64::store(&flag, 0, &[1.0]);
    }
    Ok(())
}

pub(super) fn square_sums(cores: &Cores, arena: &Arena, tensors: &[Operand], sums: Operand) -> KernelResult {
    let row = sums.len.checked_div(tensors.len()).unwrap_or(0);
    require(tensors.iter().all(|tensor| tensor.len.div_ceil(NORM_RUN) <= row), || {
        format!("{} sums have no room for the runs of {} tensors", sums.len, tensors.len())
    })?;
    let mut access = Access::new(arena, Sharing::Never);
    let sums = access.write(&sums)?;
    let views = tensors.iter().map(|tensor| access.read(tensor)).collect::<KernelResult<Vec<_>>>()?;
    let runs: Vec<(usize, usize)> = views
        .iter()
        .enumerate()
        .flat_map(|(tensor, view)| (0..view.len().div_ceil(NORM_RUN)).map(move |run| (tensor, run)))
        .collect();
    cores.for_each(runs.len(), views.iter().map(View::len).sum(), |task| {
        let (tensor, run) = runs[task];
        let (mut sum, mut values) = (0.0, [0.0_f64; CHUNK]);
        let end = views[tensor].len().min((run + 1) * NORM_RUN);
        for start in (run * NORM_RUN..end).step_by(CHUNK) {
            let values = &mut values[..CHUNK.min(end - start)];
            f64::load(&views[tensor], start, values);
            sum += values.iter().map(|x| x * x).sum::<f64>();
        }
        f64::store(&sums, tensor * row + run, &[sum]);
    });
    Ok(())
}

pub(super) fn clip_factor(
    mut access: Access<'_>,
    sums: Operand,
    rows: usize,
    factor: Operand,
    most: f64,
) -> KernelResult {
    require(rows > 0 && factor.len == 1, || "the factor of some tensors has one element".into())?;
    let round = |x: f64| match factor.dtype {
        DType::F16 => f64::from(half::f16::from_f64(x)),
        DType::Bf16 => f64::from(half::bf16::from_f64(x)),
        DType::F64 => x,
        #[expect(clippy::cast_possible_truncation, reason = "that is the rounding")]
        _ => f64::from(x as f32),
    };
    let sums = access.read(&sums)?;
    let to_factor = access.write(&factor)?;
    let mut row = vec![0.0; sums.len() / rows];
    let mut squares = 0.0;
    for tensor in 0..rows {
        f64::load(&sums, tensor * row.len(), &mut row);
        squares += round(row.iter().sum::<f64>().sqrt()).powi(2);
    }
    let norm = round(squares.sqrt());
    let clipped = round(round(1.0 / round(norm + 1e-6)) * most);
    // NaN stays NaN.
    f64::store(&to_factor, 0, &[if clipped > 1.0 { 1.0 } else { clipped }]);
    Ok(())
}

pub(super) fn reciprocal(mut access: Access<'_>, src: Operand, dst: Operand) -> KernelResult {
    require(src.len == dst.len, || "source and result have as many elements".into())?;
    let (from, to) = (access.read(&src)?, access.write(&dst)?);
    let mut value = [0.0];
    for i in 0..src.len {
        f64::load(&from, i, &mut value);
        f64::store(&to, i, &[1.0 / value[0]]);
    }
    Ok(())
}

/// Constants of [`Optimizer::UpdateScale`](crate::kernels::Optimizer::UpdateScale).
#[derive(Clone, Copy)]
pub(super) struct ScaleRule {
    pub(super) growth: f64,
    pub(super) backoff: f64,
    pub(super) interval: i32,
}

pub(super) fn update_scale(
    mut access: Access<'_>,
    scale: Operand,
    tracker: Operand,
    found_inf: Operand,
    rule: ScaleRule,
) -> KernelResult {
    require([scale.len, tracker.len, found_inf.len] == [1; 3], || "all operands have one element".into())?;
    let (scale, tracker) = (access.write(&scale)?, access.write(&tracker)?);
    let found = access.read(&found_inf)?;
    if scalar(&found) != 0.0 {
        f64::store(&scale, 0, &[scalar(&scale) * rule.backoff]);
        f64::store(&tracker, 0, &[0.0]);
        return Ok(());
    }
    let successes = scalar(&tracker) + 1.0;
    if successes == f64::from(rule.interval) {
        let grown = scalar(&scale) * rule.growth;
        // The scale is an f32: a scale that would overflow it is not used.
        if grown <= f64::from(f32::MAX) {
            f64::store(&scale, 0, &[grown]);
        }
        f64::store(&tracker, 0, &[0.0]);
    } else {
        f64::store(&tracker, 0, &[successes]);
    }
    Ok(())
}
