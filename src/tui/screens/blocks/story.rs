//! The birth and death of a block, in words.

use crate::model::{BlockView, OpRun, Study};
use crate::source::SourceKind;
use crate::tui::stage::Stage;
use crate::units::Address;

/// The source of such sentences at one moment.
pub(super) struct BlockStory<'a> {
    stage: &'a Stage<'a>,
    study: Option<&'a Study>,
    position: u64,
}

impl<'a> BlockStory<'a> {
    pub fn new(stage: &'a Stage<'a>) -> Self {
        Self { stage, study: stage.picture.study.as_deref(), position: stage.shown.position }
    }

    fn is_snapshot(&self) -> bool {
        matches!(self.stage.picture.kind, SourceKind::Snapshot(_))
    }

    /// `step 41, forward · 812 events ago`.
    pub fn born(&self, block: &BlockView) -> String {
        if let Some(reading) = &self.stage.picture.reading {
            return reading.words();
        }
        let ago = self.position.saturating_sub(block.born);
        let ago = if ago == 1 { "1 event ago".to_owned() } else { format!("{ago} events ago") };
        if self.is_snapshot() {
            return ago;
        }
        let history = &self.stage.picture.history;
        let step = match history.step_at(block.born) {
            _ if block.born < self.stage.picture.extent.first => return "before the events kept".to_owned(),
            None => return "before the first step".to_owned(),
            Some((step, 1)) => format!("step {step}"),
            Some((step, steps)) => format!("step {step}–{}", step + steps - 1),
        };
        let study = self.study.filter(|study| (study.begin..study.end).contains(&block.born));
        match study.and_then(|study| study.phase_at(block.born)) {
            Some(phase) => format!("{step}, {} · {ago}", phase.label()),
            None => format!("{step} · {ago}"),
        }
    }

    /// `backward, blocks.3.attn linear · in 97 events`, or why it can't be known.
    pub fn dies(&self, block: &BlockView, address: Address) -> String {
        if block.pending {
            return "freed; waits for another stream".to_owned();
        }
        if let Some(reading) = &self.stage.picture.reading {
            return reading.words();
        }
        let Some(study) = self.study else {
            return match self.stage.picture.studying {
                Some(part) => format!("reading the events … {:.0} %", 100.0 * part),
                None => "no step is known yet".to_owned(),
            };
        };
        if self.position > study.end {
            let lived = study.life_of(address, study.end).is_some_and(|life| life.born == block.born);
            return if lived { "outlived the last step".to_owned() } else { "unknown: its step isn't over".to_owned() };
        }
        match study.life_of(address, self.position) {
            Some(life) => match life.freed {
                Some(freed) => self.death(study, freed),
                None if self.is_snapshot() => "after the recording ends".to_owned(),
                None if self.is_under_way(study) => "unknown: its step isn't over".to_owned(),
                None => "outlives the step".to_owned(),
            },
            None if study.cut => "unknown: too many blocks".to_owned(),
            None => "not in the events kept".to_owned(),
        }
    }

    fn death(&self, study: &Study, freed: u64) -> String {
        let phase = study.phase_at(freed).map(|phase| phase.label().to_owned());
        let op = study.op_at(freed).map(|run: &OpRun| study.names.get(run.name).to_owned());
        let ahead = match (freed + 1).saturating_sub(self.position) {
            0 | 1 => "next".to_owned(),
            events => format!("in {events} events"),
        };
        let place: Vec<String> = [phase, op].into_iter().flatten().filter(|word| !word.is_empty()).collect();
        if place.is_empty() { ahead } else { format!("{} · {ahead}", place.join(", ")) }
    }

