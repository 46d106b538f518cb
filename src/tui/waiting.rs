//! The page for a watched program before its first memory request: which program the screen waits for, what must
//! happen, and where the program's output goes.

use std::path::PathBuf;
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::action::Action;
use super::glossary;
use super::screens::SCREENS;
use super::stage::Stage;
use crate::drawing::figures;
use crate::drawing::legend::{account_marks, legend_of, short_label};
use crate::drawing::pane::{self, Frame, put, span};
use crate::drawing::theme::Token;
use crate::model::{Category, RunState};
use crate::source::{Picture, SourceKind};

/// The fewest rows of the pane with the program's output, and the height of a screen in which it takes none from the rest.
const LEAST_TAIL: u16 = 4;
const SMALL: u16 = 7;
/// The width before the text.
const COLUMN: usize = 13;
/// How many rows the colours of categories need, with a frame.
const LEAST_COLOURS: u16 = Category::ALL.len() as u16 + 2;
/// What the screens will show, by their keys.
const TO_COME: [(char, &str); 7] = [
    ('1', "a step's memory by what it is for, the map of all blocks, and why it is so much"),
    ('2', "every segment and block, and who holds the largest hole"),
    ('3', "a step event by event, by category, module or tensor"),
    ('4', "the ops, by what they hold at the peak"),
    ('5', "steps side by side, and what each leaves behind"),
    ('6', "every reserved byte by account, and all findings"),
    ('7', "the lines of the program that hold memory"),
];

/// What is known of a program before it says anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AwaitedProgram {
    /// The command that started it; empty if it was already running.
    pub command: String,
    /// Its process id.
    pub pid: Option<u32>,
    /// The file with its output.
    pub output: Option<PathBuf>,
    /// The last lines of its output.
    pub printed: Vec<String>,
    /// Whether it has loaded PyTorch; `None` if the system does not say.
    pub torch: Option<bool>,
}

/// True for a picture of a program that has not used a GPU yet, or never did.
pub(crate) fn is_shown(picture: &Picture) -> bool {
    let nothing = picture.view.segments.is_empty() && picture.view.peak_reserved.get() == 0;
    matches!(picture.kind, SourceKind::Watched(_)) && picture.view.about.workload.is_empty() && nothing
}

/// Draws the page over `area`, `elapsed` after the screen was opened.
pub(crate) fn render(stage: &Stage<'_>, awaited: &AwaitedProgram, elapsed: Duration, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let SourceKind::Watched(name) = &stage.picture.kind else { return };
    let ended = stage.picture.run == RunState::Finished;
    let room = usize::from(area.width.saturating_sub(4)).saturating_sub(COLUMN);
    let mut rows: Vec<(Token, &str, String)> = Vec::new();
    let mut tell = |token, head: &'static str, text: &str| {
        for (index, line) in pane::wrap(text, room).into_iter().enumerate() {
            rows.push((token, if index == 0 { head } else { "" }, line));
        }
    };
    let process = awaited.pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    tell(Token::Strong, "program", &format!("{name}{process}"));
    let since = figures::duration(elapsed);
    if ended {
        tell(Token::Warn, "ended", "no memory of a GPU was seen");
    } else {
        tell(Token::Text, "waiting", &format!("for its first memory on a GPU, {since} so far"));
        match awaited.torch {
            Some(false) => tell(Token::Text, "so far", "alive; torch is not loaded yet"),
            Some(true) => tell(Token::Text, "so far", "alive; torch is loaded, and no GPU is used yet"),
            None => {}
        }
        tell(
            Token::Text,
            "needed",
            "Python imports torch, then the program allocates on the GPU (.cuda(), .to(\"cuda\"))",
        );
        tell(Token::Dim, "", "vramlab turns on PyTorch's recording of memory by itself; the program is not changed");
    }
    if !awaited.command.is_empty() {
        tell(Token::Dim, "started by", &awaited.command);
    }
    let log = &stage.view().log;
    for line in &log[log.len().saturating_sub(3)..] {
        tell(Token::Warn, "note", &line.text);
    }
    match &awaited.output {
        Some(path) => tell(Token::Text, "its output", &format!("in {0}: tail -f {0}", path.display())),
        None => tell(Token::Dim, "its output", "goes where it went before"),
    }
    let quit = stage.keys.key_of(Action::Quit);
    let leaves = if ended { format!("{quit} closes") } else { format!("{quit} leaves; the program goes on") };
    tell(Token::Dim, "keys", &format!("{leaves} · {} help", stage.keys.key_of(Action::ToggleHelp)));
    // The program's output takes what is left below, and a few rows of a small screen.
    let follows = awaited.output.is_some() && area.height >= SMALL;
    let most = area.height - if follows { LEAST_TAIL } else { 0 };
    let height = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(2).min(most);
    let outer = Rect { height, ..area };
    let mut left = Rect { y: outer.bottom(), height: area.height - height, ..area };
    // What will come says more than an empty frame.
    let empty = awaited.printed.is_empty() && !ended && left.height >= TO_COME_ROWS;
    if follows && !(empty && left.height < LEAST_TAIL + TO_COME_ROWS) {
        // As high as the output, if the list of screens fits below.
        let wanted = u16::try_from(awaited.printed.len()).unwrap_or(u16::MAX).saturating_add(2).max(LEAST_TAIL - 1);
        let below = if ended { 0 } else { TO_COME_ROWS };
        let tail =
            if below > 0 && left.height >= LEAST_TAIL + below { wanted.min(left.height - below) } else { left.height };
        printed(stage, awaited, Rect { height: tail, ..left }, buf);
        left = Rect { y: left.y + tail, height: left.height - tail, ..left };
    }
    if !ended && left.height >= TO_COME_ROWS {
        to_come(stage, Rect { height: TO_COME_ROWS, ..left }, buf);
        let left = Rect { y: left.y + TO_COME_ROWS, height: left.height - TO_COME_ROWS, ..left };
        if left.height >= LEAST_COLOURS {
            colours(stage, left, buf);
        }
    }
    let title = if ended { "nothing to show" } else { "waiting for the program" };
    let inner = pane::frame(Frame::Box, vec![span(theme, Token::Title, title)], theme.style(Token::Border), outer, buf);
    for (y, (token, head, line)) in (0..inner.height).zip(rows) {
        let line = vec![Span::raw(" "), span(theme, Token::Dim, format!("{head:<COLUMN$}")), span(theme, token, line)];
        put(inner, y, line, buf);
    }
}

