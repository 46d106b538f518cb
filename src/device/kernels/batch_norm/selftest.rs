//! Batch normalisation, in training and in evaluation.

use super::BatchNorm;
use crate::selftest::bound::ErrorBound;
use crate::selftest::case::{Case, Precision, Slot};
use crate::selftest::session::Session;
use crate::selftest::values::Values;
use crate::{ChannelShape, DType, ResidualGradient};

const EPS: f32 = 1e-5;

const SHAPES: [(usize, usize, usize); 14] = [
    (2, 3, 1),
    (64, 10, 1),
    (33, 257, 1),
    (2, 5, 49),
    (1, 4, 49),
    (16, 64, 49),
    (3, 1, 100),
    (8, 33, 65),
    (4, 7, 196),
    (32, 128, 16),
    (64, 3, 1024),
    (2, 3, 12_544),
    (5, 2, 12_545),
    (4, 512, 49),
];

/// Sizes of channels-last pixels.
const ROWS: [(usize, usize, usize); 6] =
    [(3136, 64, 1), (999, 24, 1), (777, 130, 1), (12_545, 8, 1), (196, 2048, 1), (5000, 1, 1)];

/// The operations fused after a norm.
#[derive(Clone, Copy)]
struct TailCase {
    residual: bool,
    slope: f32,
    /// The result's gradient overwrites the given gradient.
    in_place: bool,
}

const TAILS: [TailCase; 5] = [
    TailCase { residual: false, slope: 0.0, in_place: false },
    TailCase { residual: true, slope: 0.0, in_place: false },
    TailCase { residual: false, slope: 0.2, in_place: true },
    TailCase { residual: true, slope: 0.2, in_place: true },
    TailCase { residual: false, slope: 1.0, in_place: true },
];

/// One normalisation: its shape, its type, and that of its parameters.
struct Norm {
    shape: ChannelShape,
    precision: Precision,
    parameters: DType,
}

impl Norm {
    fn case(&self, kernel: &'static str) -> Case {
        let ChannelShape { batch, channels, area } = self.shape;
        let narrow = if self.parameters == DType::F32 { "" } else { ", parameters alike" };
        Case::new(kernel, self.precision, format!("{batch} × {channels} × {area}{narrow}"))
    }

    /// With few elements the variance is sometimes almost zero, and errors are larger.
    fn bound(&self) -> ErrorBound {
        ErrorBound::Sum(self.shape.per_channel().max(1000))
    }

    fn whole(&self, case: &mut Case, name: &'static str) -> Slot {
        let values = if name == "grad" { Values::STANDARD } else { Values::Normal(0.3, 1.2) };
        case.input(name, self.precision.dtype(), self.shape.len(), values)
    }

    fn channels(&self, case: &mut Case, name: &'static str, values: Values) -> Slot {
        case.input(name, self.parameters, self.shape.channels, values)
    }

    fn gradients(&self, case: &mut Case) -> [Slot; 3] {
        let dsrc = case.output("dsrc", self.precision.dtype(), self.shape.len(), self.bound());
        let parameter = |name| case.output(name, self.parameters, self.shape.channels, self.bound());
        let [dweight, dbias] = ["dweight", "dbias"].map(parameter);
        [dsrc, dweight, dbias]
    }
}

fn weights() -> Values {
    Values::Normal(1.0, 0.2)
}

fn variances() -> Values {
    Values::Uniform(0.5, 2.0)
}

pub(super) fn run(session: &mut Session<'_>) {
    for precision in Precision::FLOATS {
        for (batch, channels, area) in SHAPES.into_iter().chain(ROWS) {
            let shape = ChannelShape { batch, channels, area };
            let mut kinds = vec![DType::F32];
            if precision != Precision::F32 {
                kinds.push(precision.dtype());
            }
            for parameters in kinds {
                let norm = Norm { shape, precision, parameters };
                for tail in TAILS {
                    activated(session, &norm, tail);
                    activated_backward(session, &norm, tail);
                }
                if area == 1 && batch > 100 {
                    continue;
                }
                training(session, &norm);
                training_backward(session, &norm);
                evaluation(session, &norm);
                evaluation_backward(session, &norm);
            }
        }
    }
}

