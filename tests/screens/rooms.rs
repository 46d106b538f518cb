//! Checks the layers of ARCHITECTURE.md: each room uses only the rooms that its row of the table names, and those are
//! below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms that every room may use, so that no row repeats them.
const FOR_ALL: &str = "units";

/// A row of the table.
#[derive(Debug)]
struct Row {
    rooms: Vec<String>,
    /// `None`: everything.
    uses: Option<BTreeSet<String>>,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The texts between backquotes, without what follows the name of a room.
fn quoted(cell: &str) -> Vec<String> {
    let names = cell.split('`').skip(1).step_by(2);
    names.map(|name| name.trim_end_matches(".rs").split(['/', ':']).next().unwrap_or_default().to_owned()).collect()
}

/// The table of rooms, from the top down.
fn table() -> Vec<Row> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
        let uses = (cells[2].trim() != "everything").then(|| quoted(cells[2]).into_iter().collect());
        Row { rooms: quoted(cells[0]), uses }
    });
    rows.collect()
}

/// Rust files below `folder`, without those of tests.
pub(crate) fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

/// The rooms that a file names in code that ships; unit tests may use any.
fn named(text: &str, is_crate: bool, rooms: &BTreeSet<String>) -> BTreeSet<String> {
    let shipped = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let code = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
    // Rooms that are crates of their own have these names in each other.
    let named = code.flat_map(|line| {
        // What such a room calls its crate is itself.
        let line = if is_crate { line.replace("crate::", "") } else { line.to_owned() };
        let line = line.replace("vramlab_allocator::units::", "crate::units::");
        let line = rooms
            .iter()
            .fold(line, |line, room| line.replace(&format!("vramlab_{room}::"), &format!("crate::{room}::")));
        let named = line.split("crate::").skip(1).map(|rest| {
            rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default().to_owned()
        });
        named.collect::<Vec<_>>()
    });
    named.filter(|name| rooms.contains(name)).collect()
}

/// The rooms that each room uses, with a file that does.
fn uses() -> BTreeMap<String, BTreeMap<String, String>> {
    let source = root().join("src");
    let mut files = Vec::new();
    sources(&source, &mut files);
    let room_of = |file: &Path| {
        let first = file.strip_prefix(&source).unwrap().components().next().unwrap();
        first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    let rooms: BTreeSet<String> = files.iter().map(|file| room_of(file)).filter(|room| room != "lib").collect();
    let mut uses: BTreeMap<String, BTreeMap<String, String>> =
        rooms.iter().map(|room| (room.clone(), BTreeMap::new())).collect();
    for file in &files {
        let Some(used) = uses.get_mut(&room_of(file)) else { continue };
        let is_crate = source.join(room_of(file)).join("Cargo.toml").exists();
        for room in named(&fs::read_to_string(file).unwrap(), is_crate, &rooms) {
            used.entry(room).or_insert_with(|| file.strip_prefix(root()).unwrap().display().to_string());
        }
    }
    for (room, used) in &mut uses {
        used.remove(room);
        used.remove(FOR_ALL);
    }
    uses
}

/// The published package leaves out the rooms that are packages themselves.
pub(crate) fn all_rooms_are_here() -> bool {
    let here = root().join("src/allocator").exists();
    if !here {
        eprintln!("skipped: the rooms that are crates of their own are not here");
    }
    here
}

#[test]
fn every_room_uses_what_the_table_says_and_nothing_else() {
    if !all_rooms_are_here() {
        return;
    }
    let (table, uses) = (table(), uses());
    for (room, used) in &uses {
        let row = table.iter().find(|row| row.rooms.contains(room));
        let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {room}"));
        let Some(allowed) = &row.uses else { continue };
        for (other, file) in used {
            assert!(
                allowed.contains(other) || row.rooms.contains(other),
                "{file}: {room} uses {other}, which its row in ARCHITECTURE.md doesn't name"
            );
        }
        for other in allowed {
            let by_any = row.rooms.iter().any(|room| uses[room].contains_key(other));
            assert!(by_any, "ARCHITECTURE.md lets {room} use {other}, which no file of it does");
        }
    }
}

#[test]
fn rooms_use_only_rooms_below_them() {
    let table = table();
    let place = |room: &str| table.iter().position(|row| row.rooms.iter().any(|name| name == room));
    for (at, row) in table.iter().enumerate() {
        for other in row.uses.iter().flatten() {
            let below = place(other).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {other}"));
            assert!(below > at, "{:?} uses {other}, which stands above it", row.rooms);
        }
    }
}

/// What ARCHITECTURE.md puts between backquotes, without its drawings.
fn named_in_architecture() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("    "));
    let lines: Vec<&str> = lines.collect();
    lines.join("\n").split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Every file below a folder.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

#[test]
fn every_path_that_is_named_is_there() {
    if !all_rooms_are_here() {
        return;
    }
    let mut sources = Vec::new();
    files(&root().join("src"), &mut sources);
    let (mut seen, mut missing) = (0, Vec::new());
    for name in named_in_architecture() {
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let is_path = name.contains('/') || ["rs", "md", "toml", "txt"].contains(&ending);
        // Files in a user's own folders need not exist.
        if !is_path || name.starts_with('$') || name.contains("::") {
            continue;
        }
        seen += 1;
        let (folder, pattern) = name.rsplit_once('/').unwrap_or(("", &name));
        let in_folder = |base: &Path| match pattern.strip_prefix('*') {
            Some(ending) => {
                let entries = fs::read_dir(base.join(folder)).into_iter().flatten().flatten();
                entries.map(|entry| entry.file_name()).any(|file| file.to_string_lossy().ends_with(ending))
            }
            None => base.join(&name).exists(),
        };
        let anywhere = || !name.contains('/') && sources.iter().any(|file| file.ends_with(&name));
        if !in_folder(&root()) && !in_folder(&root().join("src")) && !anywhere() {
            missing.push(name);
        }
    }
    assert!(seen > 30, "only {seen} paths");
    assert_eq!(missing, [""; 0], "ARCHITECTURE.md names what is gone");
}

#[test]
fn every_name_of_the_code_that_is_named_is_there() {
    if !all_rooms_are_here() {
        return;
    }
    let source = root().join("src");
    let mut all = Vec::new();
    files(&source, &mut all);
    all.retain(|file| file.extension().is_some_and(|ending| ending == "rs"));
    // Words of the code, by room, without comments.
    let mut words: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &all {
        let room = file.strip_prefix(&source).unwrap().components().next().unwrap();
        let of_room = words.entry(room.as_os_str().to_string_lossy().into_owned()).or_default();
        let text = fs::read_to_string(file).unwrap();
        for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
            of_room.extend(line.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned));
        }
    }
    let (mut seen, mut missing) = (0, Vec::new());
    for name in named_in_architecture().into_iter().filter(|name| name.contains("::")) {
        seen += 1;
        let (first, rest) = name.split_once("::").unwrap();
        // A room is searched alone; a type may be in any.
        let rooms: Vec<&BTreeSet<String>> = match words.get(first) {
            Some(room) => vec![room],
            None => words.values().collect(),
        };
        let has = |word: &str| rooms.iter().any(|room| room.contains(word));
        if !rest.split("::").all(has) || !words.contains_key(first) && !has(first) {
            missing.push(name);
        }
    }
    assert!(seen > 60, "only {seen} names");
    assert_eq!(missing, [""; 0], "ARCHITECTURE.md names what is gone");
}