/// How many rows the list of screens takes, with its frame.
const TO_COME_ROWS: u16 = TO_COME.len() as u16 + 2;

/// Draws what the screens will show.
fn to_come(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let title = vec![span(theme, Token::Title, "then you see")];
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    for (y, (key, what)) in (0..inner.height).zip(TO_COME) {
        let title = SCREENS.iter().find(|screen| screen.key == key).map_or("", |screen| screen.title);
        let head = format!("{:<width$}", format!("{key} {title}"), width = COLUMN);
        let room = usize::from(inner.width.saturating_sub(2)).saturating_sub(COLUMN);
        let what = pane::cut_sentence(what, room);
        put(inner, y, vec![Span::raw(" "), span(theme, Token::Dim, head), span(theme, Token::Text, what)], buf);
    }
}

/// Draws what the colours mean, as many as fit: first the categories, then the other accounts.
fn colours(stage: &Stage<'_>, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let categories = Category::ALL.into_iter().map(|of| (legend_of(of, theme), short_label(of)));
    let all = categories.chain(account_marks(theme));
    let entries: Vec<_> = all
        .filter_map(|(mark, word)| Some((mark, word, glossary::all().find(|entry| entry.is_called(word))?.meaning)))
        .collect();
    let rows = u16::try_from(entries.len()).unwrap_or(u16::MAX).saturating_add(2);
    let title = vec![span(theme, Token::Title, "in these colours")];
    let area = Rect { height: rows.min(area.height), ..area };
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let room = usize::from(inner.width.saturating_sub(2)).saturating_sub(COLUMN);
    for (y, (mark, word, meaning)) in (0..inner.height).zip(entries) {
        let head = span(theme, Token::Dim, format!(" {word:<width$}", width = COLUMN - 2));
        let line = vec![Span::raw(" "), mark, head, span(theme, Token::Text, pane::cut_sentence(meaning, room))];
        put(inner, y, line, buf);
    }
}

/// Draws the last lines of the program's output, as many as fit.
fn printed(stage: &Stage<'_>, awaited: &AwaitedProgram, area: Rect, buf: &mut Buffer) {
    let theme = stage.theme;
    let mut title = vec![span(theme, Token::Title, "its output")];
    if awaited.printed.is_empty() {
        title.push(span(theme, Token::Dim, " · nothing so far"));
    }
    let inner = pane::frame(Frame::Box, title, theme.style(Token::Border), area, buf);
    let rows = usize::from(inner.height);
    let first = awaited.printed.len().saturating_sub(rows);
    for (y, line) in (0..inner.height).zip(&awaited.printed[first..]) {
        let line = pane::cut(line, usize::from(inner.width.saturating_sub(2)));
        put(inner, y, vec![Span::raw(" "), span(theme, Token::Dim, line)], buf);
    }
}
