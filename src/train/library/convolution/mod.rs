//! Workspaces of cuDNN's convolutions.

mod next;
mod problem;
mod table;

use problem::as_f64;
pub(crate) use problem::{Arithmetic, Convolution, Pass};

/// Bytes of the workspace that cuDNN takes for one pass.
///
/// cuDNN's choice among its plans follows no documented rule: [`table`] holds measurements. A shape that was not measured takes
/// the runs of the most similar measured one (`Convolution::distance`). A batch between two measured runs takes the run without a
/// workspace if one of them has none, else the nearer in proportion. The fixed part of that workspace is scaled by the bytes of
/// the weight, the part per image by those of the images.
pub(crate) fn workspace(pass: Pass, convolution: &Convolution, arithmetic: Arithmetic) -> usize {
    let side = convolution.side();
    let exact = convolution.sides == [side, side];
    let measured = table::shapes();
    let found = if exact { measured.iter().find(|plans| plans.like.is_alike(convolution)) } else { None };
    if let Some(plans) = found {
        let run = plans.run(pass, arithmetic, convolution.batch);
        return bytes(run.fixed + run.per_image * as_f64(convolution.batch));
    }
    let by_distance = |plans: &&table::Plans| OrderedDistance(plans.like.distance(convolution));
    let Some(plans) = measured.iter().min_by_key(by_distance) else { return 0 };
    let run = plans.run(pass, arithmetic, convolution.batch);
    let (ours, theirs) = (convolution.elements(), plans.like.elements());
    let (weights, images) = (ours.weight / theirs.weight, ours.images / theirs.images);
    let batch = as_f64(convolution.batch);
    bytes(match run.alone {
        // A single batch does not show which part is fixed: all of it is scaled with the bytes of images and weight together.
        Some(alone) => {
            let alone = as_f64(alone);
            run.fixed * (batch * ours.images + ours.weight) / (alone * theirs.images + theirs.weight)
        }
        None => run.fixed * weights + run.per_image * images * batch,
    })
}

/// The workspaces of the plans that PyTorch tries one after the other if the first plan's, `refused` bytes, can't be
/// allocated: the last one takes nothing.
pub(crate) fn further(pass: Pass, convolution: &Convolution, arithmetic: Arithmetic, refused: usize) -> Vec<usize> {
    next::further(pass, convolution, arithmetic, refused)
}

/// A distance as a sort key.
#[derive(PartialEq)]
struct OrderedDistance(f64);

impl Eq for OrderedDistance {}

impl PartialOrd for OrderedDistance {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedDistance {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and far below 2⁶⁴")]
fn bytes(size: f64) -> usize {
    size.max(0.0).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPATIAL: Convolution = Convolution {
        batch: 32,
        inputs: 64,
        sides: [56, 56],
        outputs: 64,
        kernel: 3,
        stride: 1,
        padding: 1,
        transposed: false,
    };

    #[test]
    fn a_measured_shape_has_what_was_measured() {
        let forward = |batch, how| workspace(Pass::Forward, &Convolution { batch, ..SPATIAL }, how);
        assert_eq!(forward(32, Arithmetic::F32), 0);
        assert_eq!(forward(32, Arithmetic::Tf32), 25_837_584);
        assert_eq!(forward(64, Arithmetic::F16), 51_454_099);
        // A batch between two measured batches of a run lies on the run's line.
        assert_eq!(forward(100, Arithmetic::F16), 73_875 + 100 * 802_816);
    }

    #[test]
    fn a_shape_that_was_not_measured_has_what_the_most_alike_would() {
        let wider = Convolution { inputs: 72, outputs: 72, ..SPATIAL };
        let ratio = |pass, how| {
            let theirs = workspace(pass, &SPATIAL, how);
            as_f64(workspace(pass, &wider, how)) / as_f64(theirs)
        };
        let weights = as_f64(72 * 72) / as_f64(64 * 64);
        for how in [Arithmetic::Tf32, Arithmetic::F16, Arithmetic::Bf16] {
            let ratio = ratio(Pass::InputGradient, how);
            assert!(ratio >= 72.0 / 64.0 - 1e-6 && ratio < weights, "{ratio}");
        }
        // Images that are not square count as square ones of the same area.
        let wide = Convolution { sides: [28, 112], ..SPATIAL };
        let square = workspace(Pass::Forward, &SPATIAL, Arithmetic::F16);
        assert_eq!(workspace(Pass::Forward, &wide, Arithmetic::F16), square);
    }
}
