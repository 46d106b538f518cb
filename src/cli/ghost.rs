//! `--ghost`: predicts another allocator beside a run.

use std::io::Write;
use std::sync::Arc;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Value, json};

use super::Usage;
use crate::allocator::TorchVersion;
use crate::allocator::{DeviceMemory, Statistics};
use crate::session::LabSpec;
use crate::source::{Request, Source};
use crate::units::{Bytes, DeviceIndex};
use crate::whatif::{Conditions, Figures, Follower, Places};

/// Which ghost is to follow.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct GhostArgs {
    /// Predict what other allocator settings would reserve: a second allocator gets the same requests. CONF is in
    /// PyTorch's syntax (expandable_segments:True), with two keys more: limit:8GiB and empty_cache_every:10 (steps).
    #[arg(long, value_name = "CONF")]
    ghost: Option<String>,
}

impl GhostArgs {
    /// Whether a ghost is requested.
    pub const fn is_wanted(&self) -> bool {
        self.ghost.is_some()
    }

    /// The ghost's conditions, if one is requested.
    ///
    /// # Errors
    /// [`Usage`] for settings that PyTorch would refuse.
    fn conditions(&self, torch: TorchVersion, memory: Option<DeviceMemory>) -> Result<Option<Conditions>> {
        let parse =
            |text: &String| Conditions::parse_for(torch, text, memory).map_err(|error| Usage(error.to_string()).into());
        self.ghost.as_ref().map(parse).transpose()
    }

    /// A ghost that follows a run without a screen.
    ///
    /// # Errors
    /// [`Usage`], as above.
    pub fn follower(&self, spec: &LabSpec) -> Result<Option<Follower>> {
        let conditions = self.conditions(spec.settings.torch(), spec.memory())?;
        Ok(conditions.map(|conditions| Follower::new(&conditions, Places::Simulated, DeviceIndex::FIRST)))
    }

    /// Checks that the ghost is possible.
    ///
    /// # Errors
    /// [`Usage`], as above.
    pub fn check(&self, spec: &LabSpec) -> Result<()> {
        self.conditions(spec.settings.torch(), spec.memory()).map(drop)
    }

    /// Lets the ghost follow a source, as the allocator of a PyTorch version.
    ///
    /// # Errors
    /// [`Usage`], as above.
    pub fn haunt(&self, source: &Source, torch: TorchVersion) -> Result<()> {
        let memory = source.pictures.borrow().memory;
        if let Some(conditions) = self.conditions(torch, memory)? {
            source.request(Request::Ghost(Some(Arc::new(conditions))));
        }
        Ok(())
    }
}

/// The figures of a ghost.
pub(super) struct GhostFigures {
    /// The ghost's settings, as they were written.
    conf: String,
    figures: Figures,
    /// Steps of the run before the ghost started.
    since: u64,
}

impl GhostFigures {
    pub fn of(ghost: &Follower) -> Self {
        Self { conf: ghost.conditions().text().to_owned(), figures: ghost.figures(), since: ghost.since() }
    }

    /// As JSON: sizes in bytes.
    pub fn json(&self) -> Value {
        let mut ghost = json!(self.figures);
        if let Some(ghost) = ghost.as_object_mut() {
            ghost.insert("conf".into(), json!(self.conf));
            ghost.insert("since_step".into(), json!(self.since));
            ghost.insert("predicted".into(), json!(true));
        }
        ghost
    }

    /// Writes a part of the table beside the run's own figures: the ghost's statistics, and its peak of reserved memory.
    ///
    /// # Errors
    /// If `out` can't be written.
    pub fn write(&self, out: &mut dyn Write, own: &Statistics, peak: Bytes) -> std::io::Result<()> {
        let bytes = |n: i64| Bytes(u64::try_from(n).unwrap_or(0));
        let Figures { reserved, peak_reserved, stranded, .. } = self.figures;
        let conf = if self.conf.is_empty() { "PyTorch's defaults" } else { &self.conf };
        writeln!(out, "\n  a ghost with {conf} would have reserved (predicted)")?;
        for (label, ghost, own) in
            [("peak", peak_reserved, peak), ("now", reserved, bytes(own.reserved_bytes.all.current))]
        {
            writeln!(out, "    {label:<22}{ghost:>12}  {}", difference(ghost, own))?;
        }
        writeln!(out, "    {:<22}{stranded:>12}", "of it, stranded")?;
        writeln!(out, "    {:<22}{:>12}", "segments", self.figures.segments)?;
        for (label, count) in [
            ("retries", self.figures.retries),
            ("failed requests", self.figures.ooms),
            ("that fit", self.figures.served),
        ] {
            if count > 0 {
                writeln!(out, "    {label:<22}{count:>12}")?;
            }
        }
        Ok(())
    }
}

/// How far a figure is from the run's own.
fn difference(ghost: Bytes, own: Bytes) -> String {
    let by = Bytes(ghost.get().abs_diff(own.get()));
    match ghost.cmp(&own) {
        std::cmp::Ordering::Equal => "as in the run".to_owned(),
        std::cmp::Ordering::Less => format!("{by} less than in the run"),
        std::cmp::Ordering::Greater => format!("{by} more than in the run"),
    }
}
