//! The last lines of the log.

use std::collections::VecDeque;

use super::{Level, LogLine};

/// A bounded log. A line can be amended as long as it is kept.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    lines: VecDeque<LogLine>,
    dropped: u64,
}

/// The id of a line in a [`Log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineId(u64);

impl Log {
    const LINES: usize = 200;

    pub(super) fn push(&mut self, line: LogLine) -> LineId {
        if self.lines.len() == Self::LINES {
            self.lines.pop_front();
            self.dropped += 1;
        }
        self.lines.push_back(line);
        LineId(self.dropped + self.lines.len() as u64 - 1)
    }

    pub(super) fn amend(&mut self, id: LineId, level: Level, text: &str) {
        let line = id.0.checked_sub(self.dropped).and_then(|index| self.lines.get_mut(usize::try_from(index).ok()?));
        if let Some(line) = line {
            line.text = text.into();
            line.level = level;
        }
    }

    /// The last `count` lines, oldest first.
    pub(super) fn last(&self, count: usize) -> Vec<LogLine> {
        self.lines.iter().skip(self.lines.len().saturating_sub(count)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Micros;

    #[test]
    fn a_full_log_drops_its_oldest_lines_and_amends_what_it_has() {
        let mut log = Log::default();
        let line = |n: u64| LogLine { time: Micros(n), step: 0, level: Level::Info, text: n.to_string().into() };
        let first = log.push(line(0));
        let ids: Vec<LineId> = (1..=300).map(|n| log.push(line(n))).collect();
        log.amend(first, Level::Danger, "gone");
        log.amend(ids[299], Level::Danger, "last");
        let lines = log.last(1000);
        assert_eq!(lines.len(), 200);
        assert_eq!((&*lines[0].text, &*lines[199].text), ("101", "last"));
        assert!(lines[..199].iter().all(|line| line.level == Level::Info));
    }
}
