//! A step of a lesson: what is told, done, asked, checked and explained.

use serde::Deserialize;
use toml::Spanned;

use super::action::{Action, OWN_MARKS};
use super::block::{Block, Written};
use super::document::Section;
use super::error::{LessonError, Places};
use super::question::{Choice, Form, Question, Tolerance, fits};
use crate::figures::{Condition, Misread, Quantity, Scale, Scope, Template};
use crate::given::hint;

/// A step of a lesson.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its heading.
    pub title: String,
    /// What is told once its first actions are done, in Markdown.
    pub prose: Template,
    /// What is done first.
    pub first: Vec<Action>,
    /// What is asked then.
    pub question: Option<Question>,
    /// A help for whoever has no idea.
    pub hint: Option<Template>,
    /// What is done after the answer.
    pub then: Vec<Action>,
    /// What must hold after that.
    pub checks: Vec<Condition>,
    /// Why what came out came out.
    pub why: Option<Template>,
    /// What is told at the end, in Markdown.
    pub after: Template,
    /// The screen that shows it best.
    pub look: Option<Look>,
}

/// A screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Look {
    /// The lab itself.
    Lab,
    /// Segments and blocks.
    Blocks,
    /// One step, event by event.
    Step,
    /// Ops and modules.
    Ops,
    /// Configurations side by side.
    Compare,
    /// The accounts of reserved memory.
    Ledger,
    /// Memory by stacks.
    Stacks,
}

impl Look {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Lab, Self::Blocks, Self::Step, Self::Ops, Self::Compare, Self::Ledger, Self::Stacks];

    /// The word for it in a lesson's file.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Lab => "lab",
            Self::Blocks => "blocks",
            Self::Step => "step",
            Self::Ops => "ops",
            Self::Compare => "compare",
            Self::Ledger => "ledger",
            Self::Stacks => "stacks",
        }
    }
}

