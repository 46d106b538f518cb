//! Why a request failed, in the order in which one asks: what it was, what would have made it fit, what the allocator
//! tried, what is live, and which free bytes could not serve it.

mod fits;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use crate::allocator::{Attempt, PoolKind, Refusal};
use crate::drawing::figures::{self, bytes};
use crate::drawing::pane::{self, Frame, put_at, span};
use crate::drawing::theme::Token;
use crate::model::{Autopsy, Category, Evidence, Finding, Remedy, Unusable, View, Why};
use crate::tui::action::Action;
use crate::tui::stage::Stage;
use crate::tui::words;
use crate::units::Bytes;

/// A paragraph: its heading, its look, and its text.
struct Passage {
    heading: &'static str,
    token: Token,
    text: String,
    /// The paragraph as a table, if it has one.
    table: Vec<fits::Fit>,
    /// Its importance; 0 is the most important.
    rank: u8,
}

/// Draws the pane, which replaces the measured effect and the findings.
pub(crate) fn render(stage: &Stage<'_>, autopsy: &Autopsy, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let title =
        vec![span(theme, Token::Danger, "out of memory"), span(theme, Token::Dim, format!(" · step {}", autopsy.step))];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Danger), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let (_, is_cut) = draw(stage, &told(stage, autopsy), inner, buf);
    if is_cut {
        pane::remark(span(theme, Token::Key, stage.keys.opens(Action::ToggleFindings, "all of it")), area, buf);
    }
}

/// How many rows the pane needs at this width, with its frame.
pub(crate) fn wanted_rows(stage: &Stage<'_>, autopsy: &Autopsy, width: u16) -> u16 {
    let rows: usize = wrapped(&told(stage, autopsy), width.saturating_sub(4)).iter().map(Vec::len).sum();
    u16::try_from(rows + 2).unwrap_or(u16::MAX)
}

/// How many rows it needs without a frame at this width, at most `most`: the parts that fit, and the key to the rest.
pub(crate) fn rows(stage: &Stage<'_>, autopsy: &Autopsy, width: u16, most: u16) -> u16 {
    let parts = told(stage, autopsy);
    let width = width.saturating_sub(2);
    let wrapped = wrapped(&parts, width);
    let room = most.saturating_sub(key_rows(stage, &parts, &wrapped, (width, most)));
    let rows: usize = kept(&parts, &wrapped, room).into_iter().sum();
    u16::try_from(rows).unwrap_or(most).saturating_add(most - room).min(most)
}

/// Draws as much as fits, without a frame.
pub(crate) fn render_lines(stage: &Stage<'_>, autopsy: &Autopsy, area: Rect, buf: &mut Buffer) {
    let inner = Rect { x: area.x + 1.min(area.width), width: area.width.saturating_sub(2), ..area };
    let parts = told(stage, autopsy);
    let key = key_rows(stage, &parts, &wrapped(&parts, inner.width), (inner.width, inner.height));
    let (rows, is_cut) = draw(stage, &parts, Rect { height: inner.height.saturating_sub(key), ..inner }, buf);
    if is_cut {
        let more = vec![span(stage.theme, Token::Key, key_words(stage))];
        pane::put_right(inner, (rows + key).saturating_sub(1), more, buf);
    }
}

/// The name of the key that shows all of it.
fn key_words(stage: &Stage<'_>) -> String {
    stage.keys.opens(Action::ToggleFindings, "all of it")
}

/// Rows for the key that shows all of it, if not everything fits: none if the last line has room for the key.
fn key_rows(stage: &Stage<'_>, parts: &[Passage], wrapped: &[Vec<String>], (width, room): (u16, u16)) -> u16 {
    if wrapped.iter().map(Vec::len).sum::<usize>() <= usize::from(room) {
        return 0;
    }
    let kept = kept(parts, wrapped, room);
    let last = parts.iter().zip(wrapped).zip(&kept).rfind(|(_, kept)| **kept > 0);
    let cells = last.map_or(usize::MAX, |((part, lines), kept)| {
        let indent = if part.heading.is_empty() { 0 } else { HEADING };
        let mark = if *kept < lines.len() { 2 } else { 0 };
        indent + lines[*kept - 1].width() + mark
    });
    u16::from(cells.saturating_add(key_words(stage).width() + 2) > usize::from(width))
}

