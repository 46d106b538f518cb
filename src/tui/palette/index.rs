//! The index of everything that can be found in a picture: keys, screens, moments, values of switches, words, blocks, segments.

use std::cmp::Reverse;
use std::sync::Arc;

use super::offer::{Offer, OfferKind, OnEnter};
use super::score::score;
use super::written;
use crate::drawing::figures;
use crate::model::{MarkKind, NameId, View};
use crate::recording::Direction::{Backward, Forward};
use crate::session::{Reach, Switch};
use crate::source::{Ability, Landmark, Move};
use crate::tui::action::{Action, Binding, KeyGroup};
use crate::tui::glossary;
use crate::tui::hold::Hold;
use crate::tui::keymap;
use crate::tui::screens::SCREENS;
use crate::tui::stage::Stage;
use crate::tui::states::{BlocksAction, ScreenAction, Selection};
use crate::tui::words;
use crate::units::{Address, Bytes};

/// How many names of blocks, and how many segments, are offered: the largest.
const MOST: usize = 20_000;
/// The most results.
const FOUND: usize = 200;
/// Results that score less than this part of the best are left out.
const WORST: (i32, i32) = (3, 5);
/// The bonus for recent picks.
const RECENT: i32 = 12;

/// An offer with its texts in lower case.
#[derive(Clone, Debug)]
struct IndexedOffer {
    offer: Arc<Offer>,
    name: String,
    also: String,
    about: String,
}

impl IndexedOffer {
    /// True for a block or a segment.
    fn is_of_memory(&self) -> bool {
        matches!(self.offer.kind, OfferKind::Block | OfferKind::Segment)
    }

    /// True if one of its texts contains `sought`.
    fn says(&self, sought: &str) -> bool {
        let texts = [&self.name, &self.also, &self.about];
        sought.split_whitespace().all(|word| texts.iter().any(|text| text.contains(word)))
    }
}

/// Everything that can be found while the palette is open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    listed: Vec<IndexedOffer>,
    steps: u64,
    /// Why the cursor can't be moved, or switches can't be set.
    no_cursor: Option<String>,
    no_switch: Option<String>,
    recent: Vec<Offer>,
}

impl Index {
    /// The index for the screen with this index in the list. `recent` are recent picks, the last first.
    pub fn new(stage: &Stage<'_>, screen: usize, recent: Vec<Offer>) -> Self {
        let picture = stage.picture;
        let (here, elsewhere): (Vec<&Binding>, Vec<&Binding>) = stage
            .keys
            .bindings()
            .iter()
            .filter(|binding| !binding.is_of_dialogs() && binding.action != Action::Palette)
            .partition(|binding| binding.screen.is_none_or(|of| of == screen));
        let (own, common): (Vec<&Binding>, Vec<&Binding>) = here.into_iter().partition(|one| one.screen.is_some());
        let of = |bindings: Vec<&Binding>| -> Vec<Offer> { bindings.into_iter().map(|one| key(stage, one)).collect() };
        let no_cursor = picture.can(Ability::Seek).err().map(ToOwned::to_owned);
        let no_switch = Switch::all().next().and_then(|switch| why_off(stage, Action::of_switch(switch)));
        // The order without a query: this screen's commands, other screens, then commands, then switches; the first
        // screen, the Lab, is about the last two.
        let (scrolling, own): (Vec<&Binding>, Vec<&Binding>) =
            own.into_iter().partition(|one| matches!(one.action, Action::Scroll(_) | Action::ScrollPage(_)));
        let (levers, common): (Vec<&Binding>, Vec<&Binding>) =
            common.into_iter().partition(|one| one.group == KeyGroup::Switches);
        let (screens, common): (Vec<&Binding>, Vec<&Binding>) =
            common.into_iter().partition(|one| matches!(one.action, Action::Screen(_)));
        let order = match screen {
            0 if no_switch.is_none() => [levers, own, screens, common, scrolling],
            _ => [own, screens, common, scrolling, levers],
        };
        let mut all: Vec<Offer> = order.into_iter().flat_map(of).collect();
        // Offers that can't be taken now come last.
        all.sort_by_key(|offer| offer.off.is_some());
        all.extend(moments(stage));
        all.extend(values(stage));
        all.extend(of(elsewhere));
        all.extend(glossary::all().map(|entry| Offer {
            also: entry.also.join(" "),
            ..Offer::new(OfferKind::Word, entry.word, entry.meaning, OnEnter::Explain(entry.word))
        }));
        // Answers to a lesson's question are not offered.
        if stage.hold != Hold::Answer {
            all.extend(blocks(stage.shown));
            all.extend(segments(stage.shown));
        }
        let listed = all.into_iter().map(|mut offer| {
            if let (OnEnter::Go(_), None) = (&offer.on_enter, &offer.off) {
                offer.off.clone_from(&no_cursor);
            }
            let lower = |text: &str| text.to_lowercase();
            let about = if matches!(offer.kind, OfferKind::Block | OfferKind::Segment) {
                String::new()
            } else {
                lower(&offer.about)
            };
            IndexedOffer { name: lower(&offer.name), also: lower(&offer.also), about, offer: Arc::new(offer) }
        });
        Self { listed: listed.collect(), steps: picture.extent.steps, no_cursor, no_switch, recent }
    }

