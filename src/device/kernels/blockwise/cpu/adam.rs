//! bitsandbytes' AdamW with 8-bit moments.

use super::codes::Codes;
use super::moment::{QuantizedMoment, RUNS};
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::kernels::optimizer::cpu::AdamScalars;
use crate::{AdamParameters, BYTES_RUN, KeptMoments, Operand};

/// Moments of a parameter.
enum AdamMoments<'a> {
    Bytes([QuantizedMoment<'a>; 2]),
    Wide([View<'a>; 2]),
}

pub(in crate::kernels::blockwise) fn update(
    cores: &Cores,
    mut access: Access<'_>,
    [parameter, gradient]: [Operand; 2],
    moments: &KeptMoments,
    rule: &AdamParameters,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [p, g]: [View<'_>; 2], moments: &AdamMoments<'_>, rule: &AdamParameters) {
        let scalars = AdamScalars::<R>::new(rule);
        let codes = match moments {
            AdamMoments::Bytes(moments) => moments.each_ref().map(QuantizedMoment::codes::<R>),
            AdamMoments::Wide(_) => [(); 2].map(|()| Codes::new([R::ZERO; 256])),
        };
        let runs = p.len().div_ceil(BYTES_RUN);
        cores.for_each(runs.div_ceil(RUNS), p.len() * 30, |task| {
            let mut scratch = [[R::ZERO; BYTES_RUN]; 4];
            for run in task * RUNS..runs.min((task + 1) * RUNS) {
                let start = run * BYTES_RUN;
                let len = BYTES_RUN.min(p.len() - start);
                let [weights, gradients, first, second] = scratch.each_mut().map(|values| &mut values[..len]);
                R::load(&p, start, weights);
                R::load(&g, start, gradients);
                match moments {
                    AdamMoments::Bytes(moments) => {
                        moments[0].load(&codes[0], run, first);
                        moments[1].load(&codes[1], run, second);
                    }
                    AdamMoments::Wide(moments) => {
                        R::load(&moments[0], start, first);
                        R::load(&moments[1], start, second);
                    }
                }
                scalars.update([weights, first, second], gradients);
                R::store(&p, start, weights);
                if rule.weight_decay != 0.0 {
                    R::load(&p, start, weights);
                    weights.iter_mut().for_each(|weight| *weight *= scalars.keep);
                    R::store(&p, start, weights);
                }
                match moments {
                    AdamMoments::Bytes(moments) => {
                        moments[0].store(&codes[0], run, first, true);
                        moments[1].store(&codes[1], run, second, false);
                    }
                    AdamMoments::Wide(moments) => {
                        R::store(&moments[0], start, first);
                        R::store(&moments[1], start, second);
                    }
                }
            }
        });
    }
    let len = parameter.len;
    let fits = match moments {
        KeptMoments::Bytes(_) => true,
        KeptMoments::Wide(moments) => moments.iter().all(|moment| moment.len == len),
    };
    require(fits && gradient.len == len && rule.decoupled && rule.step > 0, || {
        format!("gradient or moments of the parameter at {} are not of its {len} elements", parameter.address)
    })?;
    let moments = match moments {
        KeptMoments::Bytes([first, second]) => AdamMoments::Bytes([
            QuantizedMoment::claim(&mut access, first, len)?,
            QuantizedMoment::claim(&mut access, second, len)?,
        ]),
        KeptMoments::Wide([first, second]) => AdamMoments::Wide([access.write(first)?, access.write(second)?]),
    };
    let views = [access.write(&parameter)?, access.read(&gradient)?];
    real!([parameter.dtype, gradient.dtype], go(cores, views, &moments, rule));
    Ok(())
}
