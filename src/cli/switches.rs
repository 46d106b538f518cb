//! The switches on the command line: their values at the start.

use clap::{Args, ValueEnum};

use crate::train::{
    Amp, AttentionKernel, Config, Offload, OptimizerForm, OptimizerKind, Retain, Schedule, Tf32, ZeroGrad,
};
use crate::workload::BatchSize;

/// Values of one switch with their names on the command line.
macro_rules! values {
    ($(#[$about:meta])* $name:ident => $to:ident { $($(#[$doc:meta])* $value:ident => $target:ident $($word:literal)?),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
        #[value(rename_all = "snake_case")]
        enum $name {
            $($(#[$doc])* $(#[value(name = $word)])? $value),+
        }

        impl From<$name> for $to {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$value => Self::$target),+
                }
            }
        }
    };
}

values! {
    /// Mixed precision.
    AmpArg => Amp {
        /// Everything in fp32.
        Off => Off,
        /// fp16 with a gradient scaler.
        Fp16 => Fp16,
        /// bf16.
        Bf16 => Bf16,
    }
}

values! {
    /// Optimizer.
    OptArg => OptimizerKind {
        /// Plain SGD: no state.
        Sgd => Sgd,
        /// SGD with momentum 0.9: one state tensor per parameter.
        Momentum => Momentum,
        /// Adam: two state tensors per parameter.
        Adam => Adam,
        /// AdamW: Adam with decoupled weight decay.
        Adamw => AdamW,
    }
}

values! {
    /// How the optimizer's step is carried out.
    FormArg => OptimizerForm {
        /// All parameters at once, one operation after the other: PyTorch's default.
        Foreach => Foreach,
        /// All parameters in one kernel.
        Fused => Fused,
        /// Parameter by parameter.
        Loop => Loop,
    }
}

values! {
    /// What `zero_grad` does.
    ZeroGradArg => ZeroGrad {
        /// Gradients are freed.
        SetToNone => SetToNone,
        /// Gradients are filled with zeros.
        Zeroed => Zeroed,
    }
}

values! {
    /// TensorFloat-32.
    Tf32Arg => Tf32 {
        /// Nowhere.
        Off => Off,
        /// In convolutions: PyTorch's default.
        Conv => Convolutions,
        /// In convolutions and matrix products.
        On => On,
    }
}

values! {
    /// The learning rate over the steps.
    ScheduleArg => Schedule {
        /// It stays.
        Constant => Constant,
        /// It falls as a cosine and begins again.
        Cosine => Cosine,
    }
}

values! {
    /// What waits in host memory.
    OffloadArg => Offload {
        /// Nothing.
        Off => Off,
        /// Saved tensors, as `save_on_cpu`; from page-locked memory with --pin.
        Activations => Activations,
        /// Saved tensors, on a copy stream beside the computation.
        Overlapped => Overlapped,
        /// Optimizer state.
        Optimizer => Optimizer,
    }
}

values! {
    /// Attention kernel.
    AttentionArg => AttentionKernel {
        /// PyTorch's choice.
        Auto => Auto,
        /// Matrix products and a softmax.
        Math => Math,
        /// Memory-efficient attention.
        Efficient => Efficient,
        /// Flash attention.
        Flash => Flash,
        /// cuDNN's attention.
        Cudnn => CuDnn,
    }
}

values! {
    /// What is kept by mistake.
    RetainArg => Retain {
        /// Nothing.
        Off => Off,
        /// The loss of every step.
        Losses => Losses,
        /// The loss of every step with its graph.
        Graph => Graph,
    }
}

/// The switches' values at the start.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Switches")]
pub struct SwitchArgs {
    /// Mixed precision.
    #[arg(long, value_enum, default_value = "off")]
    amp: AmpArg,
    /// Recompute activations in backward instead of keeping them.
    #[arg(long)]
    ckpt: bool,
    /// Micro-batches per step.
    #[arg(long, value_name = "N", default_value_t)]
    accum: BatchSize,
    /// Samples per step, all micro-batches together.
    #[arg(long, value_name = "N")]
    batch: Option<BatchSize>,
    /// Optimizer [default: adamw].
    #[arg(long, value_enum)]
    opt: Option<OptArg>,
    /// How the optimizer's step is carried out [default: foreach; fused with --fuse].
    #[arg(long, value_enum)]
    opt_form: Option<FormArg>,
    /// Weight decay, in the optimizer's own way [default: 0.1 for adamw, 0 for the others].
    #[arg(long, value_name = "X")]
    weight_decay: Option<f64>,
    /// The learning rate over the steps.
    #[arg(long, value_enum, default_value = "constant")]
    schedule: ScheduleArg,
    /// Steps in which the cosine falls to zero.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    schedule_steps: u64,
    /// What zero_grad does.
    #[arg(long, value_enum, default_value = "set_to_none")]
    zero_grad: ZeroGradArg,
    /// TensorFloat-32; without a value: on.
    #[arg(long, value_enum, num_args = 0..=1, default_value = "off", default_missing_value = "on")]
    tf32: Tf32Arg,
    /// Attention kernel.
    #[arg(long, value_enum, default_value = "auto")]
    attention: AttentionArg,
    /// What waits in host memory.
    #[arg(long, value_enum, default_value = "off")]
    offload: OffloadArg,
    /// Page-locked host memory: for batches, which are then copied beside the computation, and for --offload.
    #[arg(long)]
    pin: bool,
    /// Fused ops in place of chains of eager ones: less memory and time, and no longer eager PyTorch's curve.
    #[arg(long)]
    fuse: bool,
    /// A leak: what is kept of every step.
    #[arg(long, value_enum, default_value = "off")]
    retain: RetainArg,
}

impl SwitchArgs {
    /// The configuration that these arguments ask for, with `batch` samples where they name none.
    ///
    /// # Errors
    /// A sentence: what can't be.
    pub fn config(&self, batch: BatchSize) -> Result<Config, String> {
        let mut config = Config::new(self.batch.unwrap_or(batch).get());
        config.amp = self.amp.into();
        config.checkpointing = self.ckpt;
        config.accumulation = self.accum.get();
        config.optimizer = self.opt.map_or(OptimizerKind::AdamW, Into::into);
        config.form = match self.opt_form {
            Some(form) => form.into(),
            None if self.fuse => OptimizerForm::Fused,
            None => OptimizerForm::Foreach,
        };
        config.zero_grad = self.zero_grad.into();
        config.tf32 = self.tf32.into();
        config.schedule = self.schedule.into();
        config.offload = self.offload.into();
        config.attention = self.attention.into();
        config.fuse = self.fuse;
        config.retain = self.retain.into();
        config.pinned = self.pin;
        config.hyper.weight_decay = self.weight_decay;
        config.hyper.schedule_steps = self.schedule_steps;
        if config.accumulation > config.batch {
            return Err(format!(
                "a batch of {} can't be cut into {} micro-batches; raise --batch or lower --accum",
                config.batch, config.accumulation
            ));
        }
        if self.weight_decay.is_some_and(|decay| !(0.0..=1.0).contains(&decay)) {
            return Err("a weight decay lies between 0 and 1, such as 0.1".to_owned());
        }
        Ok(config)
    }
}
