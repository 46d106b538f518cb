//! What a teacher would say now: what the last flip did, while it is news, then as many findings as fit, each complete.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::drawing::figures;
use crate::drawing::pane::{self, Frame, level_token, put_at, span};
use crate::drawing::theme::Token;
use crate::model::{Category, Gain, Level, RunState, Trial};
use crate::source::Cursor;
use crate::tui::action::Action;
use crate::tui::stage::Stage;
use crate::tui::when;
use crate::tui::words;
use crate::units::Bytes;

/// A finding: its level, its sentence, and its remedy.
struct WhyFinding {
    level: Level,
    what: String,
    remedy: String,
}

/// Everything to say, including what an op did.
fn said(stage: &Stage<'_>) -> Vec<WhyFinding> {
    let mut all = concluded(stage);
    if let Some(what) = of_op(stage) {
        let behind_failures = all.iter().take_while(|said| said.level == Level::Danger).count();
        all.insert(behind_failures, WhyFinding { level: Level::Info, what, remedy: String::new() });
    }
    all
}

fn concluded(stage: &Stage<'_>) -> Vec<WhyFinding> {
    let finding = |finding: &crate::model::Finding| WhyFinding {
        level: finding.level,
        what: finding.to_string(),
        remedy: words::remedies(stage, finding),
    };
    let mut all: Vec<WhyFinding> = stage.findings().iter().map(finding).collect();
    if let Some(what) = pending(stage) {
        let behind_failures = all.iter().take_while(|said| said.level == Level::Danger).count();
        all.insert(behind_failures, WhyFinding { level: Level::Info, what, remedy: String::new() });
    }
    if all.is_empty() {
        all.extend(best_flip(stage));
    }
    // A remedy for several findings is mentioned once.
    let said: Vec<String> = all.iter().map(|finding| finding.remedy.clone()).collect();
    for (index, finding) in all.iter_mut().enumerate() {
        if said[..index].contains(&said[index]) {
            finding.remedy.clear();
        }
    }
    if let Some((what, remedy)) = words::news(stage) {
        let behind_failures = all.iter().take_while(|said| said.level == Level::Danger).count();
        all.insert(behind_failures, WhyFinding { level: Level::Switch, what, remedy });
    }
    let key = |action| stage.keys.key_of(action);
    let quit = key(Action::Quit);
    let stopped = match &stage.picture.run {
        RunState::Failed(reason) => Some((reason.to_string(), format!("Press {quit} to leave."))),
        RunState::StepFailed(reason) => Some((
            format!("{reason}."),
            format!(
                "The switches go back to what worked: press {} to go on, or flip another one.",
                key(Action::TogglePause)
            ),
        )),
        RunState::Lost(reason) => Some((
            format!("{reason}."),
            format!("Press {} for the processor, {quit} to leave.", key(Action::UseProcessor)),
        )),
        _ => None,
    };
    if let Some((what, remedy)) = stopped {
        all.insert(0, WhyFinding { level: Level::Danger, what, remedy });
    }
    all
}

/// Bytes that are freed but still used by other streams, if they are more than a tenth of reserved.
fn pending(stage: &Stage<'_>) -> Option<String> {
    let ledger = &stage.shown.ledger;
    let (pending, reserved) = (ledger.pending, ledger.reserved());
    let share = figures::percent(pending.get(), reserved.get());
    (pending.get() > reserved.get() / 10).then(|| {
        let [pending, reserved] = [pending, reserved].map(figures::bytes);
        format!("{pending} of {reserved} reserved ({share}) are pending: freed, but other streams may still use them")
    })
}

