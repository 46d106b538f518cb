//! The lessons that are part of the program: `lab/lessons/*.md`.

/// By name, in the order of the alphabet; lists sort them by their front matter.
pub(super) const BUILT_IN: &[(&str, &str)] = &[
    ("accumulation", include_str!("../../lab/lessons/accumulation.md")),
    ("allocated-and-reserved", include_str!("../../lab/lessons/allocated-and-reserved.md")),
    ("allocator-settings", include_str!("../../lab/lessons/allocator-settings.md")),
    ("attention", include_str!("../../lab/lessons/attention.md")),
    ("caught-oom", include_str!("../../lab/lessons/caught-oom.md")),
    ("checkpointing", include_str!("../../lab/lessons/checkpointing.md")),
    ("edge-of-the-card", include_str!("../../lab/lessons/edge-of-the-card.md")),
    ("empty-cache", include_str!("../../lab/lessons/empty-cache.md")),
    ("forward-fits", include_str!("../../lab/lessons/forward-fits.md")),
    ("fragmentation", include_str!("../../lab/lessons/fragmentation.md")),
    ("get-it-under", include_str!("../../lab/lessons/get-it-under.md")),
    ("inference", include_str!("../../lab/lessons/inference.md")),
    ("leaks", include_str!("../../lab/lessons/leaks.md")),
    ("loading", include_str!("../../lab/lessons/loading.md")),
    ("lora", include_str!("../../lab/lessons/lora.md")),
    ("mixed-precision", include_str!("../../lab/lessons/mixed-precision.md")),
    ("offload", include_str!("../../lab/lessons/offload.md")),
    ("optimizers", include_str!("../../lab/lessons/optimizers.md")),
    ("out-of-memory", include_str!("../../lab/lessons/out-of-memory.md")),
    ("pinned-memory", include_str!("../../lab/lessons/pinned-memory.md")),
    ("saves-too-much", include_str!("../../lab/lessons/saves-too-much.md")),
    ("static-pool", include_str!("../../lab/lessons/static-pool.md")),
    ("variable-lengths", include_str!("../../lab/lessons/variable-lengths.md")),
    ("where-memory-goes", include_str!("../../lab/lessons/where-memory-goes.md")),
];
