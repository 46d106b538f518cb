//! The layout of a lesson on the screen: its text, its steps, the words of the text, and a picture beside them.
//!
//! ```text
//!  being read, or asked where the lab would tell       beside the lab
//!  ╭ lesson ──────────╮╭ blocks ───────────────╮      ╭ the lab ──────────────╮╭ lesson ───╮
//!  ╰──────────────────╯│                       │      │                       │╰───────────╯
//!  ╭ steps ───────────╮│                       │      │                       │╭ steps ────╮
//!  ╰──────────────────╯│                       │      │                       │╰───────────╯
//!  ╭ words ───────────╮│                       │      │                       │╭ words ────╮
//!  ╰──────────────────╯╰───────────────────────╯      ╰───────────────────────╯╰───────────╯
//! ```

use ratatui::layout::Rect;

use super::state::Tutor;
use super::text;
use super::way;
use crate::drawing::pane::Frame;
use crate::lesson::{CourseStage, Sketch};
use crate::tui::hold::Hold;
use crate::tui::holders;
use crate::tui::stage::Stage;

/// From this width on the text is beside the screen.
const WIDE: u16 = 150;
/// From this width on panes have boxes, and the steps are beside a text below the screen.
const BOXES: u16 = 100;
/// The width of the pane beside the screen, and its share of the screen in per cent. With an audience it has more of both.
const BESIDE: (u16, u16) = (50, 64);
const BESIDE_SHARE: u16 = 30;
const BESIDE_PRESENTED: (u16, u16) = (60, 72);
const BESIDE_SHARE_PRESENTED: u16 = 40;
/// The width of a text on its own page, beside a picture and without one.
const PAGE: u16 = 92;
const PAGE_ALONE: u16 = 120;
const PAGE_PRESENTED: u16 = 72;
/// The width of the steps beside a text below the screen.
const STEPS: u16 = 36;
/// The fewest rows of the pane below, so that a short text does not make it jump.
const BELOW: u16 = 9;
/// The fewest rows of a picture, of a pane of words, and of a pane of steps.
const LEAST_PICTURE: u16 = 5;
/// The most rows of a map of blocks; more would not show more.
const MOST_MAP: u16 = 36;
const LEAST_WORDS: u16 = 6;
const LEAST_STEPS: u16 = 3;

/// What is shown beside the text of a lesson on its own page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Companion {
    /// The lab's own segments and blocks.
    Map,
    /// A sketch that may be shown while a question is open.
    Sketch(Sketch),
}

/// The areas of a lesson; areas without room are empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TutorLayout {
    /// The area left for the lab's screen.
    pub lab: Rect,
    pub(super) text: Rect,
    pub(super) steps: Rect,
    pub(super) words: Rect,
    /// The area for the words of what was read before, while a question is open, and for how a lesson goes.
    pub(super) known: Rect,
    pub(super) keys: Rect,
    pub(super) picture: Rect,
    /// The area for the holders of the picture's memory.
    pub(super) held: Rect,
    pub(super) beside: Option<Companion>,
    pub(super) frame: Frame,
}

impl TutorLayout {
    /// A layout with only the lesson, in `text`.
    fn of_text(lab: Rect, text: Rect, frame: Frame) -> Self {
        let none = Rect { width: 0, height: 0, ..text };
        Self {
            lab,
            text,
            steps: none,
            words: none,
            known: none,
            keys: none,
            picture: none,
            held: none,
            beside: None,
            frame,
        }
    }
}

