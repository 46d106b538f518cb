//! How the switches stand in the configuration selected, and its figures beside those of the others.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

use super::differences::differing;
use super::{Compared, bars};
use crate::drawing::pane::{self, Frame, put, put_at, span};
use crate::drawing::theme::Token;
use crate::source::Kind;
use crate::tui::action::Action;
use crate::tui::states::{CompareAction, ScreenAction};
use crate::tui::words;

/// The column of values.
const VALUES: u16 = 18;

/// Draws how the switches stand in the configuration selected and in the baseline.
pub(super) fn render(compared: &Compared<'_>, area: Rect, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    let (all, selected, baseline) = (&compared.all, compared.selected, compared.baseline);
    let title = vec![
        span(theme, Token::Title, "switches"),
        span(theme, Token::Dim, format!(" of {} against {}", selected + 1, baseline + 1)),
    ];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let value = |place: usize, word: &str| {
        let setting = all[place].settings.get(word);
        setting.map_or_else(String::new, |setting| words::value(&setting.value).into_owned())
    };
    let mut y = 0;
    for setting in differing(all) {
        let (before, now) = (value(baseline, &setting.switch), value(selected, &setting.switch));
        let changed = before != now;
        let label = pane::cut(words::label(&setting.switch), 17);
        let cells = u16::try_from(label.width()).unwrap_or(u16::MAX);
        put(inner, y, vec![span(theme, Token::Text, label)], buf);
        // A file need not say how a switch stood.
        let (token, text) = match (changed, before.is_empty(), now.is_empty()) {
            (true, false, false) => (Token::Accent, format!("{before} → {now}")),
            (true, true, _) => (Token::Accent, now),
            (true, false, true) => (Token::Accent, "not told".to_owned()),
            (false, ..) => (Token::Dim, now),
        };
        // A long one begins where its label ends.
        let long = u16::try_from(text.width()).unwrap_or(u16::MAX);
        let x = inner.width.saturating_sub(long).clamp(cells + 2, VALUES.max(cells + 2));
        let room = usize::from(inner.width.saturating_sub(x));
        put_at(inner, x, y, vec![span(theme, token, pane::cut(&text, room))], buf);
        y += 1;
    }
    if y == 0 {
        put(inner, y, vec![span(theme, Token::Dim, "all as at the start")], buf);
        y += 1;
    }
    let notes = notes(compared);
    let lines: Vec<String> = notes.iter().flat_map(|note| pane::wrap(note, usize::from(inner.width))).collect();
    let kept = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(1);
    let room = inner.height.saturating_sub(y + 1).saturating_sub(kept);
    let taken = bars::render(compared, Rect { y: inner.y + y + 1, height: room, ..inner }, buf);
    // Bars that end at their last row leave none empty before the words.
    y += 1 + taken + u16::from(taken == room && room > 0);
    for line in lines {
        put(inner, y, vec![span(theme, Token::Dim, line)], buf);
        y += 1;
    }
}

/// Rows that the band of a single configuration takes, with its frame.
pub(super) fn band_rows(compared: &Compared<'_>) -> u16 {
    let notes = u16::try_from(notes(compared).len().min(1)).unwrap_or(0);
    bars::rows_of_one(compared) + notes + 2
}

/// Draws the figures of a single configuration, and of which steps they are.
pub(super) fn render_band(compared: &Compared<'_>, area: Rect, buf: &mut Buffer) {
    let theme = compared.stage.theme;
    let title = vec![span(theme, Token::Title, "figures")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let inner = Rect { x: inner.x + inner.width.min(1), width: inner.width.saturating_sub(2), ..inner };
    let bars = Rect { height: inner.height.saturating_sub(1), ..inner };
    bars::render_one(compared, bars, buf);
    put(inner, bars.height, vec![span(theme, Token::Dim, notes(compared).join(" "))], buf);
}

/// What must be known of the figures of the one selected. Of a single one that is what was measured: nothing differs.
fn notes(compared: &Compared<'_>) -> Vec<String> {
    let (all, selected) = (&compared.all, compared.selected);
    let configuration = &all[selected];
    let recorded = configuration.knows_no_steps();
    let after = if compared.is_one() { "" } else { ", without those right after a flip" };
    let measured = match configuration.measured {
        Some(_) if recorded => "Peaks of the whole recording, and what was stranded when most was reserved.".to_owned(),
        Some((1, _)) if configuration.steps == 1 => "Figures of its one step.".to_owned(),
        Some((1, _)) => format!("Figures of one of its {} steps.", configuration.steps),
        Some((steps, _)) => format!("Medians of its last {steps} of {} steps{after}.", configuration.steps),
        None => "No step finished.".to_owned(),
    };
    let failed = match (configuration.out_of_memory, recorded) {
        (true, true) => "Memory ran out.",
        (true, false) if configuration.measured.is_none() => "Its first step ran out of memory.",
        (true, false) => "It ran out of memory.",
        (false, _) => "",
    };
    if compared.is_one() {
        return [failed.to_owned(), measured].into_iter().filter(|note| !note.is_empty()).collect();
    }
    // Only a live run can still be told to empty its cache.
    let keeps = match compared.stage.picture.kind {
        Kind::Live => {
            let empties = compared.stage.keys.with_key(Action::EmptyCache, "empty_cache");
            format!("Reserved keeps what an earlier configuration took, until {empties}.")
        }
        _ => "Reserved keeps what an earlier configuration took, until empty_cache.".to_owned(),
    };
    let go = Action::Own(ScreenAction::Compare(CompareAction::Go));
    vec![
        failed.to_owned(),
        match &compared.files[selected] {
            Some(file) => format!("Of {file}."),
            None if recorded => String::new(),
            None => {
                let goes = match compared.stage.keys.key_of(go) {
                    "" => String::new(),
                    key => format!("; {key} goes there"),
                };
                format!("First used at step {}{goes}.", configuration.step)
            }
        },
        measured,
        "A change no larger than the spread among steps is noise.".to_owned(),
        if recorded || selected == 0 { String::new() } else { keeps },
    ]
}
