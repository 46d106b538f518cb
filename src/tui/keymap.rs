//! The one table of commands: what a key does, its hint in the footer, its sentence in the help, when it acts.
//!
//! Dispatch, footer, help overlay and the README's key table are all made from it.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::editor::Purpose;
use crate::session::{RunState, StepSize, Switch};

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Flip a switch to its next value.
    Flip(Switch),
    /// Flip a switch to the value before.
    FlipBack(Switch),
    /// Write a line: a limit, allocator settings.
    Edit(Purpose),
    /// Give cached segments back to the driver.
    EmptyCache,
    /// Pause, or go on.
    TogglePause,
    /// Go on for a bit and stop again.
    Advance(StepSize),
    /// Start the same anew on the processor.
    UseProcessor,
    /// Fewer events per column of the memory chart.
    ZoomIn,
    /// More events per column of the memory chart.
    ZoomOut,
    /// Scroll the block map (or the help) by so many rows.
    Scroll(i32),
    /// Scroll the block map (or the help) by so many pages.
    ScrollPage(i32),
    /// The next theme.
    NextTheme,
    /// Open or close the help.
    ToggleHelp,
    /// Close what is open on top.
    Close,
    /// Draw everything anew.
    Repaint,
    /// Stop the process as Ctrl-Z does elsewhere.
    Suspend,
    /// Leave.
    Quit,
}

/// Where a command stands in the help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Switches that change how the lab trains.
    Switches,
    /// Pause and step.
    Run,
    /// What is shown.
    View,
    /// Everything else.
    Program,
}

impl Group {
    /// All groups in the order of the help.
    pub const ALL: [Self; 4] = [Self::Switches, Self::Run, Self::View, Self::Program];

    /// Its heading.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Switches => "switches",
            Self::Run => "run",
            Self::View => "view",
            Self::Program => "program",
        }
    }
}

/// A key with what it needs held down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key(KeyModifiers, KeyCode);

const fn plain(symbol: char) -> Key {
    Key(KeyModifiers::NONE, KeyCode::Char(symbol))
}

const fn ctrl(symbol: char) -> Key {
    Key(KeyModifiers::CONTROL, KeyCode::Char(symbol))
}

const fn named(code: KeyCode) -> Key {
    Key(KeyModifiers::NONE, code)
}

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    keys: &'static [Key],
    /// What it does.
    pub action: Action,
    /// Its keys in words, as help and README show them.
    pub label: &'static str,
    /// A word for the footer; empty where the footer does not name it.
    pub hint: &'static str,
    /// A sentence for the help.
    pub help: &'static str,
    /// Its place in the help.
    pub group: Group,
}

impl Binding {
    /// Whether it acts while the lab is in `run`.
    #[must_use]
    pub fn is_enabled(&self, run: &RunState) -> bool {
        let stopped = matches!(run, RunState::Paused | RunState::OutOfMemory | RunState::StepFailed(_));
        let alive = *run == RunState::Running || stopped;
        match self.action {
            Action::Flip(_)
            | Action::FlipBack(_)
            | Action::Edit(_)
            | Action::EmptyCache
            | Action::TogglePause
            | Action::Advance(_) => alive,
            Action::UseProcessor => matches!(run, RunState::Lost(_)),
            _ => true,
        }
    }
}

macro_rules! bindings {
    ($([$($key:expr),+] $label:literal $action:expr, $group:ident, $hint:literal, $help:literal;)+) => {
        /// Every command, in the order of the help and of the footer.
        pub const BINDINGS: &[Binding] = &[$(Binding {
            keys: &[$($key),+],
            action: $action,
            label: $label,
            hint: $hint,
            help: $help,
            group: Group::$group,
        }),+];
    };
}

