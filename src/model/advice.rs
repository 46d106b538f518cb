//! Which switch flips are worth advising. Findings, remedies for failed requests, the search for what fits and the
//! formulas all share this rule.

use super::{Category, Remedy, RunSettings, Setting};
use vramlab_allocator::TorchVersion;

/// A switch value that may take less memory than another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Measure {
    /// The switch, by its word (`ckpt`).
    pub switch: &'static str,
    /// The value.
    pub value: &'static str,
    /// The values that take more memory than this one.
    over: ComparedValues,
    /// The categories that it lowers. It is advised if most of a peak belongs to one of them.
    lowers: &'static [Category],
    /// True if training takes another course, so that it is no trade of time for memory.
    pub trains_otherwise: bool,
    /// True if it takes no time, so that nothing is traded.
    pub free: bool,
}

/// The values that a [`Measure`] improves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparedValues {
    Values(&'static [&'static str]),
    /// Every smaller count.
    Fewer,
    /// Checkpoints of fewer layers, or none.
    Sparser,
}

impl ComparedValues {
    fn has(self, standing: &str, value: &str) -> bool {
        match self {
            Self::Values(values) => values.contains(&standing),
            Self::Fewer => count(standing).zip(count(value)).is_some_and(|(standing, value)| standing < value),
            Self::Sparser => apart(standing).zip(apart(value)).is_some_and(|(standing, value)| standing > value),
        }
    }
}

const fn measure(switch: &'static str, value: &'static str, over: &'static [&'static str]) -> Measure {
    Measure { switch, value, over: ComparedValues::Values(over), lowers: &[], trains_otherwise: false, free: false }
}

const fn accumulation(value: &'static str) -> Measure {
    Measure { over: ComparedValues::Fewer, ..measure("accum", value, &[]) }
}

const fn checkpoints(value: &'static str) -> Measure {
    Measure { over: ComparedValues::Sparser, ..measure("ckpt", value, &[]) }
}

impl Measure {
    const fn lowering(self, lowers: &'static [Category]) -> Self {
        Self { lowers, ..self }
    }

    /// True if it would take less memory than the value in force.
    #[must_use]
    pub fn helps(&self, standing: &RunSettings) -> bool {
        let setting = standing.get(self.switch);
        changes(standing, self.switch, self.value)
            && setting.is_some_and(|setting| self.over.has(&setting.value, self.value))
    }

    /// True if it is worth comparing with the value in force, in memory or time: not if that value is the measure
    /// itself or goes further.
    #[must_use]
    pub fn trades(&self, standing: &RunSettings) -> bool {
        let goes_further = |setting: &Setting| {
            let same = |other: &&Self| other.switch == self.switch && other.value == &*setting.value;
            match self.over {
                ComparedValues::Fewer | ComparedValues::Sparser => !self.over.has(&setting.value, self.value),
                ComparedValues::Values(_) => {
                    MEASURES.iter().find(same).is_some_and(|other| other.over.has(self.value, other.value))
                }
            }
        };
        changes(standing, self.switch, self.value) && !standing.get(self.switch).is_some_and(goes_further)
    }

    /// The flip.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        Remedy::flip(self.switch, self.value)
    }
}

const ACTIVATIONS: &[Category] = &[Category::Activation];
const COMPUTED: &[Category] = &[Category::Activation, Category::Temporary];

/// Every measure, the gentlest first. Which 16-bit type is better depends on the card: a T4 has tensor cores for fp16
/// alone, and batch norm is slower in bf16 everywhere.
pub const MEASURES: &[Measure] = &[
    measure("retain", "off", &["losses", "graph", "cycles"]),
    measure("zero-grad", "set_to_none", &["zeroed"]).lowering(&[Category::Gradient]),
    Measure { free: true, ..measure("drop-output", "on", &["off"]).lowering(COMPUTED) },
    measure("attention", "auto", &["math", "eager"]),
    checkpoints("every:2"),
    checkpoints("on").lowering(ACTIVATIONS),
    accumulation("2").lowering(COMPUTED),
    accumulation("4"),
    accumulation("8"),
    measure("amp", "bf16", &["off"]).lowering(COMPUTED),
    measure("amp", "fp16", &["off"]),
    measure("opt-form", "fused", &["foreach", "loop"]),
    measure("offload", "activations", &["off"]),
    measure("offload", "overlapped", &["off"]),
    measure("offload", "optimizer", &["off"]).lowering(&[Category::OptimizerState]),
    measure("opt", "adamw_8bit", &["adam", "adamw"]).lowering(&[Category::OptimizerState]),
    Measure {
        lowers: &[Category::OptimizerState],
        trains_otherwise: true,
        ..measure("opt", "sgd", &["adamw_8bit", "momentum", "adam", "adamw"])
    },
];

