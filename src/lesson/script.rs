//! A lesson as its file describes it.

use std::collections::BTreeSet;

use super::action::LessonAction;
use super::block::Block;
use super::document::Document;
use super::error::{LessonError, LineIndex};
use super::front::Front;
use super::run::LessonRuns;
use super::step::{LessonStep, Marks, template};
use crate::device::sim::CardCatalog;
use crate::figures::{Quantity, Template};
use crate::session::DeviceChoice;
use crate::workload::Catalog;

/// A lesson.
#[derive(Clone, Debug, PartialEq)]
pub struct Lesson {
    /// Its name: the name of its file.
    pub name: String,
    /// Its title, and the runs that it uses.
    pub front: Front,
    /// The text before its first step, in Markdown.
    pub introduction: Template,
    /// Its steps, at least one.
    pub steps: Vec<LessonStep>,
    source: String,
}

impl Lesson {
    /// Parses a lesson's file.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(name: &str, source: &str) -> Result<Self, LessonError> {
        let document = Document::split(source)?;
        let front = Front::parse(&Block::new(source, &document.front))?;
        let runs: Vec<&str> = front.runs().collect();
        let mut marks = Marks::own();
        let introduction = marks.scope(|scope| template(source, &document.introduction, scope))?;
        let steps = document.sections.iter().map(|section| LessonStep::parse(source, section, &mut marks, &runs));
        let steps: Vec<LessonStep> = steps.collect::<Result<_, _>>()?;
        let begins = |action: &LessonAction, name: &str| matches!(action, LessonAction::Run(run) if **run == *name);
        let idle = front.idle(|name| steps.iter().flat_map(LessonStep::actions).any(|action| begins(action, name)));
        if let Some((at, why)) = idle {
            return Err(LineIndex(source).wrong(at, why));
        }
        Ok(Self { name: name.to_owned(), introduction, steps, front, source: source.to_owned() })
    }

    /// The lesson's runs, on its own device or on another one.
    ///
    /// # Errors
    /// If the workload or the device does not exist, or the workload does not allow what the lesson requires.
    pub fn runs(
        &self,
        catalog: &Catalog,
        cards: &CardCatalog,
        other: Option<&DeviceChoice>,
    ) -> Result<LessonRuns, LessonError> {
        self.front.specs(&self.source, catalog, cards, other)
    }

    /// Whether the lesson's statements must be true on this device.
    #[must_use]
    pub fn holds_on(&self, device: &DeviceChoice) -> bool {
        match device {
            DeviceChoice::Cpu => self.front.device() == "cpu",
            DeviceChoice::Sim(card) => self.front.device().strip_prefix("sim:") == Some(&card.name),
            DeviceChoice::Cuda(_) => false,
        }
    }

    /// Marks that no expression uses.
    #[must_use]
    pub fn unread_marks(&self) -> Vec<&str> {
        let introduction = self.introduction.quantities().flat_map(Quantity::figures).filter_map(|(mark, _)| mark);
        let read: BTreeSet<&str> = self.steps.iter().flat_map(LessonStep::marks_read).chain(introduction).collect();
        let marked = self.steps.iter().flat_map(LessonStep::actions).filter_map(|action| match action {
            LessonAction::Mark(name) => Some(&**name),
            _ => None,
        });
        let unread: BTreeSet<&str> = marked.filter(|name| !read.contains(name)).collect();
        unread.into_iter().collect()
    }

    /// Number of questions.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.steps.iter().filter(|step| step.question.is_some()).count()
    }
}