/// What the current op allocated and freed, and the memory at that point, if the user has stopped there.
fn of_op(stage: &Stage<'_>) -> Option<String> {
    let stopped = stage.picture.cursor != Cursor::Now || stage.picture.run == RunState::Paused;
    let op = stage.shown.names.get(stage.shown.op);
    if !stopped || !stage.is_still() || op.is_empty() || stage.hold.asks() {
        return None;
    }
    let sum = |taken: bool| {
        let of = stage.touched().iter().filter(|block| block.taken.is_some() == taken);
        of.fold((0_u64, Bytes::ZERO), |(count, bytes), block| (count + 1, bytes + block.size))
    };
    let told =
        |(count, bytes): (u64, Bytes)| format!("{} in {}", figures::bytes(bytes), figures::counted(count, "block"));
    let did = match (sum(true), sum(false)) {
        ((0, _), (0, _)) => format!("{op} took and freed nothing"),
        (taken, (0, _)) => format!("{op} took {}", told(taken)),
        ((0, _), freed) => format!("{op} freed {}", told(freed)),
        (taken, freed) => format!("{op} took {} and freed {}", told(taken), told(freed)),
    };
    Some(format!("{did}: {} are allocated", figures::bytes(stage.shown.ledger.allocated())))
}

/// Without findings: the uses of memory, and of the flips that were tried the one that lowers the peak most.
fn best_flip(stage: &Stage<'_>) -> Option<WhyFinding> {
    let weighed = stage.picture.known().weighed.as_deref().filter(|_| stage.hold.advises())?;
    let (remedy, peak) = weighed.flips.iter().min_by_key(|(_, peak)| *peak)?;
    let gain = Gain { from: weighed.peak, to: *peak, trial: Trial::Simulated };
    let shares = shares(stage);
    (gain.is_worth_it() && !shares.is_empty()).then(|| WhyFinding {
        level: Level::Info,
        what: format!("{shares} {}", when::words(stage.picture)),
        remedy: format!("The best flip is {}: {gain}", words::remedy(stage, remedy)),
    })
}

/// The sentence if there are no findings: the uses of memory.
fn quiet(stage: &Stage<'_>) -> String {
    match &*shares(stage) {
        "" => "Nothing stands out.".to_owned(),
        shares => format!("Nothing stands out: {shares} {}.", when::words(stage.picture)),
    }
}

/// The categories of memory, as shares of at least a twentieth.
fn shares(stage: &Stage<'_>) -> String {
    let view = stage.shown;
    let mut parts: Vec<(Category, Bytes)> = Category::ALL.into_iter().zip(view.by_category).collect();
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let total = parts.iter().map(|(_, bytes)| *bytes).sum::<Bytes>();
    let words: Vec<String> = parts
        .iter()
        .filter(|(_, bytes)| bytes.get() * 20 > total.get())
        .map(|(category, bytes)| format!("{} {}", category.label(), figures::percent(bytes.get(), total.get())))
        .collect();
    words.join(", ")
}

/// The width that a frame and its blanks take, and the word before bare lines.
pub(crate) const FRAMED: u16 = 4;
pub(crate) const BEHIND_WORD: u16 = 7;

/// How many rows the first `findings` need in `width` cells minus `taken`, with blank rows between; 0 if there are none.
pub(crate) fn wanted_rows(stage: &Stage<'_>, width: u16, taken: u16, findings: usize) -> u16 {
    let width = usize::from(width.saturating_sub(taken));
    let rows: Vec<usize> =
        concluded(stage).iter().take(findings).map(|said| pane::wrap(&text(said), width).len()).collect();
    let air = rows.len().saturating_sub(1);
    u16::try_from(rows.iter().sum::<usize>() + air).unwrap_or(u16::MAX)
}

/// How many rows the text about an op takes above them.
pub(crate) fn rows_of_op(stage: &Stage<'_>, width: u16) -> u16 {
    let lines = of_op(stage).map_or(0, |what| pane::wrap(&what, usize::from(width.saturating_sub(BEHIND_WORD))).len());
    u16::try_from(lines).unwrap_or(u16::MAX)
}

/// Both parts as sentences, with or without a full stop of their own.
fn text(said: &WhyFinding) -> String {
    let what = said.what.trim_end_matches('.');
    match said.remedy.trim_end_matches('.') {
        "" => format!("{what}."),
        remedy => format!("{what}. {}.", capital(remedy)),
    }
}

