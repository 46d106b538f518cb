//! How work is divided into tasks.

/// Elements that one task of a flat kernel handles.
pub(crate) const TASK: usize = 16 * 1024;

/// `n` times `nanos`.
#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
pub(crate) fn estimate(n: usize, nanos: f64) -> usize {
    (n as f64 * nanos) as usize
}
