//! The processor as a device: real arithmetic on all cores, memory in an arena of anonymous mappings.
