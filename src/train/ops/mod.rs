//! The ops: a pair of functions each, forward and backward.
//!
//! Every op requests its blocks in the order of PyTorch's eager op, and its backward frees unpacked tensors where
//! PyTorch's does; only then is the memory curve PyTorch's. The ops are methods of [`super::Context`].

mod activation;
mod attention;
mod batch_norm;
mod binary_cross_entropy;
mod bloom_gelu;
mod by_hand;
mod cast;
mod causal;
mod clamp;
mod clamped_experts;
mod classifier;
mod convolution;
mod corrected_router;
mod dense_experts;
mod dora;
mod dropout;
mod elementwise;
mod embedding;
mod experts;
mod float8;
mod four_bit;
mod fused_loss;
mod gated;
mod group_parts;
mod head_norms;
mod latent;
mod latent_rotary;
mod layout;
mod linear;
mod loss;
mod loss_heads;
mod masks;
mod mean;
mod new_gelu;
mod newton_schulz;
mod norm;
mod packed;
mod plain_norm;
mod pooling;
mod position_scale;
mod reduce;
mod rms_norm;
mod rotary;
mod rotary_halves;
mod sigmoid_router;
mod softmax_router;
mod tiles;
mod wide_norm;

pub use attention::{BiasedAttention, CountedBias, EagerScores, SideBySide};
pub use batch_norm::RunningStatistics;
pub use by_hand::AttentionOutput;
pub use causal::{CountedPositions, NextLabels};
pub use clamped_experts::ClampedExperts;
pub use dora::DetachedGraph;
pub use experts::{RouterRule, Routes};
pub use four_bit::FourBitWeight;
pub use masks::{MaskShape, SdpaMask};
pub use norm::{AddNormOutput, NormOutputs};
pub use position_scale::{PositionCount, PositionScale};
pub use rotary::{RotaryTables, Turn};
pub use sigmoid_router::{ExpertScores, GroupRule};
