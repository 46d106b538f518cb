//! `vramlab list`: lists workloads, switches, devices and themes.

use std::io::Write;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Map, Value, json};

use super::columns::{Cell, Column, Paper, Table, Tone};
use super::output::{stdout, warn};
use super::spec::{cards, themes, workloads};
use super::{Status, config};
use crate::device::cuda;
use crate::drawing::theme::ColorTier;
use crate::session::Switch;
use crate::tui::{Action, Keymap};
use crate::workload::{WorkloadEntry, WorkloadGroup};

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
    // Entries that can't be read are left out and reported after all the others.
    let entries: Vec<WorkloadEntry> = catalog.names().filter_map(|name| catalog.entry(name).ok()).collect();
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
    let paper = Paper::stdout();
    let mut out = paper.out();
    for group in WorkloadGroup::ALL {
        writeln!(out, "{}", paper.toned(group.title(), Tone::Strong))?;
        let mut table = Table::new([Column::left(""), Column::wraps("")]);
        for entry in entries.iter().filter(|entry| entry.group() == group) {
            let own = if catalog.is_users_own(&entry.name) { " (your own)" } else { "" };
            let name = Cell::toned(entry.name.as_str(), Tone::Strong);
            table.row(vec![name, format!("{}{own}", entry.title).into()]);
            table.row(vec!["".into(), entry.about.as_str().into()]);
            table.row(vec!["".into(), Cell::toned(sizes(entry), Tone::Dim)]);
        }
        table.print(&mut out, paper)?;
        writeln!(out)?;
    }
    writeln!(out, "{}", paper.toned("switches (keys in the lab)", Tone::Strong))?;
    let mut table = Table::new([
        Column::left("key"),
        Column::left("switch"),
        Column::left("flag"),
        Column::wraps("values, and what it does"),
    ]);
    for switch in Switch::all() {
        let key = keys.key_of(Action::of_switch(switch));
        let values = match switch.values() {
            [] => switch.hint().to_owned(),
            values if switch.is_closed() => values.join(" · "),
            values => format!("{}; {}", values.join(" · "), switch.hint()),
        };
        let flag = format!("--{}", switch.word());
        table.row(vec![Cell::toned(key, Tone::Strong), switch.label().into(), flag.into(), values.into()]);
        table.row(vec!["".into(), "".into(), "".into(), Cell::toned(switch.teaches(), Tone::Dim)]);
    }
    let key = Cell::toned(keys.key_of(Action::EmptyCache), Tone::Strong);
    table.row(vec![key, "empty_cache".into(), "".into(), "now".into()]);
    let teaches = "Returns wholly free segments to the driver; allocated memory does not change.";
    table.row(vec!["".into(), "".into(), "".into(), Cell::toned(teaches, Tone::Dim)]);
    table.print(&mut out, paper)?;
    writeln!(out, "\n{}", paper.toned("devices", Tone::Strong))?;
    let mut table = Table::new([Column::left(""), Column::wraps("")]);
    let device = |id: String, what: String| vec![Cell::toned(id, Tone::Strong), what.into()];
    table.row(device("cpu".to_owned(), "the processor: real arithmetic, real memory".to_owned()));
    for gpu in &gpus {
        let remark = cuda::usable(gpu.ordinal).err().map_or_else(String::new, |why| format!("; not usable: {why}"));
        table.row(device(format!("cuda:{}", gpu.ordinal), format!("{}, {}{remark}", gpu.name, gpu.memory)));
    }
    for card in &cards {
        let what = format!("{}, {}; simulated, times: {}", card.title, card.memory, card.times.label());
        table.row(device(format!("sim:{}", card.name), what));
    }
    table.print(&mut out, paper)?;
    writeln!(out, "\n{}", paper.toned("themes", Tone::Strong))?;
    paper.paragraph(&mut out, &themes.join(", "), 0, Tone::Plain)?;
    out.flush()?;
    warnings.iter().for_each(warn);
    Ok(Status::DONE)
}

/// A switch: its key, its word on the command line, its values and its purpose.
fn switch_of(switch: Switch, keys: &Keymap) -> Value {
    json!({
        "switch": switch.word(), "key": keys.key_of(Action::of_switch(switch)), "label": switch.label(), "group": switch.group(),
        "values": switch.values(), "usual": switch.usual(), "teaches": switch.teaches(),
    })
}

/// The sizes of a workload and the arguments that change them: `--batch 16 --layers 12`.
fn sizes(entry: &WorkloadEntry) -> String {
    let mut words = vec![format!("--batch {}", entry.batch)];
    words.extend(entry.sizes.given().into_iter().map(|(name, value)| format!("--{name} {value}")));
    words.join(" ")
}
