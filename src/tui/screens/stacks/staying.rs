//! Which parts of the tree stay from step to step.

use crate::model::{Evidence, Finding, KeptLine, Node};
use crate::tui::stage::Stage;
use crate::units::Bytes;

/// The lines whose blocks stay from step to step, as findings name them.
pub(super) fn leaking(stage: &Stage<'_>) -> Vec<KeptLine> {
    let lines = |finding: &Finding| match &finding.evidence {
        Evidence::Leak { lines, .. } => lines.clone(),
        _ => Vec::new(),
    };
    stage.findings().iter().flat_map(lines).collect()
}

/// What a step leaves behind of a node that is one of these lines: by its name, or by the place that `layer_norm (main.py:96)` ends with.
pub(super) fn leaks(node: &Node, lines: &[KeptLine]) -> Option<Bytes> {
    let place = |line: &str| Some(line.rsplit_once(" (")?.1.strip_suffix(')')?.to_owned());
    let is_place = |place: String| node.label.strip_prefix(&*place).is_some_and(|rest| rest.starts_with(' '));
    let is_it = |kept: &&KeptLine| *node.label == *kept.line || place(&kept.line).is_some_and(is_place);
    lines.iter().find(is_it).map(|kept| kept.rise)
}
