//! The switches: keys, values, and what each value means in a [`Config`].
//!
//! This table is the only place that knows: the panel, the flips and the list on the command line read it.

use super::{Choice, Switch, SwitchState};
use crate::train::{Amp, Config, OptimizerKind, ZeroGrad};

/// What is known of a switch beside its value.
struct Entry {
    switch: Switch,
    key: char,
    label: &'static str,
    values: &'static [&'static str],
    teaches: &'static str,
}

const AMP: [Amp; 3] = [Amp::Off, Amp::Fp16, Amp::Bf16];
const ACCUMULATION: [usize; 4] = [1, 2, 4, 8];
const OPTIMIZERS: [OptimizerKind; 4] =
    [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam, OptimizerKind::AdamW];

const TABLE: [Entry; 6] = [
    Entry {
        switch: Switch::Amp,
        key: 'm',
        label: "AMP",
        values: &["off", "fp16", "bf16"],
        teaches: "Activations halve, but every weight gets a 16-bit copy and the casts are allocations too.",
    },
    Entry {
        switch: Switch::Checkpointing,
        key: 'c',
        label: "checkpointing",
        values: &["off", "on"],
        teaches: "Backward computes activations again instead of keeping them: less memory, a slower step.",
    },
    Entry {
        switch: Switch::Accumulation,
        key: 'a',
        label: "accumulation",
        values: &["1", "2", "4", "8"],
        teaches: "Smaller micro-batches shrink activations; parameters and optimizer state stay.",
    },
    Entry {
        switch: Switch::Pinned,
        key: 'p',
        label: "pinned memory",
        values: &["off", "on"],
        teaches: "Page-locked batches are copied beside the computation, from blocks that are kept for reuse.",
    },
    Entry {
        switch: Switch::Optimizer,
        key: 'o',
        label: "optimizer",
        values: &["sgd", "momentum", "adam", "adamw"],
        teaches: "Its state is 0, 1 or 2 times the parameters, born in its first step.",
    },
    Entry {
        switch: Switch::ZeroGrad,
        key: 'z',
        label: "zero_grad",
        values: &["set_to_none", "zeroed"],
        teaches: "Zeroed gradients stay allocated through the next forward; set_to_none frees them.",
    },
];

/// The value of `switch` in `config`.
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
    }
    next
}

/// The value after the one in `config`, in a circle.
#[must_use]
pub fn next(switch: Switch, config: &Config) -> Choice {
    Choice((current(switch, config).0 + 1) % entry(switch).values.len())
}

/// All switches that stand differently in two configurations: key, label, value before, value after.
pub(super) fn differences(
    from: &Config,
    to: &Config,
) -> impl Iterator<Item = (char, &'static str, &'static str, &'static str)> {
    TABLE.iter().filter_map(|entry| {
        let (before, after) = (current(entry.switch, from), current(entry.switch, to));
        (before != after).then(|| (entry.key, entry.label, entry.values[before.0], entry.values[after.0]))
    })
}

/// The panel: every switch with its value in force and the one that waits for the next step.
#[must_use]
pub fn panel(config: &Config, wanted: &Config) -> Vec<SwitchState> {
    TABLE
        .iter()
        .map(|entry| {
            let (now, then) = (current(entry.switch, config), current(entry.switch, wanted));
            SwitchState {
                switch: entry.switch,
                key: entry.key,
                label: entry.label,
                values: entry.values,
                current: now,
                pending: (now != then).then_some(then),
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
            for value in 0..entry.values.len() {
                let set = with(&config, entry.switch, Choice(value));
                assert_eq!(current(entry.switch, &set), Choice(value), "{} {}", entry.label, entry.values[value]);
            }
        }
    }

    #[test]
    fn next_goes_round_and_a_full_round_differs_nowhere() {
        for entry in &TABLE {
            let config = Config::new(4);
            let mut round = config;
            for _ in entry.values {
                round = with(&round, entry.switch, next(entry.switch, &round));
            }
            assert_eq!(differences(&config, &round).count(), 0, "{}", entry.label);
        }
    }

    #[test]
    fn a_value_that_does_not_exist_changes_nothing() {
        let config = Config::new(4);
        assert_eq!(differences(&config, &with(&config, Switch::Amp, Choice(17))).count(), 0);
    }
}