/// Divides `body` between a lesson and the screen with this index.
pub(crate) fn places(stage: &Stage<'_>, tutor: &Tutor, screen: usize, body: Rect) -> TutorLayout {
    let nothing = Rect { height: 0, ..body };
    if tutor.is_at_end() {
        let frame = if body.width >= BOXES { Frame::Box } else { Frame::Rule };
        let rows = rows_of_text(stage, tutor, frame, body.width).min(body.height);
        return TutorLayout::of_text(nothing, Rect { height: rows, ..body }, frame);
    }
    if tutor.hold() == Hold::Answer {
        let beside = tutor.course().step().sketch.map(Companion::Sketch);
        let beside = beside.filter(|beside| *beside != Companion::Sketch(Sketch::Step) || has_step(stage));
        return page(stage, tutor, beside, nothing, body);
    }
    let reads =
        tutor.course().stage() == CourseStage::Introduction && tutor.course().has_begun() && tutor.back.is_none();
    if reads && screen == 0 && !tutor.folded {
        let beside = (!stage.shown.segments.is_empty()).then_some(Companion::Map);
        return page(stage, tutor, beside, nothing, body);
    }
    if body.width >= WIDE && !tutor.folded { beside_screen(stage, tutor, body) } else { below(stage, tutor, body) }
}

fn has_step(stage: &Stage<'_>) -> bool {
    stage.picture.shown_step().is_some_and(|profile| profile.peak().is_some())
}

/// How many rows the text takes with its frame, in a pane of this width.
fn rows_of_text(stage: &Stage<'_>, tutor: &Tutor, frame: Frame, width: u16) -> u16 {
    let (margin, around) = if frame == Frame::Box { (4, 4) } else { (2, 2) };
    let lines = text::lines(stage, tutor, text::measure(stage, width.saturating_sub(margin))).len();
    u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(around)
}

/// A layout in which the lesson has all of `body`: there is no step yet, or the lab would reveal an answer.
fn page(stage: &Stage<'_>, tutor: &Tutor, beside: Option<Companion>, lab: Rect, body: Rect) -> TutorLayout {
    let frame = if body.width >= BOXES { Frame::Box } else { Frame::Rule };
    let cells = match beside {
        _ if stage.presenting => PAGE_PRESENTED,
        Some(_) => PAGE,
        None => PAGE_ALONE,
    };
    let width = if frame == Frame::Box { (cells + 4).min(body.width) } else { body.width };
    // Under a rule, a blank row before the prompt, unless a picture can use it.
    let air = u16::from(frame == Frame::Rule && beside.is_none());
    let rows = (rows_of_text(stage, tutor, frame, width) + air).min(body.height);
    if body.width < WIDE && beside.is_some() {
        // The text above, as wide as the page, and the picture below it.
        let rows = (rows_of_text(stage, tutor, frame, body.width) + air).min(body.height);
        let text = Rect { height: rows, ..body };
        let below = Rect { y: text.bottom(), height: body.height - rows, ..body };
        let mut places = TutorLayout::of_text(lab, text, frame);
        if below.height < LEAST_PICTURE {
            return places;
        }
        (places.beside, places.picture) = (beside, below);
        if frame == Frame::Box {
            let left = Rect { width: body.width - STEPS - 4, ..below };
            places.picture = left;
            stack(stage, tutor, Rect { x: left.right(), width: STEPS + 4, ..below }, &mut places);
        }
        return places;
    }
    if let Some(beside) = beside {
        let text = Rect { width, height: rows, ..body };
        let mut places = TutorLayout::of_text(lab, text, frame);
        places.beside = Some(beside);
        places.picture = Rect { x: text.right(), width: body.width - width, ..body };
        if beside == Companion::Map && body.height > MOST_MAP + LEAST_WORDS && holders::are_shown(stage) {
            let held = body.height - MOST_MAP;
            places.held = Rect { y: body.bottom() - held, height: held, ..places.picture };
            places.picture.height = MOST_MAP;
        }
        stack(stage, tutor, Rect { y: text.bottom(), height: body.height - rows, width, ..body }, &mut places);
        fill(stage, tutor, &mut places);
        return places;
    }
    // A page alone is in the middle, above half of the free rows.
    let x = body.x + (body.width - width) / 2;
    let wanted = if frame == Frame::Box { way::rows(tutor) } else { 0 };
    let steps = if rows + wanted <= body.height { wanted } else { 0 };
    let above = if frame == Frame::Box { (body.height - rows - steps) / 3 } else { 0 };
    let text = Rect { x, y: body.y + above, width, height: rows };
    let mut places = TutorLayout::of_text(lab, text, frame);
    places.steps = Rect { y: text.bottom(), height: steps, ..text };
    places
}

