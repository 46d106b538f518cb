//! The table of all figures: name, unit, description, and how each is read.

use std::fmt;

use serde::Serialize;
use serde::ser::SerializeMap;

use super::unit::{
    Amount,
    FigureUnit::{self, BytesPerSecond, Count, Milliseconds, Number, PerSecond, Share},
};
use crate::allocator::Statistics;
use crate::model::{Category, Configuration, Phase, StepReport, View};
use crate::units::Bytes;

/// The inputs that figures are read from.
#[derive(Clone, Copy, Debug)]
pub struct FigureInputs<'a> {
    /// The run's state at a moment.
    pub view: &'a View,
    /// The allocator's own statistics, if it can be asked; otherwise they are derived from the run's events, as far as
    /// possible.
    pub statistics: Option<&'a Statistics>,
    /// The device's memory, if it is known.
    pub device_memory: Option<Bytes>,
}

/// A figure: an index into the table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Figure(usize);

/// A row of the table.
struct FigureEntry {
    name: &'static str,
    unit: FigureUnit,
    says: &'static str,
    read: fn(&FigureInputs<'_>) -> Option<f64>,
}

impl Figure {
    /// All figures, in the order in which help lists them.
    pub fn all() -> impl ExactSizeIterator<Item = Self> + Clone {
        (0..TABLE.len()).map(Self)
    }

    /// The figure with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        TABLE.iter().position(|entry| entry.name == name).map(Self)
    }

    /// Its name in expressions.
    #[must_use]
    pub const fn name(self) -> &'static str {
        TABLE[self.0].name
    }

    /// Its unit.
    #[must_use]
    pub const fn unit(self) -> FigureUnit {
        TABLE[self.0].unit
    }

    /// Its description, in one sentence.
    #[must_use]
    pub const fn says(self) -> &'static str {
        TABLE[self.0].says
    }
}

impl fmt::Debug for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The known figures of a run at one moment. An unknown figure is absent, never 0. Serializes as a map of names to
/// numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures(Box<[Option<f64>]>);

impl Default for Figures {
    /// No figure is known.
    fn default() -> Self {
        Self(TABLE.iter().map(|_| None).collect())
    }
}

impl Figures {
    /// The figures that `view` alone provides.
    #[must_use]
    pub fn of_view(view: &View) -> Self {
        Self::of(&FigureInputs { view, statistics: None, device_memory: None })
    }

    /// All figures that the inputs provide.
    #[must_use]
    pub fn of(known: &FigureInputs<'_>) -> Self {
        Self(TABLE.iter().map(|entry| (entry.read)(known)).collect())
    }

    /// A figure, if it is known.
    #[must_use]
    pub fn get(&self, figure: Figure) -> Option<Amount> {
        let value = (*self.0.get(figure.0)?)?;
        Some(Amount { value, unit: figure.unit() })
    }

    /// Sets a figure, in its unit, that does not come from a view.
    pub fn set(&mut self, figure: Figure, value: f64) {
        if let Some(place) = self.0.get_mut(figure.0) {
            *place = Some(value);
        }
    }

    /// All known figures.
    pub fn iter(&self) -> impl Iterator<Item = (Figure, Amount)> {
        Figure::all().filter_map(|figure| Some((figure, self.get(figure)?)))
    }
}

impl Serialize for Figures {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (figure, amount) in self.iter() {
            map.serialize_entry(figure.name(), &amount.value)?;
        }
        map.end()
    }
}

/// All figures as a Markdown table: name, unit, description.
#[must_use]
pub fn list() -> String {
    let row = |figure: Figure| format!("| `{}` | {} | {} |\n", figure.name(), figure.unit().label(), figure.says());
    let rows: String = Figure::all().map(row).collect();
    format!("| figure | unit | what it is |\n|---|---|---|\n{rows}")
}

fn bytes(bytes: Bytes) -> Option<f64> {
    Some(bytes.get() as f64)
}

fn count(count: u64) -> Option<f64> {
    Some(count as f64)
}

fn live(known: &FigureInputs<'_>, category: Category) -> Option<f64> {
    bytes(known.view.by_category[category as usize])
}

fn at_peak(known: &FigureInputs<'_>, category: Category) -> Option<f64> {
    last_step(known)?;
    bytes(known.view.peak_by_category[category as usize])
}

fn last_step<'a>(known: &FigureInputs<'a>) -> Option<&'a StepReport> {
    known.view.steps.last.as_ref()
}

/// The history's column of the last whole step.
fn column(known: &FigureInputs<'_>) -> Option<crate::model::Column> {
    last_step(known)?;
    known.view.history.latest()
}

