//! The rotary frequencies of a model, with the blocks in which transformers computes them on the device.

use std::cell::RefCell;

use vramlab_device::DType;
use vramlab_model::Category;
use vramlab_train::{Context, OpResult, RotaryTables, Shape, Tensor};

use super::super::hash::write_float;
use super::rotary_scaling::{DynamicScaling, RotaryScaling};
use super::sizes::DecoderSizes;
use super::style::Rotation;

/// A step of the computation: allocates a block, or frees one by its number.
#[derive(Clone, Copy)]
enum Step {
    /// A value for each frequency.
    Values,
    /// A 64-bit integer for each frequency.
    Counts,
    /// A boolean for each frequency.
    Flags,
    /// One 64-bit float.
    Scalar,
    /// One 64-bit integer.
    Count,
    /// One 32-bit float.
    Single,
    Drop(usize),
}

use Step::{Count, Counts, Drop, Flags, Scalar, Single, Values};

/// `1 / theta ** (arange(0, size, 2) / size)`.
const PLAIN: &[Step] =
    &[Values, Values, Drop(0), Values, Scalar, Drop(3), Drop(1), Values, Values, Drop(4), Drop(2), Drop(5)];

/// The plain frequencies, and their two halves joined.
const TWO_WAYS: &[Step] = &[
    Values,
    Values,
    Drop(0),
    Values,
    Scalar,
    Drop(3),
    Drop(1),
    Values,
    Values,
    Drop(4),
    Drop(2),
    Values,
    Drop(5),
    Drop(6),
];

/// Plain frequencies from integers; the division by a factor is in place.
#[rustfmt::skip]
const LINEAR: &[Step] =
    &[Counts, Values, Drop(0), Values, Drop(1), Values, Scalar, Drop(4), Drop(2), Values, Values, Drop(5), Drop(3), Drop(6)];

/// Plain frequencies from integers, then the wavelengths, the long ones divided, those in between smoothed.
#[rustfmt::skip]
const LLAMA3: &[Step] = &[
    Counts, Values, Drop(0), Values, Drop(1), Values, Scalar, Drop(4), Drop(2), Values, Values, Drop(5), Drop(3),
    Values, Values, Drop(7), Flags, Values, Values, Drop(9), Drop(10),
    Values, Values, Drop(12), Values, Drop(13), Values, Drop(14), Values, Values, Drop(16), Values, Drop(17), Values, Values, Drop(18), Drop(19),
    Flags, Flags, Drop(21), Flags, Flags, Drop(23), Flags, Drop(22), Drop(24), Values,
    Drop(11), Drop(6), Drop(8), Drop(15), Drop(20), Drop(25), Drop(26),
];

/// `1 / (factors * theta ** (arange(0, size, 2) / size))` from integers.
#[rustfmt::skip]
const LONG: &[Step] = &[
    Values, Counts, Values, Drop(1), Values, Drop(2), Values, Scalar, Drop(5), Values, Drop(4), Values, Values, Drop(7), Drop(6),
    Drop(0), Drop(3), Drop(8),
];

/// Plain frequencies with and without the factor, blended by a ramp over pairs of elements.
#[rustfmt::skip]
const YARN: &[Step] = &[
    Counts, Values, Drop(0), Values, Drop(1), Values, Scalar, Drop(4), Drop(2), Values, Values, Drop(5),
    Values, Values, Values, Drop(8), Drop(7),
    Values, Values, Drop(10), Values, Drop(11), Values, Drop(12), Values, Drop(13),
    Values, Values, Drop(15), Values, Values, Drop(16), Drop(17),
    Drop(3), Drop(6), Drop(9), Drop(14), Drop(18),
];

/// `1 / theta ** (arange(0, size, 2) / size)` with a theta that depends on the number of positions; integers come from the host.
#[rustfmt::skip]
const FOLLOWED: &[Step] = &[
    Count, Count, Drop(0), Single, Single, Drop(2), Single, Drop(3), Single, Drop(4), Single, Drop(5),
    Values, Values, Drop(7), Values, Drop(8), Values, Values, Drop(10), Drop(9), Drop(1), Drop(6), Drop(11),
];

/// The frequencies of a model.
pub(super) struct Frequencies {
    all: RefCell<Tensor>,
    /// The frequencies of layers with a window, if these have their own.
    local: Option<Tensor>,
    /// Frequencies that depend on the length of samples.
    long: Option<Long>,
    /// Frequencies that depend on the longest sample so far.
    dynamic: Option<Dynamic>,
    /// The factor on cosines and sines of all but the local frequencies.
    attention: f64,
    /// Which tables they make.
    rotation: Rotation,
}

