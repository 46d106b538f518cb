//! All findings: the sentence, the place, the remedies. One is selected and shown in full.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use crate::drawing::pane::{self, Frame, level_token, put, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::{Finding, Level};
use crate::source::Ability;
use crate::tui::action::Action;
use crate::tui::stage::{Stage, Targets};
use crate::tui::states::{LedgerAction, ScreenAction};
use crate::tui::words;

/// The width before a finding's text, for the mark of the selection and the level.
const MARGIN: usize = 4;

/// A row of the list, and its finding.
struct FindingRow {
    finding: usize,
    line: Vec<Span<'static>>,
}

/// The mark of a level, which also works without colours.
const fn mark(level: Level) -> &'static str {
    match level {
        Level::Info | Level::Switch => "·",
        Level::Warning => "▲",
        Level::Danger => "!",
    }
}

fn token(level: Level) -> Token {
    match level {
        Level::Info | Level::Switch => Token::Text,
        loud => level_token(loud),
    }
}

/// How many rows all findings need at this width, with the selected one in full.
pub(super) fn wanted_rows(stage: &Stage<'_>, width: u16) -> u16 {
    u16::try_from(rows(stage, width, 0).len()).unwrap_or(u16::MAX).max(1)
}

/// The selected finding in full, and the others in one row each, or with their complete sentences, the first ones
/// first, as far as `height` allows.
fn rows(stage: &Stage<'_>, width: u16, height: u16) -> Vec<FindingRow> {
    let findings = &*stage.findings();
    let selected = stage.states.ledger.selected(findings);
    let told = |(index, finding): (usize, &Finding)| match selected == Some(index) {
        true => whole(stage, finding, usize::from(width)),
        false => vec![head(stage.theme, finding, finding.to_string(), false)],
    };
    let mut all: Vec<Vec<_>> = findings.iter().enumerate().map(told).collect();
    let mut spare = usize::from(height).saturating_sub(all.iter().map(Vec::len).sum());
    for (index, finding) in findings.iter().enumerate().filter(|(index, _)| selected != Some(*index)) {
        let sentence = sentence(stage.theme, finding, usize::from(width), false, spare + 1);
        (spare, all[index]) = (spare + 1 - sentence.len(), sentence);
    }
    let rows = all.into_iter().enumerate();
    rows.flat_map(|(finding, lines)| lines.into_iter().map(move |line| FindingRow { finding, line })).collect()
}

fn head(theme: &Theme, finding: &Finding, text: String, selected: bool) -> Vec<Span<'static>> {
    let token = token(finding.level);
    let style = if selected { theme.style(token).add_modifier(Modifier::BOLD) } else { theme.style(token) };
    vec![
        span(theme, Token::Key, if selected { "▸ " } else { "  " }),
        Span::styled(format!("{} ", mark(finding.level)), style),
        Span::styled(text, style),
    ]
}

/// The sentence in at most `most` lines; the last holds as many of its parts as fit.
fn sentence(theme: &Theme, finding: &Finding, width: usize, selected: bool, most: usize) -> Vec<Vec<Span<'static>>> {
    let style = theme.style(token(finding.level));
    let style = if selected { style.add_modifier(Modifier::BOLD) } else { style };
    let mut lines = pane::wrap(&finding.to_string(), width.saturating_sub(MARGIN));
    if lines.len() > most {
        let rest = lines.split_off(most.max(1) - 1).join(" ");
        lines.push(pane::cut_sentence(&rest, width.saturating_sub(MARGIN)));
    }
    let lines = lines.into_iter().enumerate();
    let line = |(index, text)| match index {
        0 => head(theme, finding, text, selected),
        _ => vec![Span::raw(" ".repeat(MARGIN)), Span::styled(text, style)],
    };
    lines.map(line).collect()
}