fn after(known: &FigureInputs<'_>, phase: Phase) -> Option<f64> {
    known.view.boundaries.after(phase).and_then(bytes)
}

fn phase_ms(known: &FigureInputs<'_>, phase: Phase) -> Option<f64> {
    Some(last_step(known)?.phases[phase as usize].0 as f64 / 1e3)
}

/// The steps under the current switches.
fn configuration<'a>(known: &FigureInputs<'a>) -> Option<&'a Configuration> {
    let in_force = &known.view.settings.0;
    let is_in_force = |configuration: &&'a std::sync::Arc<Configuration>| {
        let own = &configuration.settings.0;
        own.len() == in_force.len() && own.iter().zip(in_force).all(|(a, b)| a.switch == b.switch && a.value == b.value)
    };
    known.view.configurations.iter().find(is_in_force).map(|configuration| &**configuration)
}

/// The value of a switch that is a number.
fn switch(known: &FigureInputs<'_>, word: &str) -> Option<f64> {
    known.view.settings.get(word)?.value.parse().ok()
}

fn device_memory(known: &FigureInputs<'_>) -> Option<f64> {
    let told = || known.view.gpu.as_ref()?.memory.map(|memory| memory.shares().total());
    known.device_memory.or_else(told).and_then(bytes)
}

fn driver_used(known: &FigureInputs<'_>) -> Option<f64> {
    known.view.gpu.as_ref()?.memory.and_then(|memory| bytes(memory.used))
}

/// The allocator's own count, if it is known; otherwise the count derived from its events.
fn statistic(known: &FigureInputs<'_>, read: fn(&Statistics) -> i64, told: u64) -> Option<f64> {
    Some(known.statistics.map_or(told as f64, |statistics| read(statistics) as f64))
}