/// Places the steps and the words one below the other, if there is room. The words take the rest.
fn stack(stage: &Stage<'_>, tutor: &Tutor, area: Rect, places: &mut TutorLayout) {
    let wanted = way::rows(tutor);
    let rows = if area.height >= wanted.min(LEAST_STEPS + 2) { wanted.min(area.height) } else { 0 };
    places.steps = Rect { height: rows, ..area };
    let left = Rect { y: area.y + rows, height: area.height - rows, ..area };
    if left.height >= LEAST_WORDS && !stage.presenting {
        // A column ends at the end of the screen.
        let has_some = way::rows_of_words(stage, tutor, left.width) > 2;
        places.words = Rect { height: if has_some { left.height } else { 0 }, ..left };
    }
}

/// Limits the words of a page to their height, if other panes have room below them: the words of what was read before,
/// while a question is open, and how a lesson goes.
fn fill(stage: &Stage<'_>, tutor: &Tutor, places: &mut TutorLayout) {
    let words = places.words;
    let rows = way::rows_of_words(stage, tutor, words.width);
    let Some(mut left) = words.height.checked_sub(rows).filter(|left| *left >= LEAST_WORDS.min(way::ROWS_OF_KEYS))
    else {
        return;
    };
    places.words.height = rows;
    let mut y = words.y + rows;
    let known = way::rows_of_known(stage, tutor, words.width);
    if tutor.hold().asks() && known > 2 && left >= LEAST_WORDS {
        places.known = Rect { y, height: known.min(left), ..words };
        (y, left) = (places.known.bottom(), left - places.known.height);
    }
    if left >= way::ROWS_OF_KEYS {
        places.keys = Rect { y, height: way::ROWS_OF_KEYS, ..words };
    }
}

/// A layout with the text at the right of the screen.
fn beside_screen(stage: &Stage<'_>, tutor: &Tutor, body: Rect) -> TutorLayout {
    let ((least, most), share) =
        if stage.presenting { (BESIDE_PRESENTED, BESIDE_SHARE_PRESENTED) } else { (BESIDE, BESIDE_SHARE) };
    let width = (body.width.saturating_mul(share) / 100).clamp(least, most);
    let screen = Rect { width: body.width - width, ..body };
    let column = Rect { x: screen.right(), width, ..body };
    let rows = rows_of_text(stage, tutor, Frame::Box, width).min(column.height);
    let text = Rect { height: rows, ..column };
    let mut places = TutorLayout::of_text(screen, text, Frame::Box);
    stack(stage, tutor, Rect { y: text.bottom(), height: column.height - rows, ..column }, &mut places);
    places
}

/// A layout with the text below the screen, at its full height; the rest is the lab's.
fn below(stage: &Stage<'_>, tutor: &Tutor, body: Rect) -> TutorLayout {
    // All choices must be visible.
    let most = if tutor.hold().asks() { body.height * 4 / 5 } else { body.height * 3 / 5 };
    let steps = if body.width >= BOXES && !stage.presenting && !tutor.folded { STEPS } else { 0 };
    let width = body.width - steps;
    let wanted = if tutor.folded { 2 } else { rows_of_text(stage, tutor, Frame::Rule, width).max(BELOW) };
    let rows = wanted.min(most);
    let screen = Rect { height: body.height - rows, ..body };
    let text = Rect { y: screen.bottom(), height: rows, width, ..body };
    let mut places = TutorLayout::of_text(screen, text, Frame::Rule);
    places.steps = Rect { x: text.right(), width: steps, ..text };
    places
}
