//! The lessons that are part of the program: `lab/lessons/*.md`.

/// By name, in the order of the alphabet; lists sort them by their front matter.
pub(super) const BUILT_IN: &[(&str, &str)] = &[];
