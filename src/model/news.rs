//! What the last flip did and why, from measured figures of steps before and after it. The rules are the same for every switch.

use std::fmt;

use super::evidence::{change, percent};
use super::{Category, Effect, Figure, Footing, Measurement};
use vramlab_allocator::units::Bytes;

/// The smallest change that is mentioned, as a share.
const WORTH: f64 = 0.005;
/// The smallest change of a step's time that is mentioned, as a share.
const WORTH_OF_TIME: f64 = 0.02;
/// How many consecutive steps must rise before a flip is said to leak.
const RISING: usize = 3;
/// A cause must account for at least this share of a change to explain it.
const EXPLAINS: f64 = 0.3;
/// Copies that take at least this share of the step are mentioned.
const COPIES: f64 = 0.5;

/// News about one flip, or several measured together. Displays as a sentence without its period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    parts: Vec<String>,
    /// Cached bytes that steps no longer use, and that `empty_cache` would release.
    pub spare: Bytes,
    /// True if memory held from before keeps the new setting from taking effect until `empty_cache`.
    pub waits: bool,
}

impl News {
    /// The news of an effect so far; `None` until a step after the flip was measured.
    #[must_use]
    pub fn of(effect: &Effect) -> Option<Self> {
        let (before, after) = (effect.before.as_ref()?, effect.after.as_ref()?);
        let (from, to) = (effect.from.as_ref()?, effect.to.as_ref()?);
        let mut parts = Vec::new();
        if let Some(emptied) = &effect.emptied {
            let back = to.reserved.saturating_sub(emptied.before.saturating_sub(emptied.released));
            let good = emptied.before.saturating_sub(to.reserved);
            parts.push(match (emptied.released, good) {
                (Bytes::ZERO, _) => "nothing was cached: empty_cache returned nothing".to_owned(),
                (released, Bytes::ZERO) => {
                    format!("empty_cache returned {released}; the next step took all of it again")
                }
                (released, good) if back == Bytes::ZERO => {
                    format!("empty_cache returned {released}, and the next step did without: {good} less are reserved")
                }
                (released, good) => {
                    format!(
                        "empty_cache returned {released}; the next step took {back} again: {good} less are reserved"
                    )
                }
            });
            return Some(Self { parts, spare: Bytes::ZERO, waits: false });
        }
        let told = MeasurementPair { before, after, from, to };
        parts.extend(told.leak());
        parts.extend(told.peak());
        let (reserved, spare) = told.reserved();
        parts.extend(reserved);
        let limit = told.limit();
        let mut waits = limit.is_some();
        parts.extend(limit);
        // A limit that does not bind yet can't change the time of steps.
        if !(waits && effect.flips.iter().all(|flip| &*flip.switch == "limit")) {
            parts.extend(told.time());
        }
        if parts.is_empty() {
            waits = effect.flips.iter().any(|flip| &*flip.switch == "alloc-conf") && to.reserved > Bytes::ZERO;
            parts.push(if waits {
                let held = to.reserved;
                format!("nothing changed yet, because steps go on in the {held} that are held from before")
            } else {
                "no change beyond noise in memory or time".to_owned()
            });
        }
        Some(Self { parts, spare, waits })
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts.join("; "))
    }
}

struct MeasurementPair<'a> {
    before: &'a Measurement,
    after: &'a Measurement,
    from: &'a Footing,
    to: &'a Footing,
}

