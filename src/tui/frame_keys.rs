//! The keys of a panel in its frame: `╭ history ─── [ ] zoom ─╮`. They only take the room that the title leaves.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::action::Action;
use super::keymap;
use super::panel::Panel;
use super::stage::{Stage, Targets};
use super::states::{
    BlocksAction, CompareAction, LabAction, LedgerAction, Lookup, OpsAction, ScreenAction, TimelineAction,
};
use crate::drawing::pane::span;
use crate::drawing::theme::Token;

/// The length of the line between a frame's title and its keys, and behind the keys.
const LINE: usize = 1;

/// A word for what keys of a panel do. Two keys that belong together form one hint.
#[derive(Clone, Copy, Debug)]
struct KeyHint {
    actions: [Option<Action>; 2],
    word: &'static str,
}

const fn one(action: Action, word: &'static str) -> KeyHint {
    KeyHint { actions: [Some(action), None], word }
}

const fn both(first: Action, second: Action, word: &'static str) -> KeyHint {
    KeyHint { actions: [Some(first), Some(second)], word }
}

const fn lab(action: LabAction) -> Action {
    Action::Own(ScreenAction::Lab(action))
}

const fn blocks(action: BlocksAction) -> Action {
    Action::Own(ScreenAction::Blocks(action))
}

const fn step(action: TimelineAction) -> Action {
    Action::Own(ScreenAction::Timeline(action))
}

const fn ops(action: OpsAction) -> Action {
    Action::Own(ScreenAction::Ops(action))
}

const fn compare(action: CompareAction) -> Action {
    Action::Own(ScreenAction::Compare(action))
}

const fn ledger(action: LedgerAction) -> Action {
    Action::Own(ScreenAction::Ledger(action))
}

/// The key hints of a panel on any screen. Keys of one screen act only there.
fn of(panel: Panel) -> &'static [KeyHint] {
    match panel {
        Panel::History => {
            const { &[both(lab(LabAction::ZoomOut), lab(LabAction::ZoomIn), "zoom"), one(Action::Ghost, "ghost")] }
        }
        Panel::Map => {
            const {
                &[
                    one(blocks(BlocksAction::Coloring), "by"),
                    one(blocks(BlocksAction::Order), "sort"),
                    both(blocks(BlocksAction::ZoomOut), blocks(BlocksAction::ZoomIn), "zoom"),
                    one(Action::Filter(Lookup::Blocks), "filter"),
                ]
            }
        }
        Panel::Detail => {
            const {
                &[
                    one(blocks(BlocksAction::LargestHole), "hole"),
                    one(blocks(BlocksAction::LargestBlock), "largest"),
                    both(blocks(BlocksAction::Previous), blocks(BlocksAction::Next), "block"),
                ]
            }
        }
        Panel::Segments => {
            const { &[both(blocks(BlocksAction::PreviousSegment), blocks(BlocksAction::NextSegment), "segment")] }
        }
        Panel::Stacked => {
            const {
                &[
                    one(step(TimelineAction::Grouping), "by"),
                    both(step(TimelineAction::ZoomOut), step(TimelineAction::ZoomIn), "zoom"),
                    one(step(TimelineAction::Window), "step or run"),
                    one(step(TimelineAction::Peak), "peak"),
                ]
            }
        }
        Panel::Ops | Panel::Forward => {
            const {
                &[
                    one(ops(OpsAction::Totals), "by"),
                    one(ops(OpsAction::Sort), "sort"),
                    one(ops(OpsAction::Window), "step or run"),
                ]
            }
        }
        Panel::Alive => const { &[one(ops(OpsAction::Peak), "peak"), one(ops(OpsAction::Tag), "tag")] },
        Panel::Configurations => {
            const {
                &[
                    one(compare(CompareAction::Baseline), "baseline"),
                    one(compare(CompareAction::Go), "its steps"),
                    one(Action::CompareFile, "add a file"),
                ]
            }
        }
        Panel::LedgerChart => {
            const { &[one(ledger(LedgerAction::Window), "step or run"), one(ledger(LedgerAction::Peak), "peak")] }
        }
        Panel::Why => {
            const {
                &[
                    one(Action::Remedy, "do it"),
                    one(ledger(LedgerAction::NextRemedy), "other remedy"),
                    one(ledger(LedgerAction::Go), "its place"),
                    one(Action::ToggleFindings, "all"),
                ]
            }
        }
        _ => &[],
    }
}