fn training(session: &mut Session<'_>, norm: &Norm) {
    let (shape, channels) = (norm.shape, norm.shape.channels);
    let mut case = norm.case("batch_norm");
    let src = norm.whole(&mut case, "src");
    let weight = norm.channels(&mut case, "weight", weights());
    let bias = norm.channels(&mut case, "bias", Values::Normal(0.0, 0.5));
    let dst = case.output("dst", norm.precision.dtype(), shape.len(), norm.bound());
    let mean = case.output("mean", DType::F32, channels, norm.bound());
    let rstd = case.output("rstd", DType::F32, channels, norm.bound());
    let running = [("running_mean", Values::Normal(0.0, 0.5)), ("running_var", variances())];
    let [running_mean, running_var] =
        running.map(|(name, values)| case.update(name, norm.parameters, channels, values, norm.bound()));
    session.check(&case, |at| BatchNorm::Forward {
        src: at[src],
        weight: at[weight],
        bias: at[bias],
        dst: at[dst],
        mean: at[mean],
        rstd: at[rstd],
        running_mean: at[running_mean],
        running_var: at[running_var],
        shape,
        eps: EPS,
        momentum: 0.1,
    });
}

fn training_backward(session: &mut Session<'_>, norm: &Norm) {
    let (shape, channels) = (norm.shape, norm.shape.channels);
    let mut case = norm.case("batch_norm_backward");
    let grad = norm.whole(&mut case, "grad");
    let src = norm.whole(&mut case, "src");
    let mean = case.input("mean", DType::F32, channels, Values::Normal(0.3, 0.05));
    let rstd = case.input("rstd", DType::F32, channels, Values::Uniform(0.7, 0.95));
    let weight = norm.channels(&mut case, "weight", weights());
    let [dsrc, dweight, dbias] = norm.gradients(&mut case);
    session.check(&case, |at| BatchNorm::Backward {
        grad: at[grad],
        src: at[src],
        mean: at[mean],
        rstd: at[rstd],
        weight: at[weight],
        dsrc: at[dsrc],
        dweight: at[dweight],
        dbias: at[dbias],
        shape,
    });
}

impl TailCase {
    fn case(self, norm: &Norm, kernel: &'static str) -> Case {
        let Self { residual, slope, in_place } = self;
        let mut case = norm.case(kernel);
        case.shape += &format!(", slope {slope}");
        if residual {
            case.shape += ", residual";
        }
        if in_place && kernel.ends_with("backward") {
            case.shape += ", in place";
        }
        case
    }
}

fn activated(session: &mut Session<'_>, norm: &Norm, tail: TailCase) {
    let (shape, channels) = (norm.shape, norm.shape.channels);
    let mut case = tail.case(norm, "batch_norm_activation");
    let src = norm.whole(&mut case, "src");
    let residual = tail.residual.then(|| norm.whole(&mut case, "residual"));
    let weight = norm.channels(&mut case, "weight", weights());
    let bias = norm.channels(&mut case, "bias", Values::Normal(0.0, 0.5));
    let dst = case.output("dst", norm.precision.dtype(), shape.len(), norm.bound());
    let mean = case.output("mean", DType::F32, channels, norm.bound());
    let rstd = case.output("rstd", DType::F32, channels, norm.bound());
    let running = [("running_mean", Values::Normal(0.0, 0.5)), ("running_var", variances())];
    let [running_mean, running_var] =
        running.map(|(name, values)| case.update(name, norm.parameters, channels, values, norm.bound()));
    session.check(&case, |at| BatchNorm::Activation {
        src: at[src],
        residual: residual.map(|residual| at[residual]),
        weight: at[weight],
        bias: at[bias],
        dst: at[dst],
        mean: at[mean],
        rstd: at[rstd],
        running_mean: at[running_mean],
        running_var: at[running_var],
        shape,
        eps: EPS,
        momentum: 0.1,
        slope: tail.slope,
    });
}

