//! The state of the ledger: the window of its charts, the selected finding, and the sums of pools.

use std::cell::RefCell;
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use crate::model::{Evidence, Finding, Grouping, PoolTotals, Remedy, SegmentView, StrandingSegment};
use crate::source::{Move, Picture, StudyRequest, Window};

/// An action of the ledger's own keys and clicks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerAction {
    /// Switch between the step around the cursor and everything that is kept.
    Window,
    /// Select the finding this many places further on.
    Finding(i8),
    /// Select the finding with this index.
    Select(usize),
    /// Choose the next remedy of the selected finding.
    NextRemedy,
    /// Move the cursor to the place of the selected finding.
    Go,
    /// Move the cursor to the highest reserved bytes in the window.
    Peak,
}

impl LedgerAction {
    /// The word for it in settings; empty for actions that only the mouse has.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Window => "ledger-window",
            Self::Finding(places) => {
                if places < 0 {
                    "previous-finding"
                } else {
                    "next-finding"
                }
            }
            Self::NextRemedy => "next-remedy",
            Self::Go => "go-to-finding",
            Self::Peak => "ledger-peak",
            Self::Select(_) => "",
        }
    }
}

/// The state of the ledger.
#[derive(Clone, Debug, Default)]
pub struct LedgerState {
    /// True to show everything that is kept, false for the step around the cursor.
    pub whole: bool,
    /// The kind of the selected finding, because figures and order change while a lab runs.
    selected: Option<Discriminant<Evidence>>,
    /// The index of the chosen remedy.
    remedy: usize,
    summed: SumCache,
}

/// The sums of the last segments, which are reused while the segments stay the same.
#[derive(Clone, Debug, Default)]
struct SumCache(RefCell<(Arc<Vec<SegmentView>>, Arc<LedgerSums>)>);

/// Sums of segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LedgerSums {
    /// By pool and stream.
    pub pools: Vec<PoolTotals>,
    /// The segments that strand most, the worst first.
    pub worst: Vec<StrandingSegment>,
}

impl LedgerSums {
    /// More of the worst segments than a screen has rows for.
    const WORST: usize = 64;

    fn of(segments: &[SegmentView]) -> Self {
        Self { pools: PoolTotals::of(segments), worst: StrandingSegment::worst(segments, Self::WORST) }
    }
}

impl LedgerState {
    /// The study that it wants.
    pub fn wanted(&self) -> StudyRequest {
        let window = if self.whole { Window::Run } else { Window::Step };
        StudyRequest { window, grouping: Grouping::Category }
    }

    /// The index of the selected finding; the first if that one no longer exists. `None` if there are no findings.
    #[must_use]
    pub fn selected(&self, findings: &[Finding]) -> Option<usize> {
        let is_meant = |finding: &Finding| Some(discriminant(&finding.evidence)) == self.selected;
        findings.iter().position(is_meant).or(if findings.is_empty() { None } else { Some(0) })
    }

    /// The index of the chosen remedy; `None` if there is no remedy.
    #[must_use]
    pub fn meant(&self, finding: &Finding) -> Option<usize> {
        self.remedy.checked_rem(finding.remedies.len())
    }

