//! What a history's file can't tell, in words.

use super::beginning::Beginning;
use crate::Begins;
use crate::types::{Action, Snapshot, StackId};
use vramlab_allocator::Settings;

impl Beginning {
    /// How the history begins, as a sentence without a period; `None` if it begins with the first allocation.
    pub fn sentence(&self) -> Option<String> {
        let (blocks, held, reserved) = self.held();
        let there = match blocks {
            0 => format!("{reserved} of free segments were there already"),
            1 => format!("1 block ({held}) in {reserved} was there already"),
            _ => format!("{blocks} blocks ({held}) in {reserved} were there already"),
        };
        match self.begins {
            Begins::First => None,
            Begins::Late => Some(format!("recording began late: {there}, and who took them is not recorded")),
            Begins::Ring => Some(format!(
                "the oldest entries were overwritten: when the rest begins, {there}; give a larger max_entries to see more"
            )),
            Begins::Nowhere => Some(
                "it holds no history, only memory as it was at the end; call \
                 torch.cuda.memory._record_memory_history() for one"
                    .to_owned(),
            ),
        }
    }

    /// What can't be known, as clauses.
    pub fn missing(&self, snapshot: &Snapshot, device: usize, settings: &Settings) -> Vec<String> {
        let trace = snapshot.device_trace(device);
        let mut missing = Vec::new();
        let (blocks, held, reserved) = self.held();
        match self.begins {
            Begins::First => {}
            Begins::Late => missing.push("what happened before recording began".to_owned()),
            Begins::Ring => missing.push(format!("what happened before the last {} entries", trace.len())),
            Begins::Nowhere => missing.push("what happened (there is no history)".to_owned()),
        }
        if self.begins != Begins::First && blocks > 0 {
            let nameless = self.space.blocks().filter(|(_, held)| held.stack == StackId::EMPTY).count();
            missing.push(format!(
                "who took {nameless} of the {blocks} blocks ({held} in {reserved}) that were there before"
            ));
        }
        if self.begins != Begins::First && settings.garbage_collection_threshold > 0.0 {
            missing.push(
                "how long free blocks had not been used when it begins (garbage is collected by that)".to_owned(),
            );
        }
        if self.guessed_segments > 0 {
            missing.push(format!("the segments of {} blocks", self.guessed_segments));
        }
        if self.contradictions > 0 {
            missing.push(format!(
                "which is true where entries and the segments at the end disagree ({})",
                self.contradictions
            ));
        }
        let asks = |action| matches!(action, Action::Alloc | Action::Oom);
        let mut asked = trace.iter().filter(|entry| asks(entry.action)).peekable();
        if asked.peek().is_some() && asked.all(|entry| entry.stack == StackId::EMPTY) {
            missing.push("who asked (it was recorded without stacks)".to_owned());
        }
        if trace.last().is_some_and(|entry| entry.time.0 == 0) {
            missing.push("when things happened (entries have no times)".to_owned());
        }
        missing
    }
}