    /// The results of a query, the best first. Without a query, recent picks, then everything else in its order.
    pub fn find(&self, query: &str) -> Vec<Arc<Offer>> {
        let sought = query.trim().to_lowercase().replace('-', " ");
        let recent: Vec<Arc<Offer>> = self.recent.iter().filter_map(|offer| self.again(offer)).collect();
        if sought.is_empty() {
            let rest = self.listed.iter().map(|one| &one.offer).filter(|offer| !recent.contains(offer));
            return recent.iter().chain(rest).take(FOUND).cloned().collect();
        }
        let mut scored: Vec<(i32, &IndexedOffer)> = Vec::new();
        let has_all = |one: &IndexedOffer| sought.split_whitespace().all(|word| one.name.contains(word));
        for one in &self.listed {
            // Thousands of names contain some letters in order, so blocks must contain the query itself.
            if one.is_of_memory() && !has_all(one) && !one.also.contains(&sought) {
                continue;
            }
            let Some(mut points) = score(&sought, &one.name, &one.also, &one.about) else { continue };
            // A key finds its command.
            points += if one.offer.key.split(' ').any(|key| key == query.trim()) { 100 } else { 0 };
            points += if recent.contains(&one.offer) { RECENT } else { 0 };
            points += if one.offer.off.is_some() { -4 } else { 0 };
            scored.push((points, one));
        }
        for one in self.listed.iter().filter(|one| one.offer.key.split(' ').any(|key| key == query.trim())) {
            if !scored.iter().any(|(_, other)| Arc::ptr_eq(&other.offer, &one.offer)) {
                scored.push((100, one));
            }
        }
        let best = scored.iter().map(|(points, _)| *points).max().unwrap_or(0);
        scored.retain(|(points, _)| points.saturating_mul(WORST.1) >= best.saturating_mul(WORST.0));
        // Names that contain the query come before names with its letters apart; blocks come last.
        let side_by_side = |one: &IndexedOffer| one.says(&sought);
        scored.sort_by_key(|(points, one)| {
            (one.is_of_memory() && one.name != sought, !side_by_side(one), Reverse(*points))
        });
        let written = written::offers(query, self.steps).into_iter().map(|offer| Arc::new(self.held_back(offer)));
        written.chain(scored.into_iter().map(|(_, one)| Arc::clone(&one.offer))).take(FOUND).collect()
    }

    /// A recent pick in its current state; `None` if it no longer exists.
    fn again(&self, offer: &Offer) -> Option<Arc<Offer>> {
        let same = |one: &&IndexedOffer| one.offer.on_enter == offer.on_enter;
        if let Some(one) = self.listed.iter().find(same) {
            return Some(Arc::clone(&one.offer));
        }
        let mut written = written::offers(&offer.name, self.steps).into_iter();
        written.find(|one| one.on_enter == offer.on_enter).map(|one| Arc::new(self.held_back(one)))
    }

