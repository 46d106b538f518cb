//! The keeper's cursor: it goes where a person wants, moves by itself, or stays at the mark.

use tokio::time::Instant;
use vramlab_model::Micros;
use vramlab_recording::Direction;

use super::{FRAME, Keeper, Play};
use crate::cursor::{self, Landmark, LookBack, Move};
use crate::picture::{Cursor, Moment, SourceKind};

impl Keeper {
    pub(super) fn go(&mut self, to: Move) {
        let finding = match to {
            Move::Jump(Landmark::Finding, _) => self.place_of_finding(),
            _ => None,
        };
        let from = match to {
            // Before a moment that the keeper chose there may be no flip, and after it the last one.
            Move::Jump(Landmark::Flip, Direction::Backward) => self.cursor,
            _ => self.shown(),
        };
        if let Some(cursor) = cursor::target(&mut self.timeline, from, to, self.device, finding) {
            self.set_cursor(cursor);
        }
    }

    /// The moment on screen, wherever the run is.
    pub(super) fn shown(&self) -> Cursor {
        match (self.cursor, self.marks.shown()) {
            (Cursor::Now, Some(mark)) if mark.moment != Moment::Now => Cursor::At(mark.view.position),
            (cursor, _) => cursor,
        }
    }

    pub(super) fn pin(&mut self) {
        let place = match self.shown() {
            Cursor::Now => self.timeline.end(),
            Cursor::At(position) => position,
        };
        if let Err(why) = self.pins.next(&mut self.timeline, self.device, place) {
            self.say(&why.into());
        }
    }

    pub(super) fn place_of_finding(&mut self) -> Option<u64> {
        let device = self.device;
        let ranks = match &mut self.back {
            Some(back) => &mut back.ranks,
            None => self.timeline.now(),
        };
        ranks.lab_mut(device)?.view().findings.iter().find_map(|finding| finding.position)
    }

    pub(super) fn set_cursor(&mut self, cursor: Cursor) {
        self.cursor = cursor;
        match cursor {
            Cursor::Now => self.back = None,
            Cursor::At(position) => {
                // A cursor a short way ahead is advanced event by event instead of being looked up.
                const NEAR: u64 = 20_000;
                match &mut self.back {
                    Some(back) if (back.ranks.position()..back.ranks.position() + NEAR).contains(&position) => {
                        back.advance(&mut self.timeline, position, self.device);
                    }
                    _ => self.back = LookBack::at(&mut self.timeline, position, self.device),
                }
                if self.back.is_none() {
                    self.cursor = Cursor::Now;
                }
            }
        }
    }

    pub(super) fn toggle_play(&mut self) {
        if self.play.take().is_some() {
            return;
        }
        if self.cursor == Cursor::Now {
            self.set_cursor(Cursor::At(self.timeline.first()));
        }
        let time = self.cursor_time();
        self.play = Some(Play { wall: Instant::now(), time });
    }

    pub(super) fn restart_play(&mut self) {
        if self.play.is_some() {
            let time = self.cursor_time();
            self.play = Some(Play { wall: Instant::now(), time });
        }
    }

    pub(super) fn cursor_time(&mut self) -> Micros {
        let device = self.device;
        let Some(back) = &self.back else { return self.now_time() };
        match back.ranks.lab(device) {
            Some(lab) => lab.time(),
            // Nothing has happened yet: the clock begins with the first event.
            None => self.timeline.event(self.timeline.first()).map_or(Micros(0), |event| event.time),
        }
    }

    /// Moves a cursor that moves by itself to where its clock is.
    pub(super) fn play_on(&mut self) {
        let (Some(play), Cursor::At(position)) = (self.play, self.cursor) else { return };
        if self.published.elapsed() < FRAME {
            return;
        }
        let passed = play.wall.elapsed().as_secs_f64() * self.speed * 1e6;
        let until = Micros(play.time.0.saturating_add(passed as u64));
        let next = self.timeline.find(position, Direction::Forward, |event| event.time > until);
        match next {
            Some(next) if next > position => self.set_cursor(Cursor::At(next)),
            Some(_) => return,
            None => {
                // In a run that has ended it stays at the end, because "now" is the mark there.
                let end = if self.goes_on() { Cursor::Now } else { Cursor::At(self.timeline.end()) };
                self.set_cursor(end);
                self.play = None;
            }
        }
        self.dirty = true;
    }

    /// True if more may happen.
    pub(super) fn goes_on(&self) -> bool {
        self.grows || self.kind == SourceKind::Live
    }

    /// Marks the moment whose memory is shown while the cursor has not been moved. Returns where screens look then.
    pub(super) fn mark(&mut self) -> Cursor {
        if self.cursor != Cursor::Now || self.behind.is_some() {
            self.marks.begin_anew();
            return self.cursor;
        }
        let (device, goes_on) = (self.device, self.goes_on());
        self.marks.renew(&mut self.timeline, device, goes_on, &mut self.ghosts);
        let place = self.marks.place().map_or(self.cursor, Cursor::At);
        self.studies.begin(&mut self.timeline, device, place, goes_on);
        if self.marks.place().is_none_or(|place| self.studies.has(place)) {
            self.marks.show();
        }
        // A ghost follows a run that goes on, and stays at the mark of one that has ended.
        if goes_on { self.cursor } else { place }
    }
}
