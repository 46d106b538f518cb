//! An 8-bit moment of a parameter, processed run by run.

use super::codes::Codes;
use super::{are_bytes, normaliser};
use crate::cpu::operand::{Access, KernelResult, View};
use crate::cpu::real::Real;
use crate::{BYTES_RUN, ByteMoment};

/// Runs in one task.
pub(super) const RUNS: usize = 64;

/// One moment of a parameter.
pub(super) struct QuantizedMoment<'a> {
    bytes: View<'a>,
    codes: View<'a>,
    absmax: View<'a>,
}

impl<'a> QuantizedMoment<'a> {
    pub(super) fn claim(access: &mut Access<'a>, moment: &ByteMoment, len: usize) -> KernelResult<Self> {
        let ByteMoment { bytes, codes, absmax } = moment;
        are_bytes(bytes, codes, absmax, len)?;
        Ok(Self { bytes: access.write(bytes)?, codes: access.read(codes)?, absmax: access.write(absmax)? })
    }

    pub(super) fn codes<R: Real>(&self) -> Codes<R, 256> {
        Codes::load(&self.codes)
    }

    pub(super) fn load<R: Real>(&self, codes: &Codes<R, 256>, run: usize, values: &mut [R]) {
        let mut most = [R::ZERO];
        R::load(&self.absmax, run, &mut most);
        let bytes = self.bytes.slice::<u8>(run * BYTES_RUN, values.len());
        for (value, &byte) in values.iter_mut().zip(bytes) {
            *value = codes.value(byte) * most[0];
        }
    }

    pub(super) fn store<R: Real>(&self, codes: &Codes<R, 256>, run: usize, values: &[R], keeps_sign: bool) {
        let (factor, most) = normaliser(values);
        R::store(&self.absmax, run, &[most]);
        for (byte, &x) in self.bytes.slice_mut::<u8>(run * BYTES_RUN, values.len()).iter_mut().zip(values) {
            let near = codes.nearest(x * factor);
            // A negative value must not become zero.
            let crosses = keeps_sign && x < R::ZERO && codes.value(near) >= R::ZERO;
            *byte = if crosses { near.saturating_sub(1) } else { near };
        }
    }
}
