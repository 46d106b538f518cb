//! The help: every command of the key table, and every word of the screens with its current figure.

use crossterm::event::KeyEvent;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};

use super::line::{self, leaves};
use super::pressed::LayerResponse;
use super::scroll;
use crate::drawing::legend::{account_marks, legend_of, short_label};
use crate::drawing::pane::{self, Frame, span};
use crate::drawing::theme::{Theme, Token};
use crate::model::Category;
use crate::tui::action::{Action, Binding, KeyGroup};
use crate::tui::dialog::DialogAction;
use crate::tui::glossary::{self, GlossaryEntry};
use crate::tui::keys::Keymap;
use crate::tui::palette::OnEnter;
use crate::tui::panel::Panel;
use crate::tui::screens::SCREENS;
use crate::tui::stage::Stage;
use crate::tui::words;

/// The greatest width of the help.
const WIDTH: u16 = 150;
/// From this width on keys are in two columns.
const TWO_COLUMNS: u16 = 112;
/// Cells between the columns.
const GAP: usize = 2;
/// The width of the columns of keys and of words.
const KEYS: usize = 12;
const WORDS: usize = 18;
/// Longer searches find nothing.
const LONGEST: usize = 40;

/// The part of the help that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HelpPart {
    Keys,
    Words,
}

/// The search in both parts.
#[derive(Clone, Debug, Default)]
struct HelpSearch {
    text: String,
    /// True while the search is written.
    open: bool,
    /// The index of the selected key among those found.
    chosen: usize,
}

/// What the help shows.
#[derive(Clone, Debug)]
pub(crate) struct Help {
    /// The first visible line.
    pub(super) first: usize,
    part: HelpPart,
    /// The panel that the help is about.
    panel: Option<Panel>,
    /// The panels on the screen, in order.
    panels: Vec<Panel>,
    screen: usize,
    search: Option<HelpSearch>,
}

impl Help {
    /// Begins with the words of `panel`, or with the keys. `panels` are those of the screen with this index.
    pub const fn new(panel: Option<Panel>, panels: Vec<Panel>, screen: usize) -> Self {
        let part = if panel.is_some() { HelpPart::Words } else { HelpPart::Keys };
        Self { first: 0, part, panel, panels, screen, search: None }
    }

    /// Begins with a word, on the screen with this index.
    pub fn on_word(word: &str, screen: usize) -> Self {
        let search = Some(HelpSearch { text: word.to_owned(), ..HelpSearch::default() });
        Self { part: HelpPart::Words, search, ..Self::new(None, Vec::new(), screen) }
    }

    /// The first visible line.
    #[cfg(test)]
    pub const fn first(&self) -> usize {
        self.first
    }

    /// The panel that the help is about.
    #[cfg(test)]
    pub const fn panel(&self) -> Option<Panel> {
        self.panel
    }

    /// True while the search is written.
    pub(super) const fn is_written(&self) -> bool {
        matches!(&self.search, Some(HelpSearch { open: true, .. }))
    }

    pub fn press(&mut self, key: KeyEvent, keys: &Keymap) -> LayerResponse {
        if leaves(key) {
            return LayerResponse::Leave;
        }
        if let Some(search) = self.search.as_mut().filter(|search| search.open)
            && line::write(&mut search.text, key, LONGEST)
        {
            (self.first, search.chosen) = (0, 0);
            return LayerResponse::Taken;
        }
        let Some(action) = keys.dialog_action(key) else {
            return if self.is_written() { LayerResponse::Taken } else { LayerResponse::Passed };
        };
        match (action, &mut self.search) {
            (DialogAction::Next | DialogAction::Previous, Some(search)) if search.open => {
                let last = found(keys, search, self.screen).len().saturating_sub(1);
                let to = if action == DialogAction::Next { search.chosen + 1 } else { search.chosen.saturating_sub(1) };
                search.chosen = to.min(last);
                // The keys come first, one line each.
                self.first = search.chosen.saturating_sub(8);
                return LayerResponse::Taken;
            }
            (DialogAction::Apply, Some(search)) if search.open => {
                let chosen = found(keys, search, self.screen).get(search.chosen).copied();
                let pressed = |binding: &Binding| OnEnter::Press { screen: binding.screen, action: binding.action };
                if let Some(binding) = chosen.filter(|binding| !binding.is_of_dialogs()) {
                    return LayerResponse::Do(pressed(binding));
                }
                search.open = false;
                return LayerResponse::Taken;
            }
            _ => {}
        }
        if let Some(scrolled) = scroll(action) {
            return scrolled;
        }
        match (action, &mut self.search) {
            (DialogAction::Search, search) => search.get_or_insert_default().open = true,
            (DialogAction::Clear, Some(search)) => *search = HelpSearch { open: search.open, ..HelpSearch::default() },
            (DialogAction::Cancel, search @ Some(_)) => *search = None,
            (DialogAction::Part, None) => {
                self.part = if self.part == HelpPart::Keys { HelpPart::Words } else { HelpPart::Keys };
            }
            _ => return if self.is_written() { LayerResponse::Taken } else { LayerResponse::Passed },
        }
        self.first = 0;
        LayerResponse::Taken
    }

