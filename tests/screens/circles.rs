//! No two files import each other, directly or through others: checks what `ARCHITECTURE.md` says about files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::rooms::{all_rooms_are_here, root, sources};

/// The paths of a `use`: `a::{b, c::{d, e}}` has three.
fn paths(tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((before, group)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let group = group.trim_end().trim_end_matches('}');
    let mut members = vec![String::new()];
    let mut depth = 0;
    for c in group.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match members.last_mut() {
            Some(member) if c != ',' || depth > 0 => member.push(c),
            _ => members.push(String::new()),
        }
    }
    members.iter().flat_map(|member| paths(member)).map(|path| format!("{before}{path}")).collect()
}

/// The names of its own crate that a file uses in code that ships.
fn named(text: &str) -> Vec<String> {
    let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let code: Vec<&str> = shipped.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let statements = code.split(';').filter_map(|statement| statement.rsplit_once("use ").map(|(_, tree)| tree));
    let used = statements.flat_map(paths);
    // Paths in the code itself.
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').map(str::to_owned);
    let own = |path: &String| ["crate::", "super::", "self::"].iter().any(|first| path.starts_with(first));
    used.chain(words).filter(own).collect()
}

/// The file to which a path of `file` leads; `None` if that is a folder's `mod.rs`, which only re-exports.
fn target(file: &Path, path: &str) -> Option<PathBuf> {
    let source = root().join("src");
    let room = source.join(file.strip_prefix(&source).unwrap().components().next().unwrap());
    let is_face = file.file_name().is_some_and(|name| name == "mod.rs");
    let mut folder = if is_face { file.parent().unwrap().to_owned() } else { file.with_extension("") };
    let mut found = None;
    for word in path.split("::") {
        match word {
            "crate" => folder = if room.join("Cargo.toml").exists() { room.clone() } else { source.clone() },
            "super" => folder = folder.parent()?.to_owned(),
            "self" => {}
            _ => {
                let module = folder.join(word);
                found = match (module.with_extension("rs"), module.join("mod.rs")) {
                    (file, _) if file.exists() => Some(file),
                    (_, face) if face.exists() => None,
                    _ => break,
                };
                folder = module;
            }
        }
    }
    found.filter(|found| found != file)
}

/// The files that remain if those that import none of the others are removed repeatedly.
fn in_circles(mut imports: BTreeMap<PathBuf, BTreeSet<PathBuf>>) -> BTreeMap<PathBuf, BTreeSet<PathBuf>> {
    loop {
        let kept: BTreeSet<PathBuf> = imports.keys().cloned().collect();
        imports.values_mut().for_each(|used| used.retain(|file| kept.contains(file)));
        let before = imports.len();
        imports.retain(|_, used| !used.is_empty());
        if imports.len() == before {
            return imports;
        }
    }
}

#[test]
fn a_use_of_a_group_is_one_of_each() {
    let tree = "super::{Compared, bars::{self, render}, rows}";
    assert_eq!(paths(tree), ["super::Compared", "super::bars::self", "super::bars::render", "super::rows"]);
}

#[test]
fn no_files_import_each_other() {
    if !all_rooms_are_here() {
        return;
    }
    let mut files = Vec::new();
    sources(&root().join("src"), &mut files);
    let faces = ["mod.rs", "lib.rs", "main.rs"];
    files.retain(|file| file.file_name().is_some_and(|name| faces.iter().all(|face| name != *face)));
    let imports: BTreeMap<PathBuf, BTreeSet<PathBuf>> = files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            let used = named(&text).iter().filter_map(|path| target(&file, path)).collect();
            (file, used)
        })
        .collect();
    let seen: usize = imports.values().map(BTreeSet::len).sum();
    assert!(seen > 1000, "only {seen} imports were read");
    let circles = in_circles(imports);
    assert!(circles.is_empty(), "{circles:#?}");
}