const fn entry(
    name: &'static str,
    unit: FigureUnit,
    says: &'static str,
    read: fn(&FigureInputs<'_>) -> Option<f64>,
) -> FigureEntry {
    FigureEntry { name, unit, says, read }
}

const TABLE: &[FigureEntry] = &[
    // Current memory.
    entry("allocated", FigureUnit::Bytes, "Blocks handed out: torch.cuda.memory_allocated().", |known| {
        bytes(known.view.ledger.allocated())
    }),
    entry("reserved", FigureUnit::Bytes, "Held from the driver: torch.cuda.memory_reserved().", |known| {
        bytes(known.view.ledger.reserved())
    }),
    entry("live", FigureUnit::Bytes, "Asked for and not yet freed: allocated without rounding.", |known| {
        bytes(known.view.ledger.live)
    }),
    entry("requested", FigureUnit::Bytes, "Another word for live.", |known| bytes(known.view.ledger.live)),
    entry("rounding", FigureUnit::Bytes, "What blocks are larger than what was asked for.", |known| {
        bytes(known.view.ledger.rounding)
    }),
    entry("pending", FigureUnit::Bytes, "Freed, and waiting for another stream.", |known| {
        bytes(known.view.ledger.pending)
    }),
    entry("free", FigureUnit::Bytes, "Reserved and free: releasable and stranded together.", |known| {
        bytes(known.view.ledger.free())
    }),
    entry("releasable", FigureUnit::Bytes, "In segments that nothing holds: empty_cache gives it back.", |known| {
        bytes(known.view.ledger.releasable)
    }),
    entry("stranded", FigureUnit::Bytes, "Free, but in a segment that a block holds.", |known| {
        bytes(known.view.ledger.stranded)
    }),
    entry("fragmentation", Share, "stranded / reserved.", |known| Some(known.view.ledger.fragmentation())),
    entry("largest_free", FigureUnit::Bytes, "The largest free block.", |known| bytes(known.view.ledger.largest_free)),
    entry("largest_hole", FigureUnit::Bytes, "The largest free block in a segment that a block holds.", |known| {
        bytes(known.view.largest_hole)
    }),
    entry("limit", FigureUnit::Bytes, "The most that may be reserved; absent without a limit.", |known| {
        known.view.limit.and_then(bytes)
    }),
    entry("device_memory", FigureUnit::Bytes, "All memory of the device, where it is known.", device_memory),
    entry(
        "driver_used",
        FigureUnit::Bytes,
        "What the driver counts as used, by all programs; on a GPU only.",
        driver_used,
    ),
    entry(
        "pinned",
        FigureUnit::Bytes,
        "Host memory held for batches and tensors: page-locked blocks, and what is offloaded.",
        |known| bytes(known.view.host.reserved),
    ),
    // Since the start.
    entry("peak_allocated", FigureUnit::Bytes, "Highest allocated since the start.", |known| {
        bytes(known.view.peak_allocated)
    }),
    entry("peak_reserved", FigureUnit::Bytes, "Highest reserved since the start.", |known| {
        bytes(known.view.peak_reserved)
    }),
    // The last whole step.
    entry(
        "max_memory_allocated",
        FigureUnit::Bytes,
        "Highest allocated since reset_peaks, else since the start.",
        |known| bytes(known.view.max_memory_allocated()),
    ),
    entry(
        "max_memory_reserved",
        FigureUnit::Bytes,
        "Highest reserved since reset_peaks, else since the start.",
        |known| bytes(known.view.max_memory_reserved()),
    ),
    entry("step_peak_allocated", FigureUnit::Bytes, "Highest allocated within the last whole step.", |known| {
        bytes(column(known)?.peak)
    }),
    entry("step_peak_reserved", FigureUnit::Bytes, "Highest reserved within the last whole step.", |known| {
        bytes(column(known)?.reserved)
    }),
    entry("step_floor", FigureUnit::Bytes, "Lowest allocated within the last whole step.", |known| {
        bytes(column(known)?.floor)
    }),
    entry("step_stranded", FigureUnit::Bytes, "Stranded when the last whole step ended.", |known| {
        bytes(column(known)?.stranded)
    }),
    entry("before_step", FigureUnit::Bytes, "Allocated before the first step.", |known| {
        known.view.boundaries.before_first_step().and_then(bytes)
    }),
    entry("after_data", FigureUnit::Bytes, "Allocated when the batch was there, in the last step.", |known| {
        after(known, Phase::Data)
    }),
    entry("after_forward", FigureUnit::Bytes, "Allocated after forward, in the last step.", |known| {
        after(known, Phase::Forward)
    }),
    entry("after_backward", FigureUnit::Bytes, "Allocated after backward, in the last step.", |known| {
        after(known, Phase::Backward)
    }),
    entry("after_optimizer", FigureUnit::Bytes, "Allocated after the optimizer, in the last step.", |known| {
        after(known, Phase::Optimizer)
    }),
    entry("after_zero_grad", FigureUnit::Bytes, "Allocated after zero_grad, in the last step.", |known| {
        after(known, Phase::ZeroGrad)
    }),
    // The categories of live blocks.
    entry("parameters", FigureUnit::Bytes, "Weights and biases.", |known| live(known, Category::Parameter)),
    entry("gradients", FigureUnit::Bytes, "Gradients of parameters.", |known| live(known, Category::Gradient)),
    entry("optimizer", FigureUnit::Bytes, "The optimizer's state.", |known| live(known, Category::OptimizerState)),
    entry("activations", FigureUnit::Bytes, "What forward keeps for backward.", |known| {
        live(known, Category::Activation)
    }),
    entry("temporaries", FigureUnit::Bytes, "What lives within an op or between two.", |known| {
        live(known, Category::Temporary)
    }),
    entry("workspaces", FigureUnit::Bytes, "Scratch memory of libraries.", |known| live(known, Category::Workspace)),
    entry("communication", FigureUnit::Bytes, "What ranks exchange while it is on its way.", |known| {
        live(known, Category::Communication)
    }),
    entry("inputs", FigureUnit::Bytes, "Batches.", |known| live(known, Category::Input)),
    entry("other", FigureUnit::Bytes, "Anything else.", |known| live(known, Category::Other)),
    entry(
        "peak_parameters",
        FigureUnit::Bytes,
        "Parameters when allocated was highest in the last whole step.",
        |known| at_peak(known, Category::Parameter),
    ),
    entry("peak_gradients", FigureUnit::Bytes, "Gradients at that moment.", |known| at_peak(known, Category::Gradient)),
    entry("peak_optimizer", FigureUnit::Bytes, "The optimizer's state at that moment.", |known| {
        at_peak(known, Category::OptimizerState)
    }),
    entry("peak_activations", FigureUnit::Bytes, "Activations at that moment.", |known| {
        at_peak(known, Category::Activation)
    }),
    entry("peak_temporaries", FigureUnit::Bytes, "Temporaries at that moment.", |known| {
        at_peak(known, Category::Temporary)
    }),
    entry("peak_workspaces", FigureUnit::Bytes, "Workspaces at that moment.", |known| {
        at_peak(known, Category::Workspace)
    }),
    entry("peak_communication", FigureUnit::Bytes, "What ranks exchange at that moment.", |known| {
        at_peak(known, Category::Communication)
    }),
    entry("peak_inputs", FigureUnit::Bytes, "Batches at that moment.", |known| at_peak(known, Category::Input)),
    entry("peak_other", FigureUnit::Bytes, "Anything else at that moment.", |known| at_peak(known, Category::Other)),
    // Time.
    entry(
        "step_ms",
        Milliseconds,
        "Median time of the last steps under the switches in force, those right after a change left out.",
        |known| Some(configuration(known)?.measured?.1.step?.median / 1e3),
    ),
    entry("throughput", PerSecond, "Tokens, images or samples a second over the same steps.", |known| {
        Some(configuration(known)?.measured?.1.throughput.median)
    }),
    entry("last_step_ms", Milliseconds, "Time of the last step.", |known| Some(last_step(known)?.total.0 as f64 / 1e3)),
    entry("data_ms", Milliseconds, "Waiting for the batch, in the last step.", |known| phase_ms(known, Phase::Data)),
    entry("forward_ms", Milliseconds, "Forward, in the last step.", |known| phase_ms(known, Phase::Forward)),
    entry("backward_ms", Milliseconds, "Backward, in the last step.", |known| phase_ms(known, Phase::Backward)),
    entry("optimizer_ms", Milliseconds, "The optimizer, in the last step.", |known| phase_ms(known, Phase::Optimizer)),
    entry("zero_grad_ms", Milliseconds, "zero_grad, in the last step.", |known| phase_ms(known, Phase::ZeroGrad)),
    entry("copy_ms", Milliseconds, "Copies to the device, in the last step, beside the computation or not.", |known| {
        Some(last_step(known)?.copy.0 as f64 / 1e3)
    }),
    entry(
        "communication_ms",
        Milliseconds,
        "Exchanges with other ranks, in the last step, beside the computation or not.",
        |known| Some(last_step(known)?.exchange.0 as f64 / 1e3),
    ),
    entry(
        "copy_gbps",
        BytesPerSecond,
        "How fast batches were copied over the last 20 steps; absent where nothing was.",
        |known| Some(known.view.steps.copies?.bytes_per_second),
    ),
    // Training.
    entry("loss", Number, "Loss of the last step; absent on a simulated device, which computes nothing.", |known| {
        last_step(known)?.loss.map(f64::from)
    }),
    entry("steps", Count, "Steps finished.", |known| count(known.view.steps.finished)),
    entry("skipped", Count, "Steps whose optimizer the gradient scaler skipped.", |known| {
        count(known.view.steps.skipped)
    }),
    entry("batch", Count, "The batch size in force.", |known| switch(known, "batch")),
    entry("accum", Count, "The accumulation in force.", |known| switch(known, "accum")),
    // The allocator's activity.
    entry("segments", Count, "Segments, or mapped runs of expandable ranges.", |known| {
        count(known.view.segments.len() as u64)
    }),
    entry("allocations", Count, "Blocks handed out since the start.", |known| count(known.view.traffic.allocs)),
    entry("segments_taken", Count, "Segments (or runs of pages) taken from the driver since the start.", |known| {
        count(known.view.traffic.segment_allocs)
    }),
    entry("segments_given_back", Count, "Segments (or runs of pages) given back since the start.", |known| {
        count(known.view.traffic.segment_frees)
    }),
    entry("ooms", Count, "Requests that failed for good.", |known| count(known.view.traffic.ooms)),
    entry(
        "asked",
        FigureUnit::Bytes,
        "What the request that failed last had asked for; absent once a whole step went through.",
        |known| bytes(known.view.autopsy.as_ref()?.request.requested),
    ),
    entry("wanted", FigureUnit::Bytes, "Another word for asked.", |known| {
        bytes(known.view.autopsy.as_ref()?.request.requested)
    }),
    entry("short", FigureUnit::Bytes, "How much it was short of; absent once a whole step went through.", |known| {
        bytes(known.view.autopsy.as_ref()?.short)
    }),
    entry("retries", Count, "Requests that emptied the cache and tried again: num_alloc_retries.", |known| {
        statistic(known, |statistics| statistics.num_alloc_retries, known.view.traffic.retries)
    }),
    entry(
        "peak_requested",
        FigureUnit::Bytes,
        "Most bytes asked for at once, since the start or the last reset_peaks: requested_bytes.all.peak.",
        |known| statistic(known, |statistics| statistics.requested_bytes.all.peak, known.view.peak_requested.0),
    ),
    entry(
        "inactive_split",
        FigureUnit::Bytes,
        "Stranded, without what lies in expandable ranges: inactive_split_bytes.all.current.",
        |known| statistic(known, |statistics| statistics.inactive_split_bytes.all.current, known.view.inactive_split.0),
    ),
    entry("malformed", Count, "Events that contradicted those before them; 0 unless something is wrong.", |known| {
        count(known.view.malformed)
    }),
];
