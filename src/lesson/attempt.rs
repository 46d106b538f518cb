//! Tries for a goal: the outcome of a try, and the lesson's own solution.

use std::sync::Arc;

use super::action::LessonAction;
use super::answer::{MeasuredAnswer, Unclear};
use super::goal::{Goal, reached};
use super::told::Try;
use crate::model::{RunSettings, Setting};
use crate::session::Reach;

/// The state of the run when a goal was set, or at the last try.
#[derive(Clone, Debug, Default)]
pub(super) struct SetOut {
    /// The switches when the goal was set.
    pub settings: Arc<RunSettings>,
    /// Number of requests that had failed before the try.
    pub failures: u64,
}

impl SetOut {
    /// The lesson's own solution: it begins by setting the switches back to their values when the goal was set.
    pub fn solution(&self, goal: &Goal) -> Vec<LessonAction> {
        let back = goal.allow.iter().filter_map(|switch| {
            let was = &self.settings.get(switch.word())?.value;
            // Values that are typed, such as a limit or settings, can't be read back from the way they are shown.
            (switch.reach() != Reach::Written).then(|| LessonAction::Set(*switch, Arc::clone(was)))
        });
        let is_set = |action: &LessonAction| goal.solution.iter().any(|own| action.sets_the_same(own));
        back.filter(|action| !is_set(action)).chain(goal.solution.iter().cloned()).collect()
    }

    /// The try in words; `now` are the current switches.
    pub fn told(&self, now: &RunSettings, measured: &Result<MeasuredAnswer, Unclear>) -> Try {
        let outcome = match measured {
            Ok(MeasuredAnswer::Reached { cost }) => reached(*cost),
            Ok(_) => reached(None),
            Err(unclear) => unclear.to_string(),
        };
        Try { settings: changes(&self.settings, now), outcome }
    }
}

/// The switches that have changed, with their new values.
fn changes(before: &RunSettings, now: &RunSettings) -> String {
    let is_other = |setting: &&Setting| before.get(&setting.switch).is_some_and(|was| was.value != setting.value);
    let changed: Vec<String> =
        now.0.iter().filter(is_other).map(|setting| format!("{} {}", setting.switch, setting.value)).collect();
    if changed.is_empty() { "nothing changed".to_owned() } else { changed.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Condition, Scope};
    use crate::session::{LabSpec, Scene, Setup, Switch, settings};
    use crate::train::Config;
    use crate::workload::Catalog;

    #[test]
    fn a_way_to_a_goal_begins_with_the_switches_that_it_was_set_with() {
        let [ckpt, accum, limit] = ["ckpt", "accum", "limit"].map(|word| Switch::named(word).unwrap());
        let spec = LabSpec::new(Catalog::with_user_workloads(None).entry("gpt-mini").unwrap());
        let mut setup = Setup::new(Config::new(8));
        ckpt.set(&mut setup, "every:3").unwrap();
        let standing = settings(&setup, &setup, &Scene::of(&spec, &setup.config));
        let set_out = SetOut { settings: standing.into(), failures: 0 };
        let goal = Goal {
            when: Condition::parse("steps > 0", &Scope::NOW).unwrap(),
            allow: vec![ckpt, accum, limit],
            tries: 1,
            solution: vec![LessonAction::Set(accum, "4".into())],
            cost: None,
        };
        let way = [LessonAction::Set(ckpt, "every:3".into()), LessonAction::Set(accum, "4".into())];
        assert_eq!(set_out.solution(&goal), way, "a value that no list has goes back too, and what is written stays");
    }
}
