//! CUDA C for every [`Kernel`], and what launches it. All kernels compute in f32 and convert elements as they are loaded
//! and stored; sums run in a fixed order, so that a run can be repeated bit for bit.

mod add_layer_norm;
mod attention;
mod batch_norm;
mod batch_norm_activation;
mod batch_norm_columns;
mod classifier;
mod convolution;
mod elementwise;
mod embedding;
mod float8;
mod gelu_sums;
mod gemm;
mod geometry;
mod layer_norm;
mod loss;
mod nf4;
mod optimizer;
mod pool;
mod rms_norm;
mod rotary;
mod routing;
mod rows;
mod softmax;
pub(super) mod sources;
pub(super) mod strided;
mod sums;

use super::queue::{Queue, Refusal};
use crate::Kernel;

pub(super) use geometry::geometry;

/// Launches `kernel`: each family reads its own variants.
pub(super) fn launch(queue: &mut Queue<'_>, kernel: &Kernel<'_>) -> Result<(), Refusal> {
    match kernel {
        Kernel::Gemm { .. } => gemm::launch(queue, kernel),
        Kernel::GeluBackwardSum { .. } => gelu_sums::launch(queue, kernel),
        Kernel::Fill { .. }
        | Kernel::Arange { .. }
        | Kernel::Identity { .. }
        | Kernel::Cast { .. }
        | Kernel::Add { .. }
        | Kernel::Sub { .. }
        | Kernel::Mul { .. }
        | Kernel::Div { .. }
        | Kernel::Scale { .. }
        | Kernel::Dropout { .. }
        | Kernel::AddScalar { .. }
        | Kernel::Relu { .. }
        | Kernel::ReluBackward { .. }
        | Kernel::LeakyRelu { .. }
        | Kernel::LeakyReluBackward { .. }
        | Kernel::AtMost { .. }
        | Kernel::AtMostBackward { .. }
        | Kernel::Tanh { .. }
        | Kernel::TanhBackward { .. }
        | Kernel::Sigmoid { .. }
        | Kernel::SigmoidBackward { .. }
        | Kernel::Silu { .. }
        | Kernel::SiluBackward { .. }
        | Kernel::Rsqrt { .. }
        | Kernel::MulRows { .. }
        | Kernel::GatedSilu { .. }
        | Kernel::GatedSiluBackward { .. }
        | Kernel::Gelu { .. }
        | Kernel::GeluBackward { .. } => elementwise::launch(queue, kernel),
        Kernel::CopyStrided { .. } | Kernel::CastStrided { .. } => strided::launch(queue, kernel),
        Kernel::ColumnSum { .. } | Kernel::ChannelSum { .. } | Kernel::Mean { .. } | Kernel::MeanBackward { .. } => {
            sums::launch(queue, kernel)
        }
        Kernel::RmsNorm { .. } | Kernel::RmsNormBackward { .. } | Kernel::RowNorm { .. } => {
            rms_norm::launch(queue, kernel)
        }
        Kernel::LayerNorm { .. } | Kernel::LayerNormBackward { .. } => layer_norm::launch(queue, kernel),
        Kernel::AddLayerNorm { .. } | Kernel::AddLayerNormBackward { .. } => add_layer_norm::launch(queue, kernel),
        Kernel::Embedding { .. } | Kernel::EmbeddingBackward { .. } => embedding::launch(queue, kernel),
        Kernel::TopK { .. }
        | Kernel::TopKBackward { .. }
        | Kernel::GroupRows { .. }
        | Kernel::GroupEnds { .. }
        | Kernel::Invert { .. }
        | Kernel::GroupedGemm { .. }
        | Kernel::GroupedGemmOuter { .. } => routing::launch(queue, kernel),
        Kernel::Attention { .. } | Kernel::AttentionInference { .. } | Kernel::AttentionBackward { .. } => {
            attention::launch(queue, kernel)
        }
        Kernel::RotaryTables { .. } | Kernel::Rotary { .. } => rotary::launch(queue, kernel),
        Kernel::QuantizeNf4 { .. }
        | Kernel::AdamOfBytes { .. }
        | Kernel::DequantizeNf4 { .. }
        | Kernel::QuantizeBytes { .. }
        | Kernel::DequantizeBytes { .. }
        | Kernel::GemmNf4 { .. } => nf4::launch(queue, kernel),
        Kernel::AbsMax { .. }
        | Kernel::Float8Scale { .. }
        | Kernel::QuantizeFloat8 { .. }
        | Kernel::ScaledGemm { .. } => float8::launch(queue, kernel),
        Kernel::CrossEntropy { .. } | Kernel::CrossEntropyBackward { .. } => classifier::launch(queue, kernel),
        Kernel::Softmax { .. }
        | Kernel::SoftmaxBackward { .. }
        | Kernel::LogSoftmax { .. }
        | Kernel::LogSoftmaxBackward { .. } => softmax::launch(queue, kernel),
        Kernel::NllLoss { .. }
        | Kernel::NllLossBackward { .. }
        | Kernel::BceWithLogits { .. }
        | Kernel::BceWithLogitsBackward { .. } => loss::launch(queue, kernel),
        Kernel::Conv2d { .. } | Kernel::Conv2dBackwardInput { .. } | Kernel::Conv2dBackwardWeight { .. } => {
            convolution::launch(queue, kernel)
        }
        Kernel::BatchNorm { .. }
        | Kernel::BatchNormInference { .. }
        | Kernel::BatchNormBackward { .. }
        | Kernel::BatchNormInferenceBackward { .. } => batch_norm::launch(queue, kernel),
        Kernel::BatchNormActivation { .. } | Kernel::BatchNormActivationBackward { .. } => {
            batch_norm_activation::launch(queue, kernel)
        }
        Kernel::MaxPool { .. } | Kernel::MaxPoolBackward { .. } => pool::launch(queue, kernel),
        Kernel::Sgd { .. }
        | Kernel::Adam { .. }
        | Kernel::Unscale { .. }
        | Kernel::SquareSums { .. }
        | Kernel::ClipFactor { .. }
        | Kernel::Reciprocal { .. }
        | Kernel::UpdateScale { .. } => optimizer::launch(queue, kernel),
    }
}
