//! A whole frame at 200×60 over 100,000 blocks: layout, drawing, difference, bytes.
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

use criterion::{Criterion, criterion_group, criterion_main};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use vramlab::model::{DeviceKind, Lab, RunState};
use vramlab::source::Picture;
use vramlab::tui::{self, App, Catalog, ColorTier, GlyphTier, Message, WireBackend};

const AREA: Rect = Rect { x: 0, y: 0, width: 200, height: 60 };

fn app(state: Picture) -> App {
    let catalog = Catalog::default();
    let (theme, _) = catalog.load("dark", ColorTier::True).unwrap();
    let mut app = App::new(catalog, theme, GlyphTier::Unicode);
    app.update(Message::Picture(Arc::new(state)));
    app
}

fn crowded() -> Picture {
    let mut lab = Lab::new();
    for event in lab_states::told(DeviceKind::Processor, synthetic::crowded(120_000)) {
        lab.apply(&event);
    }
    let view = lab.view();
    let blocks: usize = view.segments.iter().map(|segment| segment.blocks.len()).sum();
    assert!(blocks >= 100_000, "{blocks} blocks");
    lab_states::state_of(view, RunState::Running)
}

fn frame(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("frame 200x60");
    for (name, state) in [("100,000 blocks", crowded()), ("a small lab", lab_states::running())] {
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

criterion_group!(benches, frame);
criterion_main!(benches);
