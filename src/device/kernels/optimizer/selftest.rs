//! Optimizers over many tensors, and a gradient scaler's kernels, all in f32.

use super::Optimizer;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, CaseOperands, Precision, Skew, Slot};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{AdamParameters, DType, GradScaling, NORM_RUN, ParameterUpdate, UpdatePasses};

/// Sizes of tensors that are updated together.
fn sets() -> Vec<(&'static str, Vec<usize>, Skew)> {
    let many = (0..230).map(|i| i * 37 % 1501 + 1).collect();
    vec![
        ("one element", vec![1], Skew::Aligned),
        ("few tensors", vec![1, 3, 700, 20_001], Skew::Aligned),
        ("few tensors", vec![5, 4096, 1027], Skew::Together(1)),
        ("230 tensors", many, Skew::Aligned),
        ("millions of elements", vec![3_000_001, 17, 65_536], Skew::Aligned),
    ]
}

/// A gradient scaler's input to a fused optimizer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scaler {
    None,
    Clear,
    Found,
}

impl Scaler {
    const fn title(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Clear => ", scaled",
            Self::Found => ", scaled, an infinity found",
        }
    }
}

/// The operands of one update.
struct Operands {
    tensors: Vec<[Option<Slot>; 4]>,
    scaling: Option<[Slot; 2]>,
}

/// Which state an optimizer keeps, and whether it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OptimizerState {
    None,
    /// Written without being read.
    New,
    Kept,
}

impl Operands {
    fn declare(case: &mut Case, sizes: &[usize], [first, second]: [OptimizerState; 2], scaler: Scaler) -> Self {
        let bound = if scaler == Scaler::Found { ErrorBound::Exact } else { ErrorBound::Formula };
        let unscale = if scaler == Scaler::Clear { 512.0 } else { 1.0 };
        let f32 = DType::F32;
        let tensors = sizes.iter().map(|&len| {
            let parameter = case.update("parameter", f32, len, Values::Normal(0.0, 0.5), bound);
            let gradients = Values::Normal(0.0, 0.1 * unscale);
            let gradient = match scaler {
                Scaler::None => case.input("gradient", f32, len, gradients),
                _ => case.update("gradient", f32, len, gradients, bound),
            };
            let mut state = |name, state: OptimizerState, values: Values| match state {
                OptimizerState::None => None,
                OptimizerState::New if scaler != Scaler::Found => Some(case.output(name, f32, len, bound)),
                _ => Some(case.update(name, f32, len, values, bound)),
            };
            let first = state("first", first, Values::Normal(0.0, 0.1));
            let second = state("second", second, Values::Uniform(1e-4, 0.02));
            [Some(parameter), Some(gradient), first, second]
        });
        let tensors = tensors.collect();
        let scaling = (scaler != Scaler::None).then(|| {
            let scale = case.input("scale", f32, 1, Values::Constant(unscale));
            let found = if scaler == Scaler::Found { 1.0 } else { 0.0 };
            [scale, case.input("found_inf", f32, 1, Values::Constant(found))]
        });
        Self { tensors, scaling }
    }

    fn updates(&self, at: &CaseOperands) -> Vec<ParameterUpdate> {
        let update = |&[parameter, gradient, first, second]: &[Option<Slot>; 4]| {
            Some(ParameterUpdate {
                parameter: at[parameter?],
                gradient: at[gradient?],
                first: first.map(|slot| at[slot]),
                second: second.map(|slot| at[slot]),
            })
        };
        self.tensors.iter().filter_map(update).collect()
    }

    fn scaling(&self, at: &CaseOperands) -> Option<GradScaling> {
        self.scaling.map(|[scale, found_inf]| GradScaling { scale: at[scale], found_inf: at[found_inf] })
    }
}