impl MeasurementPair<'_> {
    /// Steps began to leave memory behind, or stopped doing so.
    fn leak(&self) -> Option<String> {
        let leaked = self.from.rise.1 >= RISING;
        match self.to.rise {
            (rise, steps) if steps >= RISING && !leaked => Some(format!("each step leaves {rise} behind")),
            (Bytes::ZERO, _) if leaked => {
                let live = change(self.from.allocated, self.to.allocated);
                Some(format!("steps leave nothing behind any more: between steps {live} are live"))
            }
            _ => None,
        }
    }

    /// The change of the allocated peak, and the category that changed most.
    fn peak(&self) -> Option<String> {
        let (a, b) = (&self.before.peak_allocated, &self.after.peak_allocated);
        if !has_changed(a, b) {
            return None;
        }
        let word = if b.median < a.median { "fell" } else { "rose" };
        let mut text = format!("the step's peak {word} {}", changed(a, b));
        let mut moved: Vec<(Category, i128)> = Category::ALL.into_iter().map(|of| (of, self.moved(of))).collect();
        moved.sort_by_key(|(_, by)| std::cmp::Reverse(by.unsigned_abs()));
        let most = moved.first().map_or(0, |(_, by)| by.unsigned_abs());
        let told: Vec<String> = moved
            .into_iter()
            .take(2)
            .filter(|(_, by)| *by != 0 && by.unsigned_abs() * 5 >= most)
            .map(|(of, _)| {
                let [a, b] = [self.from, self.to].map(|footing| footing.by_category[of as usize]);
                format!("{} {}", of.label(), change(a, b))
            })
            .collect();
        if !told.is_empty() {
            text.push_str(&format!(": {}", told.join(", ")));
        }
        Some(text)
    }

    fn moved(&self, category: Category) -> i128 {
        let of = |footing: &Footing| i128::from(footing.by_category[category as usize].get());
        of(self.to) - of(self.from)
    }

    /// The change of reserved memory, its cause, and how much of it no step uses.
    fn reserved(&self) -> (Option<String>, Bytes) {
        let (a, b) = (&self.before.peak_reserved, &self.after.peak_reserved);
        let spare = if worth(self.to.spare, self.to.reserved) { self.to.spare } else { Bytes::ZERO };
        let cached = format!("{spare} of it are cached, and steps don't use them");
        if has_changed(a, b) && b.median > a.median {
            let rise = b.bytes().saturating_sub(a.bytes());
            let explains = |part: Bytes| part.get() as f64 >= rise.get() as f64 * EXPLAINS;
            let pending = self.to.pending.saturating_sub(self.from.pending);
            let stranded = self.after.stranded.zip(self.before.stranded);
            let stranded = stranded.map_or(Bytes::ZERO, |(after, before)| after.bytes().saturating_sub(before.bytes()));
            let mut text = format!("reserved rose {}", changed(a, b));
            if explains(pending) {
                let most = self.to.pending;
                text.push_str(&format!(
                    ": up to {most} at once are freed but pending until copies on another stream are done"
                ));
            } else if explains(spare) {
                text.push_str(&format!(": {cached}"));
            } else if explains(stranded) {
                text.push_str(&format!(": {stranded} more are stranded when a step ends"));
            }
            return (Some(text), spare);
        }
        if has_changed(a, b) {
            let mut text = format!("reserved fell {}", changed(a, b));
            if spare > Bytes::ZERO {
                text.push_str(&format!("; {cached}"));
            }
            return (Some(text), spare);
        }
        let fell = self.after.peak_allocated.median < self.before.peak_allocated.median * (1.0 - WORTH)
            || self.to.allocated < self.from.allocated;
        if spare > Bytes::ZERO && fell {
            return (Some(format!("reserved stays {}: {cached}", b.bytes())), spare);
        }
        (None, Bytes::ZERO)
    }

    /// A new limit releases nothing: mentions it if more is reserved.
    fn limit(&self) -> Option<String> {
        let new = self.to.limit.filter(|limit| Some(*limit) != self.from.limit);
        let limit = new.filter(|limit| *limit < self.to.reserved)?;
        let reserved = self.to.reserved;
        Some(format!(
            "{reserved} stay reserved, above the limit of {limit}, which binds when a step asks the driver for more"
        ))
    }

    /// The change of a step's time, and copies that take much of it.
    fn time(&self) -> Option<String> {
        let time =
            self.before.step.as_ref().zip(self.after.step.as_ref()).filter(|(a, b)| changes(a, b, WORTH_OF_TIME));
        let (from, to) = (self.from.share(self.from.copy), self.to.share(self.to.copy));
        let copies = (to >= COPIES && from < to / 2.0).then(|| {
            let beside = self.to.share(self.to.backward);
            let percent = |share: f64| format!("{:.0} %", 100.0 * share);
            // On their own stream copies run beside the computation.
            format!("copies run for {} of it, beside a backward of {}", percent(to), percent(beside))
        });
        let time = time.map(|(a, b)| {
            let sign = if b.median < a.median { "−" } else { "+" };
            let [before, after] = [a, b].map(|figure| figure.median / 1000.0);
            let by = 100.0 * (b.median - a.median).abs() / a.median.max(1.0);
            format!("a step takes {before:.1} → {after:.1} ms ({sign}{by:.0} %)")
        });
        match (time, copies) {
            (Some(time), Some(copies)) => Some(format!("{time}: {copies}")),
            (None, Some(copies)) => Some(copies.replace(" of it,", " of a step,")),
            (time, None) => time,
        }
    }
}

/// True if it differs by more than noise, and by enough to be mentioned.
fn has_changed(a: &Figure, b: &Figure) -> bool {
    changes(a, b, WORTH)
}

fn changes(a: &Figure, b: &Figure, worth: f64) -> bool {
    a.differs(b) && (b.median - a.median).abs() >= a.median.abs() * worth
}

fn worth(part: Bytes, whole: Bytes) -> bool {
    part >= Bytes::mib(1) && part.get() as f64 >= whole.get() as f64 * 0.01
}

/// `22.84 → 15.30 GiB (−33 %)`.
fn changed(a: &Figure, b: &Figure) -> String {
    let (from, to) = (a.bytes(), b.bytes());
    let sign = if to < from { "−" } else { "+" };
    let by = Bytes(from.get().abs_diff(to.get()));
    if from == Bytes::ZERO { change(from, to) } else { format!("{} ({sign}{})", change(from, to), percent(by, from)) }
}
