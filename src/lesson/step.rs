//! A step of a lesson: its texts, actions, question, checks and explanation.

use super::action::{LessonAction, OWN_MARKS};
use super::block::Block;
use super::document::Section;
use super::error::{LessonError, LineIndex};
use super::look::Look;
use super::question::{Form, Question};
use super::reader::{Raw, Reader};
use super::sketch::Sketch;
use crate::figures::{Condition, Quantity, Scope, Template};

/// A step of a lesson.
#[derive(Clone, Debug, PartialEq)]
pub struct LessonStep {
    /// Its heading.
    pub title: String,
    /// The text that is shown after the first actions, in Markdown.
    pub prose: Template,
    /// The actions before the question.
    pub first: Vec<LessonAction>,
    /// The question.
    pub question: Option<Question>,
    /// A hint, shown on request.
    pub hint: Option<Template>,
    /// The actions after the answer.
    pub then: Vec<LessonAction>,
    /// The conditions that must hold after those actions.
    pub checks: Vec<Condition>,
    /// The explanation of the outcome.
    pub why: Option<Template>,
    /// The text at the end, in Markdown.
    pub after: Template,
    /// The screen that shows the outcome best.
    pub look: Option<Look>,
    /// The picture beside the question, if the lab itself would reveal the answer.
    pub sketch: Option<Sketch>,
}

/// The marks that expressions may use at this place in the lesson.
#[derive(Clone, Debug)]
pub(super) struct Marks(Vec<String>);

impl Marks {
    /// The marks that every lesson has.
    pub fn own() -> Self {
        Self(OWN_MARKS.map(str::to_owned).into())
    }

    fn follow(&mut self, actions: &[LessonAction]) {
        for action in actions {
            if let LessonAction::Mark(name) = action
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

impl LessonStep {
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
                return Err(block.wrong("a question needs `choices`, a `number` that is measured, or a `goal`"));
            }
            (None, Some(_)) => return Err(block.wrong("there is an answer and no question; write one: ask = \"…?\"")),
        };
        if question.is_none() && hint.is_some() {
            return Err(block.wrong("a hint helps with a question, and there is none"));
        }
        if question.is_none() && raw.sketch.is_some() {
            return Err(block.wrong("a sketch stands beside a question, and there is none"));
        }
        let title = source[section.title.clone()].trim().to_owned();
        if title.is_empty() {
            return Err(LineIndex(source).wrong(section.title.start, "a step has a title; write it after ##"));
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
            sketch: raw.sketch,
        })
    }

    /// Whether the lab shows the outcome before the question is answered, because only marks follow the question.
    #[must_use]
    pub fn asks_what_is_measured(&self) -> bool {
        let is_goal = |question: &Question| matches!(question.form, Form::Goal(_));
        self.question.as_ref().is_some_and(|question| !is_goal(question))
            && self.then.iter().all(|action| matches!(action, LessonAction::Mark(_)))
    }

    /// All marks that the step uses.
    pub(super) fn marks_read(&self) -> Vec<&str> {
        let texts = [Some(&self.prose), self.hint.as_ref(), self.why.as_ref(), Some(&self.after)];
        let mut texts: Vec<&Template> = texts.into_iter().flatten().collect();
        let mut conditions: Vec<&Condition> = self.checks.iter().collect();
        let mut quantities: Vec<&Quantity> = Vec::new();
        if let Some(question) = &self.question {
            texts.push(&question.ask);
            match &question.form {
                Form::Choices(choices) => {
                    conditions.extend(choices.iter().map(|choice| &choice.when));
                    texts.extend(choices.iter().map(|choice| &choice.text));
                    texts.extend(choices.iter().filter_map(|choice| choice.reply.as_ref()));
                }
                Form::Number { quantity, .. } => quantities.push(quantity),
                Form::Goal(goal) => {
                    conditions.push(&goal.when);
                    quantities.extend(goal.cost.iter().map(|cost| &cost.what));
                }
            }
        }
        quantities.extend(texts.into_iter().flat_map(Template::quantities));
        let read = quantities.into_iter().flat_map(Quantity::figures);
        read.chain(conditions.into_iter().flat_map(Condition::figures)).filter_map(|(mark, _)| mark).collect()
    }

    /// All actions, in their order.
    pub fn actions(&self) -> impl Iterator<Item = &LessonAction> {
        self.first.iter().chain(&self.then)
    }
}

/// A Markdown text from the file itself.
pub(super) fn template(
    source: &str,
    range: &std::ops::Range<usize>,
    scope: &Scope<'_>,
) -> Result<Template, LessonError> {
    let raw = &source[range.clone()];
    let text = raw.trim();
    let skipped = raw.len() - raw.trim_start().len();
    Template::parse(text, scope)
        .map_err(|misread| LineIndex(source).wrong(range.start + skipped + misread.offset, misread.reason))
}
