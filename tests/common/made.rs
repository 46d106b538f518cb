//! Parts of pages that a program generates: tests compare them, or write them anew.
#![allow(clippy::unwrap_used, reason = "a test that can't be set up fails")]
#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A lock, because several tests of one program can write to the same page.
static PAGES: Mutex<()> = Mutex::new(());

/// Whether generated parts are written instead of compared.
pub fn renews() -> bool {
    std::env::var_os("VRAMLAB_UPDATE").is_some()
}

/// A file of the project.
pub fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Asserts that the text between `<!-- NAME -->` and `<!-- /NAME -->` of a page is `wanted`; `command` writes it.
pub fn assert_part(page: &str, name: &str, wanted: &str, command: &str) {
    let _alone = PAGES.lock().unwrap_or_else(PoisonError::into_inner);
    let path = file(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap();
    let (part, after) = rest.split_once(&end).unwrap();
    if renews() {
        std::fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
        return;
    }
    assert!(part == wanted, "{page} is stale: {command}\nit has\n{part}\nand should have\n{wanted}");
}
