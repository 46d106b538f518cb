//! Blocks of image channels. Within a block, the elements of each image form one line.

use super::cores::Cores;
use super::operand::{KernelResult, require};
use super::real::{Real, sum_by};
use super::tasks::estimate;
use crate::{ChannelShape, Operand};

/// Elements in a line, unless one channel has more.
const LINE: usize = 512;

/// The channels of one task.
#[derive(Clone, Copy)]
pub(crate) struct ChannelBlock {
    pub(crate) shape: ChannelShape,
    pub(crate) first: usize,
    pub(crate) channels: usize,
}

impl ChannelBlock {
    /// Elements in a line.
    pub(crate) const fn width(&self) -> usize {
        self.channels * self.shape.area
    }

    /// Where the line of an image starts.
    pub(crate) const fn line(&self, image: usize) -> usize {
        (image * self.shape.channels + self.first) * self.shape.area
    }

    /// The number of elements over which statistics are computed.
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2⁵³")]
    pub(crate) fn count<R: Real>(&self) -> R {
        R::of(self.shape.per_channel() as f64)
    }

    /// Sums each channel of a line.
    #[inline(always)]
    pub(crate) fn fold<R: Real>(&self, line: &[R], sums: &mut [R]) {
        for (sum, line) in sums.iter_mut().zip(line.chunks_exact(self.shape.area)) {
            *sum = sum_by(
                line.len(),
                #[inline(always)]
                |i| line[i],
            );
        }
    }

    /// Fills a line with one value for each channel.
    #[inline(always)]
    pub(crate) fn unfold<R: Real>(&self, values: &[R], line: &mut [R]) {
        for (&value, line) in values.iter().zip(line.chunks_exact_mut(self.shape.area)) {
            line.fill(value);
        }
    }
}

/// Calls `body` with each block, scratch for `lines` lines, and `values` values for each of its channels.
#[inline(always)]
pub(crate) fn for_blocks<R: Real, const LINES: usize, const VALUES: usize>(
    cores: &Cores,
    shape: ChannelShape,
    nanos: f64,
    body: impl Fn(ChannelBlock, [&mut [R]; LINES], [&mut [R]; VALUES]) + Sync,
) {
    let each = (LINE / shape.area).clamp(1, shape.channels);
    cores.for_each(
        shape.channels.div_ceil(each),
        estimate(shape.len(), nanos),
        #[inline(always)]
        |task| {
            let first = task * each;
            let block = ChannelBlock { shape, first, channels: each.min(shape.channels - first) };
            cores.scratch(
                LINES * block.width() + VALUES * block.channels,
                #[inline(always)]
                |mut scratch: &mut [R]| {
                    let mut take = |n| scratch.split_off_mut(..n).unwrap_or_default();
                    let lines = [(); LINES].map(|()| take(block.width()));
                    let values = [(); VALUES].map(|()| take(block.channels));
                    body(block, lines, values);
                },
            );
        },
    );
}

pub(crate) fn check(shape: &ChannelShape, whole: &[&Operand], per_channel: &[&Operand]) -> KernelResult {
    let fits = whole.iter().all(|x| x.len == shape.len()) && per_channel.iter().all(|x| x.len == shape.channels);
    require(fits, || format!("operands don't fit {shape:?}"))
}
