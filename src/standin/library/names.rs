//! The names of the generated entry points, in the order of their counts.

include!(env!("VRAMLAB_NAMES"));
