//! The look of screens: whole frames at several sizes, colour and glyph tiers and states of a lab.
//!
//! A snapshot is the text of the frame; those named `…_styles` add every run of equal style.

mod apart;
mod blocks;
mod compare;
mod every;
mod frames;
mod ghosts;
mod heights;
mod help;
mod lab;
mod ledger;
mod ranks;
mod stacks;
mod step;
mod units;

use std::fmt::Write;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ghosts::haunted_at_the_peak;
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use vramlab::drawing::theme::{ColorTier, ThemeCatalog, Token};
use vramlab::model::{
    DeviceKind, Event, EventKind, Evidence, Finding, Gain, Grouping, KeptLine, Lab, LeakCause, Level, LogLine, Micros,
    Occupancy, Remedy, RunState, Study, Trial, View,
};
use vramlab::session;
use vramlab::source::{Cursor, Ghost, Move, Picture, Request, SourceKind};
use vramlab::tui::{self, App, Effect, GlyphTier, Message};
use vramlab::units::{Bytes, DeviceIndex};
use vramlab::whatif::{Conditions, Follower, Places, StartState};

/// The sizes at which every screen is checked.
const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn app(theme: &str, color: ColorTier, glyphs: GlyphTier) -> App {
    let catalog = ThemeCatalog::default();
    let (theme, warnings) = catalog.load(theme, color).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    App::new(catalog, theme, glyphs)
}

fn dark() -> App {
    app("dark", ColorTier::True, GlyphTier::Unicode)
}

/// Draws until the layout has settled: the chart chooses its zoom from the width at which it was drawn before.
fn draw(app: &mut App, width: u16, height: u16) -> Buffer {
    loop {
        let area = Rect::new(0, 0, width, height);
        let mut buf = Buffer::empty(area);
        let layout = tui::draw(app, area, &mut buf);
        app.update(Message::Drawn(layout));
        if !app.needs_frame() {
            return buf;
        }
    }
}

fn frame(mut app: App, state: Picture, width: u16, height: u16) -> Buffer {
    app.update(Message::Picture(Arc::new(state)));
    draw(&mut app, width, height)
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        app.update(Message::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
    }
}

fn text(buf: &Buffer) -> String {
    let rows = buf.area.rows().map(|row| {
        let line: String = row.columns().map(|cell| buf[(cell.x, cell.y)].symbol().to_owned()).collect();
        line.trim_end().to_owned()
    });
    rows.collect::<Vec<_>>().join("\n")
}

fn styles(buf: &Buffer) -> String {
    let mut out = text(buf);
    out.push_str("\n\n");
    let mut before = None;
    for position in buf.area.positions() {
        let cell = &buf[position];
        let style = (cell.fg, cell.bg, cell.modifier);
        if before != Some(style) {
            writeln!(out, "{},{}: {} on {} {:?}", position.x, position.y, cell.fg, cell.bg, cell.modifier).unwrap();
            before = Some(style);
        }
    }
    out
}

/// A recording whose cursor looks back into a step that was studied.
fn studied() -> Picture {
    let events = crate::lab_states::run_on(DeviceKind::Processor);
    let cursor = crate::lab_states::recorded().view.position as usize;
    let begins = |event: &Event| matches!(event.kind, EventKind::StepBegin { .. });
    let begin = events[..cursor].iter().rposition(begins).unwrap();
    let end = cursor + events[cursor..].iter().position(begins).unwrap();
    let (mut before, mut after) = (Lab::new(), Lab::new());
    events[..begin].iter().for_each(|event| before.apply(event));
    events[..end].iter().for_each(|event| after.apply(event));
    let study = Study::of(begin as u64..end as u64, before.memory(), after.names(), Grouping::Category, |each| {
        (begin as u64..).zip(&events[begin..end]).for_each(|(position, event)| each(position, event));
    });
    Picture { study: Some(Arc::new(study)), ..crate::lab_states::recorded() }
}

/// The frame of the screen with this key.
fn on_screen(mut app: App, key: &str, state: Picture, width: u16, height: u16) -> Buffer {
    press(&mut app, key);
    frame(app, state, width, height)
}

/// A frame of the screen after `keys`.
fn screen(mut app: App, keys: &str, state: Picture, width: u16, height: u16) -> Buffer {
    app.update(Message::Picture(Arc::new(state)));
    press(&mut app, keys);
    draw(&mut app, width, height)
}

/// The text of the right-hand column of panes if there is one, else all text, in one line.
fn right_column(text: &str, width: u16) -> String {
    let left = if width < 100 { 0 } else { usize::from(width - (width / 3).clamp(49, 62)) };
    let parts: Vec<String> = text.lines().map(|line| line.chars().skip(left).collect()).collect();
    let words = parts.iter().flat_map(|part| part.split_whitespace()).filter(|word| *word != "│");
    words.collect::<Vec<_>>().join(" ")
}
