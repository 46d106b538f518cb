//! Offers that only the query names: a step by its number, or a switch with a value that is not listed.

use super::offer::{Offer, OfferKind, OnEnter};
use crate::session::{Setup, Switch};
use crate::source::Move;
use crate::train::Config;

/// The offers that a query names; the run has `steps` steps.
pub(super) fn offers(query: &str, steps: u64) -> Vec<Offer> {
    step(query, steps).into_iter().chain(values(query)).collect()
}

/// `step 40`, `40`.
fn step(query: &str, steps: u64) -> Option<Offer> {
    let query = query.trim().to_lowercase();
    let digits = ["step", "s", "#"].iter().find_map(|word| query.strip_prefix(word)).unwrap_or(&query).trim();
    let step: u64 = digits.parse().ok()?;
    let about = format!("move the cursor to the start of step {step}");
    let off = (step > steps).then(|| format!("the run has {steps} steps"));
    Some(Offer { off, ..Offer::new(OfferKind::Moment, format!("step {step}"), about, OnEnter::Go(Move::Step(step))) })
}

/// Values that are in no list: `batch 24`, `limit 12GiB`.
fn values(query: &str) -> impl Iterator<Item = Offer> {
    let query = query.trim_start();
    Switch::all().filter(|switch| !switch.is_closed()).filter_map(move |switch| {
        let text = [switch.label(), switch.word()].iter().find_map(|word| {
            let (head, rest) = query.split_at_checked(word.len())?;
            let is_it = head.eq_ignore_ascii_case(word) && rest.starts_with([' ', '=', ':']);
            is_it.then(|| rest.trim_start_matches([' ', '=', ':']).trim_end())
        })?;
        if text.is_empty() {
            return None;
        }
        // Whether a value is valid does not depend on other switches.
        let off = switch.set(&mut Setup::new(Config::new(1)), text).err();
        let (name, set) = (format!("{} {text}", switch.label()), OnEnter::Set(switch, text.into()));
        Some(Offer { off, ..Offer::new(OfferKind::Value, name, switch.help(), set) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(query: &str) -> Option<Offer> {
        let mut all = offers(query, 50);
        assert!(all.len() <= 1, "{query}: {all:?}");
        all.pop()
    }

    #[test]
    fn a_number_is_a_step() {
        for query in ["step 40", "40", "Step40", " 40 ", "#40"] {
            let offer = only(query).unwrap();
            assert_eq!((offer.on_enter, offer.off), (OnEnter::Go(Move::Step(40)), None), "{query}");
        }
        assert_eq!(only("step 51").unwrap().off.as_deref(), Some("the run has 50 steps"));
        assert!(only("step").is_none() && only("stepping 4").is_none() && only("40x").is_none());
    }

    #[test]
    fn a_switch_takes_a_value_that_no_key_reaches() {
        let named = |word| Switch::named(word).unwrap();
        for (query, switch, value) in [
            ("batch 24", "batch", "24"),
            ("limit 12GiB", "limit", "12GiB"),
            ("limit=50%", "limit", "50%"),
            ("accumulate 3", "accum", "3"),
            ("alloc-conf expandable_segments:True", "alloc-conf", "expandable_segments:True"),
        ] {
            let offer = only(query).unwrap();
            assert_eq!((offer.on_enter, offer.off), (OnEnter::Set(named(switch), value.into()), None), "{query}");
        }
        assert!(only("limit 12 apples").unwrap().off.is_some(), "it says what is wrong");
        assert!(only("limit").is_none() && only("limit ").is_none() && only("AMP bf16").is_none());
    }
}
