//! Figures of each segment and of all segments: sums, tones, and blocks that match the filter. Kept from frame to
//! frame; only segments that changed are counted again.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::coloring::{Coloring, OTHERS, Tone};
use super::filter::Filter;
use super::kept::KeptStrips;
use super::strip::Strip;
use crate::legend::short_label;
use vramlab_allocator::PoolKind;
use vramlab_allocator::units::{Bytes, StreamId};
use vramlab_model::{BlockView, Category, History, Hole, NameId, Names, SegmentView, View, naming};

/// Figures of one segment, or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Allocated blocks.
    pub blocks: u64,
    /// Bytes of allocated and pending blocks.
    pub held: Bytes,
    /// Requested bytes of allocated blocks.
    pub live: Bytes,
    /// The rest of these blocks.
    pub rounding: Bytes,
    /// Bytes freed, but waiting for another stream.
    pub pending: Bytes,
    /// Free bytes that allocated blocks keep from going back.
    pub stranded: Bytes,
    /// Free bytes that `empty_cache` would return.
    pub releasable: Bytes,
    /// Blocks that match the filter.
    pub matched: u64,
    /// Bytes of the blocks that match the filter.
    pub matched_bytes: Bytes,
    /// Bytes of allocated blocks by tone.
    pub tones: [Bytes; Tone::COUNT],
}

impl Sum {
    /// Free bytes.
    pub fn free(&self) -> Bytes {
        self.stranded + self.releasable
    }

    fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.held += other.held;
        self.live += other.live;
        self.rounding += other.rounding;
        self.pending += other.pending;
        self.stranded += other.stranded;
        self.releasable += other.releasable;
        self.matched += other.matched;
        self.matched_bytes += other.matched_bytes;
        for (tone, bytes) in self.tones.iter_mut().zip(other.tones) {
            *tone += bytes;
        }
    }
}

/// Segments that serve one stream from one pool.
type Pool = (StreamId, PoolKind, bool);

/// Figures of all segments.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    coloring: Coloring,
    text: Arc<str>,
    filter: Filter,
    names: Names,
    segments: Arc<Vec<SegmentView>>,
    sums: Vec<Sum>,
    total: Sum,
    /// The positions where ages begin, the youngest first, and whether ages are counted in steps.
    ages: [u64; 4],
    by_steps: bool,
    /// The modules that have a tone of their own, and the tone of every name.
    modules: Vec<String>,
    of_names: Vec<Tone>,
    pools: Vec<Pool>,
    /// Tones that have held any bytes since they were assigned. Their legend entries stay in place.
    held: [bool; Tone::COUNT],
    /// The strips of the last frame, with separate ones for a ghost.
    strips: KeptStrips,
    beside: KeptStrips,
    /// Blocks counted so far.
    #[cfg(test)]
    counted: usize,
}

impl Survey {
    /// Takes in the current memory, and how it is to be shown.
    pub fn update(&mut self, view: &View, history: &History, coloring: Coloring, text: &Arc<str>) {
        let (ages, by_steps) = ages(view, history);
        let renamed = !Arc::ptr_eq(&self.names.0, &view.names.0);
        let recolored = self.coloring != coloring;
        let refiltered = self.text != *text;
        if recolored {
            self.modules.clear();
            self.held = [false; Tone::COUNT];
        }
        let colored_by_module = coloring == Coloring::Module && (recolored || renamed);
        let aged = coloring == Coloring::Age && (self.ages, self.by_steps) != (ages, by_steps);
        (self.coloring, self.ages, self.by_steps) = (coloring, ages, by_steps);
        self.names = view.names.clone();
        if refiltered || (renamed && self.filter.is_on()) {
            self.text = Arc::clone(text);
            self.filter = Filter::new(text, &self.names);
        }
        if colored_by_module {
            self.choose_modules(&view.segments);
        }
        if coloring == Coloring::Pool {
            for segment in view.segments.iter() {
                if !self.pools.contains(&pool(segment)) {
                    self.pools.push(pool(segment));
                }
            }
        }
        let fresh = recolored || refiltered || colored_by_module || aged || (renamed && self.filter.is_on());
        if fresh {
            self.strips.clear();
            self.beside.clear();
        }
        if fresh || !Arc::ptr_eq(&self.segments, &view.segments) {
            self.count(&view.segments, fresh);
        }
    }

