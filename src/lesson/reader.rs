//! Parses the block of a step.

use serde::Deserialize;
use toml::Spanned;

use super::action::LessonAction;
use super::block::{Block, SourceText};
use super::error::LessonError;
use super::goal::{Cost, Goal};
use super::look::Look;
use super::question::{Choice, Form, Tolerance, fits};
use super::sketch::Sketch;
use crate::figures::{Condition, Misread, Quantity, Scale, Scope, Template};
use crate::session::Switch;
use crate::user_input::hint;

/// Number of tries for a goal that doesn't say.
const USUAL_TRIES: u32 = 3;
/// As many choices as there are digit keys.
const MOST_CHOICES: usize = 9;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Raw {
    pub r#do: Vec<SourceText>,
    pub ask: Option<SourceText>,
    pub choices: Vec<Spanned<RawChoice>>,
    pub number: Option<SourceText>,
    pub within: Option<SourceText>,
    pub unit: Option<SourceText>,
    pub goal: Option<SourceText>,
    pub allow: Vec<SourceText>,
    pub tries: Option<u32>,
    pub solution: Vec<SourceText>,
    pub cost: Option<SourceText>,
    pub par: Option<SourceText>,
    pub then: Vec<SourceText>,
    pub check: Vec<SourceText>,
    pub why: Option<SourceText>,
    pub look: Option<Look>,
    pub sketch: Option<Sketch>,
    pub hint: Option<SourceText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawChoice {
    pub text: SourceText,
    pub when: SourceText,
    pub reply: Option<SourceText>,
}

/// Parses a block.
pub(super) struct Reader<'a> {
    pub block: Block<'a>,
    /// The names of the lesson's other runs.
    pub runs: &'a [&'a str],
}