/// Every line as text with its look. `word` words the remedies. What would fit is a sentence.
pub(crate) fn lines(
    view: &View,
    autopsy: &Autopsy,
    width: usize,
    word: &dyn Fn(&Remedy) -> String,
) -> Vec<(Token, String)> {
    let lines = |part: Passage| in_words(&part, width);
    parts(view, autopsy, word).into_iter().flat_map(lines).collect()
}

/// Every line for a screen, where what would fit is a table.
pub(crate) fn lines_with_table(stage: &Stage<'_>, autopsy: &Autopsy, width: usize) -> Vec<(Token, String)> {
    let lines = |part: Passage| match fits::lines(&part.table, width.saturating_sub(2)) {
        None => in_words(&part, width),
        Some(rows) => {
            let rows = rows.into_iter().map(|row| (part.token, format!("  {row}")));
            std::iter::once((part.token, format!("{}:", part.heading))).chain(rows).collect()
        }
    };
    told(stage, autopsy).into_iter().flat_map(lines).collect()
}

/// A paragraph with its heading.
fn in_words(part: &Passage, width: usize) -> Vec<(Token, String)> {
    let text = if part.heading.is_empty() { part.text.clone() } else { format!("{}: {}", part.heading, part.text) };
    pane::wrap(&text, width).into_iter().map(|line| (part.token, line)).collect()
}

/// How many lines of each paragraph fit. The most important are complete; the first incomplete one is cut.
fn kept(parts: &[Passage], wrapped: &[Vec<String>], room: u16) -> Vec<usize> {
    /// The fewest lines of a cut paragraph.
    const SOME: usize = 2;
    let mut room = usize::from(room);
    let mut kept = vec![0; wrapped.len()];
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|index| parts[*index].rank);
    let mut begun = None;
    for index in order {
        let lines = wrapped[index].len();
        if lines <= room {
            (kept[index], room) = (lines, room - lines);
        } else if parts[index].rank > 0 {
            begun = begun.or(Some(index));
        }
    }
    if let Some(index) = begun.filter(|_| room >= SOME) {
        kept[index] = room;
    }
    kept
}

/// Draws paragraphs. Returns the rows used, and whether some did not fit.
fn draw(stage: &Stage<'_>, parts: &[Passage], area: Rect, buf: &mut Buffer) -> (u16, bool) {
    let theme = stage.theme;
    let wrapped = wrapped(parts, area.width);
    let kept = kept(parts, &wrapped, area.height);
    let mut y = 0;
    for ((part, lines), kept) in parts.iter().zip(&wrapped).zip(&kept) {
        for (index, line) in lines.iter().enumerate().take(*kept) {
            let head = if index == 0 { part.heading } else { "" };
            put_at(area, 0, y, vec![span(theme, Token::Dim, format!("{head:<HEADING$}"))], buf);
            let x = if part.heading.is_empty() { 0 } else { HEADING as u16 };
            let room = usize::from(area.width.saturating_sub(x));
            let is_cut = index + 1 == *kept && *kept < lines.len();
            let line = if is_cut { pane::cut(&format!("{line} …"), room) } else { line.clone() };
            put_at(area, x, y, vec![span(theme, part.token, line)], buf);
            y += 1;
        }
    }
    (y, kept.iter().zip(&wrapped).any(|(kept, lines)| *kept < lines.len()))
}

/// The heading of remedies that would have helped, and of those that would not.
const FITS: &str = "fits";
const FITS_NOT: &str = "not";
/// The width of a heading in cells.
const HEADING: usize = 7;