    fn held_back(&self, offer: Offer) -> Offer {
        let off = match offer.on_enter {
            OnEnter::Set(..) => self.no_switch.clone(),
            _ => self.no_cursor.clone(),
        };
        Offer { off: offer.off.or(off), ..offer }
    }
}

/// Why a key's action can't be performed now.
fn why_off(stage: &Stage<'_>, action: Action) -> Option<String> {
    if !stage.hold.permits(action, stage.picture) {
        return Some(stage.hold.why(stage.keys));
    }
    let why = keymap::acts(action, stage.picture).err()?;
    Some(if why.is_empty() { "does nothing right now".to_owned() } else { why.to_owned() })
}

fn key(stage: &Stage<'_>, binding: &Binding) -> Offer {
    let word = binding.action.word();
    let (kind, name) = match binding.action {
        Action::Screen(index) => {
            (OfferKind::Screen, SCREENS.get(index).map_or(binding.help.clone(), |screen| screen.title.to_owned()))
        }
        Action::Edit(switch) => (OfferKind::Key, switch.label().to_owned()),
        Action::Flip(switch, crate::session::FlipDirection::Next) => (OfferKind::Key, switch.label().to_owned()),
        _ => (OfferKind::Key, word.replace('-', " ")),
    };
    let on_enter = OnEnter::Press { screen: binding.screen, action: binding.action };
    let of = binding.screen.and_then(|index| SCREENS.get(index)).map_or(kind.label(), |screen| screen.title);
    Offer {
        of,
        also: word.replace('-', " "),
        key: binding.label.clone(),
        off: why_off(stage, binding.action),
        brief: binding.brief.map(str::to_owned),
        ..Offer::new(kind, name, binding.help.clone(), on_enter)
    }
}

/// Moments: those that every run has, and all flips.
fn moments(stage: &Stage<'_>) -> Vec<Offer> {
    let go_to = stage.keys.key_of(Action::GoTo);
    let place = |name: &str, about: &str, key: &str, to: Move| Offer {
        key: if go_to.is_empty() { String::new() } else { format!("{go_to} {key}") },
        ..Offer::new(OfferKind::Moment, name, about, OnEnter::Go(to))
    };
    let mut all = vec![
        place("peak", "where most is allocated, of the whole run", "p", Move::Jump(Landmark::Peak, Forward)),
        place(
            "next out of memory",
            "the next request that failed (oom)",
            "o",
            Move::Jump(Landmark::OutOfMemory, Forward),
        ),
        place(
            "previous out of memory",
            "the previous request that failed (oom)",
            "O",
            Move::Jump(Landmark::OutOfMemory, Backward),
        ),
        place("finding", "where the first finding can be seen", "i", Move::Jump(Landmark::Finding, Forward)),
    ];
    for mark in stage.picture.history.marks().rev() {
        let at = Move::To(mark.position + 1);
        let offer = match &mark.kind {
            MarkKind::Flip { switch, to } => {
                let (key, label) = (words::key_of(stage.keys, switch), words::label(switch));
                let about = format!("{label} became {} at step {}", words::value(to), mark.step);
                Offer {
                    also: format!("{label} {switch}"),
                    ..Offer::new(OfferKind::Moment, format!("flip {key}"), about, OnEnter::Go(at))
                }
            }
            MarkKind::EmptyCache { released } => {
                let about = format!("empty_cache returned {} at step {}", figures::short_bytes(*released), mark.step);
                let name = format!("flip {}", stage.keys.key_of(Action::EmptyCache));
                Offer::new(OfferKind::Moment, name, about, OnEnter::Go(at))
            }
            MarkKind::OutOfMemory => {
                let about = format!("a request failed in step {}", mark.step);
                Offer {
                    also: "oom".to_owned(),
                    ..Offer::new(OfferKind::Moment, "out of memory", about, OnEnter::Go(at))
                }
            }
        };
        all.push(offer);
    }
    all
}

