//! Groups bytes by their time of arrival: `Esc` and, half a second later, `q` are two keys, however late the loop looks at them.

use crossterm::event::Event;
use tokio::time::Instant;

use super::decoder::Decoder;

/// A decoder with a clock.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    decoder: Decoder,
    /// When an unfinished sequence is dropped.
    settles: Option<Instant>,
}

impl Sequences {
    /// Takes bytes that arrived at a time. Returns the events that they complete, and those that were due before.
    pub fn take(&mut self, at: Instant, bytes: &[u8]) -> Vec<Event> {
        let over = self.settles.is_some_and(|settles| at >= settles);
        let mut events: Vec<Event> = over.then(|| self.settle()).flatten().into_iter().collect();
        events.extend(self.decoder.feed(bytes));
        self.settles = self.decoder.patience().map(|patience| at + patience);
        events
    }

    /// When [`Self::settle`] is due, if a sequence is unfinished.
    pub const fn settles(&self) -> Option<Instant> {
        self.settles
    }

    /// Ends an unfinished sequence, because nothing followed in time.
    pub fn settle(&mut self) -> Option<Event> {
        self.settles = None;
        self.decoder.settle()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::*;

    #[test]
    fn what_came_late_is_a_key_of_its_own_however_late_it_is_seen() {
        let key = |symbol, modifiers| Event::Key(KeyEvent::new(KeyCode::Char(symbol), modifiers));
        let out = [("q", key('q', KeyModifiers::NONE)), ("\x03", key('c', KeyModifiers::CONTROL))];
        for beginning in ["\x1b", "\x1b[", "\x1b[<0;30", "\x1bO", "\x1b]0;x", "\x1b[200~text", "\x1b[200~text\x1b[20"] {
            for (way_out, pressed) in &out {
                let began = Instant::now();
                let mut sequences = Sequences::default();
                sequences.take(began, beginning.as_bytes());
                // The loop did not look meanwhile.
                let events = sequences.take(began + Duration::from_millis(500), way_out.as_bytes());
                assert_eq!(events.last(), Some(pressed), "{beginning:?} {events:?}");
            }
        }
        let mut sequences = Sequences::default();
        let began = Instant::now();
        assert_eq!(sequences.take(began, b"\x1b"), []);
        let events = sequences.take(began + Duration::from_millis(20), b"q");
        assert_eq!(events, [key('q', KeyModifiers::ALT)], "at once they are one key");
    }
}