/// The lines of every paragraph.
fn wrapped(parts: &[Passage], width: u16) -> Vec<Vec<String>> {
    let lines = |part: &Passage| {
        let indent = if part.heading.is_empty() { 0 } else { HEADING };
        let width = usize::from(width).saturating_sub(indent);
        fits::lines(&part.table, width).unwrap_or_else(|| pane::wrap(&part.text, width))
    };
    parts.iter().map(lines).collect()
}

/// The paragraphs for a screen. Remedies are shown only after a learner has answered.
fn told(stage: &Stage<'_>, autopsy: &Autopsy) -> Vec<Passage> {
    let mut parts = parts(stage.view(), autopsy, &|remedy| words::remedy(stage, remedy));
    if let Some(text) = under_unknown_limit(stage, autopsy) {
        let place = parts.iter().position(|part| part.heading == "tried").unwrap_or(1).min(parts.len());
        parts.retain(|part| part.heading != FITS);
        let fits = Passage { heading: FITS, token: Token::Accent, rank: 1, text, table: Vec::new() };
        parts.insert(place.min(parts.len()), fits);
    }
    if let Some(text) = filled_by_leak(&stage.findings(), autopsy.ledger.allocated()) {
        parts.insert(0, Passage { heading: "", token: Token::Danger, rank: 0, text, table: Vec::new() });
    }
    if !stage.hold.advises() {
        parts.retain(|part| part.heading != FITS_NOT);
        if let Some(fits) = parts.iter_mut().find(|part| part.heading == FITS) {
            (fits.token, fits.text) = (Token::Dim, "shown when the lesson is over".to_owned());
            fits.table.clear();
        }
    }
    parts
}

fn parts(view: &View, autopsy: &Autopsy, word: &dyn Fn(&Remedy) -> String) -> Vec<Passage> {
    let part = |heading, token, rank, text| Passage { heading, token, text, rank, table: Vec::new() };
    let mut parts = vec![
        part("", Token::Danger, 0, asked(view, autopsy)),
        Passage { table: fits::table(autopsy, word), ..part(FITS, Token::Accent, 1, fits::fits(autopsy, word)) },
        part("tried", Token::Text, 2, tried(autopsy)),
        part("live", Token::Text, 3, live(view, autopsy)),
    ];
    if !autopsy.unusable.is_empty() {
        parts.push(part("free", Token::Text, 4, unusable(autopsy)));
    }
    parts.push(part(FITS_NOT, Token::Dim, 5, fits::fits_not(autopsy, word)));
    parts.retain(|part| !part.text.is_empty());
    parts
}

/// What would have fit under an unrecorded limit: settings from some limit on, and a smaller batch. `None` if more is
/// known, or nothing.
fn under_unknown_limit(stage: &Stage<'_>, autopsy: &Autopsy) -> Option<String> {
    let limit = stage.picture.untold_limit.as_deref();
    let limit = limit.filter(|_| autopsy.unknown_limit().is_some() && autopsy.remedied.is_empty())?;
    let mut said = Vec::new();
    if let Some((remedy, from)) = &limit.fits_from {
        let remedy = words::remedy(stage, remedy);
        said.push(format!("{remedy} where the limit is {} or more (replayed)", bytes(*from)));
    }
    let missing = (autopsy.ledger.reserved() + autopsy.request.segment).saturating_sub(limit.least);
    if let Some(share) = share_of_batch(autopsy, missing) {
        said.push(format!("a batch smaller by up to {:.0} % (an estimate)", share.ceil()));
    }
    (!said.is_empty()).then(|| said.join(", or "))
}

/// The share, in per cent, of the memory that grows with the batch that `missing` is; `None` if it is unknown what
/// grows, or even all of it would not suffice.
#[must_use]
pub fn share_of_batch(autopsy: &Autopsy, missing: Bytes) -> Option<f64> {
    let grows: Bytes = grows_with_batch(autopsy);
    // Memory without a category may be used for anything.
    if autopsy.by_category[Category::Other as usize].get() * 4 > autopsy.ledger.allocated().get()
        || grows == Bytes::ZERO
    {
        return None;
    }
    let share = missing.get() as f64 / (grows + autopsy.request.segment).get() as f64 * 100.0;
    (missing > Bytes::ZERO && share < 100.0).then_some(share)
}

