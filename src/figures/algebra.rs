//! What sums, products and quotients of units are, and why some are not.

use super::unit::Unit;

/// The unit of a sum, of the larger of two, of what can be compared; `None` where nothing is.
pub(super) fn sum(a: Unit, b: Unit) -> Option<Unit> {
    match (a, b) {
        _ if a == b => Some(a),
        (Unit::Number, other) | (other, Unit::Number) if other.is_bare() => Some(other),
        _ if a.is_bare() && b.is_bare() => Some(Unit::Number),
        _ => None,
    }
}

/// The unit of a product.
pub(super) fn product(a: Unit, b: Unit) -> Option<Unit> {
    match (a, b) {
        (Unit::Number, other) | (other, Unit::Number) => Some(other),
        (Unit::Share, other) | (other, Unit::Share) => Some(other),
        (Unit::Count, other) | (other, Unit::Count) => Some(other),
        (Unit::BytesPerSecond, Unit::Milliseconds) | (Unit::Milliseconds, Unit::BytesPerSecond) => Some(Unit::Bytes),
        (Unit::PerSecond, Unit::Milliseconds) | (Unit::Milliseconds, Unit::PerSecond) => Some(Unit::Count),
        _ => None,
    }
}

/// The unit of a quotient.
pub(super) fn quotient(a: Unit, b: Unit) -> Option<Unit> {
    match (a, b) {
        _ if a == b => Some(Unit::Number),
        (_, Unit::Number) => Some(a),
        (_, Unit::Count | Unit::Share) if a.is_bare() => Some(Unit::Number),
        (_, Unit::Count | Unit::Share) => Some(a),
        (Unit::Bytes, Unit::Milliseconds) => Some(Unit::BytesPerSecond),
        (Unit::Bytes, Unit::BytesPerSecond) => Some(Unit::Milliseconds),
        (Unit::Count | Unit::Number, Unit::Milliseconds) => Some(Unit::PerSecond),
        (Unit::Count | Unit::Number, Unit::PerSecond) => Some(Unit::Milliseconds),
        _ => None,
    }
}
