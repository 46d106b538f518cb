//! bitsandbytes' Lion, with an 8-bit or f32 moment.

use super::codes::Codes;
use super::moment::{QuantizedMoment, RUNS};
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::{BYTES_RUN, KeptMoment, LionParameters, Operand};

/// The moment of a parameter.
enum LionMoment<'a> {
    Bytes(QuantizedMoment<'a>),
    Wide(View<'a>),
}

pub(in crate::kernels::blockwise) fn update(
    cores: &Cores,
    mut access: Access<'_>,
    [parameter, gradient]: [Operand; 2],
    moment: &KeptMoment,
    rule: &LionParameters,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [p, g]: [View<'_>; 2], moment: &LionMoment<'_>, rule: &LionParameters) {
        let [lr, beta1, beta2, decay] = [rule.lr, rule.beta1, rule.beta2, rule.weight_decay].map(R::of);
        let codes = match moment {
            LionMoment::Bytes(moment) => moment.codes::<R>(),
            LionMoment::Wide(_) => Codes::new([R::ZERO; 256]),
        };
        // Storing values and loading them again rounds them to the weights' type.
        let rounded = |start: usize, values: &mut [R]| {
            R::store(&p, start, values);
            R::load(&p, start, values);
        };
        let runs = p.len().div_ceil(BYTES_RUN);
        cores.for_each(runs.div_ceil(RUNS), p.len() * 20, |task| {
            let mut scratch = [[R::ZERO; BYTES_RUN]; 4];
            for run in task * RUNS..runs.min((task + 1) * RUNS) {
                let start = run * BYTES_RUN;
                let len = BYTES_RUN.min(p.len() - start);
                let [weights, gradients, first, steps] = scratch.each_mut().map(|values| &mut values[..len]);
                R::load(&p, start, weights);
                R::load(&g, start, gradients);
                match moment {
                    LionMoment::Bytes(moment) => moment.load(&codes, run, first),
                    LionMoment::Wide(moment) => R::load(moment, start, first),
                }
                if decay > R::ZERO {
                    weights.iter_mut().for_each(|weight| *weight *= R::ONE - lr * decay);
                    rounded(start, weights);
                }
                for ((step, &m), &g) in steps.iter_mut().zip(&*first).zip(&*gradients) {
                    *step = lr * sign(m * beta1 + (R::ONE - beta1) * g);
                }
                if matches!(moment, LionMoment::Bytes(_)) {
                    rounded(start, steps);
                }
                for (((weight, step), m), &g) in weights.iter_mut().zip(&*steps).zip(&mut *first).zip(&*gradients) {
                    *weight -= *step;
                    *m = *m * beta2 + (R::ONE - beta2) * g;
                }
                R::store(&p, start, weights);
                match moment {
                    LionMoment::Bytes(moment) => moment.store(&codes, run, first, true),
                    LionMoment::Wide(moment) => R::store(moment, start, first),
                }
            }
        });
    }
    let len = parameter.len;
    let fits = match moment {
        KeptMoment::Bytes(_) => true,
        KeptMoment::Wide(moment) => moment.len == len,
    };
    require(fits && gradient.len == len, || {
        format!("gradient or moment of the parameter at {} is not of its {len} elements", parameter.address)
    })?;
    let moment = match moment {
        KeptMoment::Bytes(moment) => LionMoment::Bytes(QuantizedMoment::claim(&mut access, moment, len)?),
        KeptMoment::Wide(moment) => LionMoment::Wide(access.write(moment)?),
    };
    let views = [access.write(&parameter)?, access.read(&gradient)?];
    real!([parameter.dtype, gradient.dtype], go(cores, views, &moment, rule));
    Ok(())
}

/// −1, 0 or 1.
fn sign<R: Real>(x: R) -> R {
    if x > R::ZERO {
        R::ONE
    } else if x < R::ZERO {
        R::ZERO - R::ONE
    } else {
        R::ZERO
    }
}
