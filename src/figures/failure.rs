//! The figures of the moment when a request failed.

use super::table::{Figure, Figures};
use crate::model::{Autopsy, Category};
use crate::units::Bytes;

/// The categories of live blocks, with their figures' names.
const BY_CATEGORY: [(Category, &str); 9] = [
    (Category::Parameter, "parameters"),
    (Category::Gradient, "gradients"),
    (Category::OptimizerState, "optimizer"),
    (Category::Activation, "activations"),
    (Category::Temporary, "temporaries"),
    (Category::Workspace, "workspaces"),
    (Category::Communication, "communication"),
    (Category::Input, "inputs"),
    (Category::Other, "other"),
];

impl Figures {
    /// The figures of the moment when a request failed, before the step freed its blocks.
    #[must_use]
    pub fn at_failure(autopsy: &Autopsy) -> Self {
        let ledger = autopsy.ledger;
        let mut figures = Self::default();
        let mut set = |name: &str, value: f64| {
            if let Some(figure) = Figure::named(name) {
                figures.set(figure, value);
            }
        };
        let mut bytes = |name: &str, bytes: Bytes| set(name, bytes.get() as f64);
        for (name, amount) in [
            ("allocated", ledger.allocated()),
            ("reserved", ledger.reserved()),
            ("live", ledger.live),
            ("requested", ledger.live),
            ("rounding", ledger.rounding),
            ("pending", ledger.pending),
            ("free", ledger.free()),
            ("releasable", ledger.releasable),
            ("stranded", ledger.stranded),
            ("largest_free", ledger.largest_free),
            ("asked", autopsy.request.requested),
            ("wanted", autopsy.request.requested),
            ("short", autopsy.short),
        ] {
            bytes(name, amount);
        }
        if let Some(limit) = autopsy.limit {
            bytes("limit", limit);
        }
        for (category, name) in BY_CATEGORY {
            bytes(name, autopsy.by_category[category as usize]);
        }
        set("fragmentation", ledger.fragmentation());
        set("steps", autopsy.step as f64);
        figures
    }
}
