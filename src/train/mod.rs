//! A small PyTorch on purpose: eager training whose memory curve is PyTorch's.
//!
//! [`Trainer`] runs steps of a [`Workload`] on a device. Models are straight-line code over the ops of [`Context`]. An
//! op requests the blocks that PyTorch's eager op requests, in the same order, and saves the tensors that it saves. A
//! [`Tensor`] frees its block when its last handle is dropped, so models hold their intermediate results exactly as
//! long as Python's frames do.

mod autocast;
mod backward;
mod checkpoint;
mod communicator;
mod config;
mod context;
mod data;
mod error;
mod exchange;
mod graph;
mod hooks;
mod kv_cache;
mod library;
mod meeting;
mod member;
mod memory;
mod observer;
mod offload;
mod ops;
mod optim;
mod outputs;
mod parallel;
mod parameter_offload;
mod parked;
mod peers;
mod retain;
mod saved;
mod scaler;
mod schedule;
mod seams;
mod shape;
mod split;
mod state_dict;
mod storage;
mod tape;
mod tensor;
mod timetable;
mod trainer;
mod workload;

pub use checkpoint::checkpoint;
pub use config::{
    Amp, AttentionKernel, Checkpointing, Config, DataPath, Float8Recipe, Hyper, LossHead, Offload, OnOom,
    OptimizerForm, OptimizerKind, Retain, Schedule, Skips, Tf32, ZeroGrad,
};
pub use context::{Context, Repeatable};
pub use error::{Interrupt, MemoryKind, OpResult, TrainError};
pub use exchange::Seat;
pub use kv_cache::{CacheKind, KvCache};
pub use library::Libraries;
pub use member::{Member, UnevenSplit, World};
pub use memory::Memory;
pub use observer::{Answer, Observer, SafePoint};
pub use ops::{
    AddNormOutput, AttentionOutput, BiasedAttention, ClampedExperts, CountedBias, CountedPositions, DetachedGraph,
    EagerScores, ExpertScores, FourBitWeight, GroupRule, MaskShape, NextLabels, NormOutputs, PositionCount,
    PositionScale, RotaryTables, RouterRule, Routes, RunningStatistics, SdpaMask, SideBySide, Turn,
};
pub use parallel::batch_unit;
pub use shape::Shape;
pub use split::{TensorRole, TensorSplit};
pub use state_dict::StateDict;
pub use tensor::Tensor;
pub use timetable::Timetable;
pub use trainer::{LoopStyle, Trainer, TrainerOptions};
pub use vramlab_model::{Parallelism, PipelineSchedule};
pub use workload::{
    Adversaries, Batch, BatchLayout, BatchSource, Cut, Layouts, Model, Outcome, Routine, StagePart, Task, Workload,
};