fn activated_backward(session: &mut Session<'_>, norm: &Norm, tail: TailCase) {
    let (shape, channels) = (norm.shape, norm.shape.channels);
    let mut case = tail.case(norm, "batch_norm_activation_backward");
    let (dtype, len) = (norm.precision.dtype(), shape.len());
    // In place, the gradient's memory also holds the result.
    let grad = if tail.in_place {
        case.update("grad", dtype, len, Values::STANDARD, norm.bound())
    } else {
        norm.whole(&mut case, "grad")
    };
    // Few distinct values, so that hardly any is normalised to nearly zero, where rounding decides the sign.
    let src = case.input("src", dtype, len, Values::Below(5));
    let output = tail.residual.then(|| norm.whole(&mut case, "output"));
    let own = |case: &mut Case, name| case.output(name, dtype, len, norm.bound());
    let dresidual = tail.residual.then(|| if tail.in_place { grad } else { own(&mut case, "dresidual") });
    let dsrc = if tail.in_place && !tail.residual { grad } else { own(&mut case, "dsrc") };
    let mean = case.input("mean", DType::F32, channels, Values::Normal(2.0, 0.05));
    let rstd = case.input("rstd", DType::F32, channels, Values::Uniform(0.65, 0.75));
    let weight = norm.channels(&mut case, "weight", weights());
    let bias = norm.channels(&mut case, "bias", Values::Normal(0.0, 0.5));
    let parameter = |case: &mut Case, name| case.output(name, norm.parameters, channels, norm.bound());
    let [dweight, dbias] = ["dweight", "dbias"].map(|name| parameter(&mut case, name));
    session.check(&case, |at| BatchNorm::ActivationBackward {
        grad: at[grad],
        src: at[src],
        residual: output
            .zip(dresidual)
            .map(|(output, dresidual)| ResidualGradient { output: at[output], dresidual: at[dresidual] }),
        mean: at[mean],
        rstd: at[rstd],
        weight: at[weight],
        bias: at[bias],
        dsrc: at[dsrc],
        dweight: at[dweight],
        dbias: at[dbias],
        shape,
        slope: tail.slope,
    });
}

fn evaluation(session: &mut Session<'_>, norm: &Norm) {
    let shape = norm.shape;
    let mut case = norm.case("batch_norm_inference");
    let src = norm.whole(&mut case, "src");
    let weight = norm.channels(&mut case, "weight", weights());
    let bias = norm.channels(&mut case, "bias", Values::Normal(0.0, 0.5));
    let running_mean = norm.channels(&mut case, "running_mean", Values::Normal(0.3, 0.3));
    let running_var = norm.channels(&mut case, "running_var", variances());
    let dst = case.output("dst", norm.precision.dtype(), shape.len(), norm.bound());
    session.check(&case, |at| BatchNorm::Inference {
        src: at[src],
        weight: at[weight],
        bias: at[bias],
        running_mean: at[running_mean],
        running_var: at[running_var],
        dst: at[dst],
        shape,
        eps: EPS,
    });
}

fn evaluation_backward(session: &mut Session<'_>, norm: &Norm) {
    let shape = norm.shape;
    let mut case = norm.case("batch_norm_inference_backward");
    let grad = norm.whole(&mut case, "grad");
    let src = norm.whole(&mut case, "src");
    let weight = norm.channels(&mut case, "weight", weights());
    let running_mean = norm.channels(&mut case, "running_mean", Values::Normal(0.3, 0.3));
    let running_var = norm.channels(&mut case, "running_var", variances());
    let [dsrc, dweight, dbias] = norm.gradients(&mut case);
    session.check(&case, |at| BatchNorm::InferenceBackward {
        grad: at[grad],
        src: at[src],
        weight: at[weight],
        running_mean: at[running_mean],
        running_var: at[running_var],
        dsrc: at[dsrc],
        dweight: at[dweight],
        dbias: at[dbias],
        shape,
        eps: EPS,
    });
}
