//! The units of sums, products and quotients; not all of them exist.

use super::unit::FigureUnit;

/// The unit of a sum or a maximum, and of what can be compared; `None` if the units don't match.
pub(super) fn sum(a: FigureUnit, b: FigureUnit) -> Option<FigureUnit> {
    match (a, b) {
        _ if a == b => Some(a),
        (FigureUnit::Number, other) | (other, FigureUnit::Number) if other.is_bare() => Some(other),
        _ if a.is_bare() && b.is_bare() => Some(FigureUnit::Number),
        _ => None,
    }
}

/// The unit of a product.
pub(super) fn product(a: FigureUnit, b: FigureUnit) -> Option<FigureUnit> {
    match (a, b) {
        (FigureUnit::Number, other) | (other, FigureUnit::Number) => Some(other),
        (FigureUnit::Share, other) | (other, FigureUnit::Share) => Some(other),
        (FigureUnit::Count, other) | (other, FigureUnit::Count) => Some(other),
        (FigureUnit::BytesPerSecond, FigureUnit::Milliseconds)
        | (FigureUnit::Milliseconds, FigureUnit::BytesPerSecond) => Some(FigureUnit::Bytes),
        (FigureUnit::PerSecond, FigureUnit::Milliseconds) | (FigureUnit::Milliseconds, FigureUnit::PerSecond) => {
            Some(FigureUnit::Count)
        }
        _ => None,
    }
}

/// The unit of a quotient.
pub(super) fn quotient(a: FigureUnit, b: FigureUnit) -> Option<FigureUnit> {
    match (a, b) {
        _ if a == b => Some(FigureUnit::Number),
        (_, FigureUnit::Number) => Some(a),
        (_, FigureUnit::Count | FigureUnit::Share) if a.is_bare() => Some(FigureUnit::Number),
        (_, FigureUnit::Count | FigureUnit::Share) => Some(a),
        (FigureUnit::Bytes, FigureUnit::Milliseconds) => Some(FigureUnit::BytesPerSecond),
        (FigureUnit::Bytes, FigureUnit::BytesPerSecond) => Some(FigureUnit::Milliseconds),
        (FigureUnit::Count | FigureUnit::Number, FigureUnit::Milliseconds) => Some(FigureUnit::PerSecond),
        (FigureUnit::Count | FigureUnit::Number, FigureUnit::PerSecond) => Some(FigureUnit::Milliseconds),
        _ => None,
    }
}
