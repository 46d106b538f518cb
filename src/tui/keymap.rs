//! The table of commands: what each key does, its hint in the footer, its sentence in the help, and when it acts.
//!
//! Key handling, footer, help and the guide's key table are all made from it. Keys of switches come from the switches'
//! table, keys of screens from the screens' tables.

use std::sync::OnceLock;

use crossterm::event::KeyCode;

use super::action::{Action, Binding, Key, KeyGroup};
use super::dialog::DialogAction;
use super::keys::Keymap;
use super::screens::SCREENS;
use crate::model::RunState;
use crate::recording::Direction::{Backward, Forward};
use crate::session::{FlipDirection, StepSize, Switch};
use crate::source::{Ability, Landmark, MoveUnit, Picture};

/// All commands with their default keys.
pub fn standard() -> &'static Keymap {
    static STANDARD: OnceLock<Keymap> = OnceLock::new();
    STANDARD.get_or_init(|| {
        let mut all = switches();
        all.extend(common());
        for (index, screen) in SCREENS.iter().enumerate() {
            let own = (screen.bindings)().into_iter();
            all.extend(own.map(|binding| Binding { screen: Some(index), ..binding }));
        }
        all.extend(program());
        all.extend(dialogs());
        Keymap::new(all)
    })
}

fn switches() -> Vec<Binding> {
    let mut all = Vec::new();
    for switch in Switch::all() {
        let flip = |key: char, action: Action, help: &str| {
            Binding::new(&[Key::plain(key)], &key.to_string(), action, KeyGroup::Switches, "", help)
        };
        all.push(flip(switch.key(), Action::of_switch(switch), switch.help()).brief(switch.brief()));
        if let Some(back) = switch.key_back() {
            let help = format!("{}: half as many", switch.label());
            all.push(flip(back, Action::Flip(switch, FlipDirection::Previous), &help));
        }
    }
    let help = "empty_cache: return wholly free segments when the step ends";
    let empty_cache = Binding::new(&[Key::plain('e')], "e", Action::EmptyCache, KeyGroup::Switches, "", help);
    all.push(empty_cache.brief("empty_cache: return wholly free segments"));
    let help = "reset peaks: max_memory_allocated and _reserved start again";
    let reset_peaks = Binding::new(&[Key::plain('E')], "E", Action::ResetPeaks, KeyGroup::Switches, "", help);
    all.push(reset_peaks.brief("reset peaks: max_memory_* start again"));
    all
}

fn common() -> Vec<Binding> {
    use KeyGroup::{Run, Time};
    let plain = Key::plain;
    let named = Key::named;
    vec![
        Binding::new(
            &[plain(' ')],
            "space",
            Action::TogglePause,
            Run,
            "pause",
            "pause at the next op, or go on; play or stop a recording",
        )
        .brief("pause at the next op, or go on"),
        Binding::new(&[plain('.')], ".", Action::Advance(StepSize::Op), Run, "op", "advance to the end of the op"),
        Binding::new(
            &[plain(',')],
            ",",
            Action::Advance(StepSize::Phase),
            Run,
            "phase",
            "advance to the end of the phase",
        ),
        Binding::new(
            &[plain('n')],
            "n",
            Action::Advance(StepSize::Step),
            Run,
            "step",
            "advance to the end of the step",
        ),
        Binding::new(
            &[plain('P')],
            "P",
            Action::UseProcessor,
            Run,
            "train on the processor",
            "after a lost GPU: start the same run on the processor",
        )
        .brief("after a lost GPU: run on the processor"),
        Binding::new(
            &[plain('W')],
            "W",
            Action::NextWay,
            Run,
            "another way",
            "several ranks: start again with the next --parallel",
        )
        .brief("several ranks: share in the next way"),
        Binding::new(
            &[named(KeyCode::Left), plain('h')],
            "← h",
            Action::Cursor(MoveUnit::Op, Backward),
            Time,
            "back",
            "back one op; the run goes on meanwhile",
        ),
        Binding::new(
            &[named(KeyCode::Right), plain('l')],
            "→ l",
            Action::Cursor(MoveUnit::Op, Forward),
            Time,
            "",
            "forward one op",
        ),
        Binding::new(
            &[named(KeyCode::PageUp), plain('(')],
            "PgUp (",
            Action::Cursor(MoveUnit::Step, Backward),
            Time,
            "",
            "back to the previous step",
        ),
        Binding::new(
            &[named(KeyCode::PageDown), plain(')')],
            "PgDn )",
            Action::Cursor(MoveUnit::Step, Forward),
            Time,
            "",
            "forward to the next step",
        ),
        Binding::new(
            &[plain('{')],
            "{",
            Action::Jump(Landmark::Flip, Backward),
            Time,
            "",
            "to the previous flip: the peak of its first step",
        )
        .brief("to the first peak under the previous flip"),
        Binding::new(
            &[plain('}')],
            "}",
            Action::Jump(Landmark::Flip, Forward),
            Time,
            "",
            "to the next flip: the peak of its first step",
        )
        .brief("to the first peak under the next flip"),
        Binding::new(
            &[plain('g')],
            "g",
            Action::GoTo,
            Time,
            "go to",
            "go to the peak, an out of memory, a flip, a finding, a step",
        )
        .brief("go to a peak, a flip, a finding, a step"),
        Binding::new(
            &[plain('=')],
            "=",
            Action::Pin,
            Time,
            "pin",
            "pin the previous step to compare; again: this one, none",
        )
        .brief("pin the previous step, this one, or none"),
        Binding::new(
            &[named(KeyCode::End), plain('$')],
            "End $",
            Action::CursorNow,
            Time,
            "now",
            "to now, or to the end of a recording",
        ),
        Binding::new(
            &[named(KeyCode::Home), plain('H')],
            "Home H",
            Action::CursorStart,
            Time,
            "",
            "to the first moment on record",
        ),
        Binding::new(&[plain('<')], "<", Action::Faster(-1), Time, "", "play at half the speed"),
        Binding::new(&[plain('>')], ">", Action::Faster(1), Time, "", "play at twice the speed"),
    ]
}