/// The values of a switch, if they are a list.
fn values(stage: &Stage<'_>) -> impl Iterator<Item = Offer> {
    let settings = stage.picture.switches();
    Switch::levers().filter(|switch| switch.reach() != Reach::Written).flat_map(move |switch| {
        let action = Action::of_switch(switch);
        let (key, off) = (stage.keys.key_of(action).to_owned(), why_off(stage, action));
        let now = settings.get(switch.word()).map(|setting| setting.value.to_string());
        switch.values().iter().map(move |value| {
            // The idle reason is left out, because it is the same for all values of a switch.
            let label = format!("{}: ", switch.label());
            let help = switch.help().strip_prefix(&label).unwrap_or(switch.help());
            let brief = match &now {
                Some(now) if now == value => Some("as it is now".to_owned()),
                Some(now) => Some(format!("{now} → {value}")),
                None => None,
            };
            let about = brief.as_ref().map_or_else(|| help.to_owned(), |brief| format!("{brief}; {help}"));
            Offer {
                also: switch.word().replace('-', " "),
                key: key.clone(),
                off: off.clone(),
                brief,
                ..Offer::new(
                    OfferKind::Value,
                    format!("{} {value}", switch.label()),
                    about,
                    OnEnter::Set(switch, (*value).into()),
                )
            }
        })
    })
}

/// Goes to Blocks and selects what lies at an address.
fn selects(address: Address, whole: bool) -> OnEnter {
    let screen = SCREENS.iter().position(|screen| screen.title == "Blocks");
    let action = BlocksAction::Select(Selection { address, whole });
    OnEnter::Press { screen, action: Action::Own(ScreenAction::Blocks(action)) }
}

/// Names of blocks, each with its largest block, the largest first.
fn blocks(view: &View) -> Vec<Offer> {
    #[derive(Clone, Copy, Default)]
    struct NameTotal {
        count: u64,
        largest: Bytes,
        at: Address,
    }
    let mut named = vec![NameTotal::default(); view.names.0.len()];
    for segment in view.segments.iter() {
        for block in segment.blocks.iter().filter(|block| block.name != NameId::NONE) {
            let Some(one) = named.get_mut(block.name.0 as usize) else { continue };
            one.count += 1;
            if one.count == 1 || block.size > one.largest {
                (one.largest, one.at) = (block.size, segment.address.offset(block.offset));
            }
        }
    }
    let mut named: Vec<(usize, NameTotal)> = named.into_iter().enumerate().filter(|(_, one)| one.count > 0).collect();
    named.sort_by_key(|(_, one)| Reverse(one.largest));
    let offer = |(id, one): (usize, NameTotal)| {
        let name = view.names.0.get(id).map(|name| name.to_string()).filter(|name| !name.is_empty())?;
        let size = figures::short_bytes(one.largest);
        let about = match one.count {
            1 => format!("{size} at {}", one.at),
            count => format!("{count} blocks, the largest {size} at {}", one.at),
        };
        Some(Offer::new(OfferKind::Block, name, about, selects(one.at, false)))
    };
    named.into_iter().take(MOST).filter_map(offer).collect()
}

/// Segments, the largest first.
fn segments(view: &View) -> Vec<Offer> {
    let mut all: Vec<_> = view.segments.iter().collect();
    all.sort_by_key(|segment| Reverse(segment.size));
    let offer = |segment: &crate::model::SegmentView| {
        let held: Bytes = segment.blocks.iter().map(|block| block.size).sum();
        let size = figures::short_bytes(segment.size);
        let blocks = figures::counted(segment.blocks.len() as u64, "block");
        let about = format!("{size}, {} of it in {blocks}", figures::short_bytes(held));
        Offer {
            also: size,
            ..Offer::new(
                OfferKind::Segment,
                format!("segment {}", segment.address),
                about,
                selects(segment.address, true),
            )
        }
    };
    all.into_iter().take(MOST).map(offer).collect()
}
