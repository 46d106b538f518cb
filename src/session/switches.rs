//! The switches: keys, values, and what each value means in a [`Setup`].
//!
//! This table is the only place that knows: the panel, the flips and the list on the command line read it.

use std::borrow::Cow;

use super::{Choice, Setup, Switch, SwitchGroup, SwitchState};
use crate::train::{
    Amp, AttentionKernel, Config, Offload, OptimizerForm, OptimizerKind, Retain, Schedule, Tf32, ZeroGrad,
};
use crate::workload::BatchSize;

/// What is known of a switch beside its value.
struct Entry {
    switch: Switch,
    group: SwitchGroup,
    key: char,
    label: &'static str,
    values: &'static [&'static str],
    teaches: &'static str,
}

const AMP: [Amp; 3] = [Amp::Off, Amp::Fp16, Amp::Bf16];
const ACCUMULATION: [usize; 4] = [1, 2, 4, 8];
const OPTIMIZERS: [OptimizerKind; 4] =
    [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam, OptimizerKind::AdamW];
const FORMS: [OptimizerForm; 3] = [OptimizerForm::Foreach, OptimizerForm::Fused, OptimizerForm::Loop];
const OFFLOAD: [Offload; 4] = [Offload::Off, Offload::Activations, Offload::Overlapped, Offload::Optimizer];
const TF32: [Tf32; 3] = [Tf32::Off, Tf32::Convolutions, Tf32::On];
const ATTENTION: [AttentionKernel; 5] = [
    AttentionKernel::Auto,
    AttentionKernel::Math,
    AttentionKernel::Efficient,
    AttentionKernel::Flash,
    AttentionKernel::CuDnn,
];
const RETAIN: [Retain; 3] = [Retain::Off, Retain::Losses, Retain::Graph];

const TABLE: [Entry; 16] = [
    Entry {
        switch: Switch::Amp,
        group: SwitchGroup::Training,
        key: 'm',
        label: "AMP",
        values: &["off", "fp16", "bf16"],
        teaches: "Activations halve, but every weight gets a 16-bit copy and the casts are allocations too.",
    },
    Entry {
        switch: Switch::Checkpointing,
        group: SwitchGroup::Memory,
        key: 'c',
        label: "checkpoint",
        values: &["off", "on"],
        teaches: "Backward computes activations again instead of keeping them: less memory, a slower step.",
    },
    Entry {
        switch: Switch::Accumulation,
        group: SwitchGroup::Memory,
        key: 'a',
        label: "accumulate",
        values: &["1", "2", "4", "8"],
        teaches: "Smaller micro-batches shrink activations; parameters and optimizer state stay.",
    },
    Entry {
        switch: Switch::Pinned,
        group: SwitchGroup::Training,
        key: 'p',
        label: "pinned",
        values: &["off", "on"],
        teaches: "Page-locked batches are copied beside the computation, from blocks that are kept for reuse.",
    },
    Entry {
        switch: Switch::Optimizer,
        group: SwitchGroup::Training,
        key: 'o',
        label: "optimizer",
        values: &["sgd", "momentum", "adam", "adamw"],
        teaches: "Its state is 0, 1 or 2 times the parameters, born in its first step.",
    },
    Entry {
        switch: Switch::ZeroGrad,
        group: SwitchGroup::Memory,
        key: 'z',
        label: "zero_grad",
        values: &["to none", "zeroed"],
        teaches: "Zeroed gradients stay allocated through the next forward; set_to_none frees them.",
    },
    Entry {
        switch: Switch::Form,
        group: SwitchGroup::Training,
        key: 'O',
        label: "step form",
        values: &["foreach", "fused", "loop"],
        teaches: "foreach takes a copy of all parameters, the loop two of one parameter, the fused kernel none.",
    },
    Entry {
        switch: Switch::Batch,
        group: SwitchGroup::Training,
        key: 'B',
        label: "batch",
        values: &[],
        teaches: "Activations grow with it; parameters, gradients and optimizer state do not.",
    },
    Entry {
        switch: Switch::Offload,
        group: SwitchGroup::Memory,
        key: 'f',
        label: "offload",
        values: &["off", "saved", "overlapped", "optimizer"],
        teaches: "What the device does not need now waits in host memory; the step pays for the copies.",
    },
    Entry {
        switch: Switch::Attention,
        group: SwitchGroup::Training,
        key: 'A',
        label: "attention",
        values: &["auto", "math", "efficient", "flash", "cudnn"],
        teaches: "Math keeps a matrix of rows × rows per head for backward; the fused kernels keep one number per row.",
    },
    Entry {
        switch: Switch::Tf32,
        group: SwitchGroup::Training,
        key: 't',
        label: "TF32",
        values: &["off", "conv", "on"],
        teaches: "Faster products on tensor cores; only cuDNN's workspaces change. No effect on the processor.",
    },
    Entry {
        switch: Switch::Schedule,
        group: SwitchGroup::Training,
        key: 's',
        label: "schedule",
        values: &["constant", "cosine"],
        teaches: "A factor on the learning rate: it takes no memory.",
    },
    Entry {
        switch: Switch::Fuse,
        group: SwitchGroup::Training,
        key: 'F',
        label: "fuse",
        values: &["off", "on"],
        teaches: "Fused ops skip what eager ones write between them: the curve is no longer eager PyTorch's.",
    },
    Entry {
        switch: Switch::Retain,
        group: SwitchGroup::Memory,
        key: 'r',
        label: "leak",
        values: &["off", "losses", "graph"],
        teaches: "Kept losses cost 512 bytes a step; kept with their graph, all saved tensors of every step.",
    },
    Entry {
        switch: Switch::Limit,
        group: SwitchGroup::Memory,
        key: 'L',
        label: "limit",
        values: &[],
        teaches: "The most that may be reserved, in bytes or as a share of the device.",
    },
    Entry {
        switch: Switch::Settings,
        group: SwitchGroup::Memory,
        key: 'x',
        label: "allocator",
        values: &[],
        teaches: "PYTORCH_ALLOC_CONF, for what is allocated from now on.",
    },
];