/// Frequencies that are chosen again in every forward pass (`longrope_frequency_update`).
struct Long {
    /// Up to this many positions the first frequencies apply.
    original: usize,
    /// The frequencies that the model was made with.
    first: Tensor,
    /// The frequencies of longer samples.
    kind: FrequencyKind,
    /// The last ones that were computed, which the module keeps.
    kept: RefCell<Option<Tensor>>,
}

/// The tables from the frequencies in a forward pass.
pub(super) struct Tables {
    all: RotaryTables,
    local: Option<RotaryTables>,
}

impl Tables {
    /// The tables of a layer with or without a window.
    pub fn of(&self, window: bool) -> &RotaryTables {
        self.local.as_ref().filter(|_| window).unwrap_or(&self.all)
    }
}

impl Frequencies {
    /// The frequencies of a model, with the buffers of each kind from `made`.
    fn of(
        cx: &mut Context,
        sizes: &DecoderSizes,
        all: &FrequencyKind,
        local: Option<&FrequencyKind>,
        made: fn(&FrequencyKind, &mut Context) -> OpResult<[Tensor; 2]>,
    ) -> OpResult<Self> {
        let [first, original] = made(all, cx)?;
        let local = local.map(|kind| made(kind, cx)).transpose()?.map(|[local, _]| local);
        Ok(Self {
            all: RefCell::new(first),
            local,
            long: Long::of(sizes, &original),
            dynamic: Dynamic::of(sizes, &original),
            attention: all.attention,
            rotation: sizes.style.rotation,
        })
    }

    fn written(self, cx: &Context, all: &FrequencyKind, local: Option<&FrequencyKind>) -> OpResult<Self> {
        all.write(cx, &self.all.borrow())?;
        if let Some(long) = &self.long {
            all.write(cx, &long.first)?;
        }
        if let Some(dynamic) = &self.dynamic {
            all.write(cx, &dynamic.first)?;
        }
        if let Some((kind, frequencies)) = local.zip(self.local.as_ref()) {
            kind.write(cx, frequencies)?;
        }
        Ok(self)
    }

    /// The tables for `positions` in `dtype`.
    pub fn tables(&self, cx: &mut Context, positions: &Tensor, dtype: DType) -> OpResult<Tables> {
        if let Some(long) = &self.long {
            long.update(cx, positions, &self.all)?;
        }
        if let Some(dynamic) = &self.dynamic {
            dynamic.update(cx, positions.numel(), &self.all)?;
        }
        let make = match self.rotation {
            Rotation::Halves => Context::rotary_tables_of_half,
            Rotation::Pairs => Context::rotary_tables_of_pairs,
            Rotation::Complex => |cx: &mut Context, positions: &Tensor, frequencies: &Tensor, _, scaling| {
                cx.rotary_tables_of_complex(positions, frequencies, scaling)
            },
            _ => Context::rotary_tables,
        };
        let all = make(cx, positions, &self.all.borrow(), dtype, self.attention)?;
        let local = self.local.as_ref().map(|local| cx.rotary_tables(positions, local, dtype, 1.0)).transpose()?;
        Ok(Tables { all, local })
    }
}

impl Long {
    /// Chooses the frequencies for this many positions. transformers looks for those of longer samples under a name that it never
    /// sets, so it computes them every time.
    fn update(&self, cx: &mut Context, positions: &Tensor, current: &RefCell<Tensor>) -> OpResult<()> {
        cx.op("longrope update", |cx| {
            let count = cx.count_positions()?;
            let before = if positions.numel() > self.original {
                let computed = self.kind.computed(cx)?;
                self.kind.write(cx, &computed)?;
                self.kept.replace(Some(computed.clone()));
                current.replace(computed)
            } else {
                current.replace(self.first.clone())
            };
            if !before.shares_storage(&self.first) {
                cx.forget_buffer(&before);
            }
            drop(count);
            Ok(())
        })
    }
}

/// Frequencies that are recomputed whenever a sample is longer than all before it, and reset to the first ones for a short
/// sample (`dynamic_frequency_update`).
struct Dynamic {
    sizes: DecoderSizes,
    scaling: DynamicScaling,
    /// The frequencies that the model was made with.
    first: Tensor,
    /// Positions of the longest sample, and that number on the device.
    longest: RefCell<Option<(usize, Tensor)>>,
}

impl Dynamic {
    /// For a model with the buffers `first`, if its frequencies are dynamic.
    fn of(sizes: &DecoderSizes, first: &Tensor) -> Option<Self> {
        let Some(RotaryScaling::Dynamic(scaling)) = sizes.scaling else { return None };
        Some(Self { sizes: *sizes, scaling, first: first.clone(), longest: RefCell::default() })
    }

