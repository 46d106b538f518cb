//! What the names of blocks and ops mean: `blocks.3.attn.qkv output` is a path of modules and a tensor, `blocks.3.attn
//! linear` a path and an op, `gelu (model.py:88)` a function and a source line of somebody else's program.

use std::cmp::Ordering;

/// The path of modules, or the source line; empty if the name has neither.
#[must_use]
pub fn place(name: &str) -> &str {
    match split(name) {
        Some((_, line)) if name.ends_with(')') => line.trim_end_matches(')'),
        Some((path, _)) => path,
        None => "",
    }
}

/// The op, the function, or the tensor.
#[must_use]
pub fn thing(name: &str) -> &str {
    match split(name) {
        Some((function, _)) if name.ends_with(')') => function,
        Some((_, what)) => what,
        None => name,
    }
}

/// Splits a name where a path meets a tensor or op, or a function meets its line.
fn split(name: &str) -> Option<(&str, &str)> {
    if name.ends_with(')') { name.rsplit_once(" (") } else { name.split_once(' ') }
}

/// A name without layer numbers, so that `blocks.3.fc output` and the like are treated as one.
#[must_use]
pub fn starred(name: &str) -> String {
    let (path, what) = name.split_at(name.find(' ').unwrap_or(name.len()));
    let mut starred = String::with_capacity(name.len());
    for (index, part) in path.split('.').enumerate() {
        if index > 0 {
            starred.push('.');
        }
        starred.push_str(if part.parse::<u32>().is_ok() { "*" } else { part });
    }
    starred + what
}

/// True if a part of a path is a layer's number, or stands for all layers.
#[must_use]
pub fn is_layer(part: &str) -> bool {
    part == "*" || part.parse::<u32>().is_ok()
}

/// Orders names as people do: `blocks.2` comes before `blocks.10`.
#[must_use]
pub fn compare<'a>(one: &'a str, other: &'a str) -> Ordering {
    // Numbers come before words.
    let key = |part: &'a str| part.parse::<u32>().map_or((u32::MAX, part), |number| (number, ""));
    let (mut ones, mut others) = (one.split(['.', ' ']), other.split(['.', ' ']));
    loop {
        let order = match (ones.next(), others.next()) {
            (None, None) => return one.cmp(other),
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => key(a).cmp(&key(b)),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The name of a block that existed before a recording began.
pub const BEFORE_RECORDING: &str = "before the recording";
/// The name of a block in a file without a history.
pub const NOT_RECORDED: &str = "who took it is not recorded";

/// The module of a block: its path up to the first number, or its first part; the file, for a source line. A name that
/// says the caller is unknown stays whole.
#[must_use]
pub fn module(name: &str) -> String {
    if [BEFORE_RECORDING, NOT_RECORDED].contains(&name) {
        return name.to_owned();
    }
    if name.ends_with(')')
        && let Some((_, line)) = name.rsplit_once(" (")
    {
        return line.trim_end_matches(')').rsplit_once(':').map_or(line, |(file, _)| file).to_owned();
    }
    let path = name.split(' ').next().unwrap_or(name);
    let mut parts = path.split('.');
    let first = parts.next().unwrap_or(path);
    match parts.next().filter(|part| part.parse::<u32>().is_ok()) {
        Some(number) => format!("{first}.{number}"),
        None => first.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_stand_in_the_order_of_their_numbers() {
        let mut names = ["head", "blocks.10", "blocks.2 gelu", "blocks.2", "blocks.2.fc", "blocks.x", "blocks"];
        names.sort_by(|one, other| compare(one, other));
        assert_eq!(names, ["blocks", "blocks.2", "blocks.2.fc", "blocks.2 gelu", "blocks.10", "blocks.x", "head"]);
    }

    #[test]
    fn names_are_taken_apart() {
        for (name, at, what, of) in [
            ("blocks.3.attn linear", "blocks.3.attn", "linear", "blocks.3"),
            ("head output", "head", "output", "head"),
            ("tokens", "", "tokens", "tokens"),
            ("gelu (model.py:88)", "model.py:88", "gelu", "model.py"),
            ("void at::native::f(int) (kernels.py:3)", "kernels.py:3", "void at::native::f(int)", "kernels.py"),
            (BEFORE_RECORDING, "before", "the recording", BEFORE_RECORDING),
            ("", "", "", ""),
        ] {
            assert_eq!((place(name), thing(name), module(name).as_str()), (at, what, of), "{name}");
        }
        assert_eq!(starred("blocks.3.fc output"), "blocks.*.fc output");
    }

    #[test]
    fn names_of_layers_are_one() {
        for (name, star, of) in [
            ("blocks.3.fc output", "blocks.*.fc output", "blocks.3"),
            ("wte.weight", "wte.weight", "wte"),
            ("layer1.0.conv1.weight.grad", "layer1.*.conv1.weight.grad", "layer1.0"),
            ("cross_entropy log-probabilities", "cross_entropy log-probabilities", "cross_entropy"),
            ("3", "*", "3"),
        ] {
            assert_eq!((starred(name).as_str(), module(name).as_str()), (star, of), "{name}");
        }
    }
}