    /// True if the studied step goes on beyond what is known of it.
    fn is_under_way(&self, study: &Study) -> bool {
        let history = &self.stage.picture.history;
        let open = history.columns() == 1 || history.ends_in_part(0);
        open && history.begin_of(u64::MAX, 0).is_some_and(|begin| begin < study.end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::drawing::theme::{ColorTier, ThemeCatalog};
    use crate::model::{Event, EventKind, Grouping, Lab, View};
    use crate::source::{Cursor, Extent, Picture};
    use crate::synthetic;
    use crate::tui::hold::Hold;
    use crate::tui::states::ScreenStates;

    /// Calls `told` for every block at a position of the synthetic run, with a study of the step around it.
    fn told<T>(
        position: usize,
        events: &[Event],
        study: bool,
        tell: impl Fn(&BlockStory<'_>, &BlockView, Address) -> T,
    ) -> Vec<T> {
        let is_begin = |event: &Event| matches!(event.kind, EventKind::StepBegin { .. });
        let begin = events[..position].iter().rposition(is_begin).unwrap();
        let end = events[position..].iter().position(is_begin).map_or(events.len(), |after| position + after);
        let mut before = Lab::new();
        events[..begin].iter().for_each(|event| before.apply(event));
        let mut lab = before.clone();
        events[begin..position].iter().for_each(|event| lab.apply(event));
        let view = lab.view();
        let mut whole = lab.clone();
        events[position..].iter().for_each(|event| whole.apply(event));
        let replay = |each: &mut dyn FnMut(u64, &Event)| {
            (begin as u64..).zip(&events[begin..end]).for_each(|(at, event)| each(at, event));
        };
        let study = study.then(|| {
            let range = begin as u64..end as u64;
            Arc::new(Study::of(range, before.memory(), whole.names(), Grouping::Category, replay))
        });
        let picture = Picture {
            view: Arc::new(View { position: position as u64, ..view }),
            history: Arc::clone(&whole.view().history),
            cursor: Cursor::At(position as u64),
            extent: Extent { end: events.len() as u64, ..Extent::default() },
            study,
            ..Picture::default()
        };
        let (theme, _) = ThemeCatalog::default().load("dark", ColorTier::True).unwrap();
        let states = ScreenStates::default();
        let stage = Stage {
            picture: &picture,
            shown: &picture.view,
            ghost: None,
            theme: &theme,
            keys: crate::tui::keymap::standard(),
            states: &states,
            scroll: 0,
            pressed: &[],
            presenting: false,
            loud: false,
            news: false,
            hold: Hold::Nothing,
            aim: None,
            allowed: None,
        };
        let story = BlockStory::new(&stage);
        let segments = picture.view.segments.iter();
        let blocks = segments
            .flat_map(|segment| segment.blocks.iter().map(|block| (segment.address.offset(block.offset), block)));
        blocks.map(|(address, block)| tell(&story, block, address)).collect()
    }

    #[test]
    fn a_block_dies_where_it_is_given_back_or_outlives_the_step() {
        let events = synthetic::training_run();
        let (mut dead, mut outlived) = (0, 0);
        for position in (events.len() / 2..events.len() * 2 / 3).step_by(37) {
            let rest = &events[position..];
            let end = rest.iter().position(|event| matches!(event.kind, EventKind::StepBegin { .. })).unwrap();
            for (address, pending, words) in
                told(position, &events, true, |story, block, at| (at, block.pending, story.dies(block, at)))
            {
                let given_back =
                    |event: &Event| matches!(event.kind, EventKind::FreeRequested { address: at } if at == address);
                match rest[..end].iter().position(given_back) {
                    _ if pending => assert_eq!(words, "freed; waits for another stream"),
                    Some(0) => assert!(words.ends_with("next"), "{words}"),
                    Some(after) => {
                        assert!(words.ends_with(&format!("in {} events", after + 1)), "{words}: {after}");
                        dead += 1;
                    }
                    None => {
                        assert_eq!(words, "outlives the step");
                        outlived += 1;
                    }
                }
            }
        }
        assert!(dead > 20 && outlived > 20, "{dead} {outlived}");
    }

    #[test]
    fn a_block_is_born_in_a_step_and_a_phase_where_those_are_known() {
        let events = synthetic::training_run();
        let position = events.len() * 2 / 3;
        let born = told(position, &events, true, |story, block, _| (block.born, story.born(block)));
        for (at, words) in &born {
            let ago = position as u64 - at;
            assert!(words.ends_with(&format!("· {ago} events ago")) || words == "before the first step", "{words}");
        }
        let begins_with = |words: &str| born.iter().filter(|(_, told)| told.starts_with(words)).count();
        assert!(begins_with("before the first step") > 0, "{born:?}");
        assert!(
            born.iter().any(|(_, told)| told.contains(", forward · ") || told.contains(", backward · ")),
            "{born:?}"
        );
        let unknown = told(position, &events, false, |story, block, at| story.dies(block, at));
        assert!(unknown.iter().all(|words| words == "no step is known yet" || words.starts_with("freed")));
    }
}