/// True if a flip would change something: the switch exists, has another value, and is not idle. A batch must divide
/// evenly into micro-batches, or samples are lost.
#[must_use]
pub fn changes(standing: &RunSettings, switch: &str, value: &str) -> bool {
    let divides = || {
        let batch = standing.get("batch").and_then(|batch| count(&batch.value));
        batch.zip(count(value)).is_none_or(|(batch, parts)| parts > 0 && batch.is_multiple_of(parts))
    };
    let stands_otherwise = |setting: &Setting| setting.idle.is_none() && &*setting.value != value;
    standing.get(switch).is_some_and(stands_otherwise) && (switch != "accum" || divides())
}

/// Measures that take less memory of a category than the values in force, the gentlest first.
#[must_use]
pub fn against(category: Category, standing: &RunSettings) -> Vec<Remedy> {
    let measures = MEASURES.iter().filter(|measure| measure.lowers.contains(&category) && measure.helps(standing));
    measures.map(Measure::remedy).collect()
}

/// Measures that take less memory of any category than the values in force.
#[must_use]
pub fn against_any(standing: &RunSettings) -> Vec<Remedy> {
    let measures = MEASURES.iter().filter(|measure| !measure.lowers.is_empty() && measure.helps(standing));
    measures.map(Measure::remedy).collect()
}

/// Adds expandable segments to the allocator settings in force. `None` if they are on already, however that was
/// written, if that version of PyTorch would refuse them, or if the settings in force are unknown.
#[must_use]
pub fn expandable_segments(standing: &RunSettings, torch: TorchVersion) -> Option<Remedy> {
    let in_force = standing.get("alloc-conf").filter(|setting| setting.idle.is_none())?;
    let text = if &*in_force.value == "default" { "" } else { &in_force.value };
    vramlab_allocator::Settings::parse_for(torch, text).ok()?.with_expandable_segments().map(Remedy::settings)
}

