//! A whole frame at 200×60 over 100,000 blocks, and a frame of the Blocks screen over 1,000,000: layout, drawing,
//! difference, bytes.
//!
//! `cargo bench --bench frame`
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../tests/common/lab_states.rs"]
mod lab_states;
#[path = "../tests/common/synthetic.rs"]
mod synthetic;

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use vramlab::drawing::theme::{ColorTier, ThemeCatalog};
use vramlab::drawing::wire::WireBackend;
use vramlab::model::{DeviceKind, Lab, RunState};
use vramlab::source::Picture;
use vramlab::tui::{self, App, GlyphTier, Message};

const AREA: Rect = Rect { x: 0, y: 0, width: 200, height: 60 };

fn app(state: Picture) -> App {
    let catalog = ThemeCatalog::default();
    let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
    let mut app = App::new(catalog, theme, GlyphTier::Unicode);
    app.update(Message::Picture(Arc::new(state)));
    app
}

fn crowded(least: usize) -> Picture {
    let mut lab = Lab::new();
    for event in lab_states::told(DeviceKind::Processor, synthetic::crowded(least)) {
        lab.apply(&event);
    }
    let view = lab.view();
    let blocks: usize = view.segments.iter().map(|segment| segment.blocks.len()).sum();
    assert!(blocks >= least, "{blocks} blocks");
    lab_states::state_of(view, RunState::Running)
}

/// The same picture with every segment's blocks copied: nothing that was computed for them can be reused.
fn copied(picture: &Picture) -> Picture {
    let mut picture = picture.clone();
    for segment in Arc::make_mut(&mut Arc::make_mut(&mut picture.view).segments) {
        segment.blocks = Arc::new(segment.blocks.to_vec());
    }
    picture
}

/// The Blocks screen, after some keys were pressed.
fn blocks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("blocks 200x60, 1,000,000 blocks");
    let crowd = crowded(1_000_000);
    for (name, keys) in [("all", "2"), ("the largest hole", "2_"), ("by module", "2v"), ("closer", "2_++++")] {
        let mut app = app(crowd.clone());
        let mut buf = Buffer::empty(AREA);
        for key in keys.chars() {
            app.update(Message::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
            let layout = tui::draw(&app, AREA, &mut buf);
            app.update(Message::Drawn(layout));
        }
        group.bench_function(format!("draw, {name}"), |bencher| {
            bencher.iter(|| {
                buf.reset();
                black_box(tui::draw(&app, AREA, &mut buf))
            });
        });
        // Two pictures in turn, so that each is new; the clock goes on from sample to sample, as a lab's does.
        let news = [copied(&crowd), copied(&crowd)].map(Arc::new);
        let mut turn = 0;
        group.bench_function(format!("draw news, {name}"), |bencher| {
            bencher.iter(|| {
                turn += 1;
                app.update(Message::Clock(Duration::from_secs(10 * turn)));
                app.update(Message::Picture(Arc::clone(&news[(turn % 2) as usize])));
                buf.reset();
                black_box(tui::draw(&app, AREA, &mut buf))
            });
        });
    }
    group.finish();
}

fn frame(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame 200x60");
    for (name, state) in [("100,000 blocks", crowded(100_000)), ("a small lab", lab_states::running())] {
        let app = app(state);
        group.bench_function(format!("draw, {name}"), |bencher| {
            let mut buf = Buffer::empty(AREA);
            bencher.iter(|| {
                buf.reset();
                black_box(tui::draw(&app, AREA, &mut buf))
            });
        });
        group.bench_function(format!("draw and write, {name}"), |bencher| {
            let options = TerminalOptions { viewport: Viewport::Fixed(AREA) };
            let mut terminal = Terminal::with_options(WireBackend::new(io::sink()), options).unwrap();
            bencher.iter(|| {
                terminal.draw(|frame| drop(black_box(tui::draw(&app, frame.area(), frame.buffer_mut())))).unwrap();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, frame, blocks);
criterion_main!(benches);