pub(super) fn run(session: &mut Session<'_>) {
    for (what, sizes, skew) in sets() {
        for scaler in [Scaler::None, Scaler::Clear, Scaler::Found] {
            for passes in [UpdatePasses::Several, UpdatePasses::One] {
                let heavy = sizes.iter().sum::<usize>() > 1_000_000;
                if heavy && (passes == UpdatePasses::One) != (scaler == Scaler::Clear) {
                    continue;
                }
                let title = format!("{what}{}, {passes:?}", scaler.title());
                sgd(session, &sizes, &title, skew, scaler, passes);
                adam(session, &sizes, &title, skew, scaler, passes);
            }
        }
        for (what_inside, inside) in
            [("", None), (", an infinity", Some(f64::INFINITY)), (", no number", Some(f64::NAN))]
        {
            unscale(session, &sizes, &format!("{what}{what_inside}"), skew, inside);
        }
        clip(session, &sizes, what, skew);
    }
    scaler(session);
}

fn sgd(session: &mut Session<'_>, sizes: &[usize], title: &str, skew: Skew, scaler: Scaler, passes: UpdatePasses) {
    for (momentum, weight_decay, first_step) in
        [(0.0, 0.0, true), (0.0, 0.1, false), (0.9, 0.0, true), (0.9, 0.01, true), (0.9, 0.0, false), (0.9, 0.1, false)]
    {
        let state = match (momentum == 0.0, first_step) {
            (true, _) => OptimizerState::None,
            (false, true) => OptimizerState::New,
            (false, false) => OptimizerState::Kept,
        };
        let first = if first_step { ", first step" } else { "" };
        let title = format!("{title}, momentum {momentum}, decay {weight_decay}{first}");
        let mut case = Case::new("sgd", Precision::F32, title).skewed(skew);
        let operands = Operands::declare(&mut case, sizes, [state, OptimizerState::None], scaler);
        session.check_launch(&case, &|at, launch| {
            launch(
                &Optimizer::Sgd {
                    updates: &operands.updates(at),
                    lr: 0.05,
                    momentum,
                    weight_decay,
                    first_step,
                    scaling: operands.scaling(at),
                    passes,
                }
                .into(),
            )
        });
    }
}

fn adam(session: &mut Session<'_>, sizes: &[usize], title: &str, skew: Skew, scaler: Scaler, passes: UpdatePasses) {
    for (decoupled, weight_decay, step) in
        [(true, 0.01, 1), (true, 0.0, 7), (true, 0.1, 1000), (false, 0.0, 1), (false, 0.1, 50)]
    {
        let name = if decoupled { "AdamW" } else { "Adam" };
        let title = format!("{title}, {name}, decay {weight_decay}, step {step}");
        let mut case = Case::new("adam", Precision::F32, title).skewed(skew);
        let operands = Operands::declare(&mut case, sizes, [OptimizerState::Kept; 2], scaler);
        let parameters =
            AdamParameters { lr: 1e-2, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay, decoupled, step };
        session.check_launch(&case, &|at, launch| {
            let (updates, scaling) = (operands.updates(at), operands.scaling(at));
            launch(&Optimizer::Adam { updates: &updates, parameters, scaling, passes }.into())
        });
    }
}

/// `inside`, if given, is the last element of the last tensor.
fn unscale(session: &mut Session<'_>, sizes: &[usize], title: &str, skew: Skew, inside: Option<f64>) {
    for (inverse, found) in [(1.0 / 65536.0, 0.0), (0.3, 0.0), (0.3, 1.0)] {
        let known = if found == 0.0 { "" } else { ", found before" };
        let title = format!("{title}, by {inverse:.2e}{known}");
        let mut case = Case::new("unscale", Precision::F32, title).skewed(skew);
        let declare = |(index, &len): (usize, &usize)| {
            let others = inside.filter(|_| index + 1 == sizes.len()).map(|value| (len - 1, value));
            let values = Values::Except(1000.0, others.into_iter().collect());
            case.update("gradient", DType::F32, len, values, ErrorBound::Formula)
        };
        let gradients: Vec<Slot> = sizes.iter().enumerate().map(declare).collect();
        let inverse_scale = case.input("inverse_scale", DType::F32, 1, Values::Constant(inverse));
        let found_inf = case.update("found_inf", DType::F32, 1, Values::Constant(found), ErrorBound::Exact);
        session.check_launch(&case, &|at, launch| {
            let gradients: Vec<_> = gradients.iter().map(|&slot| at[slot]).collect();
            let (inverse_scale, found_inf) = (at[inverse_scale], at[found_inf]);
            launch(&Optimizer::Unscale { gradients: &gradients, inverse_scale, found_inf }.into())
        });
    }
}