fn program() -> Vec<Binding> {
    use KeyGroup::{Program, View};
    let plain = Key::plain;
    let named = Key::named;
    let mut all = vec![
        Binding::new(&[named(KeyCode::Tab)], "Tab", Action::NextScreen(1), View, "screens", "next screen"),
        Binding::new(&[named(KeyCode::BackTab)], "Shift-Tab", Action::NextScreen(-1), View, "", "previous screen"),
        Binding::new(
            &[plain('D')],
            "D",
            Action::NextDevice,
            View,
            "device",
            "the next device or rank, if there are several",
        )
        .brief("the next device or rank"),
        Binding::new(
            &[plain('w')],
            "w",
            Action::ToggleFindings,
            View,
            "why",
            "all findings, and what to do about them",
        ),
        Binding::new(
            &[plain('R')],
            "R",
            Action::Record,
            Program,
            "record",
            "record the run, from its start; again: stop recording",
        )
        .brief("record the run, or stop recording"),
        Binding::new(&[plain('T')], "T", Action::ChooseTheme, Program, "theme", "choose a theme; the list previews it"),
        Binding::new(
            &[plain('V')],
            "V",
            Action::TogglePresenting,
            Program,
            "",
            "present: large figures, keys shown, no accidental quit or leak",
        )
        .brief("present: large figures, keys shown"),
        Binding::new(
            &[plain('S')],
            "S",
            Action::SaveScreen,
            Program,
            "",
            "save the screen as a picture (SVG) and as text",
        )
        .brief("save the screen as SVG and as text"),
        Binding::new(
            &[plain('y')],
            "y",
            Action::Copy,
            Program,
            "copy",
            "copy the selection, a finding or the command; works over SSH",
        )
        .brief("copy the selection, finding or command"),
        Binding::new(&[plain('Z')], "Z", Action::LessonAnew, Program, "", "start the lesson again, on a fresh run"),
        Binding::new(&[plain('~')], "~", Action::FoldLesson, Program, "", "fold or unfold the lesson"),
        Binding::new(
            &[Key::ctrl('n')],
            "Ctrl-N",
            Action::PassQuestion,
            Program,
            "",
            "skip the question: measure without an answer, for no point",
        )
        .brief("skip the question, for no point"),
        Binding::new(
            &[Key::ctrl('b')],
            "Ctrl-B",
            Action::LessonBack,
            Program,
            "",
            "show the lesson's previous step again; Enter returns",
        )
        .brief("show the lesson's previous step again"),
        Binding::new(&[plain('*')], "*", Action::TakeLab, Program, "", "take the lab over until the lesson goes on"),
        Binding::new(
            &[plain(':'), Key::ctrl('p')],
            ": Ctrl-P",
            Action::Palette,
            Program,
            "find",
            "find a command, screen, step, word or block, and do it",
        )
        .brief("find anything by its name, and do it"),
        Binding::new(&[plain('?')], "?", Action::ToggleHelp, Program, "help", "the keys and words of this screen"),
        Binding::new(&[named(KeyCode::Esc)], "Esc", Action::Close, Program, "", "close what is open, else back to now"),
        Binding::new(&[Key::ctrl('l')], "Ctrl-L", Action::Repaint, Program, "", "redraw the screen"),
        Binding::new(&[Key::ctrl('z')], "Ctrl-Z", Action::Suspend, Program, "", "suspend to the shell; fg returns"),
        Binding::new(&[plain('q'), Key::ctrl('c')], "q Ctrl-C", Action::Quit, Program, "quit", "end the run and leave"),
    ];
    for (index, screen) in SCREENS.iter().enumerate() {
        let (key, help) = (screen.key.to_string(), format!("the {} screen", screen.title));
        all.insert(index, Binding::new(&[plain(screen.key)], &key, Action::Screen(index), View, "", &help));
    }
    all
}

