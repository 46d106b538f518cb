//! `vramlab list`: what there is to choose from.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Args;
use color_eyre::eyre::Result;
use serde_json::{Map, Value, json};

use super::spec::{cards, workloads};
use crate::device::cuda;
use crate::session::{self, Setup};
use crate::train::Config;
use crate::tui::Catalog;
use crate::workload::{Entry, Group};

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
    let gpus = cuda::visible();
    let switches = {
        let setup = Setup::new(Config::new(1));
        session::panel(&setup, &setup)
    };
    let folder = Catalog::user_folder(|name| std::env::var(name).ok());
    let themes = Catalog::with_user_themes(folder.as_deref());
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
            "switches": switches,
            "devices": devices,
            "themes": themes.names(),
        });
        writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&value)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    for group in Group::ALL {
        writeln!(std::io::stdout(), "{}", group.title())?;
        for entry in entries.iter().filter(|entry| entry.group() == group) {
            let own = if catalog.is_users_own(&entry.name) { " (your own)" } else { "" };
            writeln!(std::io::stdout(), "  {:<12} {}{own}", entry.name, entry.title)?;
            writeln!(std::io::stdout(), "  {:<12} {}", "", entry.about)?;
            writeln!(std::io::stdout(), "  {:<12} {}", "", sizes(entry))?;
        }
        writeln!(std::io::stdout())?;
    }
    writeln!(std::io::stdout(), "switches (keys in the lab)")?;
    for switch in &switches {
        writeln!(std::io::stdout(), "  {}  {:<14} {}", switch.key, switch.label, switch.values.join(" · "))?;
        writeln!(std::io::stdout(), "     {}", switch.teaches)?;
    }
    writeln!(std::io::stdout(), "  e  empty_cache    now")?;
    writeln!(std::io::stdout(), "     Gives cached segments back to the driver; allocated memory does not move.")?;
    writeln!(std::io::stdout(), "\ndevices\n  cpu               the processor: real arithmetic, real memory")?;
    for gpu in &gpus {
        let (id, memory) = (format!("cuda:{}", gpu.ordinal), gpu.memory.to_string());
        let remark = cuda::usable(gpu.ordinal).err().map_or_else(String::new, |why| format!("; not to be used: {why}"));
        writeln!(std::io::stdout(), "  {id:<17} {}, {memory}{remark}", gpu.name)?;
    }
    for card in &cards {
        let memory = card.memory.to_string();
        writeln!(
            std::io::stdout(),
            "  {:<17} {}, {memory}; simulated, times: {}",
            format!("sim:{}", card.name),
            card.title,
            card.times.label()
        )?;
    }
    writeln!(std::io::stdout(), "\nthemes\n  {}", themes.names().join(", "))?;
    Ok(ExitCode::SUCCESS)
}

/// The sizes of a workload and the arguments that change them: `--batch 16 --layers 12`.
fn sizes(entry: &Entry) -> String {
    let mut words = vec![format!("--batch {}", entry.batch)];
    words.extend(entry.sizes.given().into_iter().map(|(name, value)| format!("--{name} {value}")));
    words.join(" ")
}