    /// The chosen remedy of the selected finding.
    #[must_use]
    pub fn remedy<'a>(&self, findings: &'a [Finding]) -> Option<&'a Remedy> {
        let finding = findings.get(self.selected(findings)?)?;
        finding.remedies.get(self.meant(finding)?)
    }

    /// The sums of these segments.
    pub(crate) fn sums(&self, segments: &Arc<Vec<SegmentView>>) -> Arc<LedgerSums> {
        let mut kept = self.summed.0.borrow_mut();
        if !Arc::ptr_eq(&kept.0, segments) {
            *kept = (Arc::clone(segments), Arc::new(LedgerSums::of(segments)));
        }
        Arc::clone(&kept.1)
    }

    /// Performs an action. Returns where to move the cursor, if anywhere.
    pub fn act(&mut self, action: LedgerAction, picture: &Picture) -> Option<Move> {
        let findings = &*picture.findings();
        match action {
            LedgerAction::Window => self.whole = !self.whole,
            LedgerAction::Finding(places) => {
                let now = self.selected(findings)?;
                let last = findings.len().saturating_sub(1);
                self.select(findings, now.saturating_add_signed(isize::from(places)).min(last));
            }
            LedgerAction::Select(place) => self.select(findings, place),
            LedgerAction::NextRemedy => {
                let finding = findings.get(self.selected(findings)?)?;
                self.remedy = (self.meant(finding)? + 1) % finding.remedies.len();
            }
            LedgerAction::Go => {
                let finding = findings.get(self.selected(findings)?)?;
                let position = finding.position?;
                // A failure is known only after its event.
                let failed = matches!(finding.evidence, Evidence::OutOfMemory { .. });
                return Some(Move::To(position + u64::from(failed)));
            }
            LedgerAction::Peak => {
                let moments = picture.study.as_ref()?.moments.iter().rev();
                return moments.max_by_key(|moment| moment.reserved).map(|moment| Move::To(moment.position));
            }
        }
        None
    }

    fn select(&mut self, findings: &[Finding], place: usize) {
        let meant = findings.get(place).map(|finding| discriminant(&finding.evidence));
        if meant != self.selected {
            self.remedy = 0;
        }
        self.selected = meant;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FreeMemoryMoment, Level, View};
    use crate::units::Bytes;

    fn finding(evidence: Evidence, position: Option<u64>, remedies: &[Remedy]) -> Finding {
        Finding { level: Level::Info, evidence, remedies: remedies.to_vec(), position, gain: None }
    }

    fn rounding(bytes: u64) -> Finding {
        let evidence = Evidence::Rounding { bytes: Bytes(bytes), allocated: Bytes(100) };
        finding(evidence, None, &[Remedy::EXPANDABLE, Remedy::HigherLimit])
    }

    fn releasable(position: Option<u64>) -> Finding {
        let evidence = Evidence::Releasable { bytes: Bytes(5), reserved: Bytes(100), when: FreeMemoryMoment::Step };
        finding(evidence, position, &[Remedy::EmptyCache])
    }

    fn with(findings: Vec<Finding>) -> Picture {
        Picture { view: Arc::new(View { findings, ..View::default() }), ..Picture::default() }
    }

    #[test]
    fn the_selected_finding_stays_selected_while_its_figures_and_its_place_change() {
        let mut state = LedgerState::default();
        let picture = with(vec![releasable(None), rounding(7)]);
        assert_eq!(state.selected(&picture.view.findings), Some(0));
        state.act(LedgerAction::Finding(1), &picture);
        state.act(LedgerAction::Finding(1), &picture);
        assert_eq!(state.selected(&picture.view.findings), Some(1), "no further than there are");
        assert_eq!(state.selected(&[rounding(9), releasable(None)]), Some(0));
        assert_eq!(state.selected(&[releasable(None)]), Some(0), "it is no more");
        assert_eq!(state.selected(&[]), None);
    }

    #[test]
    fn its_place_is_gone_to_where_it_has_one() {
        let mut state = LedgerState::default();
        let picture = with(vec![rounding(7), releasable(Some(41))]);
        assert_eq!(state.act(LedgerAction::Go, &picture), None);
        state.act(LedgerAction::Select(1), &picture);
        assert_eq!(state.act(LedgerAction::Go, &picture), Some(Move::To(41)));
    }

    #[test]
    fn remedies_go_round_and_begin_anew_with_another_finding() {
        let mut state = LedgerState::default();
        let picture = with(vec![rounding(7), releasable(None)]);
        let findings = &picture.view.findings;
        assert_eq!(state.remedy(findings), Some(&Remedy::EXPANDABLE));
        state.act(LedgerAction::NextRemedy, &picture);
        assert_eq!(state.remedy(findings), Some(&Remedy::HigherLimit));
        state.act(LedgerAction::Finding(1), &picture);
        assert_eq!(state.remedy(findings), Some(&Remedy::EmptyCache));
        state.act(LedgerAction::Finding(-1), &picture);
        assert_eq!(state.remedy(findings), Some(&Remedy::EXPANDABLE));
        assert_eq!(state.remedy(&[]), None);
    }

    #[test]
    fn segments_are_added_up_anew_when_they_are_others() {
        let mut lab = crate::model::Lab::new();
        let state = LedgerState::default();
        for event in crate::synthetic::training_run() {
            lab.apply(&event);
        }
        let segments = lab.view().segments;
        let first = state.sums(&segments);
        assert!(Arc::ptr_eq(&first, &state.sums(&segments)));
        assert_eq!(first.pools, PoolTotals::of(&segments));
        assert_eq!(*state.sums(&Arc::default()), LedgerSums::default());
        assert_eq!(*state.sums(&segments), *first);
    }
}