    /// Counts segments. Segments whose blocks are unchanged are counted again only if `fresh`.
    fn count(&mut self, segments: &Arc<Vec<SegmentView>>, fresh: bool) {
        let (old, old_sums) =
            (std::mem::replace(&mut self.segments, Arc::clone(segments)), std::mem::take(&mut self.sums));
        // Both lists are in address order.
        let mut known = old.iter().zip(old_sums).peekable();
        let mut sums = Vec::with_capacity(segments.len());
        let mut total = Sum::default();
        for segment in segments.iter() {
            while known.next_if(|(old, _)| old.address < segment.address).is_some() {}
            let same = |(old, _): &(&SegmentView, Sum)| {
                !fresh
                    && old.address == segment.address
                    && old.size == segment.size
                    && Arc::ptr_eq(&old.blocks, &segment.blocks)
            };
            let sum = match known.next_if(same) {
                Some((_, sum)) => sum,
                None => self.sum_of_segment(segment),
            };
            total.add(&sum);
            sums.push(sum);
        }
        (self.sums, self.total) = (sums, total);
        for (held, bytes) in self.held.iter_mut().zip(self.total.tones) {
            *held |= bytes > Bytes::ZERO;
        }
    }

    fn sum_of_segment(&mut self, segment: &SegmentView) -> Sum {
        #[cfg(test)]
        {
            self.counted += segment.blocks.len();
        }
        let mut sum = Sum { blocks: segment.blocks.len() as u64, ..Sum::default() };
        let pool = self.pool_tone(segment);
        for block in segment.blocks.iter() {
            sum.held += block.size;
            if block.pending {
                sum.pending += block.size;
            } else {
                sum.live += block.requested;
                sum.rounding += block.rounding();
                sum.tones[usize::from(self.tone_in(pool, block).0) % Tone::COUNT] += block.size;
            }
            if self.filter.is_on() && self.filter.accepts(block) {
                sum.matched += 1;
                sum.matched_bytes += block.size;
            }
        }
        if segment.page.is_some() || segment.blocks.is_empty() {
            sum.releasable = segment.holes().map(|hole: Hole| hole.releasable).sum();
        }
        sum.stranded = segment.size.saturating_sub(sum.held + sum.releasable);
        sum
    }

    /// The figures of a segment, by its index.
    pub fn sum(&self, segment: usize) -> Option<&Sum> {
        self.sums.get(segment)
    }

    /// The figures of all segments.
    pub fn total(&self) -> &Sum {
        &self.total
    }

    /// True if a filter is set.
    pub fn is_filtered(&self) -> bool {
        self.filter.is_on()
    }

    /// True if a block matches the filter, or no filter is set.
    pub fn accepts(&self, block: &BlockView) -> bool {
        !self.filter.is_on() || self.filter.accepts(block)
    }

    /// Some cells of segments that are `of` half cells long. Reused if nothing changed.
    pub fn strip(&self, segments: &[&SegmentView], of: usize, cells: Range<usize>) -> Strip {
        self.strips.strip(segments, self.segments.len(), of, cells, self.tones())
    }

    /// Like [`Survey::strip`], for the segments of a ghost, with the run's colours.
    pub fn strip_beside(&self, segments: &[&SegmentView], of: usize, cells: Range<usize>) -> Strip {
        self.beside.strip(segments, self.segments.len(), of, cells, self.tones())
    }

    /// The tone of each block; `None` for a block that the filter excludes.
    fn tones(&self) -> impl Fn(&SegmentView, &BlockView) -> Option<Tone> {
        move |segment, block| {
            self.accepts(block).then(|| match self.coloring {
                Coloring::Pool => self.pool_tone(segment),
                _ => self.tone_in(OTHERS, block),
            })
        }
    }

    fn pool_tone(&self, segment: &SegmentView) -> Tone {
        let at = self.pools.iter().position(|own| *own == pool(segment)).unwrap_or(usize::MAX);
        Tone(u8::try_from(at).unwrap_or(u8::MAX).min(OTHERS.0))
    }

