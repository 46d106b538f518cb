//! Completes paths.

use std::path::Path;

use crate::user_input::is_safe;

/// How many entries of a folder are read. A person does not choose from more by eye.
const MOST: usize = 10_000;

/// The completions of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The path that was to be completed.
    pub of: String,
    /// The path with the only possible continuation.
    pub text: String,
    /// The matching names, if there are several.
    pub matches: Vec<String>,
}

/// `text` with `~/` expanded.
#[must_use]
pub fn at_home(text: &str) -> String {
    match (text.strip_prefix("~/"), std::env::var("HOME")) {
        (Some(rest), Ok(home)) => format!("{home}/{rest}"),
        _ => text.to_owned(),
    }
}

/// Finds names that begin like the last part of `of`. May wait for a disk.
#[must_use]
pub fn complete(of: &str) -> Completion {
    let split = of.rfind('/').map_or(0, |slash| slash + 1);
    let (folder, begun) = of.split_at(split);
    let at = at_home(if folder.is_empty() { "./" } else { folder });
    let named = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let hidden = name.starts_with('.') && !begun.starts_with('.');
        let fits = name.starts_with(begun) && !hidden && name.chars().all(is_safe);
        let folder = fits && Path::new(&at).join(&name).is_dir();
        fits.then(|| if folder { format!("{name}/") } else { name })
    };
    let entries = std::fs::read_dir(&at).into_iter().flatten().take(MOST).filter_map(Result::ok);
    let mut matches: Vec<String> = entries.filter_map(named).collect();
    matches.sort();
    let common = matches.iter().skip(1).fold(matches.first().cloned().unwrap_or_default(), |common, name| {
        common.chars().zip(name.chars()).take_while(|(one, other)| one == other).map(|(one, _)| one).collect()
    });
    let text = if matches.is_empty() { of.to_owned() } else { format!("{folder}{common}") };
    if matches.len() == 1 {
        matches.clear();
    }
    Completion { of: of.to_owned(), text, matches }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_only_follow_is_written_and_the_rest_is_told() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["run-a.vram", "run-b.vram", "other.json", ".hidden"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        std::fs::create_dir(folder.path().join("deep")).unwrap();
        let at = folder.path().display();
        let of = |begun: &str| {
            let Completion { text, matches, .. } = complete(&format!("{at}/{begun}"));
            (text.strip_prefix(&format!("{at}/")).unwrap().to_owned(), matches)
        };
        assert_eq!(of("r"), ("run-".to_owned(), vec!["run-a.vram".to_owned(), "run-b.vram".to_owned()]));
        assert_eq!(of("run-b"), ("run-b.vram".to_owned(), vec![]));
        assert_eq!(of("d"), ("deep/".to_owned(), vec![]));
        assert_eq!(of(".h"), (".hidden".to_owned(), vec![]));
        assert_eq!(of("none"), ("none".to_owned(), vec![]));
        assert_eq!(of("").1.len(), 4, "what is hidden stays so");
    }
}