/// As many as there are keys for.
const MOST_CHOICES: usize = 9;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Raw {
    r#do: Vec<Written>,
    ask: Option<Written>,
    choices: Vec<Spanned<RawChoice>>,
    number: Option<Written>,
    within: Option<Written>,
    unit: Option<Written>,
    then: Vec<Written>,
    check: Vec<Written>,
    why: Option<Written>,
    look: Option<Look>,
    hint: Option<Written>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChoice {
    text: Written,
    when: Written,
}

/// Moments that expressions may speak of, as far as the lesson has come.
#[derive(Clone, Debug)]
pub(super) struct Marks(Vec<String>);

impl Marks {
    /// Those that every lesson has.
    pub fn own() -> Self {
        Self(OWN_MARKS.map(str::to_owned).into())
    }

    fn follow(&mut self, actions: &[Action]) {
        for action in actions {
            if let Action::Mark(name) = action
                && !self.0.iter().any(|known| **known == **name)
            {
                self.0.push(name.as_ref().to_owned());
            }
        }
    }

    /// Runs `read` with these marks in scope.
    pub fn scope<T>(&self, read: impl FnOnce(&Scope<'_>) -> T) -> T {
        let marks: Vec<&str> = self.0.iter().map(String::as_str).collect();
        read(&Scope { marks: &marks, now: true })
    }
}

impl Step {
    pub(super) fn parse(
        source: &str,
        section: &Section,
        marks: &mut Marks,
        runs: &[&str],
    ) -> Result<Self, LessonError> {
        let (block, raw) = match &section.block {
            Some(range) => {
                let block = Block::new(source, range);
                (block, block.parse::<Raw>()?)
            }
            None => (Block::new(source, &section.before), Raw::default()),
        };
        let reader = Reader { block, runs };
        let first = reader.actions(&raw.r#do)?;
        marks.follow(&first);
        let prose = marks.scope(|scope| template(source, &section.before, scope))?;
        let ask = marks.scope(|scope| raw.ask.as_ref().map(|ask| reader.template(ask, scope)).transpose())?;
        let hint = marks.scope(|scope| raw.hint.as_ref().map(|hint| reader.template(hint, scope)).transpose())?;
        let then = reader.actions(&raw.then)?;
        let asked = marks.clone();
        marks.follow(&then);
        let form = asked.scope(|asked| marks.scope(|scope| reader.form(&raw, asked, scope)))?;
        let question = match (ask, form) {
            (Some(ask), Some(form)) => Some(Question { ask, form }),
            (None, None) => None,
            (Some(_), None) => {
                return Err(block.wrong("a question needs `choices`, or a `number` that is measured"));
            }
            (None, Some(_)) => return Err(block.wrong("there is an answer and no question; write one: ask = \"…?\"")),
        };
        if question.is_none() && hint.is_some() {
            return Err(block.wrong("a hint helps with a question, and there is none"));
        }
        let title = source[section.title.clone()].trim().to_owned();
        if title.is_empty() {
            return Err(Places(source).wrong(section.title.start, "a step has a title; write it behind ##"));
        }
        Ok(Self {
            title,
            prose,
            first,
            question,
            hint,
            then,
            checks: marks.scope(|scope| {
                raw.check
                    .iter()
                    .map(|check| reader.read(check, |text| Condition::parse(text, scope)))
                    .collect::<Result<_, _>>()
            })?,
            why: marks.scope(|scope| raw.why.as_ref().map(|why| reader.template(why, scope)).transpose())?,
            after: marks.scope(|scope| template(source, &section.after, scope))?,
            look: raw.look,
        })
    }

    /// Whether the lab shows what came out before anybody has answered: nothing but marks is done after the question.
    #[must_use]
    pub fn asks_what_is_measured(&self) -> bool {
        self.question.is_some() && self.then.iter().all(|action| matches!(action, Action::Mark(_)))
    }

    /// What is done, first and then.
    pub fn actions(&self) -> impl Iterator<Item = &Action> {
        self.first.iter().chain(&self.then)
    }
}

/// Reads what stands in a block.
struct Reader<'a> {
    block: Block<'a>,
    /// What the lesson's other runs are called.
    runs: &'a [&'a str],
}

impl Reader<'_> {
    fn read<T>(&self, written: &Written, read: impl FnOnce(&str) -> Result<T, Misread>) -> Result<T, LessonError> {
        read(written.text()).map_err(|misread| self.block.wrong_at(written, misread.offset, misread.reason))
    }

    fn template(&self, written: &Written, scope: &Scope<'_>) -> Result<Template, LessonError> {
        self.read(written, |text| Template::parse(text.trim(), scope))
    }

    /// An action that can be done: a run that it begins is one of the lesson's.
    fn known(&self, action: Action) -> Result<Action, String> {
        match &action {
            Action::Run(name) if !self.runs.contains(&&**name) => {
                let meant = hint(name, self.runs.iter().copied());
                Err(format!("the front matter has no table [run.{name}]{meant}"))
            }
            _ => Ok(action),
        }
    }

    fn actions(&self, written: &[Written]) -> Result<Vec<Action>, LessonError> {
        let read = |written: &Written| {
            let action = Action::parse(written.text()).and_then(|action| self.known(action));
            action.map_err(|reason| self.block.wrong_at(written, 0, reason))
        };
        written.iter().map(read).collect()
    }

    /// What can be answered: its words may speak of what is known when it is `asked`, its measures of what came out.
    fn form(&self, raw: &Raw, asked: &Scope<'_>, scope: &Scope<'_>) -> Result<Option<Form>, LessonError> {
        let alone = |written: &Option<Written>, of: &str| match written {
            Some(written) => {
                Err(self.block.wrong_at(written, 0, format!("this belongs to a `{of}`, and there is none")))
            }
            None => Ok(()),
        };
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
                Ok(Choice { text: self.template(&raw.text, asked)?, when })
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

    fn tolerance(&self, written: &Written, quantity: &Quantity) -> Result<Tolerance, LessonError> {
        let wrong = |reason: String| self.block.wrong_at(written, 0, reason);
        let none = Scope { marks: &[], now: false };
        let amount = self.read(written, |text| Quantity::parse(text, &none))?;
        let measured = amount.measure(&Default::default()).map_err(|error| wrong(error.to_string()))?;
        match measured.unit {
            _ if measured.value <= 0.0 => Err(wrong("a tolerance is more than nothing".to_owned())),
            crate::figures::Unit::Share => Ok(Tolerance::Share(measured.value)),
            unit if fits(unit, quantity.unit()) => Ok(Tolerance::Amount(measured.value)),
            unit => Err(wrong(format!(
                "{} are measured and the tolerance is {}; write a share, such as 10 %",
                quantity.unit().label(),
                unit.label()
            ))),
        }
    }
}

/// Markdown of the file itself.
pub(super) fn template(
    source: &str,
    range: &std::ops::Range<usize>,
    scope: &Scope<'_>,
) -> Result<Template, LessonError> {
    let raw = &source[range.clone()];
    let text = raw.trim();
    let skipped = raw.len() - raw.trim_start().len();
    Template::parse(text, scope)
        .map_err(|misread| Places(source).wrong(range.start + skipped + misread.offset, misread.reason))
}
