//! Which parts of the tree stay from step to step.

use std::sync::Arc;

use crate::model::{Evidence, Finding, Node};
use crate::tui::stage::Stage;

/// The lines whose blocks stay from step to step, as findings name them.
pub(super) fn leaking(stage: &Stage<'_>) -> Vec<Arc<str>> {
    let lines = |finding: &Finding| match &finding.evidence {
        Evidence::Leak { lines, .. } => lines.iter().map(|kept| Arc::clone(&kept.line)).collect(),
        _ => Vec::new(),
    };
    stage.findings().iter().flat_map(lines).collect()
}

/// A node is one of these lines: by its name, or by the place that `layer_norm (main.py:96)` ends with.
pub(super) fn leaks(node: &Node, lines: &[Arc<str>]) -> bool {
    let place = |line: &str| Some(line.rsplit_once(" (")?.1.strip_suffix(')')?.to_owned());
    let is_place = |place: String| node.label.strip_prefix(&*place).is_some_and(|rest| rest.starts_with(' '));
    lines.iter().any(|line| *node.label == **line || place(line).is_some_and(is_place))
}