    /// Inserts text into the search.
    pub fn insert(&mut self, text: &str) -> LayerResponse {
        if let Some(search) = self.search.as_mut().filter(|search| search.open) {
            text.chars().for_each(|symbol| line::push(&mut search.text, symbol, LONGEST));
            (self.first, search.chosen) = (0, 0);
        }
        LayerResponse::Taken
    }

    /// Draws the help over `area`. Returns the number of lines, and how many are visible.
    pub fn render(&self, stage: &Stage<'_>, area: Rect, buf: &mut Buffer) -> (usize, usize) {
        let theme = stage.theme;
        let width = area.width.min(WIDTH);
        let columns = if self.search.is_none() && self.part == HelpPart::Keys && width >= TWO_COLUMNS { 2 } else { 1 };
        let room = (usize::from(width.saturating_sub(4)) - GAP * (columns - 1)) / columns;
        let lines = self.lines(stage, room, columns > 1);
        // A search does not change the box.
        let wanted = if self.search.is_some() { usize::MAX } else { lines.len().div_ceil(columns) + 3 };
        let height = u16::try_from(wanted).unwrap_or(u16::MAX).min(area.height);
        let outer = area.centered(Constraint::Length(width), Constraint::Length(height));
        Clear.render(outer, buf);
        buf.set_style(outer, theme.style(Token::Surface).patch(theme.style(Token::Text)));
        let inner = pane::frame(Frame::Box, self.title(stage), theme.style(Token::Accent), outer, buf);
        let body = Rect { height: inner.height.saturating_sub(1), ..inner };
        let (rows, seen) = (usize::from(body.height), usize::from(body.height) * columns);
        let first = self.first.min(lines.len().saturating_sub(seen));
        for column in 0..columns {
            let x = body.x + 1.min(body.width) + u16::try_from(column * (room + GAP)).unwrap_or(0);
            let shown = lines.iter().skip(first + column * rows);
            for (y, line) in (body.top()..body.bottom()).zip(shown) {
                buf.set_line(
                    x,
                    y,
                    line,
                    u16::try_from(room).unwrap_or(u16::MAX).min(body.right().saturating_sub(x + 1)),
                );
            }
        }
        if lines.len() > seen {
            let place = format!("{}–{} of {}", first + 1, (first + seen).min(lines.len()), lines.len());
            pane::remark(span(theme, Token::Dim, place), outer, buf);
        }
        colours(theme, inner, buf);
        (lines.len(), seen)
    }