bindings! {
    [plain('m')] "m" Action::Flip(Switch::Amp), Switches, "", "mixed precision: activations shrink to 16 bits, casts of the weights are added";
    [plain('c')] "c" Action::Flip(Switch::Checkpointing), Switches, "", "activation checkpointing: keep less, compute the forward pass again in backward";
    [plain('a')] "a" Action::Flip(Switch::Accumulation), Switches, "", "gradient accumulation: smaller micro-batches; parameters and optimizer state stay";
    [plain('p')] "p" Action::Flip(Switch::Pinned), Switches, "", "pinned batches: copied to the device beside the computation";
    [plain('o')] "o" Action::Flip(Switch::Optimizer), Switches, "", "optimizer: its state is none, one or two times the parameters";
    [plain('z')] "z" Action::Flip(Switch::ZeroGrad), Switches, "", "zero_grad: drop the gradients, or keep them and write zeros";
    [plain('f')] "f" Action::Flip(Switch::Offload), Switches, "", "offload: saved tensors or optimizer state wait in host memory; the step pays for the copies";
    [plain('r')] "r" Action::Flip(Switch::Retain), Switches, "", "a leak: keep every step's loss, or the loss with its graph; turn it off to let go";
    [plain('L')] "L" Action::Edit(Purpose::Limit), Switches, "", "memory limit: the most that may be reserved, such as 8GiB or 50%";
    [plain('x')] "x" Action::Edit(Purpose::Settings), Switches, "", "allocator settings in PyTorch's syntax, such as expandable_segments:True";
    [plain('O')] "O" Action::Flip(Switch::Form), Switches, "", "optimizer step: foreach, fused kernel or loop; they differ in temporaries";
    [plain('b')] "b" Action::FlipBack(Switch::Batch), Switches, "", "a smaller batch";
    [plain('B')] "B" Action::Flip(Switch::Batch), Switches, "", "a larger batch: activations grow, the rest stays";
    [plain('A')] "A" Action::Flip(Switch::Attention), Switches, "", "attention kernel: math keeps a matrix per head, the fused ones do not";
    [plain('F')] "F" Action::Flip(Switch::Fuse), Switches, "", "fused ops: what eager ones write between them is left out, so the curve is another";
    [plain('t')] "t" Action::Flip(Switch::Tf32), Switches, "", "TF32: faster products on tensor cores; no effect on the processor";
    [plain('s')] "s" Action::Flip(Switch::Schedule), Switches, "", "learning rate: constant or cosine; takes no memory";
    [plain('e')] "e" Action::EmptyCache, Switches, "", "empty_cache: wholly free segments go back; allocated stays as it is";
    [plain(' ')] "space" Action::TogglePause, Run, "pause", "pause at the next op, or go on";
    [plain('.')] "." Action::Advance(StepSize::Op), Run, "op", "go on to the end of the next op";
    [plain(',')] "," Action::Advance(StepSize::Phase), Run, "phase", "go on to the end of the phase";
    [plain('n')] "n" Action::Advance(StepSize::Step), Run, "step", "go on to the end of the step";
    [plain('P')] "P" Action::UseProcessor, Run, "train on the processor", "after the GPU was lost: start the same anew on the processor";
    [plain(']'), plain('+'), plain('=')] "] +" Action::ZoomIn, View, "zoom", "memory chart: look closer";
    [plain('['), plain('-')] "[ -" Action::ZoomOut, View, "", "memory chart: see more steps";
    [named(KeyCode::Down), plain('j'), named(KeyCode::Right), plain('l')] "↓ j" Action::Scroll(1), View, "", "scroll the blocks";
    [named(KeyCode::Up), plain('k'), named(KeyCode::Left), plain('h')] "↑ k" Action::Scroll(-1), View, "", "scroll the blocks back";
    [named(KeyCode::Tab), named(KeyCode::PageDown)] "Tab" Action::ScrollPage(1), View, "blocks", "next page of blocks";
    [named(KeyCode::BackTab), named(KeyCode::PageUp)] "Shift-Tab" Action::ScrollPage(-1), View, "", "previous page of blocks";
    [plain('T')] "T" Action::NextTheme, Program, "theme", "next theme";
    [plain('?')] "?" Action::ToggleHelp, Program, "help", "open or close this help";
    [named(KeyCode::Esc)] "Esc" Action::Close, Program, "", "close the help";
    [ctrl('l')] "Ctrl-L" Action::Repaint, Program, "", "draw the screen anew";
    [ctrl('z')] "Ctrl-Z" Action::Suspend, Program, "", "back to the shell; fg returns";
    [plain('q'), ctrl('c')] "q Ctrl-C" Action::Quit, Program, "quit", "end the run and leave";
}

/// The command of a pressed key.
#[must_use]
pub fn binding_for(event: KeyEvent) -> Option<&'static Binding> {
    let key = match event.code {
        // Shift is already in the character (`T`, `?`, `+`); terminals differ in whether they also report it.
        KeyCode::Char(_) | KeyCode::BackTab => Key(event.modifiers.difference(KeyModifiers::SHIFT), event.code),
        code => Key(event.modifiers, code),
    };
    BINDINGS.iter().find(|binding| binding.keys.contains(&key))
}

/// The key table as the README shows it.
#[must_use]
pub fn keys_markdown() -> String {
    let mut table = String::from("| key | what it does |\n|---|---|\n");
    for group in Group::ALL {
        for binding in BINDINGS.iter().filter(|binding| binding.group == group) {
            let keys: Vec<String> = binding.label.split(' ').map(|key| format!("`{key}`")).collect();
            table.push_str(&format!("| {} | {} |\n", keys.join(" "), binding.help));
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_commands() {
        let keys: Vec<Key> = BINDINGS.iter().flat_map(|binding| binding.keys).copied().collect();
        for (index, key) in keys.iter().enumerate() {
            assert!(!keys[index + 1..].contains(key), "{key:?} is bound twice");
        }
    }

    #[test]
    fn no_command_needs_a_key_that_a_tape_cannot_press() {
        for binding in BINDINGS {
            let pressable = |key: &Key| {
                !key.0.contains(KeyModifiers::ALT) && !matches!(key.1, KeyCode::F(_) | KeyCode::Home | KeyCode::End)
            };
            assert!(binding.keys.iter().any(pressable), "{}", binding.label);
        }
    }

    #[test]
    fn shift_does_not_matter_for_characters() {
        let event = KeyEvent::new(KeyCode::Char('T'), KeyModifiers::SHIFT);
        assert_eq!(binding_for(event).map(|binding| binding.action), Some(Action::NextTheme));
        let event = KeyEvent::new(KeyCode::BackTab, KeyModifiers::SHIFT);
        assert_eq!(binding_for(event).map(|binding| binding.action), Some(Action::ScrollPage(-1)));
        assert!(binding_for(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT)).is_none());
    }

    #[test]
    fn every_command_is_in_the_readme_table() {
        let table = keys_markdown();
        assert_eq!(table.lines().count(), BINDINGS.len() + 2);
        assert!(table.contains("| `q` `Ctrl-C` | end the run and leave |"));
    }
}