/// A sentence with a capital, if it begins with a word; a name to be typed, or a key, keeps its case.
fn capital(sentence: &str) -> String {
    let first = sentence.split_whitespace().next().unwrap_or_default();
    let word = first.chars().count() > 1 && first.chars().all(char::is_alphabetic);
    let mut letters = sentence.chars();
    match letters.next().filter(|_| word) {
        Some(letter) => letter.to_uppercase().chain(letters).collect(),
        None => sentence.to_owned(),
    }
}

/// Draws the findings in a pane of their own.
pub(crate) fn render(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let all = said(stage);
    let title = vec![span(theme, Token::Title, "why")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    if all.is_empty() {
        for (y, line) in (0..inner.height).zip(pane::wrap(&quiet(stage), usize::from(inner.width))) {
            put_at(inner, 0, y, vec![span(theme, Token::Dim, line)], buf);
        }
    }
    let laid = LaidOut::new(stage, &all, inner);
    laid.draw(stage, &all, inner, buf);
    let left = laid.left(&all);
    if left > 0 {
        let more = stage.keys.opens(Action::ToggleFindings, &figures::counted(left as u64, "more finding"));
        pane::remark(span(theme, Token::Key, more), area, buf);
    }
}

/// Draws the first findings in bare lines behind a word, with the key for the rest at the right end of the last row.
pub(crate) fn render_lines(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let all = said(stage);
    if all.is_empty() {
        return;
    }
    put_at(area, 0, 0, vec![span(stage.theme, Token::Title, " why ")], buf);
    let inner = Rect { x: area.x + 6.min(area.width), width: area.width.saturating_sub(BEHIND_WORD), ..area };
    let laid = LaidOut::new(stage, &all, inner);
    // There is no log beside bare lines, so remarks about a file count among the rest.
    let left = |laid: &LaidOut| laid.left(&all) + stage.remarks().count();
    // The reason why a run stopped must not be lost among others.
    if laid.is_cut() || left(&laid) == 0 || all.iter().any(|said| said.level == Level::Danger) {
        laid.draw(stage, &all, inner, buf);
        return;
    }
    let short = |left: usize| format!("{} +{left}", stage.keys.key_of(Action::ToggleFindings));
    let cells = |words: &str| words.chars().count() + 2;
    let room = |laid: &LaidOut| usize::from(inner.width).saturating_sub(laid.last_row(inner.height));
    // If its words reach the key, the text is wrapped in narrower lines.
    let has_room = cells(&short(left(&laid))) <= room(&laid);
    let narrow = u16::try_from(cells(&short(left(&laid)))).unwrap_or(u16::MAX);
    let laid = match has_room {
        true => laid,
        false => LaidOut::new(stage, &all, Rect { width: inner.width.saturating_sub(narrow), ..inner }),
    };
    laid.draw(stage, &all, inner, buf);
    let left = left(&laid);
    if laid.is_cut() || left == 0 {
        return;
    }
    let long = stage.keys.opens(Action::ToggleFindings, &figures::counted(left as u64, "more finding"));
    let words = if cells(&long) <= room(&laid) { long } else { short(left) };
    pane::put_right(inner, inner.height.saturating_sub(1), vec![span(stage.theme, Token::Key, words)], buf);
}

/// A finding as it is drawn.
#[derive(Debug, PartialEq, Eq)]
struct FindingLines {
    lines: Vec<String>,
    /// How many characters, with a line's end counted as one, are about the finding itself.
    told: usize,
    /// True if the key for the rest comes after it.
    more: bool,
}

impl FindingLines {
    /// As much as fits in `rows`: the remedy before the complete sentence, or as much as leaves room for `more` after it.
    fn new(said: &WhyFinding, width: usize, rows: usize, more: &str) -> Self {
        let what = said.what.trim_end_matches('.');
        let whole = Self { lines: pane::wrap(&text(said), width), told: what.chars().count() + 1, more: false };
        if whole.lines.len() <= rows {
            return whole;
        }
        let words: Vec<&str> = what.split_whitespace().collect();
        let shortened = |count: &usize| {
            let words = words.iter().take(*count).copied().collect::<Vec<_>>().join(" ");
            let what = format!("{} …", words.trim_end_matches(CLAUSE_ENDS));
            let text = format!("{what} {}.", capital(said.remedy.trim_end_matches('.')));
            Self { lines: pane::wrap(&text, width), told: what.chars().count(), more: false }
        };
        // No bracket stays open.
        let is_closed = |count: &usize| {
            let of = |sign| words[..*count].iter().map(|word| word.matches(sign).count()).sum::<usize>();
            of('(') == of(')')
        };
        let mut counts = (LEAST_WORDS..words.len()).rev().filter(is_closed);
        let most = counts.find(|count| shortened(count).lines.len() <= rows);
        if let Some(most) = most.filter(|_| !said.remedy.is_empty()) {
            // A clause that is begun and not ended says little.
            let ends_clause = |count: &usize| words[count - 1].ends_with(CLAUSE_ENDS);
            let whole = (most.div_ceil(2).max(LEAST_WORDS)..=most).rev().filter(is_closed).find(ends_clause);
            return shortened(&whole.unwrap_or(most));
        }
        let Self { mut lines, told, .. } = whole;
        lines.truncate(rows);
        if let Some(last) = lines.last_mut() {
            let short = pane::wrap(last, width.saturating_sub(more.chars().count()));
            *last = short.into_iter().next().unwrap_or_default();
            if let Some(open) = last.rfind('(').filter(|open| *open > 0 && !last[*open..].contains(')')) {
                last.truncate(open);
                last.truncate(last.trim_end().len());
            }
        }
        Self { lines, told, more: true }
    }
}

/// The fewest words of a sentence that say something.
const LEAST_WORDS: usize = 4;

/// What a clause ends with.
const CLAUSE_ENDS: [char; 4] = [';', ':', ',', '.'];

/// The first findings that fit in `rows`. The last is cut if at least two rows are left for it, with `more` behind it
/// for the others. Also returns how many blank rows are left between them.
fn laid_out(
    all: &[WhyFinding],
    width: usize,
    rows: usize,
    more: &dyn Fn(usize) -> String,
) -> (Vec<FindingLines>, usize) {
    let (mut laid, mut room) = (Vec::new(), rows);
    for (index, said) in all.iter().enumerate() {
        let next = FindingLines::new(said, width, room, &more(all.len() - 1 - index));
        let cut = next.more || pane::wrap(&text(said), width).len() > room;
        // Another finding begins if two rows of it fit.
        if cut && index > 0 && room < 2 {
            break;
        }
        room = room.saturating_sub(next.lines.len());
        laid.push(next);
        if cut {
            return (laid, 0);
        }
    }
    let air = room.min(laid.len().saturating_sub(1));
    (laid, air)
}

/// The first findings, as they are drawn.
struct LaidOut {
    findings: Vec<FindingLines>,
    /// How many blank rows are left between them.
    air: usize,
}

impl LaidOut {
    /// The findings that fit.
    fn new(stage: &Stage<'_>, all: &[WhyFinding], area: Rect) -> Self {
        let more = |behind: usize| cut_mark(stage, behind);
        let (findings, air) = laid_out(all, usize::from(area.width), usize::from(area.height), &more);
        Self { findings, air }
    }

    /// How many findings are not shown: none after one that is cut, because its key shows the rest too.
    fn left(&self, all: &[WhyFinding]) -> usize {
        if self.is_cut() { 0 } else { all.len() - self.findings.len() }
    }

    fn is_cut(&self) -> bool {
        self.findings.last().is_some_and(|last| last.more)
    }

    /// How many characters are in the last of the rows.
    fn last_row(&self, rows: u16) -> usize {
        let taken = self.findings.iter().map(|laid| laid.lines.len()).sum::<usize>() + self.air;
        let last = self.findings.last().and_then(|laid| laid.lines.last());
        last.filter(|_| taken >= usize::from(rows)).map_or(0, |line| line.chars().count())
    }

    /// Draws them. If one is cut before its remedy, it ends in the key that shows all of it and the following findings.
    fn draw(&self, stage: &Stage<'_>, all: &[WhyFinding], area: Rect, buf: &mut Buffer) {
        let theme = stage.theme;
        let (mut y, mut air) = (0, self.air);
        for (index, (said, FindingLines { lines, told, more })) in all.iter().zip(&self.findings).enumerate() {
            let (mut end, mut told) = (0, *told);
            for line in lines {
                let length = line.chars().count();
                let split = told.min(length);
                let head: String = line.chars().take(split).collect();
                let tail: String = line.chars().skip(split).collect();
                let token = match said.level {
                    Level::Info | Level::Switch => Token::Text,
                    loud => level_token(loud),
                };
                put_at(area, 0, y, vec![span(theme, token, head), span(theme, Token::Accent, tail)], buf);
                told = told.saturating_sub(length + 1);
                end = u16::try_from(length).unwrap_or(u16::MAX);
                y += 1;
            }
            if *more {
                let mark = cut_mark(stage, all.len() - 1 - index);
                put_at(area, end, y.saturating_sub(1), vec![span(theme, Token::Key, mark)], buf);
            }
            if air > 0 {
                air -= 1;
                y += 1;
            }
        }
    }
}

/// The text after a finding that is cut, with `behind` more after it.
fn cut_mark(stage: &Stage<'_>, behind: usize) -> String {
    let words = if behind > 0 { format!("all, and {behind} more") } else { "all of it".to_owned() };
    format!(" … {}", stage.keys.opens(Action::ToggleFindings, &words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_a_capital_unless_a_key_or_a_name_does() {
        let said = |remedy: &str| {
            text(&WhyFinding { level: Level::Info, what: "cached".to_owned(), remedy: remedy.to_owned() })
        };
        assert_eq!(said("drop it"), "cached. Drop it.");
        assert_eq!(said("e returns them"), "cached. e returns them.", "E resets the peaks");
        assert_eq!(said("torch.cuda.empty_cache() returns them"), "cached. torch.cuda.empty_cache() returns them.");
        assert_eq!(said(""), "cached.");
    }

    #[test]
    fn a_finding_without_room_says_what_can_be_done_before_all_that_is_the_case() {
        let said = |what: &str, remedy: &str| WhyFinding {
            level: Level::Info,
            what: what.to_owned(),
            remedy: remedy.to_owned(),
        };
        let activations = said("activations are 67 % of the step's peak (15.24 GiB of 22.84 GiB)", "try c: 12.61 GiB");
        let more = |_| " … w: all of it".to_owned();
        let lines = |rows| FindingLines::new(&activations, 40, rows, &more(0)).lines;
        assert_eq!(
            lines(3),
            ["activations are 67 % of the step's peak", "(15.24 GiB of 22.84 GiB). Try c:", "12.61 GiB."]
        );
        assert_eq!(
            lines(2),
            ["activations are 67 % of the step's peak", "… Try c: 12.61 GiB."],
            "no bracket stays open"
        );
        assert_eq!(lines(1), ["activations are 67 % … Try c: 12.61 GiB."]);
        let clauses =
            said("the peak fell 22.84 → 13.93 GiB; reserved rose 25.00 → 41.30 GiB: up to 28 GiB", "e frees it");
        assert_eq!(
            FindingLines::new(&clauses, 40, 2, "").lines,
            ["the peak fell 22.84 → 13.93 GiB … e", "frees it."],
            "no clause is begun that has no room"
        );
        let op = said("addBackward took and freed nothing", "");
        let rows = |height| {
            let both = [said(&op.what, ""), said(&activations.what, &activations.remedy)];
            let (laid, air) = laid_out(&both, 40, height, &more);
            (laid.iter().map(|laid| laid.lines.len()).collect::<Vec<_>>(), air)
        };
        assert_eq!(rows(5), (vec![1, 3], 1));
        assert_eq!(rows(4), (vec![1, 3], 0), "air gives way to what can be done");
        assert_eq!(rows(3), (vec![1, 2], 0));
        assert_eq!(rows(2), (vec![1], 0), "nothing begins in one row");
    }
}