/// The live bytes that grow with the batch.
#[must_use]
pub fn grows_with_batch(autopsy: &Autopsy) -> Bytes {
    let categories = [Category::Activation, Category::Temporary, Category::Input];
    categories.iter().map(|of| autopsy.by_category[*of as usize]).sum()
}

/// A sentence if steps left most of the live memory behind: which request came last is then chance.
fn filled_by_leak(findings: &[Finding], live: Bytes) -> Option<String> {
    findings.iter().find_map(|finding| match finding.evidence {
        Evidence::Leak { rise, steps, held, .. } if held.get() > live.get() / 2 => Some(format!(
            "A leak filled it: {steps} steps in a row left {} behind, the last one {}, of {} live.",
            bytes(held),
            bytes(rise),
            bytes(live)
        )),
        _ => None,
    })
}

/// What stopped the request, what was asked for and by whom, and how much was missing: `The card stopped it: 3.07 GiB
/// asked for log-probabilities in forward · log_softmax, 1.16 GiB missing.`
fn asked(view: &View, autopsy: &Autopsy) -> String {
    let request = &autopsy.request;
    let name = view.names.get(request.name);
    let limit = autopsy.limit.filter(|limit| autopsy.ledger.reserved() + request.segment > *limit);
    let unknown = autopsy.unknown_limit().is_some();
    let mut text = match limit {
        _ if unknown => "A limit of this process stopped it: ".to_owned(),
        _ if autopsy.short == Bytes::ZERO => String::new(),
        Some(limit) => format!("The limit of {} stopped it: ", bytes(limit)),
        None => "The card stopped it: ".to_owned(),
    };
    // PyTorch's message names the segment's size; if more is known, it comes with the missing bytes.
    let (segment, requested) = (bytes(request.segment), bytes(request.requested));
    match unknown && segment != requested {
        true => text.push_str(&format!("{segment} asked (a tensor of {requested})")),
        false => text.push_str(&format!("{requested} asked")),
    }
    if !name.is_empty() {
        text.push_str(&format!(" for {name}"));
    }
    if let Some(phase) = autopsy.phase {
        text.push_str(&format!(" in {}", phase.label()));
    }
    if !autopsy.op.is_empty() {
        let between = if autopsy.phase.is_some() { " · " } else { " in " };
        text.push_str(&format!("{between}{}", autopsy.op));
    }
    if unknown {
        text.push_str(&format!("; the card had {} free", bytes(request.device_free)));
    }
    if autopsy.short > Bytes::ZERO {
        let left = match limit {
            Some(limit) => limit - autopsy.ledger.reserved().min(limit),
            None => request.device_free,
        };
        text.push_str(&format!(", {} missing", bytes(autopsy.short)));
        let over = limit.map_or(Bytes::ZERO, |limit| autopsy.ledger.reserved().saturating_sub(limit));
        let segment = match request.segment == request.rounded || segment == requested {
            true => String::new(),
            false => format!("a segment of {}, ", bytes(request.segment)),
        };
        text.push_str(&match over {
            Bytes::ZERO => format!(" ({segment}{} left)", bytes(left)),
            over => format!(" ({segment}{} over the limit before)", bytes(over)),
        });
    }
    text.push('.');
    text
}