impl Reader<'_> {
    pub fn read<T>(
        &self,
        written: &SourceText,
        read: impl FnOnce(&str) -> Result<T, Misread>,
    ) -> Result<T, LessonError> {
        read(written.text()).map_err(|misread| self.block.wrong_at(written, misread.offset, misread.reason))
    }

    pub fn template(&self, written: &SourceText, scope: &Scope<'_>) -> Result<Template, LessonError> {
        self.read(written, |text| Template::parse(text.trim(), scope))
    }

    /// Checks an action: a run that it begins must be one of the lesson's.
    fn known(&self, action: LessonAction) -> Result<LessonAction, String> {
        match &action {
            LessonAction::Run(name) if !self.runs.contains(&&**name) => {
                let meant = hint(name, self.runs.iter().copied());
                Err(format!("the front matter has no table [run.{name}]{meant}"))
            }
            _ => Ok(action),
        }
    }

    pub fn actions(&self, written: &[SourceText]) -> Result<Vec<LessonAction>, LessonError> {
        let read = |written: &SourceText| {
            let action = LessonAction::parse(written.text()).and_then(|action| self.known(action));
            action.map_err(|reason| self.block.wrong_at(written, 0, reason))
        };
        written.iter().map(read).collect()
    }

    /// The possible answers. Their texts may use the figures known when the question is `asked`; their conditions may
    /// use those known afterwards.
    pub fn form(&self, raw: &Raw, asked: &Scope<'_>, scope: &Scope<'_>) -> Result<Option<Form>, LessonError> {
        let alone = |written: &Option<SourceText>, of: &str| match written {
            Some(written) => {
                Err(self.block.wrong_at(written, 0, format!("this belongs to a `{of}`, and there is none")))
            }
            None => Ok(()),
        };
        if let Some(goal) = &raw.goal {
            alone(&raw.number, "question of its own")?;
            if let [choice, ..] = &raw.choices[..] {
                let reason = "a goal has no choices; ask in a step of its own";
                return Err(self.block.wrong_at(&choice.get_ref().text, 0, reason));
            }
            return Ok(Some(Form::Goal(Box::new(self.goal(goal, raw, scope)?))));
        }
        let of_goal = raw.allow.iter().chain(&raw.solution).chain(&raw.cost).chain(&raw.par).next();
        alone(&of_goal.cloned(), "goal")?;
        let Some(number) = &raw.number else {
            alone(&raw.within, "number")?;
            alone(&raw.unit, "number")?;
            if let Some(many) = raw.choices.get(MOST_CHOICES) {
                let reason = format!("more than {MOST_CHOICES} choices; leave some out");
                return Err(self.block.wrong_at(&many.get_ref().text, 0, reason));
            }
            if let [only] = &raw.choices[..] {
                let one = &only.get_ref().text;
                return Err(self.block.wrong_at(one, 0, "one choice is no choice; write a second one"));
            }
            let choice = |raw: &Spanned<RawChoice>| {
                let raw = raw.get_ref();
                let when = self.read(&raw.when, |text| Condition::parse(text, scope))?;
                let reply = raw.reply.as_ref().map(|reply| self.template(reply, scope)).transpose()?;
                Ok(Choice { text: self.template(&raw.text, asked)?, when, reply })
            };
            let choices: Vec<Choice> = raw.choices.iter().map(choice).collect::<Result<_, _>>()?;
            return Ok((!choices.is_empty()).then_some(Form::Choices(choices)));
        };
        if !raw.choices.is_empty() {
            return Err(self.block.wrong_at(number, 0, "a question has `choices` or a `number`, not both"));
        }
        let quantity = self.read(number, |text| Quantity::parse(text, scope))?;
        let unit = match &raw.unit {
            Some(written) => {
                let wrong = |reason| self.block.wrong_at(written, 0, reason);
                let unit = Scale::read(written.text().trim()).map_err(wrong)?;
                if !fits(unit.unit(), quantity.unit()) {
                    return Err(wrong(format!("'{unit}' is no unit of {}", quantity.unit().label())));
                }
                unit
            }
            None if quantity.unit().is_bare() => Scale::ONE,
            None => {
                let reason = format!("in which unit? {} need one: unit = \"MiB\", or \"ms\"", quantity.unit().label());
                return Err(self.block.wrong_at(number, 0, reason));
            }
        };
        let within = match &raw.within {
            Some(written) => self.tolerance(written, &quantity)?,
            None => return Err(self.block.wrong_at(number, 0, "how near is right? say it: within = \"10 %\"")),
        };
        Ok(Some(Form::Number { quantity, within, unit }))
    }

    /// The goal, and how it may be reached.
    fn goal(&self, goal: &SourceText, raw: &Raw, scope: &Scope<'_>) -> Result<Goal, LessonError> {
        let when = self.read(goal, |text| Condition::parse(text, scope))?;
        let switch = |written: &SourceText| {
            let word = written.text().trim();
            Switch::named(word).ok_or_else(|| {
                let meant = hint(word, Switch::all().map(Switch::word));
                self.block.wrong_at(written, 0, format!("there is no switch '{word}'{meant}; `vramlab list` has them"))
            })
        };
        let allow: Vec<Switch> = raw.allow.iter().map(switch).collect::<Result<_, _>>()?;
        if allow.is_empty() {
            let reason = "by what? name the switches that may be set: allow = [\"amp\", \"ckpt\"]";
            return Err(self.block.wrong_at(goal, 0, reason));
        }
        let solution = self.actions(&raw.solution)?;
        let [first, ..] = &raw.solution[..] else {
            let reason = "how can it be reached? say one way: solution = [\"set ckpt on\"]";
            return Err(self.block.wrong_at(goal, 0, reason));
        };
        let allowed = |action: &LessonAction| matches!(action, LessonAction::Set(switch, _) if allow.contains(switch));
        if !solution.iter().all(allowed) {
            return Err(self.block.wrong_at(first, 0, "a solution sets switches that are allowed, and nothing else"));
        }
        if raw.then.is_empty() {
            let reason = "what does a try do? say it: then = [\"steps 3\"]";
            return Err(self.block.wrong_at(goal, 0, reason));
        }
        let cost = match (&raw.cost, &raw.par) {
            (Some(what), Some(par)) => {
                let none = Scope { marks: &[], now: false };
                let par = self.read(par, |text| Quantity::parse(text, &none))?;
                let par = par.measure(&Default::default()).map_err(|error| self.block.wrong(error.to_string()))?;
                Some(Cost { what: self.read(what, |text| Quantity::parse(text, scope))?, par })
            }
            (None, None) => None,
            (Some(one), None) | (None, Some(one)) => {
                return Err(self.block.wrong_at(
                    one,
                    0,
                    "`cost` and `par` stand together: what it costs, and how much is good",
                ));
            }
        };
        Ok(Goal { when, allow, tries: raw.tries.unwrap_or(USUAL_TRIES).max(1), solution, cost })
    }

    fn tolerance(&self, written: &SourceText, quantity: &Quantity) -> Result<Tolerance, LessonError> {
        let wrong = |reason: String| self.block.wrong_at(written, 0, reason);
        let none = Scope { marks: &[], now: false };
        let amount = self.read(written, |text| Quantity::parse(text, &none))?;
        let measured = amount.measure(&Default::default()).map_err(|error| wrong(error.to_string()))?;
        match measured.unit {
            _ if measured.value <= 0.0 => Err(wrong("a tolerance is more than nothing".to_owned())),
            crate::figures::FigureUnit::Share => Ok(Tolerance::Share(measured.value)),
            unit if fits(unit, quantity.unit()) => Ok(Tolerance::Amount(measured.value)),
            unit => Err(wrong(format!(
                "{} are measured and the tolerance is {}; write a share, such as 10 %",
                quantity.unit().label(),
                unit.label()
            ))),
        }
    }
}
