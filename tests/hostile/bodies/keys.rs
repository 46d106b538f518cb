//! Anything that a terminal can send, to a lab in any state, drawn at any size.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use vramlab::drawing::theme::{ColorTier, ThemeCatalog};
use vramlab::model::RunState;
use vramlab::source::Picture;
use vramlab::tui::{self, App, Decoder, GlyphTier, Message};

use super::lab_states;

fn states() -> &'static [Arc<Picture>] {
    static STATES: OnceLock<Vec<Arc<Picture>>> = OnceLock::new();
    STATES.get_or_init(|| {
        let with = |run| lab_states::with_run(lab_states::running(), run);
        let states = [
            lab_states::starting(),
            lab_states::running(),
            lab_states::paused(),
            lab_states::on_gpu(),
            lab_states::state_of(lab_states::out_of_memory(), RunState::OutOfMemory),
            lab_states::state_of(lab_states::finished(), RunState::Finished),
            with(RunState::Lost("cuda:0 is gone".into())),
            with(RunState::Failed("no\u{1b}[31m\nbatch".into())),
            lab_states::simulated(),
            lab_states::looking_back(),
            lab_states::recorded(),
            lab_states::edited(lab_states::running(), |view| {
                Arc::make_mut(&mut view.about).workload = "漢字 \u{202e}".repeat(40).into();
                view.settings = Arc::default();
            }),
        ];
        states.into_iter().map(Arc::new).collect()
    })
}

/// Reads the bytes as a script: pieces of input, and events between them.
pub fn run(script: &[u8]) {
    let catalog = ThemeCatalog::default();
    let Ok((theme, _)) = catalog.load("dark", ColorTier::True) else { return };
    let mut app = App::new(catalog, theme, GlyphTier::Unicode);
    let mut decoder = Decoder::default();
    let mut now = Duration::ZERO;
    let mut script = script.iter().copied();
    let mut events = Vec::new();
    draw(&mut app, 80, 24);
    while let Some(what) = script.next() {
        let mut number = || usize::from(script.next().unwrap_or_default());
        match what % 16 {
            0 => {
                let state = states()[number() % states().len()].clone();
                app.update(Message::Picture(state));
            }
            1 => {
                now += Duration::from_millis(20 * number() as u64);
                app.update(Message::Clock(now));
            }
            2 => events.extend(decoder.settle()),
            3 => draw(&mut app, number(), number()),
            _ => {
                let piece: Vec<u8> = script.by_ref().take(usize::from(what / 16) + 1).collect();
                events.extend(decoder.feed(&piece));
            }
        }
        for message in events.drain(..).filter_map(Message::of) {
            app.update(message);
        }
    }
    draw(&mut app, 120, 40);
}

fn draw(app: &mut App, width: usize, height: usize) {
    let area = Rect::new(0, 0, u16::try_from(width).unwrap_or(u16::MAX), u16::try_from(height).unwrap_or(u16::MAX));
    let mut buf = Buffer::empty(area);
    let layout = tui::draw(app, area, &mut buf);
    app.update(Message::Drawn(layout));
}