/// Keys for what lies over a screen. While text is written, characters are text.
fn dialogs() -> Vec<Binding> {
    use DialogAction::{Apply, Cancel, Clear, First, Last, Next, PageDown, PageUp, Part, Previous, Search};
    let (plain, named) = (Key::plain, Key::named);
    let of = |keys: &[Key], label, action, help: &str| {
        Binding::new(keys, label, Action::Dialog(action), KeyGroup::Dialogs, "", help)
    };
    vec![
        of(&[named(KeyCode::Enter)], "Enter", Apply, "accept what is typed or selected"),
        of(&[named(KeyCode::Esc), plain('q')], "Esc q", Cancel, "close without a change"),
        of(&[named(KeyCode::Down), plain('j')], "↓ j", Next, "next line or entry"),
        of(&[named(KeyCode::Up), plain('k')], "↑ k", Previous, "previous line or entry"),
        of(&[named(KeyCode::PageDown), plain('J')], "PgDn J", PageDown, "next page"),
        of(&[named(KeyCode::PageUp), plain('K')], "PgUp K", PageUp, "previous page"),
        of(&[named(KeyCode::Home), plain('g')], "Home g", First, "first line or entry"),
        of(&[named(KeyCode::End), plain('G')], "End G", Last, "last line or entry"),
        of(&[plain('/')], "/", Search, "search the help; Enter presses the key found"),
        of(&[named(KeyCode::Tab)], "Tab", Part, "switch between keys and words in the help"),
        of(&[Key::ctrl('u')], "Ctrl-U", Clear, "clear the line"),
    ]
}

/// Checks whether an action acts now. An empty reason needs no words.
///
/// # Errors
/// The reason why it does not.
pub fn acts(action: Action, picture: &Picture) -> Result<(), &'static str> {
    if let Some(ability) = action.needs() {
        picture.can(ability)?;
    }
    let run = &picture.run;
    let stopped = matches!(run, RunState::Paused | RunState::OutOfMemory | RunState::StepFailed(_));
    let alive = *run == RunState::Running || stopped;
    let live = picture.is_live();
    if !live && matches!(action, Action::TogglePause | Action::Advance(_)) {
        picture.can(Ability::Seek)?;
    }
    let there = match action {
        Action::Flip(..) | Action::Edit(_) | Action::EmptyCache | Action::ResetPeaks | Action::Remedy => alive,
        Action::TogglePause | Action::Advance(_) => alive || !live || !picture.is_now(),
        Action::NextWay => {
            !picture.ranks.is_empty() && (alive || matches!(run, RunState::Finished | RunState::Failed(_)))
        }
        Action::UseProcessor => matches!(run, RunState::Lost(_)),
        Action::CursorNow => !picture.is_now() || !live && picture.place() < picture.extent.end,
        Action::Faster(_) => !picture.is_now() || !live,
        Action::NextDevice => picture.device.of > 1,
        _ => true,
    };
    if there { Ok(()) } else { Err("") }
}

/// The key table as the guide shows it.
#[must_use]
pub fn keys_markdown() -> String {
    standard().markdown(|screen| SCREENS.get(screen).map_or("", |screen| screen.title))
}

#[cfg(test)]
mod tests {
    use crossterm::event::{KeyEvent, KeyModifiers};

    use super::*;

    #[test]
    fn no_key_has_two_commands_on_one_screen() {
        for screen in 0..SCREENS.len() {
            let mine = standard().bindings().iter().filter(|binding| binding.acts_on(screen));
            let keys: Vec<Key> = mine.flat_map(|binding| binding.keys.clone()).collect();
            for (index, key) in keys.iter().enumerate() {
                assert!(!keys[index + 1..].contains(key), "{key:?} is bound twice");
            }
        }
        let of_dialogs = standard().bindings().iter().filter(|binding| binding.is_of_dialogs());
        let keys: Vec<Key> = of_dialogs.flat_map(|binding| binding.keys.clone()).collect();
        assert!((1..keys.len()).all(|index| !keys[index..].contains(&keys[index - 1])), "{keys:?}");
    }

    #[test]
    fn no_command_needs_a_key_that_a_tape_cannot_press() {
        for binding in standard().bindings() {
            let pressable = |key: &Key| {
                !key.0.contains(KeyModifiers::ALT) && !matches!(key.1, KeyCode::F(_) | KeyCode::Home | KeyCode::End)
            };
            assert!(binding.keys.iter().any(pressable), "{}", binding.label);
        }
    }

    #[test]
    fn shift_does_not_matter_for_characters() {
        let action = |event: KeyEvent| standard().binding_for(event, 0).map(|binding| binding.action);
        let event = KeyEvent::new(KeyCode::Char('T'), KeyModifiers::SHIFT);
        assert_eq!(action(event), Some(Action::ChooseTheme));
        let event = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        assert_eq!(action(event), Some(Action::NextScreen(-1)));
        assert!(standard().binding_for(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT), 0).is_none());
    }

    #[test]
    fn every_command_is_in_the_table() {
        let table = keys_markdown();
        assert_eq!(table.lines().count(), standard().bindings().len() + 2);
        assert!(
            table.contains("| `q` `Ctrl-C` | end the run and leave |")
                && table.contains("| `_` | Blocks: the largest hole")
        );
    }
}