fn count(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// The number of layers from one checkpoint to the next.
fn apart(text: &str) -> Option<u64> {
    match text {
        "off" => Some(u64::MAX),
        "on" | "reentrant" => Some(1),
        _ => count(text.strip_prefix("every:").or_else(|| text.strip_prefix("reentrant:"))?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(values: &[(&str, &str)]) -> RunSettings {
        let setting = |(switch, value): &(&str, &str)| Setting {
            switch: (*switch).into(),
            value: (*value).into(),
            wanted: None,
            idle: None,
        };
        RunSettings(values.iter().map(setting).collect())
    }

    fn values(switch: &str, value: &str, of: impl Fn(&Measure, &RunSettings) -> bool) -> Vec<&'static str> {
        let standing = standing(&[(switch, value), ("batch", "16")]);
        MEASURES.iter().filter(|measure| of(measure, &standing)).map(|measure| measure.value).collect()
    }

    #[test]
    fn what_is_set_is_never_advised_and_nothing_that_takes_more() {
        let helping = |switch, value| values(switch, value, Measure::helps);
        assert_eq!(helping("accum", "1"), ["2", "4", "8"]);
        assert_eq!(helping("accum", "3"), ["4", "8"]);
        assert_eq!(helping("accum", "8"), [""; 0]);
        assert_eq!(helping("amp", "off"), ["bf16", "fp16"]);
        assert_eq!(helping("amp", "fp16"), [""; 0], "as many bits");
        assert_eq!(helping("offload", "optimizer"), [""; 0], "it would take the state back");
        assert_eq!(helping("attention", "flash"), [""; 0]);
        assert_eq!(helping("attention", "math"), ["auto"]);
        assert_eq!(helping("opt", "momentum"), ["sgd"]);
        assert_eq!(helping("opt", "adamw"), ["adamw_8bit", "sgd"]);
        assert_eq!(helping("opt", "adamw_8bit"), ["sgd"]);
        assert_eq!(helping("ckpt", "off"), ["every:2", "on"]);
        assert_eq!(helping("ckpt", "every:3"), ["every:2", "on"]);
        assert_eq!(helping("ckpt", "every:2"), ["on"]);
        assert_eq!(helping("ckpt", "on"), [""; 0]);
        assert_eq!(helping("ckpt", "reentrant"), [""; 0]);
        assert_eq!(helping("ckpt", "reentrant:3"), ["every:2", "on"]);
        assert_eq!(helping("drop-output", "off"), ["on"]);
        assert_eq!(helping("attention", "eager"), ["auto"]);
        assert_eq!(helping("retain", "graph"), ["off"]);
        assert_eq!(helping("retain", "cycles"), ["off"]);
        for measure in MEASURES {
            let standing = standing(&[(measure.switch, measure.value)]);
            assert!(!measure.helps(&standing) && !measure.trades(&standing), "{measure:?}");
        }
    }

    #[test]
    fn values_that_take_as_much_are_compared_and_steps_back_are_not() {
        let traded = |switch, value| values(switch, value, Measure::trades);
        assert_eq!(traded("amp", "bf16"), ["fp16"], "the card decides");
        assert_eq!(traded("offload", "activations"), ["overlapped", "optimizer"]);
        assert_eq!(traded("attention", "flash"), ["auto"]);
        assert_eq!(traded("accum", "4"), ["8"]);
        assert_eq!(traded("accum", "3"), ["4", "8"]);
        assert_eq!(traded("zero-grad", "set_to_none"), [""; 0]);
        assert_eq!(traded("ckpt", "every:4"), ["every:2", "on"]);
        assert_eq!(traded("ckpt", "on"), [""; 0]);
    }

    #[test]
    fn an_idle_switch_and_a_batch_that_is_not_cut_evenly_are_left_alone() {
        let mut idle = standing(&[("ckpt", "off")]);
        assert!(changes(&idle, "ckpt", "on"));
        idle.0[0].idle = Some("nothing is trained here".into());
        assert!(!changes(&idle, "ckpt", "on"));
        assert!(!changes(&standing(&[]), "ckpt", "on"), "a run without switches");
        let batch = |batch| standing(&[("accum", "1"), ("batch", batch)]);
        assert!(changes(&batch("6"), "accum", "2") && !changes(&batch("6"), "accum", "4"));
        assert!(!changes(&batch("1"), "accum", "2"));
    }

    #[test]
    fn against_a_category_the_gentlest_comes_first() {
        let usual = standing(&[("ckpt", "off"), ("accum", "1"), ("amp", "off"), ("opt", "adamw"), ("offload", "off")]);
        let flips = |category| against(category, &usual);
        let flip = Remedy::flip;
        assert_eq!(flips(Category::Activation), [flip("ckpt", "on"), flip("accum", "2"), flip("amp", "bf16")]);
        assert_eq!(
            flips(Category::OptimizerState),
            [flip("offload", "optimizer"), flip("opt", "adamw_8bit"), flip("opt", "sgd")]
        );
        assert_eq!(flips(Category::Parameter), []);
    }

    #[test]
    fn expandable_segments_go_beside_what_is_set() {
        let advised = |text| match expandable_segments(&standing(&[("alloc-conf", text)]), TorchVersion::default()) {
            Some(Remedy::Flip { value, .. }) => value.into_owned(),
            _ => String::new(),
        };
        assert_eq!(advised("default"), "expandable_segments:True");
        assert_eq!(advised("max_split_size_mb:128"), "expandable_segments:True,max_split_size_mb:128");
        // The setting is recognised however it is written.
        for set in ["expandable_segments:True", "max_split_size_mb:128, expandable_segments : True"] {
            assert_eq!(advised(set), "", "{set}");
        }
        assert_eq!(expandable_segments(&standing(&[]), TorchVersion::default()), None);
    }
}