    fn title(&self, stage: &Stage<'_>) -> Vec<Span<'static>> {
        let (theme, keys) = (stage.theme, stage.keys);
        let key = |action| keys.key_of(Action::Dialog(action));
        let mut title = vec![span(theme, Token::Title, "help ")];
        if let Some(search) = &self.search {
            let cursor = if search.open { "▏" } else { "" };
            title.push(span(theme, Token::Key, "/"));
            title.push(span(theme, Token::Strong, search.text.clone()));
            title.push(span(theme, Token::Key, cursor));
            let answer =
                if search.open { words::in_dialog(keys, "presses the key", "ends the search") } else { String::new() };
            title.push(span(theme, Token::Dim, answer));
            return title;
        }
        for (part, name) in [(HelpPart::Keys, "keys"), (HelpPart::Words, "words")] {
            let shown = part == self.part;
            let (token, text) =
                if shown { (Token::Strong, format!("[{name}] ")) } else { (Token::Dim, format!("{name} ")) };
            title.push(span(theme, token, text));
        }
        let other = if self.part == HelpPart::Keys { "words" } else { "keys" };
        let said = [(DialogAction::Part, other), (DialogAction::Search, "search")];
        let said: Vec<String> = said
            .into_iter()
            .filter(|(action, _)| !key(*action).is_empty())
            .map(|(action, word)| format!("{} {word}", key(action)))
            .collect();
        let said = if said.is_empty() { String::new() } else { format!("· {}", said.join(", ")) };
        title.push(span(theme, Token::Dim, said));
        title.push(span(theme, Token::Dim, words::how_to_read(keys, Action::ToggleHelp)));
        title
    }

    /// If `short`, each key takes one line; a search shows the rest.
    fn lines(&self, stage: &Stage<'_>, width: usize, short: bool) -> Vec<Line<'static>> {
        let mut page = HelpPage { theme: stage.theme, width, short, lines: Vec::new() };
        match (&self.search, self.part) {
            (Some(search), _) => {
                let sought = search.text.trim().to_lowercase();
                let found = found(stage.keys, search, self.screen);
                let mut entries: Vec<&GlossaryEntry> = glossary::all().filter(|entry| entry.says(&sought)).collect();
                entries.sort_by_key(|entry| !entry.is_called(&sought));
                if found.is_empty() && entries.is_empty() {
                    page.heading("no key and no word says that");
                }
                // If the search is the name of a word, its explanation comes before the keys.
                let is_word = !search.open && entries.first().is_some_and(|entry| entry.is_called(&sought));
                let chosen = search.open.then_some(search.chosen);
                let keys =
                    |page: &mut HelpPage<'_>| page.keys(&format!("keys · {}", found.len()), &found, chosen, true);
                if !is_word {
                    keys(&mut page);
                }
                page.words(stage, &format!("words · {}", entries.len()), &entries);
                if is_word {
                    keys(&mut page);
                }
            }
            (None, HelpPart::Keys) => {
                let all = stage.keys.bindings();
                let of_screen = |index: usize| -> Vec<&Binding> {
                    all.iter().filter(|binding| binding.screen == Some(index)).collect()
                };
                let title = |index: usize| SCREENS.get(index).map_or("", |screen| screen.title);
                let group = |page: &mut HelpPage<'_>, group: KeyGroup| {
                    let of_group = all.iter().filter(|binding| binding.group == group && binding.screen.is_none());
                    page.keys(group.title(), &of_group.collect::<Vec<_>>(), None, false);
                };
                // On the first screen, the Lab, a new user finds how to stop, look back and flip.
                let begins: &[KeyGroup] = match self.screen {
                    0 => &[KeyGroup::Run, KeyGroup::Time, KeyGroup::Switches],
                    _ => &[],
                };
                begins.iter().for_each(|begins| group(&mut page, *begins));
                page.keys(&format!("on this screen: {}", title(self.screen)), &of_screen(self.screen), None, false);
                for other in KeyGroup::ALL.into_iter().filter(|group| !begins.contains(group)) {
                    group(&mut page, other);
                }
                for index in (0..SCREENS.len()).filter(|index| *index != self.screen) {
                    page.keys(&format!("on {}", title(index)), &of_screen(index), None, false);
                }
            }
            (None, HelpPart::Words) => {
                let mut told: Vec<&'static str> = Vec::new();
                let mut rest: Vec<Panel> = self.panels.clone();
                rest.retain(|panel| Some(*panel) != self.panel);
                for panel in self.panel.into_iter().chain(rest) {
                    let mine: Vec<&GlossaryEntry> =
                        glossary::of(panel).filter(|entry| !told.contains(&entry.word)).collect();
                    told.extend(mine.iter().map(|entry| entry.word));
                    page.words(stage, panel.name(), &mine);
                }
                let others: Vec<&GlossaryEntry> = glossary::all().filter(|entry| !told.contains(&entry.word)).collect();
                page.words(stage, "other words", &others);
            }
        }
        page.lines
    }
}

/// The keys that a search finds, those of the screen with this index first.
fn found<'a>(keys: &'a Keymap, search: &HelpSearch, screen: usize) -> Vec<&'a Binding> {
    let sought = search.text.trim().to_lowercase();
    let mut found: Vec<&Binding> = keys.bindings().iter().filter(|binding| says(binding, &sought)).collect();
    found.sort_by_key(|binding| {
        let is_key = binding.label.split(' ').any(|key| key == search.text.trim());
        (!is_key, binding.is_of_dialogs(), binding.screen.is_some_and(|of| of != screen), binding.screen.is_none())
    });
    found
}

