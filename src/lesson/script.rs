//! A lesson as its file has it.

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
    /// Its name: that of its file.
    pub name: String,
    /// What it is called, and what it runs.
    pub front: Front,
    /// What is shown before its first step, in Markdown.
    pub introduction: Template,
    /// Its steps; there is at least one.
    pub steps: Vec<LessonStep>,
    source: String,
}

impl Lesson {
    /// Reads a lesson's file.
    ///
    /// # Errors
    /// What is wrong first, and where.
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

    /// What it runs, where its figures hold; or on another device.
    ///
    /// # Errors
    /// Where there is no such workload or device, or the workload can't be as the lesson wants it.
    pub fn runs(
        &self,
        catalog: &Catalog,
        cards: &CardCatalog,
        other: Option<&DeviceChoice>,
    ) -> Result<LessonRuns, LessonError> {
        self.front.specs(&self.source, catalog, cards, other)
    }

    /// Whether what the lesson says must hold on this device.
    #[must_use]
    pub fn holds_on(&self, device: &DeviceChoice) -> bool {
        match device {
            DeviceChoice::Cpu => self.front.device() == "cpu",
            DeviceChoice::Sim(card) => self.front.device().strip_prefix("sim:") == Some(&card.name),
            DeviceChoice::Cuda(_) => false,
        }
    }

    /// Marks that nothing speaks of.
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

    /// Questions that can be answered.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.steps.iter().filter(|step| step.question.is_some()).count()
    }
}