    fn update(&self, cx: &mut Context, count: usize, current: &RefCell<Tensor>) -> OpResult<()> {
        cx.op("dynamic update", |cx| {
            let most = self.scaling.most;
            let on_device = cx.count_positions()?;
            // A variable of the call holds the last number until the call returns.
            let before = self.longest.borrow().clone();
            if count > before.as_ref().map_or(most, |(longest, _)| *longest) {
                let values = self.sizes.followed(self.scaling, count);
                let module = module(&self.sizes);
                let kind =
                    FrequencyKind { module, prefix: "", values, steps: FOLLOWED, again: FOLLOWED, attention: 1.0 };
                let computed = kind.computed(cx)?;
                kind.write(cx, &computed)?;
                self.replace(cx, computed, current);
                self.longest.replace(Some((count, on_device.clone())));
            }
            cx.compare_counts()?;
            if count < most && before.is_some() {
                cx.compare_counts()?;
                self.replace(cx, self.first.clone(), current);
                self.longest.replace(None);
            }
            Ok(())
        })
    }

    fn replace(&self, cx: &mut Context, by: Tensor, current: &RefCell<Tensor>) {
        let before = current.replace(by);
        if !before.shares_storage(&self.first) {
            cx.forget_buffer(&before);
        }
    }
}

/// One kind of frequencies: the module and names of their buffers, their values, the blocks in which they are computed, and the
/// factor on cosines and sines.
struct FrequencyKind {
    module: String,
    prefix: &'static str,
    values: Vec<f32>,
    steps: &'static [Step],
    /// The steps in which the initialisation computes them again.
    again: &'static [Step],
    attention: f64,
}

/// The name of their module.
fn module(sizes: &DecoderSizes) -> String {
    format!("{}.rotary_emb", sizes.style.names.model)
}

/// The frequencies of all layers, and those of layers with a window if they have their own. Kinds that no layer has are left out.
fn kinds(sizes: &DecoderSizes) -> (FrequencyKind, Option<FrequencyKind>) {
    let again = match &sizes.scaling {
        None => PLAIN,
        Some(RotaryScaling::Linear(_) | RotaryScaling::Dynamic(_)) => LINEAR,
        Some(RotaryScaling::Llama3(_)) => LLAMA3,
        Some(RotaryScaling::Long(_)) => LONG,
        Some(RotaryScaling::Yarn(_)) => YARN,
    };
    let steps = if sizes.scaling.is_some_and(|scaling| scaling.alpha().is_some()) { PLAIN } else { again };
    let attention = sizes.scaling.as_ref().map_or(1.0, RotaryScaling::attention);
    let all = |prefix| FrequencyKind {
        module: module(sizes),
        prefix,
        values: sizes.frequencies(false),
        steps,
        again,
        attention,
    };
    if sizes.local_theta.is_none() {
        return (all(""), None);
    }
    let local = FrequencyKind {
        module: module(sizes),
        prefix: "sliding_attention_",
        values: sizes.frequencies(true),
        steps: PLAIN,
        again: PLAIN,
        attention: 1.0,
    };
    let some = |window: bool| (0..sizes.layers).any(|layer| sizes.windows.has(layer) == window);
    match (some(false), some(true)) {
        (true, true) => (all("full_attention_"), Some(local)),
        (true, false) => (all("full_attention_"), None),
        (false, _) => (local, None),
    }
}

impl Long {
    /// For a model with the buffers `first`, if its frequencies depend on the length.
    fn of(sizes: &DecoderSizes, first: &Tensor) -> Option<Self> {
        let Some(RotaryScaling::Long(scaling)) = &sizes.scaling else { return None };
        let kind = FrequencyKind {
            module: module(sizes),
            prefix: "",
            values: sizes.divided(&scaling.long),
            steps: LONG,
            again: LONG,
            attention: scaling.attention,
        };
        Some(Self { original: scaling.original, first: first.clone(), kind, kept: RefCell::default() })
    }
}

impl FrequencyKind {
    /// Both buffers that transformers keeps; the first is the block of the last step.
    fn made(&self, cx: &mut Context) -> OpResult<[Tensor; 2]> {
        let frequencies = self.computed(cx)?;
        Ok([frequencies, self.second(cx)?])
    }

    /// The buffer of frequencies: the block of the last step.
    fn computed(&self, cx: &mut Context) -> OpResult<Tensor> {
        let shape = Shape::new(&[self.values.len()]);
        // The resulting block is the buffer itself.
        let result = self.steps.iter().rposition(|step| !matches!(step, Drop(_))).unwrap_or(0);
        debug_assert!(matches!(self.steps.last(), Some(Drop(_))), "the result is given back last");
        let before = &self.steps[..self.steps.len().saturating_sub(1)];
        let mut blocks = Blocks { cx, shape, taken: Vec::new() };
        blocks.run(&before[..result])?;
        let frequencies = blocks.cx.buffer(&self.name("inv_freq"), shape, DType::F32, 0.0)?;
        blocks.taken.push(None);
        blocks.run(&before[result + 1..])?;
        drop(blocks);
        Ok(frequencies)
    }

