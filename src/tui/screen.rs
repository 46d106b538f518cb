//! A whole frame: header, current screen, footer, layers, and the passes over all cells.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout as Split, Rect};
use ratatui::text::Line;

use super::action::Action;
use super::app::App;
use super::glyphs::{self, GlyphTier};
use super::panel::Panel;
use super::screens::SCREENS;
use super::stage::FrameLayout;
use super::{demo, footer, frame_keys, header, large, tutor, waiting};
use crate::drawing::pane;
use crate::drawing::theme::Token;
use crate::model::RunState;
use crate::source::SourceKind;

/// The smallest terminal that shows the lab.
const SMALLEST: (u16, u16) = (40, 12);

/// Draws a frame. Returns its layout, for clicks and keys.
pub fn draw(app: &App, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let area = area.intersection(buf.area);
    let ground = app.theme().style(Token::Surface).patch(app.theme().style(Token::Text));
    if area == buf.area {
        // Cells in storage order, because looking each up by its position costs time.
        for cell in &mut buf.content {
            cell.set_style(ground);
        }
    } else {
        buf.set_style(area, ground);
    }
    let mut layout = if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        too_small(app, area, buf);
        FrameLayout::default()
    } else {
        whole(app, area, buf)
    };
    let stage = app.stage();
    if app.layers().iter().any(|layer| layer.covers(&stage, area)) {
        pane::mute(stage.theme, area, buf);
    }
    for layer in app.layers() {
        layout.layer_rows = layer.render(&stage, area, buf);
        layout.targets.clear();
        layout.charts.clear();
        layout.panels.clear();
        layout.map = None;
        layout.overview = None;
    }
    if app.glyphs() == GlyphTier::Ascii {
        glyphs::to_ascii(buf, area, stage.theme.color(Token::Surface));
    }
    layout
}

fn whole(app: &App, area: Rect, buf: &mut Buffer) -> FrameLayout {
    let stage = app.stage();
    let told = app.narrator().map_or(0, |_| demo::rows());
    let rows = [header::rows(area), told, footer::rows(app.notice(), area)].map(Constraint::Length);
    let rows = Split::vertical([rows[0], Constraint::Min(0), rows[1], rows[2]]);
    let [top, body, strip, keys] = area.layout::<4>(&rows);
    let lesson = app.tutor().map(|tutor| (tutor, tutor::places(&stage, tutor, app.screen(), body)));
    let body = lesson.as_ref().map_or(body, |(_, places)| places.lab);
    let view = stage.view();
    let mut layout = if let Some((awaited, elapsed)) = app.awaited() {
        waiting::render(&stage, awaited, elapsed, body, buf);
        FrameLayout::default()
    } else if view.run == RunState::Starting && view.segments.is_empty() {
        building(app, body, buf);
        FrameLayout::default()
    } else if body.is_empty() {
        FrameLayout::default()
    } else {
        let screen = SCREENS.get(app.screen()).unwrap_or(&SCREENS[0]);
        let rows = if stage.presenting { large::rows(area) } else { 0 };
        let [figures, body] = body.layout::<2>(&Split::vertical([Constraint::Length(rows), Constraint::Min(0)]));
        large::render(&stage, screen.large, figures, buf);
        let mut layout = (screen.draw)(&stage, body, buf);
        frame_keys::render(&stage, &layout.panels, app.screen(), buf, &mut layout.targets);
        layout
    };
    if let Some((tutor, places)) = &lesson {
        tutor::render(&stage, tutor, places, buf, &mut layout);
    }
    if let Some(narrator) = app.narrator() {
        demo::render(&stage, narrator, strip, buf);
    }
    layout.panels.push((top, Panel::Header));
    header::render(&stage, app.screen(), top, buf, &mut layout.targets);
    footer::render(&stage, app.notice(), app.screen(), keys, buf, &mut layout.targets);
    layout
}

fn building(app: &App, body: Rect, buf: &mut Buffer) {
    let stage = app.stage();
    let workload = &stage.view().about.workload;
    let text = match (&stage.picture.kind, &stage.picture.reading) {
        (SourceKind::Snapshot(name), Some(reading)) => format!("{name}: {}", reading.words()),
        (SourceKind::Snapshot(name) | SourceKind::Recording(name), _) => format!("reading {name} …"),
        _ if workload.is_empty() => "building the model …".to_owned(),
        _ => format!("building {workload} …"),
    };
    let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
    let middle = Rect { y: body.y + body.height / 2, height: 1.min(body.height), ..body };
    let x = body.width.saturating_sub(width) / 2;
    pane::put_at(middle, x, 0, vec![pane::span(app.theme(), Token::Text, text)], buf);
}

fn too_small(app: &App, area: Rect, buf: &mut Buffer) {
    let (width, height) = SMALLEST;
    let quit = app.keys().key_of(Action::Quit);
    let text = format!(
        "{}×{} is too small, the lab needs {width}×{height}. The run goes on; {quit} quits.",
        area.width, area.height
    );
    let lines = pane::wrap(&text, usize::from(area.width));
    for (y, line) in (area.top()..area.bottom()).zip(lines) {
        buf.set_line(area.x, y, &Line::styled(line, app.theme().style(Token::Text)), area.width);
    }
}