/// A switch with a list of values, as whoever goes through all of them needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lever {
    /// Which.
    pub switch: Switch,
    /// `AMP`, `checkpoint`.
    pub label: &'static str,
    /// Its values.
    pub values: &'static [&'static str],
}

/// Every switch that has a list of values.
pub fn levers() -> impl Iterator<Item = Lever> {
    let levers = TABLE.iter().filter(|entry| !entry.values.is_empty());
    levers.map(|entry| Lever { switch: entry.switch, label: entry.label, values: entry.values })
}

/// The position of the value of `switch`; 0 for a switch without a list of values.
#[must_use]
pub fn current(switch: Switch, config: &Config) -> Choice {
    let position = match switch {
        Switch::Amp => AMP.iter().position(|amp| *amp == config.amp),
        Switch::Checkpointing => Some(usize::from(config.checkpointing)),
        // A count that is not in the list (from the command line) shows as the next larger one.
        Switch::Accumulation => ACCUMULATION.iter().position(|n| *n >= config.accumulation),
        Switch::Pinned => Some(usize::from(config.pinned)),
        Switch::Optimizer => OPTIMIZERS.iter().position(|kind| *kind == config.optimizer),
        Switch::ZeroGrad => Some(usize::from(config.zero_grad == ZeroGrad::Zeroed)),
        Switch::Form => FORMS.iter().position(|form| *form == config.form),
        Switch::Offload => OFFLOAD.iter().position(|offload| *offload == config.offload),
        Switch::Attention => ATTENTION.iter().position(|kernel| *kernel == config.attention),
        Switch::Tf32 => TF32.iter().position(|tf32| *tf32 == config.tf32),
        Switch::Schedule => Some(usize::from(config.schedule == Schedule::Cosine)),
        Switch::Fuse => Some(usize::from(config.fuse)),
        Switch::Retain => RETAIN.iter().position(|retain| *retain == config.retain),
        Switch::Batch | Switch::Limit | Switch::Settings => Some(0),
    };
    Choice(position.unwrap_or(0))
}

/// `config` with `switch` set to `choice`; the same where the switch has no such value.
#[must_use]
pub fn with(config: &Config, switch: Switch, choice: Choice) -> Config {
    let mut next = *config;
    if choice.0 >= entry(switch).values.len() {
        return next;
    }
    match switch {
        Switch::Amp => next.amp = AMP[choice.0],
        Switch::Checkpointing => next.checkpointing = choice.0 == 1,
        Switch::Accumulation => next.accumulation = ACCUMULATION[choice.0],
        Switch::Pinned => next.pinned = choice.0 == 1,
        Switch::Optimizer => next.optimizer = OPTIMIZERS[choice.0],
        Switch::ZeroGrad => next.zero_grad = if choice.0 == 1 { ZeroGrad::Zeroed } else { ZeroGrad::SetToNone },
        Switch::Form => next.form = FORMS[choice.0],
        Switch::Offload => next.offload = OFFLOAD[choice.0],
        Switch::Attention => next.attention = ATTENTION[choice.0],
        Switch::Tf32 => next.tf32 = TF32[choice.0],
        Switch::Schedule => next.schedule = if choice.0 == 1 { Schedule::Cosine } else { Schedule::Constant },
        Switch::Fuse => next.fuse = choice.0 == 1,
        Switch::Retain => next.retain = RETAIN[choice.0],
        Switch::Batch | Switch::Limit | Switch::Settings => {}
    }
    next
}

