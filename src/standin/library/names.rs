//! The generated entry points by name, in the order of their counts.

include!(env!("VRAMLAB_NAMES"));