fn tried(autopsy: &Autopsy) -> String {
    let request = &autopsy.request;
    let pool = match request.pool {
        PoolKind::Small => "small",
        PoolKind::Large => "large",
    };
    let refused = |refusal: Refusal| match refusal {
        Refusal::Limit => "over the limit",
        Refusal::Driver => "the driver has none",
    };
    let mut asked = false;
    let word = |attempt: &Attempt| match *attempt {
        Attempt::Search { blocks: 0, .. } => format!("no free block in the {pool} pool"),
        Attempt::Search { blocks, largest } => {
            let blocks = figures::counted(blocks, "free block");
            format!("{blocks} of the {pool} pool, the largest {}", bytes(largest))
        }
        Attempt::CollectGarbage { released } => format!("collect garbage: {}", bytes(released)),
        Attempt::Grow { segment, refusal } => {
            let again = std::mem::replace(&mut asked, true);
            match again {
                true => format!("again: {}", refused(refusal)),
                false => format!("cudaMalloc {}: {}", bytes(segment), refused(refusal)),
            }
        }
        Attempt::ReleaseOversize { released } => format!("give back oversize blocks: {}", bytes(released)),
        Attempt::ReleaseCached { released: Bytes::ZERO } => "nothing cached to give back".to_owned(),
        Attempt::ReleaseCached { released } => format!("give back the cache: {}", bytes(released)),
    };
    let words: Vec<String> = autopsy
        .request
        .attempts
        .iter()
        .map({
            let mut word = word;
            move |attempt| word(attempt)
        })
        .collect();
    words.join(" → ")
}

fn live(view: &View, autopsy: &Autopsy) -> String {
    let total = autopsy.ledger.allocated();
    let mut parts: Vec<(Category, Bytes)> = Category::ALL.into_iter().zip(autopsy.by_category).collect();
    parts.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
    let parts = parts.iter().filter(|(_, held)| held.get() * 50 > total.get());
    let words: Vec<String> = parts
        .map(|(category, held)| format!("{} {}", category.label(), figures::percent(held.get(), total.get())))
        .collect();
    let mut text = format!("{}: {}", bytes(total), words.join(", "));
    let owner = |owner: &crate::model::Owner| match owner.blocks {
        1 => format!("{} {}", owner.name, bytes(owner.bytes)),
        blocks => format!("{} ×{blocks} {}", owner.name, bytes(owner.bytes)),
    };
    let most: Vec<String> = autopsy.owners.iter().take(3).map(owner).collect();
    if !most.is_empty() {
        text.push_str(&format!("; most: {}", most.join(", ")));
    }
    // The names in an uninstrumented program are lines, not modules.
    if let Some(module) = autopsy.modules.first().filter(|_| !view.about.guessed) {
        text.push_str(&format!("; largest module: {} {}", module.name, bytes(module.bytes)));
    }
    text
}

fn unusable(autopsy: &Autopsy) -> String {
    let words: Vec<String> = autopsy.unusable.iter().map(|part| unusable_part(part, autopsy)).collect();
    words.join("; ")
}

fn unusable_part(part: &Unusable, autopsy: &Autopsy) -> String {
    let free = bytes(part.bytes);
    let mut text = match part.why {
        Why::OtherPool => format!("{free} in the other pool, which serves other sizes"),
        Why::OtherStream => format!("{free} of another stream"),
        Why::TooSmall => {
            let pieces = figures::counted(part.pieces, "piece");
            format!(
                "{free} in {pieces} too small for {}, the largest {}",
                bytes(autopsy.request.rounded),
                bytes(part.largest)
            )
        }
        Why::NotSplit => format!("{free} in blocks that settings keep whole"),
        Why::Pending => format!("{free} freed, but another stream may still read them"),
    };
    if let Some(holder) = &part.holder {
        text.push_str(&format!(", held by {holder}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{LeakCause, Level};

    #[test]
    fn a_leak_that_holds_most_of_memory_is_what_filled_it() {
        let evidence = Evidence::Leak {
            rise: Bytes::gib(3),
            steps: 43,
            cause: LeakCause::Graphs,
            held: Bytes::gib(129),
            lines: Vec::new(),
        };
        let leak = [Finding { level: Level::Warning, evidence, remedies: Vec::new(), position: None, gain: None }];
        let said = filled_by_leak(&leak, Bytes::gib(137)).unwrap();
        assert_eq!(
            said,
            "A leak filled it: 43 steps in a row left 129.00 GiB behind, the last one 3.00 GiB, of 137.00 GiB live."
        );
        assert_eq!(filled_by_leak(&leak, Bytes::gib(300)), None, "something else did");
        assert_eq!(filled_by_leak(&[], Bytes::gib(137)), None);
    }
}