/// `config` with the next value of `switch`, in a circle; the next larger power of two for the batch.
#[must_use]
pub fn next(switch: Switch, config: &Config) -> Config {
    let count = entry(switch).values.len();
    match switch {
        Switch::Batch => Config { batch: (config.batch + 1).next_power_of_two().min(BatchSize::MOST.get()), ..*config },
        _ if count == 0 => *config,
        _ => with(config, switch, Choice((current(switch, config).0 + 1) % count)),
    }
}

/// `config` with the value of `switch` before; the next smaller power of two for the batch.
#[must_use]
pub fn previous(switch: Switch, config: &Config) -> Config {
    let count = entry(switch).values.len();
    match switch {
        Switch::Batch => Config { batch: (config.batch.max(2).next_power_of_two() / 2).max(1), ..*config },
        _ if count == 0 => *config,
        _ => with(config, switch, Choice((current(switch, config).0 + count - 1) % count)),
    }
}

/// The value of `switch` in words.
fn value(switch: Switch, setup: &Setup) -> Cow<'static, str> {
    match switch {
        Switch::Batch => setup.config.batch.to_string().into(),
        Switch::Accumulation => setup.config.accumulation.to_string().into(),
        Switch::Limit => setup.limit.map_or("none".into(), |limit| limit.to_string().into()),
        Switch::Settings if setup.alloc_conf.is_empty() => "default".into(),
        Switch::Settings => setup.alloc_conf.to_string().into(),
        _ => entry(switch).values[current(switch, &setup.config).0].into(),
    }
}

/// A switch that stands differently in two setups.
pub(super) struct Difference {
    pub key: char,
    pub label: &'static str,
    pub from: Cow<'static, str>,
    pub to: Cow<'static, str>,
}

/// All switches that stand differently in two setups.
pub(super) fn differences(from: &Setup, to: &Setup) -> impl Iterator<Item = Difference> {
    TABLE.iter().filter_map(|entry| {
        let (before, after) = (value(entry.switch, from), value(entry.switch, to));
        (before != after).then_some(Difference { key: entry.key, label: entry.label, from: before, to: after })
    })
}

/// The panel: every switch with its value in force and the one that waits for the next step.
#[must_use]
pub fn panel(in_force: &Setup, wanted: &Setup) -> Vec<SwitchState> {
    TABLE
        .iter()
        .map(|entry| {
            let (now, then) = (value(entry.switch, in_force), value(entry.switch, wanted));
            SwitchState {
                switch: entry.switch,
                group: entry.group,
                key: entry.key,
                label: entry.label,
                values: entry.values,
                pending: (now != then).then_some(then),
                current: now,
                teaches: entry.teaches,
            }
        })
        .collect()
}

fn entry(switch: Switch) -> &'static Entry {
    // The table lists the switches in the order of the enum; a test holds it to that.
    &TABLE[switch as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_switch_at_its_place() {
        for (i, entry) in TABLE.iter().enumerate() {
            assert_eq!(entry.switch as usize, i);
        }
    }

    #[test]
    fn a_value_set_is_the_value_read() {
        let config = Config::new(4);
        for entry in &TABLE {
            for choice in 0..entry.values.len() {
                let set = with(&config, entry.switch, Choice(choice));
                assert_eq!(current(entry.switch, &set), Choice(choice), "{} {}", entry.label, entry.values[choice]);
                assert_eq!(value(entry.switch, &Setup::new(set)), entry.values[choice]);
            }
        }
    }

    #[test]
    fn next_goes_round_and_a_full_round_differs_nowhere() {
        for entry in &TABLE {
            let config = Config::new(4);
            let mut round = config;
            for _ in entry.values {
                round = next(entry.switch, &round);
            }
            assert_eq!(round, config, "{}", entry.label);
            assert_eq!(previous(entry.switch, &next(entry.switch, &config)), config, "{}", entry.label);
        }
    }

    #[test]
    fn batches_go_by_powers_of_two_around_the_present_one() {
        let batch = |batch| Config::new(batch);
        let (up, down) = (|n| next(Switch::Batch, &batch(n)).batch, |n| previous(Switch::Batch, &batch(n)).batch);
        assert_eq!([1, 8, 12, 20].map(up), [2, 16, 16, 32]);
        let most = BatchSize::MOST.get();
        assert_eq!([most - 1, most].map(up), [most, most]);
        assert_eq!([1, 2, 8, 12, 20].map(down), [1, 1, 4, 8, 16]);
    }

    #[test]
    fn a_value_that_does_not_exist_changes_nothing() {
        let config = Config::new(4);
        assert_eq!(with(&config, Switch::Amp, Choice(17)), config);
    }
}
