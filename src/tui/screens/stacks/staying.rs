//! The parts of the tree that stay from step to step.

use crate::model::{Evidence, Finding, KeptLine, Node};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// The lines whose blocks stay from step to step, according to findings.
pub(super) fn leaking(stage: &Stage<'_>) -> Vec<KeptLine> {
    let lines = |finding: &Finding| match &finding.evidence {
        Evidence::Leak { lines, .. } => lines.clone(),
        _ => Vec::new(),
    };
    stage.findings().iter().flat_map(lines).collect()
}

/// The bytes that each step leaves behind at a node that is one of these lines: by its name, or by the place at the end
/// of `layer_norm (main.py:96)`.
pub(super) fn leaks(node: &Node, lines: &[KeptLine]) -> Option<Bytes> {
    let place = |line: &str| Some(line.rsplit_once(" (")?.1.strip_suffix(')')?.to_owned());
    let is_place = |place: String| node.label.strip_prefix(&*place).is_some_and(|rest| rest.starts_with(' '));
    let is_it = |kept: &&KeptLine| *node.label == *kept.line || place(&kept.line).is_some_and(is_place);
    lines.iter().find(is_it).map(|kept| kept.rise)
}