/// Writes the keys of every panel into its frame, if there is room between the title and the corner.
pub(crate) fn render(
    stage: &Stage<'_>,
    panels: &[(Rect, Panel)],
    screen: usize,
    buf: &mut Buffer,
    targets: &mut Targets,
) {
    for (area, panel) in panels {
        let area = area.intersection(buf.area);
        let free = free(area, buf);
        let mut room = free.saturating_sub(2 * LINE);
        let mut said: Vec<(Vec<Span<'static>>, Action)> = Vec::new();
        for KeyHint { actions, word } in of(*panel) {
            let acting = actions.iter().flatten().filter(|action| acts(stage, **action, screen));
            let keys: Vec<&str> =
                acting.map(|action| stage.keys.key_of(*action)).filter(|key| !key.is_empty()).collect();
            let (Some(first), false) = (actions[0], keys.is_empty()) else { continue };
            // The title may already show the key.
            if titled(area, buf).contains(&format!(" {} {word} ", keys.join(" "))) {
                continue;
            }
            let entry = vec![
                Span::raw(" "),
                span(stage.theme, Token::Key, keys.join(" ")),
                span(stage.theme, Token::Dim, format!(" {word} ")),
            ];
            let cells = entry.iter().map(Span::width).sum::<usize>();
            let Some(left) = room.checked_sub(cells + usize::from(!said.is_empty())) else { break };
            room = left;
            said.push((entry, first));
        }
        let cells: usize = said.iter().flat_map(|(entry, _)| entry).map(Span::width).sum::<usize>();
        let cells = cells + said.len().saturating_sub(1);
        // The corner, or the end of a line above, stays.
        let mut x = area.right().saturating_sub(u16::try_from(cells + LINE + 1).unwrap_or(u16::MAX));
        for (entry, action) in said {
            let line = Line::from(entry);
            let width = u16::try_from(line.width()).unwrap_or(u16::MAX);
            buf.set_line(x, area.y, &line, width);
            targets.push((Rect { x, y: area.y, width, height: 1 }, action));
            x += width + 1;
        }
    }
}

/// True if a key would act now.
fn acts(stage: &Stage<'_>, action: Action, screen: usize) -> bool {
    let is_here = |binding: &&super::action::Binding| binding.action == action && binding.acts_on(screen);
    stage.keys.bindings().iter().any(|binding| is_here(&binding))
        && stage.hold.permits(action, stage.picture)
        && keymap::acts(action, stage.picture).is_ok()
        && (!is_about_a_remedy(action) || stage.states.ledger.remedy(&stage.findings()).is_some())
}

/// True if the action needs a finding with a remedy.
const fn is_about_a_remedy(action: Action) -> bool {
    matches!(action, Action::Remedy | Action::Own(ScreenAction::Ledger(LedgerAction::NextRemedy)))
}

/// The text in a frame's upper edge.
fn titled(area: Rect, buf: &Buffer) -> String {
    (area.left()..area.right()).map(|x| buf[(x, area.y)].symbol()).collect()
}

/// The length of the free line at the right of a frame's upper edge, without the corner.
fn free(area: Rect, buf: &Buffer) -> usize {
    let Some(last) = area.right().checked_sub(1).filter(|_| !area.is_empty()) else { return 0 };
    if !matches!(buf[(last, area.y)].symbol(), "╮" | "─") {
        return 0;
    }
    (area.left()..last).rev().take_while(|x| buf[(*x, area.y)].symbol() == "─").count()
}
