//! `vramlab list`: what there is to choose from.

use std::process::ExitCode;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::json;

use super::spec::{cards, workloads};
use crate::session;
use crate::train::Config;
use crate::tui::Catalog;

/// Arguments of `vramlab list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints workloads, switches, devices and themes.
pub(super) fn run(args: &ListArgs) -> Result<ExitCode> {
    let catalog = workloads();
    let entries = catalog.names().map(|name| catalog.entry(name)).collect::<Result<Vec<_>, _>>()?;
    let cards = cards();
    let cards = cards.names().map(|name| cards.card(name)).collect::<Result<Vec<_>, _>>()?;
    let switches = {
        let config = Config::new(1);
        session::panel(&config, &config)
    };
    let folder = Catalog::user_folder(|name| std::env::var(name).ok());
    let themes = Catalog::with_user_themes(folder.as_deref());
    if args.json {
        let workloads: Vec<_> = entries
            .iter()
            .map(|e| json!({ "name": e.name, "title": e.title, "about": e.about, "batch": e.batch }))
            .collect();
        let devices: Vec<String> =
            std::iter::once("cpu".to_owned()).chain(cards.iter().map(|card| format!("sim:{}", card.name))).collect();
        let value = json!({
            "workloads": workloads,
            "switches": switches,
            "devices": devices,
            "themes": themes.names(),
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
        return Ok(ExitCode::SUCCESS);
    }
    println!("workloads");
    for entry in &entries {
        println!("  {:<10} {}", entry.name, entry.title);
        println!("  {:<10} {}", "", entry.about);
    }
    println!("\nswitches (keys in the lab)");
    for switch in &switches {
        println!("  {}  {:<14} {}", switch.key, switch.label, switch.values.join(" · "));
        println!("     {}", switch.teaches);
    }
    println!("  e  empty_cache    now");
    println!("     Gives cached segments back to the driver; allocated memory does not move.");
    println!("\ndevices\n  cpu               the processor: real arithmetic, real memory");
    for card in &cards {
        let memory = card.memory.to_string();
        println!(
            "  {:<17} {}, {memory}; simulated, times: {}",
            format!("sim:{}", card.name),
            card.title,
            card.times.label()
        );
    }
    println!("\nthemes\n  {}", themes.names().join(", "));
    Ok(ExitCode::SUCCESS)
}
