//! `vramlab list`: what there is to choose from.

use std::io::Write;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Map, Value, json};

use super::output::{stdout, warn};
use super::spec::{cards, themes, workloads};
use super::{Status, config};
use crate::device::cuda;
use crate::session::Switch;
use crate::tui::{Action, ColorTier, Keymap};
use crate::workload::{Entry, Group};

/// Arguments of `vramlab list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints workloads, switches, devices and themes.
pub(super) fn run(args: &ListArgs) -> Result<Status> {
    let catalog = workloads();
    // What can't be read is left out, and told behind all that can.
    let entries: Vec<Entry> = catalog.names().filter_map(|name| catalog.entry(name).ok()).collect();
    let all_cards = cards();
    let cards: Vec<_> = all_cards.names().filter_map(|name| all_cards.card(name).ok()).collect();
    let all_themes = themes();
    let themes: Vec<_> = all_themes.names().filter(|name| all_themes.load(name, ColorTier::True).is_ok()).collect();
    let warnings = [catalog.warnings(), all_cards.warnings(), all_themes.warnings()].concat();
    let gpus = cuda::visible();
    let settings = config::settings();
    let keys = &settings.keys;
    let warnings = [settings.told.clone(), warnings].concat();
    if args.json {
        let workloads: Vec<_> = entries
            .iter()
            .map(|e| {
                let (group, sizes) = (e.group().title(), e.sizes.given());
                let sizes: Map<String, Value> = sizes.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
                json!({
                    "name": e.name, "title": e.title, "about": e.about, "batch": e.batch, "group": group, "sizes": sizes,
                })
            })
            .collect();
        let devices: Vec<String> = std::iter::once("cpu".to_owned())
            .chain(gpus.iter().map(|gpu| format!("cuda:{}", gpu.ordinal)))
            .chain(cards.iter().map(|card| format!("sim:{}", card.name)))
            .collect();
        let value = json!({
            "workloads": workloads,
            "switches": Switch::all().map(|switch| switch_of(switch, keys)).collect::<Vec<_>>(),
            "devices": devices,
            "themes": themes,
            "warnings": warnings,
        });
        writeln!(stdout(), "{}", serde_json::to_string_pretty(&value)?)?;
        return Ok(Status::DONE);
    }
    let mut out = stdout();
    for group in Group::ALL {
        writeln!(out, "{}", group.title())?;
        for entry in entries.iter().filter(|entry| entry.group() == group) {
            let own = if catalog.is_users_own(&entry.name) { " (your own)" } else { "" };
            writeln!(out, "  {:<12} {}{own}", entry.name, entry.title)?;
            writeln!(out, "  {:<12} {}", "", entry.about)?;
            writeln!(out, "  {:<12} {}", "", sizes(entry))?;
        }
        writeln!(out)?;
    }
    writeln!(out, "switches (keys in the lab)")?;
    for switch in Switch::all() {
        writeln!(
            out,
            "  {:<1}  {:<14} {}",
            keys.key_of(Action::of_switch(switch)),
            switch.label(),
            switch.values().join(" · ")
        )?;
        writeln!(out, "     {}", switch.teaches())?;
    }
    writeln!(out, "  {:<1}  empty_cache    now", keys.key_of(Action::EmptyCache))?;
    writeln!(out, "     Gives cached segments back to the driver; allocated memory does not move.")?;
    writeln!(out, "\ndevices\n  cpu               the processor: real arithmetic, real memory")?;
    for gpu in &gpus {
        let (id, memory) = (format!("cuda:{}", gpu.ordinal), gpu.memory.to_string());
        let remark = cuda::usable(gpu.ordinal).err().map_or_else(String::new, |why| format!("; not to be used: {why}"));
        writeln!(out, "  {id:<17} {}, {memory}{remark}", gpu.name)?;
    }
    for card in &cards {
        let memory = card.memory.to_string();
        writeln!(
            out,
            "  {:<17} {}, {memory}; simulated, times: {}",
            format!("sim:{}", card.name),
            card.title,
            card.times.label()
        )?;
    }
    writeln!(out, "\nthemes\n  {}", themes.join(", "))?;
    out.flush()?;
    warnings.iter().for_each(warn);
    Ok(Status::DONE)
}

/// A switch: its key, its word on the command line, what it can be and what it is for.
fn switch_of(switch: Switch, keys: &Keymap) -> Value {
    json!({
        "switch": switch.word(), "key": keys.key_of(Action::of_switch(switch)), "label": switch.label(), "group": switch.group(),
        "values": switch.values(), "usual": switch.usual(), "teaches": switch.teaches(),
    })
}

/// The sizes of a workload and the arguments that change them: `--batch 16 --layers 12`.
fn sizes(entry: &Entry) -> String {
    let mut words = vec![format!("--batch {}", entry.batch)];
    words.extend(entry.sizes.given().into_iter().map(|(name, value)| format!("--{name} {value}")));
    words.join(" ")
}