/// True if a command's keys, word or sentence contain the search.
fn says(binding: &Binding, sought: &str) -> bool {
    let label = binding.label.to_lowercase();
    label.split(' ').any(|key| key == sought)
        || binding.action.word().contains(sought)
        || binding.help.to_lowercase().contains(sought)
}

/// The lines of the help while they are written.
struct HelpPage<'a> {
    theme: &'a Theme,
    width: usize,
    /// True if a key takes no more than one line.
    short: bool,
    lines: Vec<Line<'static>>,
}

impl HelpPage<'_> {
    fn heading(&mut self, text: &str) {
        self.lines.push(Line::from(span(self.theme, Token::Title, text.to_owned())));
    }

    /// Writes keys with what they do. If they are from several screens, each names its screen. One may be selected.
    fn keys(&mut self, heading: &str, bindings: &[&Binding], chosen: Option<usize>, mixed: bool) {
        if bindings.is_empty() {
            return;
        }
        self.heading(heading);
        for (index, binding) in bindings.iter().enumerate() {
            let label = if binding.label.is_empty() { "–" } else { &binding.label };
            let of = binding.screen.filter(|_| mixed).and_then(|index| SCREENS.get(index));
            let said = if self.short { binding.help_in(self.width.saturating_sub(KEYS)) } else { &binding.help };
            let help = of.map_or_else(|| said.to_owned(), |screen| format!("{}: {said}", screen.title));
            let mark = if chosen == Some(index) { "▸ " } else { "  " };
            self.entry(&format!("{mark}{label}"), (KEYS, Token::Key), "", &help);
        }
    }

    fn words(&mut self, stage: &Stage<'_>, heading: &str, entries: &[&GlossaryEntry]) {
        if entries.is_empty() {
            return;
        }
        self.heading(heading);
        for entry in entries {
            let figure = entry.figure.and_then(|figure| figure(stage)).unwrap_or_default();
            self.entry(&format!("  {}", entry.word), (WORDS, Token::Accent), &figure, entry.meaning);
        }
    }

    /// Writes a key or a word, its current figure, and its meaning.
    fn entry(&mut self, head: &str, (column, token): (usize, Token), figure: &str, text: &str) {
        let theme = self.theme;
        let room = self.width.saturating_sub(column);
        let mut head = span(theme, token, format!("{head:<column$}"));
        let mut body = pane::wrap(text, room).into_iter();
        // A word wider than its column gets its own line.
        if head.width() > column {
            let alone = std::mem::replace(&mut head, span(theme, token, " ".repeat(column)));
            let figure = span(theme, Token::Strong, format!("  {figure}"));
            self.lines.push(Line::from(vec![alone, figure]));
        } else if !figure.is_empty() {
            self.lines.push(Line::from(vec![head.clone(), span(theme, Token::Strong, figure.to_owned())]));
            head = span(theme, token, " ".repeat(column));
        }
        if let Some(first) = body.next() {
            self.lines.push(Line::from(vec![head, span(theme, Token::Text, first)]));
        }
        let margin = || span(theme, Token::Text, " ".repeat(column));
        self.lines.extend(body.map(|line| Line::from(vec![margin(), span(theme, Token::Text, line)])));
    }
}

/// The legend of the block map, on the last line.
fn colours(theme: &Theme, inner: Rect, buf: &mut Buffer) {
    let Some(y) = inner.height.checked_sub(1) else { return };
    let line = |label: fn(Category) -> &'static str| -> Vec<Span<'static>> {
        let entry = |category| [legend_of(category, theme), span(theme, Token::Dim, format!(" {} ", label(category)))];
        Category::ALL.into_iter().flat_map(entry).collect()
    };
    let long = line(Category::label);
    let fits = long.iter().map(Span::width).sum::<usize>() < usize::from(inner.width);
    let line = if fits { long } else { line(short_label) };
    let end = pane::put_at(inner, 1, y, line, buf);
    let marks = account_marks(theme).into_iter();
    let marks: Vec<Span<'static>> =
        marks.flat_map(|(mark, label)| [mark, span(theme, Token::Dim, format!(" {label} "))]).collect();
    if marks.iter().map(Span::width).sum::<usize>() <= usize::from(inner.width.saturating_sub(end)) {
        pane::put_at(inner, end, y, marks, buf);
    }
}
