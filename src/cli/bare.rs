//! Switches that stand alone before a workload: `vramlab run --fuse gpt2`.

use std::ffi::OsString;

use super::spec;
use crate::session::{Setup, Switch};
use crate::train::Config;

/// Returns the arguments with a value added to each switch that stands alone before a workload: else the parser would
/// take the workload for the switch's value.
pub(super) fn with_values(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    // The arguments after `--` belong to the traced program.
    let own = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    for at in 1..own {
        let [flag, next] = [at - 1, at].map(|at| arguments[at].to_str());
        if let Some((flag, next)) = flag.zip(next)
            && let Some(alone) = alone_before(flag, next)
        {
            arguments[at - 1] = format!("{flag}={alone}").into();
        }
    }
    arguments
}

/// Returns the value to add to the switch `flag`, if it may stand alone and the next argument is a workload.
fn alone_before(flag: &str, next: &str) -> Option<&'static str> {
    let switch = Switch::named(flag.strip_prefix("--")?)?;
    let alone = switch.alone()?;
    // A switch with two values takes a value only after `=`.
    let takes_next = switch.values().len() != 2 && switch.set(&mut Setup::new(Config::new(1)), next).is_ok();
    (!takes_next && spec::is_workload(next)).then_some(alone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(line: &str) -> String {
        let arguments = with_values(line.split(' ').map(OsString::from));
        arguments.iter().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_workload_behind_a_bare_switch_is_no_value() {
        for (line, read) in [
            ("vramlab run --fuse gpt2", "vramlab run --fuse=on gpt2"),
            ("vramlab run --ckpt gpt-mini --tf32 --batch 2", "vramlab run --ckpt=on gpt-mini --tf32 --batch 2"),
            ("vramlab --tf32 some/config.json", "vramlab --tf32=on some/config.json"),
        ] {
            assert_eq!(given(line), read);
        }
    }

    #[test]
    fn values_mistakes_and_arguments_of_programs_stay() {
        for line in [
            "vramlab run --ckpt every:2 gpt2",
            "vramlab run --tf32 conv gpt2",
            "vramlab run --ckpt evry:2 gpt2",
            "vramlab run gpt2 --fuse",
            "vramlab run --device gpt2",
            "vramlab watch -- python train.py --fuse gpt2",
        ] {
            assert_eq!(given(line), line);
        }
    }
}