    fn tone_in(&self, pool: Tone, block: &BlockView) -> Tone {
        match self.coloring {
            Coloring::Category => Tone::of(block.category),
            Coloring::Module => self.of_names.get(named(block).0 as usize).copied().unwrap_or(OTHERS),
            Coloring::Age => Tone(self.ages.iter().take_while(|begin| block.born < **begin).count() as u8),
            Coloring::Pool => pool,
            Coloring::Account => Tone(0),
        }
    }

    /// Assigns free tones to the modules that hold most. A module keeps its tone.
    fn choose_modules(&mut self, segments: &[SegmentView]) {
        let mut by_name = vec![0_u64; self.names.0.len()];
        for block in segments.iter().flat_map(|segment| segment.blocks.iter()) {
            if let Some(bytes) = by_name.get_mut(named(block).0 as usize) {
                *bytes = bytes.saturating_add(block.size.get());
            }
        }
        let of_names: Vec<String> = self.names.0.iter().map(|name| naming::module(name)).collect();
        let mut bytes: HashMap<&str, u64> = HashMap::new();
        for (module, held) in of_names.iter().zip(by_name).filter(|(module, held)| !module.is_empty() && *held > 0) {
            *bytes.entry(module).or_default() += held;
        }
        let mut most: Vec<(&str, u64)> = bytes.into_iter().collect();
        most.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        for (module, _) in most {
            if self.modules.len() >= usize::from(OTHERS.0) {
                break;
            }
            if !self.modules.iter().any(|own| own == module) {
                self.modules.push(module.to_owned());
            }
        }
        let tone =
            |module: &String| self.modules.iter().position(|own| own == module).map_or(OTHERS, |at| Tone(at as u8));
        self.of_names = of_names.iter().map(tone).collect();
    }

    /// Tones that hold bytes, or held some, with their words and bytes.
    pub fn legend(&self) -> Vec<(Tone, String, Bytes)> {
        let tones = (0..).map(Tone).zip(self.total.tones).zip(self.held);
        tones.filter(|(_, held)| *held).map(|((tone, bytes), _)| (tone, self.word(tone), bytes)).collect()
    }

    fn word(&self, tone: Tone) -> String {
        let index = usize::from(tone.0);
        let others = || "others".to_owned();
        match self.coloring {
            Coloring::Category => {
                Category::ALL.get(index).map_or_else(others, |category| short_label(*category).to_owned())
            }
            Coloring::Module => self.modules.get(index).cloned().unwrap_or_else(others),
            Coloring::Pool => self.pools.get(index).filter(|_| tone != OTHERS).map_or_else(others, pool_word),
            Coloring::Account => "in blocks".to_owned(),
            Coloring::Age => {
                let words = if self.by_steps {
                    ["this step", "last step", "2–9 steps", "10–99 steps", "older"]
                } else {
                    ["last 100 events", "1,000", "10,000", "100,000", "older"]
                };
                words[index.min(words.len() - 1)].to_owned()
            }
        }
    }
}

fn pool(segment: &SegmentView) -> Pool {
    (segment.stream, segment.pool, segment.expandable)
}

fn pool_word((stream, pool, expandable): &Pool) -> String {
    let pool = match pool {
        PoolKind::Small => "small",
        PoolKind::Large => "large",
    };
    let pages = if *expandable { " expandable" } else { "" };
    format!("{pool}{pages} {}", super::bar::stream_name(*stream))
}

/// A block's name, or the op that allocated it.
fn named(block: &BlockView) -> NameId {
    if block.name == NameId::NONE { block.op } else { block.name }
}

