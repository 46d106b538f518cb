//! A lesson's front matter: its title, and the runs that it uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use toml::Spanned;

use super::action;
use super::block::{Block, SourceText};
use super::error::LessonError;
use super::run::{LessonData, LessonInference, LessonRun, LessonRuns, RawRun};
use crate::device::sim::CardCatalog;
use crate::session::DeviceChoice;
use crate::workload::{Catalog, LengthPolicy, Sizes};

/// A lesson's title, and the runs that it uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Front {
    /// Its title.
    pub title: String,
    /// Its place in the list of lessons.
    pub order: u32,
    /// About how many minutes it takes.
    pub minutes: u32,
    /// One sentence for a list.
    pub summary: String,
    run: LessonRun,
    named: BTreeMap<Arc<str>, NamedRun>,
}

/// One of its other runs.
#[derive(Clone, Debug, PartialEq)]
struct NamedRun {
    run: LessonRun,
    /// The offset of its name in the file.
    at: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFront {
    title: String,
    #[serde(default = "last")]
    order: u32,
    minutes: u32,
    summary: String,
    workload: SourceText,
    device: Option<SourceText>,
    #[serde(default)]
    settings: BTreeMap<Spanned<String>, Spanned<toml::Value>>,
    #[serde(default)]
    sizes: Sizes,
    inference: Option<LessonInference>,
    #[serde(default)]
    half: bool,
    data: Option<LessonData>,
    lengths: Option<Spanned<Vec<u32>>>,
    #[serde(rename = "length-policy")]
    length_policy: Option<Spanned<LengthPolicy>>,
    seed: Option<u64>,
    load: Option<SourceText>,
    preallocate: Option<SourceText>,
    parallel: Option<SourceText>,
    ranks: Option<usize>,
    rank: Option<usize>,
    #[serde(default)]
    run: BTreeMap<Spanned<String>, RawRun>,
}

const fn last() -> u32 {
    u32::MAX
}

impl Front {
    /// # Errors
    /// What is wrong, with its place.
    pub(super) fn parse(block: &Block<'_>) -> Result<Self, LessonError> {
        let raw: RawFront = block.parse()?;
        let first = RawRun {
            workload: Some(raw.workload),
            device: raw.device,
            settings: raw.settings,
            sizes: raw.sizes,
            inference: raw.inference,
            half: raw.half,
            data: raw.data,
            lengths: raw.lengths,
            length_policy: raw.length_policy,
            seed: raw.seed,
            load: raw.load,
            preallocate: raw.preallocate,
            parallel: raw.parallel,
            ranks: raw.ranks,
            rank: raw.rank,
        };
        let run = LessonRun::read(&first, None, block)?;
        let mut named = BTreeMap::new();
        for (name, other) in &raw.run {
            if !action::is_name(name.get_ref()) {
                let reason = "a run is called by small letters, digits and _, such as: [run.small_batch]";
                return Err(block.wrong_behind(name.span().start, reason));
            }
            let other = NamedRun {
                run: LessonRun::read(other, Some(&run), block)?,
                at: block.offset_behind(name.span().start),
            };
            named.insert(name.get_ref().as_str().into(), other);
        }
        Ok(Self { title: raw.title, order: raw.order, minutes: raw.minutes, summary: raw.summary, run, named })
    }

    /// The run that the lesson begins with.
    #[must_use]
    pub fn workload(&self) -> &str {
        &self.run.workload
    }

    /// The device on which its figures are true: `cpu`, or `sim:` and a card.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.run.device
    }

    /// The names of its other runs.
    pub fn runs(&self) -> impl Iterator<Item = &str> {
        self.named.keys().map(|name| &**name)
    }

    /// A run that no step begins: the offset of its name in the file, and a sentence.
    pub(super) fn idle<'a>(&self, begun: impl Fn(&str) -> bool + 'a) -> Option<(usize, String)> {
        let (name, of) = self.named.iter().find(|(name, _)| !begun(name))?;
        Some((
            of.at,
            format!("no step begins this run; write \"run {name}\" among a step's actions, or correct its name"),
        ))
    }

    /// The specifications of its runs. On `other` run those that may run on another device.
    ///
    /// # Errors
    /// If the workload or the device does not exist, or the workload does not allow what the lesson requires.
    pub(super) fn specs(
        &self,
        source: &str,
        catalog: &Catalog,
        cards: &CardCatalog,
        other: Option<&DeviceChoice>,
    ) -> Result<LessonRuns, LessonError> {
        let first = self.run.spec(source, catalog, cards, other)?;
        let named =
            self.named.iter().map(|(name, of)| Ok((Arc::clone(name), of.run.spec(source, catalog, cards, other)?)));
        Ok(LessonRuns::new(first, named.collect::<Result<_, LessonError>>()?))
    }
}
