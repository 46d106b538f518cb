//! The end of a watched program's output, and its progress, read while the screen waits for its first memory.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::app::Message;
use crate::source;
use crate::user_input::safe;

/// How many bytes of the end are read: more than any screen shows.
const END: u64 = 16 << 10;
/// How often the output is read.
const EVERY: Duration = Duration::from_millis(400);

/// Reads on a thread of its own as long as `waits` is set, and reports news to `tell`.
pub(super) fn follow(
    path: Option<PathBuf>,
    process: Option<u32>,
    waits: Arc<AtomicBool>,
    tell: impl Fn(Message) + Send + 'static,
) {
    let read = move || {
        let (mut last, mut had_torch) = (Vec::new(), None);
        while waits.load(Ordering::Relaxed) {
            // A file that does not exist yet may appear.
            let lines = path.as_deref().and_then(|path| end_of(path).ok()).unwrap_or_default();
            if lines != last {
                tell(Message::Output(lines.clone()));
                last = lines;
            }
            // A loaded library stays loaded.
            let has_torch =
                if had_torch == Some(true) { had_torch } else { process.and_then(source::has_loaded_torch) };
            if has_torch != had_torch {
                tell(Message::Torch(has_torch));
                had_torch = has_torch;
            }
            std::thread::sleep(EVERY);
        }
    };
    // Without a thread no output is shown.
    let _ = std::thread::Builder::new().name("program output".to_owned()).spawn(read);
}

/// The last lines of a file, without control characters. A progress bar is shown as it was drawn last.
fn end_of(path: &Path) -> io::Result<Vec<String>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(END);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().skip(usize::from(from > 0));
    let last = |line: &str| line.trim_end().rsplit('\r').next().unwrap_or_default().replace('\t', "    ");
    Ok(lines.map(last).map(|line| safe(&line).into_owned()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_has_whole_lines_and_no_control_characters() {
        let path = std::env::temp_dir().join(format!("vramlab-output-{}", std::process::id()));
        std::fs::write(&path, "loading\n10 %\r50 %\r90 %\n\u{1b}[31mred\n").unwrap();
        let lines = end_of(&path).unwrap();
        assert_eq!(lines[..2], ["loading", "90 %"]);
        assert!(!lines[2].contains('\u{1b}') && lines[2].contains("red"), "{lines:?}");
        std::fs::write(&path, "a line of text\n".repeat(4000)).unwrap();
        let lines = end_of(&path).unwrap();
        assert!(lines.len() > 100 && lines.iter().all(|line| line == "a line of text"), "the first is whole");
        std::fs::remove_file(&path).unwrap();
        assert!(end_of(&path).is_err());
    }
}
