//! Notices that stand in the footer for a while.

use std::sync::Arc;
use std::time::Duration;

use crate::model::{Level, LogLine, Micros};

/// How long a notice stays in the footer.
const NOTICE: Duration = Duration::from_secs(5);

/// The notice in the footer, and the notices shown before.
#[derive(Clone, Debug, Default)]
pub(super) struct Notices {
    text: Option<String>,
    until: Duration,
    /// The last warning of the log that was shown.
    told: Option<(Micros, Arc<str>)>,
    /// How many messages of a file's reader were shown.
    heard: u64,
}

impl Notices {
    /// The notice.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// When it disappears.
    pub fn until(&self) -> Option<Duration> {
        self.text.as_ref().map(|_| self.until)
    }

    /// Shows `text` from `now` on.
    pub fn tell(&mut self, text: String, now: Duration) {
        self.text = Some(text);
        self.until = now + NOTICE;
    }

    /// Shows the last warning of the log, once.
    pub fn hear(&mut self, log: &[LogLine], now: Duration) {
        let Some(LogLine { time, text, .. }) = log.iter().rev().find(|line| line.level == Level::Warning) else {
            return;
        };
        let warning = Some((*time, Arc::clone(text)));
        if self.told != warning {
            self.told = warning;
            self.tell(text.to_string(), now);
        }
    }

    /// Shows the last message of a file's reader, once.
    pub fn hear_of(&mut self, said: Option<&(u64, Arc<str>)>, now: Duration) {
        if let Some((number, text)) = said.filter(|(number, _)| *number > self.heard) {
            self.heard = *number;
            self.tell(text.to_string(), now);
        }
    }

    /// Removes the notice, because its subject is over.
    pub fn forget(&mut self) {
        self.text = None;
    }

    /// Removes the notice if its time is up. Returns true if it was removed.
    pub fn expire(&mut self, now: Duration) -> bool {
        let over = self.until().is_some_and(|until| until <= now);
        if over {
            self.text = None;
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_once() {
        let mut notices = Notices::default();
        let log = |text: &str, micros, level| [LogLine { time: Micros(micros), step: 1, level, text: text.into() }];
        let at = Duration::from_millis;
        notices.hear(&log("flipped", 4, Level::Switch), at(5));
        assert_eq!(notices.text(), None, "the log has room for the rest");
        notices.hear(&log("refused: no", 5, Level::Warning), at(10));
        assert_eq!((notices.text(), notices.until()), (Some("refused: no"), Some(at(5010))));
        assert!(!notices.expire(at(5009)));
        assert!(notices.expire(at(5010)), "it stood there long enough");
        assert!(!notices.expire(at(5011)), "and is gone");
        notices.hear(&log("refused: no", 5, Level::Warning), at(5020));
        assert_eq!((notices.text(), notices.until()), (None, None));
        notices.hear(&log("refused: no", 6, Level::Warning), at(5100));
        assert_eq!(notices.text(), Some("refused: no"), "the same again is news");
    }

    #[test]
    fn what_the_reader_of_a_file_says_is_said_once() {
        let mut notices = Notices::default();
        let at = Duration::from_secs;
        notices.hear_of(None, at(0));
        assert_eq!(notices.text(), None);
        let cut = (1, "cut off".into());
        notices.hear_of(Some(&cut), at(1));
        assert_eq!(notices.text(), Some("cut off"));
        assert!(notices.expire(at(6)));
        notices.hear_of(Some(&cut), at(7));
        assert_eq!(notices.text(), None);
    }
}
