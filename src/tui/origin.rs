//! The command that opens a screen again.

use crate::session;
use crate::source::Picture;
use crate::user_input::command_line;

/// The command that opened a screen, as far as a [`Picture`] does not tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningCommand {
    /// A lab, with arguments that neither the switches nor the header show: sizes, data, seed.
    Run(Vec<String>),
    /// These files.
    Open(Vec<String>),
    /// A watched program: the arguments of `vramlab watch`.
    Watch(Vec<String>),
}

impl Default for OpeningCommand {
    fn default() -> Self {
        Self::Run(Vec::new())
    }
}

impl OpeningCommand {
    /// One line for a shell: for a lab the run with the switches in force, for files the command that opens them.
    #[must_use]
    pub fn command(&self, picture: &Picture) -> String {
        match self {
            Self::Run(others) => {
                let about = &picture.view.about;
                let device = about.device.split(" · ").next().unwrap_or_default();
                let mut words: Vec<String> = ["vramlab", "run"].map(str::to_owned).into();
                words.push(about.workload.to_string());
                match picture.ranks.first().map(|of| &of.alike) {
                    Some(alike) => {
                        words.extend(["--device".to_owned(), devices(device, picture, alike.world)]);
                        words.extend(
                            alike.parallelism.into_iter().flat_map(|way| ["--parallel".into(), way.to_string()]),
                        );
                    }
                    None => words.extend(["--device".to_owned(), device.to_owned()]),
                }
                words.extend(session::as_flags(picture.switches(), picture.view.limit, others));
                words.extend(others.iter().cloned());
                command_line(words)
            }
            Self::Watch(words) => {
                command_line(["vramlab", "watch"].into_iter().chain(words.iter().map(String::as_str)))
            }
            Self::Open(files) => {
                // A file name that begins with `-` would be taken for a flag.
                let flag = files.iter().any(|file| file.starts_with('-') && file != "-");
                let words = ["vramlab", "open"].into_iter().chain(flag.then_some("--"));
                command_line(words.chain(files.iter().map(String::as_str)))
            }
        }
    }
}

/// The devices of all ranks, given the `device` of the one shown: GPUs by their numbers.
fn devices(device: &str, picture: &Picture, world: u32) -> String {
    let shown = picture.ranks.get(picture.device.place).and_then(|of| of.alike.ranks.first());
    let ordinal = device.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse::<u32>().ok());
    match ordinal.and_then(|ordinal| ordinal.checked_sub(u32::from(*shown?))) {
        Some(first) => {
            let ordinals: Vec<String> = (first..first.saturating_add(world)).map(|of| of.to_string()).collect();
            format!("cuda:{}", ordinals.join(","))
        }
        None => format!("{device}x{world}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::{About, AlikeRanks, Parallelism, RunSettings, Setting, View};
    use crate::source::RankFigures;

    #[test]
    fn ranks_are_run_again_on_as_many_devices() {
        let command = |device: &str, place: usize| {
            let rank = |rank| RankFigures {
                alike: AlikeRanks { parallelism: Some(Parallelism::Ddp), ranks: vec![rank], world: 2 }.into(),
                ..RankFigures::default()
            };
            let about = About { workload: "gpt2".into(), device: device.into(), ..About::default() };
            let view = View { about: Arc::new(about), ..View::default() };
            let mut picture = Picture { view: Arc::new(view), ranks: [0, 1].map(rank).into(), ..Picture::default() };
            picture.device.place = place;
            OpeningCommand::default().command(&picture)
        };
        assert_eq!(command("cpu", 1), "vramlab run gpt2 --device cpux2 --parallel ddp");
        assert_eq!(command("sim:h200 · NVIDIA H200", 0), "vramlab run gpt2 --device sim:h200x2 --parallel ddp");
        assert_eq!(command("cuda:2 · NVIDIA H200", 0), "vramlab run gpt2 --device cuda:2,3 --parallel ddp");
        assert_eq!(command("cuda:3 · NVIDIA H200", 1), "vramlab run gpt2 --device cuda:2,3 --parallel ddp");
    }

    #[test]
    fn a_lab_is_run_again_with_the_switches_in_force() {
        let setting = |switch: &str, value: &str, wanted: Option<&str>| Setting {
            switch: switch.into(),
            value: value.into(),
            wanted: wanted.map(Into::into),
            idle: None,
        };
        let settings =
            vec![setting("amp", "bf16", Some("off")), setting("ckpt", "off", None), setting("batch", "8", None)];
        let about = About { workload: "gpt2".into(), device: "sim:h200 · NVIDIA H200".into(), ..About::default() };
        let view = View { about: Arc::new(about), ..View::default() };
        let picture = Picture { view: Arc::new(view), settings: Arc::new(RunSettings(settings)), ..Picture::default() };
        let origin = OpeningCommand::Run(["--data", "my text"].map(str::to_owned).into());
        assert_eq!(
            origin.command(&picture),
            "vramlab run gpt2 --device sim:h200 --amp bf16 --batch 8 --data 'my text'"
        );
    }

    #[test]
    fn files_are_opened_again() {
        let open = |files: &[&str]| {
            OpeningCommand::Open(files.iter().map(|file| (*file).to_owned()).collect()).command(&Picture::default())
        };
        assert_eq!(open(&["a.vram", "my run.vram"]), "vramlab open a.vram 'my run.vram'");
        assert_eq!(open(&["--follow"]), "vramlab open -- --follow");
        assert_eq!(open(&["-"]), "vramlab open -");
    }
}