    /// The second buffer, which is never changed.
    fn second(&self, cx: &mut Context) -> OpResult<Tensor> {
        cx.buffer(&self.name("original_inv_freq"), Shape::new(&[self.values.len()]), DType::F32, 0.0)
    }

    /// Both buffers, copied from the host.
    fn copied(&self, cx: &mut Context) -> OpResult<[Tensor; 2]> {
        let frequencies = cx.buffer(&self.name("inv_freq"), Shape::new(&[self.values.len()]), DType::F32, 0.0)?;
        Ok([frequencies, self.second(cx)?])
    }

    fn name(&self, buffer: &str) -> String {
        format!("{}.{}{buffer}", self.module, self.prefix)
    }

    fn write(&self, cx: &Context, to: &Tensor) -> OpResult<()> {
        write_float(cx, to, |i| self.values.get(i).copied().unwrap_or(0.0))
    }
}

/// The frequencies, and the second copy of them that transformers keeps.
pub(super) fn frequencies(cx: &mut Context, sizes: &DecoderSizes) -> OpResult<Frequencies> {
    let (all, local) = kinds(sizes);
    let made = Frequencies::of(cx, sizes, &all, local.as_ref(), FrequencyKind::made)?;
    made.written(cx, &all, local.as_ref())
}

/// Initialising the weights computes the frequencies again; the result of one kind lives until that of the next is computed.
pub(super) fn initialise(cx: &mut Context, sizes: &DecoderSizes) -> OpResult<()> {
    let (all, local) = kinds(sizes);
    let times = if sizes.style.turns_anew { 2 } else { 1 };
    (0..times).try_for_each(|_| compute_again(cx, std::iter::once(&all).chain(&local)))
}

fn compute_again<'a>(cx: &mut Context, kinds: impl Iterator<Item = &'a FrequencyKind>) -> OpResult<()> {
    let mut before = None;
    for kind in kinds {
        let mut blocks = Blocks { cx: &mut *cx, shape: Shape::new(&[kind.values.len()]), taken: Vec::new() };
        blocks.run(kind.again.split_last().map_or(&[], |(_, steps)| steps))?;
        before = blocks.taken.into_iter().flatten().last().or(before);
    }
    drop(before);
    Ok(())
}

/// The frequencies of a model that was made on the meta device: they come from the host.
pub(super) fn loaded(cx: &mut Context, sizes: &DecoderSizes) -> OpResult<Frequencies> {
    let (all, local) = kinds(sizes);
    let made = Frequencies::of(cx, sizes, &all, local.as_ref(), FrequencyKind::copied)?;
    made.written(cx, &all, local.as_ref())
}

/// The frequencies of a vision tower, in two directions: they are never read, because there are no images.
pub(super) struct OfTower(FrequencyKind);

impl OfTower {
    /// `count` frequencies of a `module`.
    pub fn of(module: &str, count: usize) -> Self {
        let (module, values) = (module.to_owned(), vec![0.0; count]);
        Self(FrequencyKind { module, prefix: "", values, steps: TWO_WAYS, again: TWO_WAYS, attention: 1.0 })
    }

    /// Makes both buffers, and computes them again as the initialisation does.
    pub fn make(&self, cx: &mut Context) -> OpResult<()> {
        self.0.made(cx)?;
        compute_again(cx, std::iter::once(&self.0))
    }

    /// Both buffers as they come from the host.
    pub fn load(&self, cx: &mut Context) -> OpResult<()> {
        self.0.copied(cx).map(drop)
    }
}

/// Blocks by their numbers.
struct Blocks<'a> {
    cx: &'a mut Context,
    shape: Shape,
    taken: Vec<Option<Tensor>>,
}

impl Blocks<'_> {
    fn run(&mut self, steps: &[Step]) -> OpResult<()> {
        for step in steps {
            let (shape, dtype) = match *step {
                Values => (self.shape, DType::F32),
                Counts => (self.shape, DType::I64),
                Flags => (self.shape, DType::U8),
                Scalar => (Shape::new(&[]), DType::F64),
                Count => (Shape::new(&[]), DType::I64),
                Single => (Shape::new(&[]), DType::F32),
                Drop(number) => {
                    if let Some(block) = self.taken.get_mut(number) {
                        *block = None;
                    }
                    continue;
                }
            };
            let block = self.cx.memory().tensor(shape, dtype, Category::Temporary, "rotary frequencies")?;
            self.taken.push(Some(block));
        }
        Ok(())
    }
}
