//! What a lesson runs, and where.

use color_eyre::eyre::{Result, eyre};

use crate::cli::spec::{cards, workloads};
use crate::lesson::{Lesson, LessonRuns};
use crate::session::{DeviceChoice, LabSpec};

/// The runs of a lesson.
pub(super) fn runs_of(lesson: &Lesson, other: Option<&DeviceChoice>) -> Result<LessonRuns> {
    lesson.runs(&workloads(), &cards(), other).map_err(|error| eyre!("{}: {error}", lesson.name))
}

/// Describes where a run takes place.
pub(super) fn place_of(spec: &LabSpec) -> String {
    match &spec.device {
        DeviceChoice::Cpu => format!("{} on cpu", spec.workload.name),
        DeviceChoice::Cuda(ordinal) => format!("{} on cuda:{ordinal}", spec.workload.name),
        DeviceChoice::Sim(card) => format!("{} on sim:{} (simulated)", spec.workload.name, card.name),
    }
}
