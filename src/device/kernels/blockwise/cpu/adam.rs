//! AdamW of bitsandbytes, whose moments are in 8 bits.

use super::{are_bytes, nearest, normaliser};
use crate::cpu::cores::Cores;
use crate::cpu::dispatch::real;
use crate::cpu::operand::{Access, KernelResult, View, require};
use crate::cpu::real::Real;
use crate::kernels::optimizer::cpu::AdamScalars;
use crate::{AdamParameters, BYTES_RUN, ByteMoment, KeptMoments, Operand};

/// Runs of one task.
const RUNS: usize = 64;

/// One moment of a parameter.
struct Moment<'a> {
    bytes: View<'a>,
    codes: View<'a>,
    absmax: View<'a>,
}

impl<'a> Moment<'a> {
    fn claim(access: &mut Access<'a>, moment: &ByteMoment, len: usize) -> KernelResult<Self> {
        let ByteMoment { bytes, codes, absmax } = moment;
        are_bytes(bytes, codes, absmax, len)?;
        Ok(Self { bytes: access.write(bytes)?, codes: access.read(codes)?, absmax: access.write(absmax)? })
    }

    fn table<R: Real>(&self) -> [R; 256] {
        let mut table = [R::ZERO; 256];
        R::load(&self.codes, 0, &mut table);
        table
    }

    fn load<R: Real>(&self, table: &[R; 256], run: usize, values: &mut [R]) {
        let mut most = [R::ZERO];
        R::load(&self.absmax, run, &mut most);
        let bytes = self.bytes.slice::<u8>(run * BYTES_RUN, values.len());
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = table[usize::from(byte)] * most[0];
        }
    }

    fn store<R: Real>(&self, table: &[R; 256], run: usize, values: &[R], keeps_sign: bool) {
        let (factor, most) = normaliser(values);
        R::store(&self.absmax, run, &[most]);
        for (byte, &x) in self.bytes.slice_mut::<u8>(run * BYTES_RUN, values.len()).iter_mut().zip(values) {
            let near = nearest(table, x * factor);
            // What is no zero does not become one from below.
            let crosses = keeps_sign && x < R::ZERO && table[usize::from(near)] >= R::ZERO;
            *byte = if crosses { near.saturating_sub(1) } else { near };
        }
    }
}

/// Moments of a parameter.
enum Claimed<'a> {
    Bytes([Moment<'a>; 2]),
    Wide([View<'a>; 2]),
}

pub(in crate::kernels::blockwise) fn update(
    cores: &Cores,
    mut access: Access<'_>,
    [parameter, gradient]: [Operand; 2],
    moments: &KeptMoments,
    rule: &AdamParameters,
) -> KernelResult {
    fn go<R: Real>(cores: &Cores, [p, g]: [View<'_>; 2], moments: &Claimed<'_>, rule: &AdamParameters) {
        let scalars = AdamScalars::<R>::new(rule);
        let tables = match moments {
            Claimed::Bytes(moments) => moments.each_ref().map(Moment::table::<R>),
            Claimed::Wide(_) => [[R::ZERO; 256]; 2],
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
                    Claimed::Bytes(moments) => {
                        moments[0].load(&tables[0], run, first);
                        moments[1].load(&tables[1], run, second);
                    }
                    Claimed::Wide(moments) => {
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
                    Claimed::Bytes(moments) => {
                        moments[0].store(&tables[0], run, first, true);
                        moments[1].store(&tables[1], run, second, false);
                    }
                    Claimed::Wide(moments) => {
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
        KeptMoments::Bytes([first, second]) => {
            Claimed::Bytes([Moment::claim(&mut access, first, len)?, Moment::claim(&mut access, second, len)?])
        }
        KeptMoments::Wide([first, second]) => Claimed::Wide([access.write(first)?, access.write(second)?]),
    };
    let views = [access.write(&parameter)?, access.read(&gradient)?];
    real!([parameter.dtype, gradient.dtype], go(cores, views, &moments, rule));
    Ok(())
}