/// The positions where ages begin, the youngest first: in steps if the run has any, otherwise in events.
fn ages(view: &View, history: &History) -> ([u64; 4], bool) {
    if history.columns() > 1 {
        let begin = |back| history.begin_of(view.position, back).unwrap_or(0);
        return ([0, 1, 9, 99].map(begin), true);
    }
    ([100, 1_000, 10_000, 100_000].map(|events| view.position.saturating_sub(events)), false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use vramlab_model::{EventKind, Lab};

    fn updated(survey: &mut Survey, view: &View, coloring: Coloring, text: &str) {
        survey.update(view, &view.history, coloring, &text.into());
    }

    #[test]
    fn all_of_it_comes_to_the_ledger_and_only_what_changed_is_counted_again() {
        let mut lab = Lab::new();
        let mut survey = Survey::default();
        let (mut most, mut blocks) = (0, 0);
        for event in synthetic::training_run() {
            lab.apply(&event);
            let view = lab.view();
            let before = survey.counted;
            updated(&mut survey, &view, Coloring::Category, "");
            most += survey.counted - before;
            let total = survey.total();
            let ledger = &view.ledger;
            assert_eq!(
                (total.live, total.rounding, total.pending, total.stranded, total.releasable),
                (ledger.live, ledger.rounding, ledger.pending, ledger.stranded, ledger.releasable)
            );
            assert_eq!(total.tones, view.by_category);
            blocks += usize::try_from(total.blocks).unwrap();
        }
        assert!(most > 0 && most * 4 < blocks, "{most} of {blocks}");
        let view = lab.view();
        let before = survey.counted;
        updated(&mut survey, &view, Coloring::Category, "");
        assert_eq!(survey.counted, before, "nothing changed");
    }

    #[test]
    fn each_way_of_colouring_tells_all_bytes_apart() {
        let mut lab = Lab::new();
        let events = synthetic::training_run();
        let steps = |event: &&vramlab_model::Event| matches!(event.kind, EventKind::StepBegin { .. });
        assert!(events.iter().filter(steps).count() > 10);
        for event in &events[..events.len() * 4 / 5] {
            lab.apply(event);
        }
        let view = lab.view();
        let mut survey = Survey::default();
        for coloring in Coloring::ALL {
            updated(&mut survey, &view, coloring, "");
            let sum: Bytes = survey.legend().into_iter().map(|(_, _, bytes)| bytes).sum();
            assert_eq!(sum, view.ledger.allocated(), "{coloring:?}");
        }
        updated(&mut survey, &view, Coloring::Age, "");
        let ages: Vec<String> = survey.legend().into_iter().map(|(_, word, _)| word).collect();
        assert!(ages.len() >= 2 && !ages.contains(&"older".to_owned()), "{ages:?}");
        updated(&mut survey, &view, Coloring::Module, "");
        assert!(survey.legend().len() > 2, "{:?}", survey.legend());
    }

    #[test]
    fn a_strip_that_is_kept_is_what_a_new_one_would_be() {
        let mut lab = Lab::new();
        let mut survey = Survey::default();
        for (index, event) in synthetic::training_run().iter().enumerate() {
            lab.apply(event);
            if index % 5 > 0 {
                continue;
            }
            let view = lab.view();
            let coloring = Coloring::ALL[index / 700 % 5];
            updated(&mut survey, &view, coloring, if index / 300 % 3 == 0 { "weight" } else { "" });
            let all: Vec<&SegmentView> = view.segments.iter().collect();
            assert_eq!(survey.strip(&all, 17, 0..9), Strip::new(all.iter().copied(), 17, 0..9, survey.tones()));
            for segment in view.segments.iter() {
                let cells = index % 3..7;
                let fresh = Strip::new([segment], 18, cells.clone(), survey.tones());
                assert_eq!(survey.strip(&[segment], 18, cells.clone()), fresh);
                assert_eq!(survey.strip(&[segment], 18, cells), fresh);
            }
        }
    }

    #[test]
    fn what_is_looked_for_is_counted() {
        let mut lab = Lab::new();
        for event in synthetic::training_run() {
            lab.apply(&event);
        }
        let view = lab.view();
        let mut survey = Survey::default();
        updated(&mut survey, &view, Coloring::Category, "parameter");
        assert!(survey.is_filtered());
        assert_eq!(survey.total().matched_bytes, view.by_category[Category::Parameter as usize]);
        let drawn: usize = view
            .segments
            .iter()
            .map(|segment| segment.blocks.iter().filter(|block| survey.tones()(segment, block).is_some()).count())
            .sum();
        assert_eq!(drawn as u64, survey.total().matched);
        updated(&mut survey, &view, Coloring::Category, "nothing is called so");
        assert_eq!((survey.total().matched, survey.total().blocks > 0), (0, true));
    }
}
