//! What a key comes to while a dialog is open.

use crate::source::Request;

/// What a key came to.
pub(crate) enum Pressed {
    /// It is not for the layer.
    Passed,
    /// The layer took it.
    Taken,
    /// The layer is done with.
    Closed,
    /// And asks for something.
    Done(Vec<Request>),
    /// Leave the program.
    Leave,
}
