//! The panels of the screens, by the name that help has for them.

/// A part of a screen that has words of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Panel {
    /// The lines at the top.
    Header,
    /// Peaks of every step.
    History,
    /// The curve of a step.
    StepCurve,
    /// The map of segments and blocks.
    Map,
    /// All ranks side by side.
    Ranks,
    /// The GPU, as the driver sees it.
    Gpu,
    /// What can be flipped.
    Switches,
    /// What a flip changed.
    Effect,
    /// What the model concludes.
    Why,
    /// Where a step's time goes.
    StepTimes,
    /// The accounts of reserved memory.
    Accounts,
    /// The loss.
    Loss,
    /// What happened.
    Log,
    /// The block that is selected.
    Detail,
    /// Segments as a table.
    Segments,
    /// Everything alive in a step, stacked.
    Stacked,
    /// Reserved and segments through a step.
    Reserved,
    /// The figures at the cursor.
    AtCursor,
    /// What ops took and kept.
    Ops,
    /// What modules put out.
    Forward,
    /// What is alive at the peak, or since a tag.
    Alive,
    /// Every configuration.
    Configurations,
    /// A step of each of them.
    Curves,
    /// The accounts through a step.
    LedgerChart,
    /// Fragmentation through a step.
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
