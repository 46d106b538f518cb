//! The models and their data.

mod base;
mod bert;
mod bounds;
mod catalog;
mod churn;
mod cs336;
mod data;
mod dcgan;
mod decoder;
mod dora;
mod entry;
mod error;
mod four_bit;
mod gpt;
mod hash;
mod image_modules;
mod inference;
mod lengths;
mod llama;
mod loading;
mod lora;
mod mlp;
mod modules;
mod own;
mod parameters;
mod plan;
mod quantization;
mod random;
mod resnet;
mod sequential;
mod sizes;
mod text;
mod transformer;
mod unread;
mod vit;
mod writing;

pub use bert::bert;
pub use bounds::{BatchSize, Extent, Padding, Repeats};
pub use catalog::{Catalog, DEFAULT};
pub use churn::{Churn, ChurnSizes};
pub use cs336::{Cs336, Cs336Sizes};
pub use data::{Data, DataKind};
pub use dcgan::Dcgan;
pub use decoder::{
    Biases, Decoder, DecoderSizes, DropoutPlace, Dropouts, DynamicScaling, Factors, HeadNorms, LatentSizes,
    LayerFusion, LayerLocals, LayerPattern, Llama3Scaling, LongScaling, MlpActivation, ModelConfig, Multipliers, Names,
    NormPlaces, NormsMade, PositionUse, RotaryScaling, Rotation, SlidingWindows, SoftCaps, Style, TowerSizes,
    YarnScaling,
};
pub use entry::{Architecture, LearningRates, WorkloadEntry, WorkloadGroup};
pub use error::CatalogError;
pub use gpt::{LanguageSizes, gpt};
pub use inference::{Generation, Inference, InferenceMode, InferencePlan, Models};
pub use lengths::{Epochs, LengthPolicy, Lengths, LengthsError, PlannedBatch, read_lengths};
pub use llama::{NormKind, PackedMlp};
pub use loading::{CheckpointLoad, CheckpointWorkload};
pub use lora::{AdapterConfig, Lora, Share, Target, Targets};
pub use mlp::{MlpSizes, mlp};
pub use own::Input;
pub use parameters::Spread;
pub use plan::{ExpertFiles, TensorPair, TensorPlan};
pub use quantization::{BitsAndBytesConfig, Preparation, Quantization};
pub use random::Random;
pub use resnet::{ResNet, ResNetSizes};
pub use sequential::{Description, Flow, Layer, LayerKind, Sequential};
pub use sizes::Sizes;
pub use text::Text;
pub use vit::{VitSizes, vit};