/// The norm of all gradients, computed in two steps.
fn clip(session: &mut Session<'_>, sizes: &[usize], title: &str, skew: Skew) {
    let longest = sizes.iter().max().copied().unwrap_or(1);
    let row = longest.div_ceil(NORM_RUN);
    let mut case = Case::new("square_sums", Precision::F32, title.to_owned()).skewed(skew);
    let declare = |&len: &usize| case.input("gradient", DType::F32, len, Values::Normal(0.0, 0.1));
    let gradients: Vec<Slot> = sizes.iter().map(declare).collect();
    let sums = case.update("sums", DType::F32, sizes.len() * row, Values::Constant(0.0), ErrorBound::Sum(NORM_RUN));
    session.check_launch(&case, &|at, launch| {
        let tensors: Vec<_> = gradients.iter().map(|&slot| at[slot]).collect();
        launch(&Optimizer::SquareSums { tensors: &tensors, sums: at[sums] }.into())
    });
    for most in [1.0, 1e6] {
        let title = format!("{title}, at most {most}");
        let mut case = Case::new("clip_factor", Precision::F32, title);
        let sums = case.input("sums", DType::F32, sizes.len() * row, Values::Uniform(0.0, 2.0));
        let factor = case.output("factor", DType::F32, 1, ErrorBound::Sum(row));
        session.check(&case, |at| Optimizer::ClipFactor {
            sums: at[sums],
            rows: sizes.len(),
            factor: at[factor],
            most,
        });
    }
}

fn scaler(session: &mut Session<'_>) {
    for value in [65536.0, 3.0, 1e-3, 1.0, 3e38, 7.7e-30] {
        let mut case = Case::new("reciprocal", Precision::F32, format!("of {value:e}"));
        let src = case.input("src", DType::F32, 1, Values::Constant(value));
        let dst = case.output("dst", DType::F32, 1, ErrorBound::Exact);
        session.check(&case, |at| Optimizer::Reciprocal { src: at[src], dst: at[dst] });
    }
    for len in [2, 255, 256, 1000] {
        let mut case = Case::new("reciprocal", Precision::F32, format!("of {len}"));
        let src = case.input("src", DType::F32, len, Values::Uniform(0.01, 100.0));
        let dst = case.output("dst", DType::F32, len, ErrorBound::Exact);
        session.check(&case, |at| Optimizer::Reciprocal { src: at[src], dst: at[dst] });
    }
    for (scale, tracker, found, [growth, backoff], interval) in [
        (65536.0, 0.0, 0.0, [2.0, 0.5], 2000),
        (65536.0, 7.0, 1.0, [2.0, 0.5], 2000),
        (65536.0, 1999.0, 0.0, [2.0, 0.5], 2000),
        (65536.0, 1999.0, 2.0, [2.0, 0.5], 2000),
        (65536.0, 1998.0, 0.0, [2.0, 0.5], 2000),
        (3.0, 0.0, 0.0, [1.7, 0.3], 1),
        (3.0, 0.0, 1.0, [1.7, 0.3], 1),
        (3e38, 2.0, 0.0, [2.0, 0.5], 3),
    ] {
        let title = format!("scale {scale:e}, tracker {tracker} of {interval}, found {found}, growth {growth}");
        let mut case = Case::new("update_scale", Precision::F32, title);
        let at_scale = case.update("scale", DType::F32, 1, Values::Constant(scale), ErrorBound::Formula);
        let at_tracker = case.update("tracker", DType::I32, 1, Values::Constant(tracker), ErrorBound::Exact);
        let found_inf = case.input("found_inf", DType::F32, 1, Values::Constant(found));
        session.check(&case, |at| Optimizer::UpdateScale {
            scale: at[at_scale],
            tracker: at[at_tracker],
            found_inf: at[found_inf],
            growth,
            backoff,
            interval,
        });
    }
}