/// The selected finding: its sentence, its place, its remedies.
fn whole(stage: &Stage<'_>, finding: &Finding, width: usize) -> Vec<Vec<Span<'static>>> {
    let theme = stage.theme;
    let mut lines = sentence(theme, finding, width, true, usize::MAX);
    let state = &stage.states.ledger;
    let meant = state.meant(finding);
    let mut line = vec![Span::raw(" ".repeat(MARGIN))];
    let mut push = |spans: Vec<Span<'static>>| {
        let cells: usize = line.iter().chain(&spans).map(Span::width).sum();
        if cells > width && line.len() > 1 {
            lines.push(std::mem::replace(&mut line, vec![Span::raw(" ".repeat(MARGIN))]));
        }
        line.extend(spans);
    };
    let can = stage.picture.can(Ability::Flip);
    let own = |action| stage.keys.key_of(Action::Own(ScreenAction::Ledger(action))).to_owned();
    let does = format!("{} does: ", stage.keys.key_of(Action::Remedy));
    for (index, remedy) in finding.remedies.iter().enumerate() {
        let chosen = meant == Some(index);
        let (mark, token) = match (chosen, can) {
            (true, Ok(())) => (&*does, Token::Accent),
            (true, Err(_)) => ("▸ ", Token::Text),
            (false, _) if index > 0 => ("or ", Token::Dim),
            (false, _) => ("", Token::Dim),
        };
        // What has already happened has no keys: the remedy is worded for the next run.
        let words = words::remedy(stage, remedy);
        push(vec![span(theme, Token::Key, mark), span(theme, token, format!("{words}  "))]);
    }
    match (finding.remedies.len(), can) {
        (0, _) => {}
        (2.., Ok(())) => push(vec![span(theme, Token::Dim, format!("({}: another)  ", own(LedgerAction::NextRemedy)))]),
        (_, Err(_)) => push(vec![span(theme, Token::Dim, "(for the next run)  ")]),
        _ => {}
    }
    push(match finding.position {
        Some(position) => vec![
            span(theme, Token::Key, format!("{} ", own(LedgerAction::Go))),
            span(theme, Token::Dim, format!("shows it, at event {position}")),
        ],
        None => vec![span(theme, Token::Dim, "at no single moment")],
    });
    lines.push(line);
    lines
}

/// The first row to draw, so that the selected finding is complete, with as much before it as fits.
fn first_row(rows: &[FindingRow], selected: Option<usize>, seen: usize) -> usize {
    let begin = rows.iter().position(|row| Some(row.finding) == selected).unwrap_or(0);
    let end = rows.iter().rposition(|row| Some(row.finding) == selected).map_or(0, |last| last + 1);
    end.saturating_sub(seen).min(begin)
}

/// Draws the pane. A click selects.
pub(super) fn render(stage: &Stage<'_>, kind: Frame, area: Rect, buf: &mut Buffer, targets: &mut Targets) {
    let theme = stage.theme;
    let findings = &*stage.findings();
    let selected = stage.states.ledger.selected(findings);
    let mut title = vec![span(theme, Token::Title, "findings")];
    if let Some(selected) = selected {
        title.push(span(theme, Token::Dim, format!(" {} of {}", selected + 1, findings.len())));
    }
    let inner = pane::frame(kind, title, theme.style(Token::Border), area, buf).intersection(buf.area);
    let inner = Rect { width: inner.width.saturating_sub(1), ..inner };
    let rows = rows(stage, inner.width, inner.height);
    if rows.is_empty() {
        put(inner, 0, vec![span(theme, Token::Dim, "   no findings")], buf);
    }
    let first = first_row(&rows, selected, usize::from(inner.height));
    for (y, row) in (0..inner.height).zip(rows.into_iter().skip(first)) {
        put(inner, y, row.line, buf);
        let select = Action::Own(ScreenAction::Ledger(LedgerAction::Select(row.finding)));
        targets.push((Rect { y: inner.y + y, height: 1, ..inner }, select));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selected_finding_is_seen_whole_where_it_fits_and_from_its_begin_where_not() {
        let row = |finding| FindingRow { finding, line: Vec::new() };
        let rows: Vec<FindingRow> = [0, 1, 2, 2, 2, 3].map(row).into();
        assert_eq!(first_row(&rows, Some(0), 4), 0);
        assert_eq!(first_row(&rows, Some(2), 4), 1, "rows 1 to 4");
        assert_eq!(first_row(&rows, Some(2), 2), 2);
        assert_eq!(first_row(&rows, Some(3), 4), 2);
        assert_eq!(first_row(&rows, Some(3), 40), 0);
        assert_eq!(first_row(&[], None, 3), 0);
    }
}
