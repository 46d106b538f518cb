//! The source text of a file named in a stack, read on a thread of its own because the file may be slow to read.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::UNIX_EPOCH;

use tokio::sync::mpsc;

use vramlab_model::Micros;
use vramlab_user_input::{is_safe, open_file, read_text};

/// The current text of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The file's path.
    pub path: Arc<str>,
    /// Its lines, without characters that a terminal can't show; `None` if the file can't be read.
    pub lines: Option<Vec<String>>,
    /// When it last changed, in Unix microseconds, if the system knows.
    pub changed: Option<Micros>,
}

impl Listing {
    /// A line, counted from 1.
    #[must_use]
    pub fn line(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        self.lines.as_ref()?.get(index).map(String::as_str)
    }

    /// Reads a Python file, which a stack names by its full path. No other file is shown.
    fn read(path: &Arc<str>) -> Self {
        let file = Path::new(&**path);
        let is_source = file.is_absolute() && file.extension().is_some_and(|extension| extension == "py");
        let text = if is_source { read_text(file).ok() } else { None };
        let lines = text.map(|text| text.lines().map(shown).collect());
        let changed = open_file(file).ok().filter(|_| is_source).and_then(|(_, metadata)| metadata.modified().ok());
        let since = changed.and_then(|changed| changed.duration_since(UNIX_EPOCH).ok());
        let changed = since.map(|since| Micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX)));
        Self { path: Arc::clone(path), lines, changed }
    }
}

/// A line for display: tabs become four spaces, and characters that would command a terminal are removed.
fn shown(line: &str) -> String {
    line.replace('\t', "    ").chars().filter(|symbol| is_safe(*symbol)).collect()
}

/// The wanted file, and the last one that was read.
#[derive(Debug)]
pub(super) struct Listings {
    wanted: Option<Arc<str>>,
    last: Option<Arc<Listing>>,
    read: (mpsc::UnboundedSender<Listing>, mpsc::UnboundedReceiver<Listing>),
}

impl Listings {
    pub fn new() -> Self {
        Self { wanted: None, last: None, read: mpsc::unbounded_channel() }
    }

    /// Requests another file, or none.
    pub fn want(&mut self, path: Option<Arc<str>>) {
        if self.wanted == path {
            return;
        }
        self.wanted = path;
        self.last = None;
        if let Some(path) = self.wanted.clone() {
            let read = self.read.0.clone();
            // Without a thread no line is shown.
            let reader = thread::Builder::new().name("listing".to_owned());
            // The receiver may be gone.
            drop(reader.spawn(move || drop(read.send(Listing::read(&path)))));
        }
    }

    /// The next file that was read.
    pub async fn next(&mut self) -> Listing {
        match self.read.1.recv().await {
            Some(listing) => listing,
            // Can't happen: a sender is kept here.
            None => std::future::pending().await,
        }
    }

    /// Stores a file's text, if it is still wanted.
    pub fn take(&mut self, listing: Listing) {
        if self.wanted.as_ref() == Some(&listing.path) {
            self.last = Some(Arc::new(listing));
        }
    }

    /// The text of the wanted file, once it has been read.
    pub fn last(&self) -> Option<Arc<Listing>> {
        self.last.clone()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lines_of_source_are_read_and_of_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| -> Arc<str> {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_string_lossy().into_owned().into()
        };
        let source = Listing::read(&write("model.py", b"import torch\n\tx = \x1b[31mgelu(x)\n"));
        assert_eq!((source.line(1), source.line(2)), (Some("import torch"), Some("    x = [31mgelu(x)")));
        assert_eq!((source.line(0), source.line(3)), (None, None));
        assert!(source.changed > Some(Micros(1_600_000_000_000_000)));
        for path in [write("secret", b"word"), write("binary.py", b"\xff\xfe"), "model.py".into(), "/no/such.py".into()]
        {
            assert_eq!(Listing::read(&path).lines, None, "{path}");
        }
        assert_eq!(Listing::read(&folder.path().to_string_lossy().into_owned().into()).lines, None);
    }

    #[tokio::test]
    async fn only_what_is_still_wanted_is_kept() {
        let mut listings = Listings::new();
        listings.want(Some("/no/such.py".into()));
        let first = listings.next().await;
        listings.want(Some("/nor/this.py".into()));
        listings.take(first);
        assert_eq!(listings.last(), None);
        let second = listings.next().await;
        listings.take(second);
        assert_eq!(&*listings.last().unwrap().path, "/nor/this.py");
        listings.want(None);
        assert_eq!(listings.last(), None);
    }
}
