//! The panels of the screens, under their names in the help.

/// A part of a screen with words of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Panel {
    /// The lines at the top.
    Header,
    /// The peaks of every step.
    History,
    /// The curve of a step.
    StepCurve,
    /// The map of segments and blocks.
    Map,
    /// All ranks side by side.
    Ranks,
    /// The GPU, as the driver sees it.
    Gpu,
    /// The switches.
    Switches,
    /// The effect of a flip.
    Effect,
    /// The model's findings.
    Why,
    /// The times of a step's phases.
    StepTimes,
    /// The accounts of reserved memory.
    Accounts,
    /// The loss.
    Loss,
    /// What happened.
    Log,
    /// The selected block.
    Detail,
    /// A table of segments.
    Segments,
    /// Everything alive in a step, as stacked areas.
    Stacked,
    /// Reserved bytes and segments during a step.
    Reserved,
    /// The figures at the cursor.
    AtCursor,
    /// What ops allocated and kept.
    Ops,
    /// The outputs of modules.
    Forward,
    /// What is alive at the peak, or since a tag.
    Alive,
    /// Every configuration.
    Configurations,
    /// One step of each configuration.
    Curves,
    /// The accounts during a step.
    LedgerChart,
    /// Fragmentation during a step.
    Fragmentation,
    /// Pools and streams.
    Pools,
    /// The driver's account of the GPU.
    Driver,
    /// Segments that strand the most.
    Worst,
}

impl Panel {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "the header",
            Self::History => "history",
            Self::StepCurve => "this step",
            Self::Map => "blocks",
            Self::Ranks => "ranks",
            Self::Gpu => "GPU",
            Self::Switches => "switches",
            Self::Effect => "measured effect",
            Self::Why => "why, findings",
            Self::StepTimes => "step",
            Self::Accounts => "accounts",
            Self::Loss => "loss",
            Self::Log => "log",
            Self::Detail => "block",
            Self::Segments => "segments",
            Self::Stacked => "what is alive in a step",
            Self::Reserved => "reserved",
            Self::AtCursor => "at the cursor",
            Self::Ops => "ops",
            Self::Forward => "forward",
            Self::Alive => "alive at the peak",
            Self::Configurations => "configurations",
            Self::Curves => "allocated through a step of each",
            Self::LedgerChart => "ledger",
            Self::Fragmentation => "fragmentation",
            Self::Pools => "pools",
            Self::Driver => "the driver's view",
            Self::Worst => "stranding most",
        }
    }
}
