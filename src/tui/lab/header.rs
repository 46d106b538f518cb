//! Who trains what on which device, and how it goes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::Span;

use super::pane::{put, put_cut, put_right, span};
use crate::session::{LabState, RunState};
use crate::tui::figures;
use crate::tui::theme::{Theme, Token};

/// From this width on one line holds all of it.
const ONE_LINE: u16 = 180;

/// Rows that the header takes.
pub(crate) const fn rows(width: u16) -> u16 {
    if width >= ONE_LINE { 1 } else { 2 }
}

/// Draws the header.
pub(crate) fn render(state: &LabState, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let area = Rect { width: area.width.saturating_sub(1), ..area };
    if area.height >= 2 || area.width < ONE_LINE {
        let edge = put_right(area, 0, device(state, theme), buf);
        put_cut(Rect { width: edge.saturating_sub(2), ..area }, 0, workload(state, theme), buf);
        let edge = put_right(area, 1, figures_of(state, theme), buf);
        put(Rect { width: edge.saturating_sub(1), ..area }, 1, badge(state, theme), buf);
    } else {
        let edge = put_right(area, 0, figures_of(state, theme), buf);
        let left = Rect { width: edge.saturating_sub(2), ..area };
        let mut line = workload(state, theme);
        line.push(Span::raw("   "));
        line.extend(device(state, theme));
        line.push(Span::raw("  "));
        line.extend(badge(state, theme));
        put_cut(left, 0, line, buf);
    }
}

fn workload(state: &LabState, theme: &Theme) -> Vec<Span<'static>> {
    vec![
        span(theme, Token::Accent, " vramlab "),
        span(theme, Token::Strong, format!(" {}", state.workload)),
        span(theme, Token::Dim, format!("  {}", state.detail)),
    ]
}

/// The device, and next to it, in every picture that could be taken of the screen, whether its figures are a GPU's.
fn device(state: &LabState, theme: &Theme) -> Vec<Span<'static>> {
    let mut line = vec![span(theme, Token::Text, state.device.clone())];
    if state.simulated {
        line.push(span(theme, Token::Warn, " · simulated"));
    } else if state.device.starts_with("cpu") {
        line.push(span(theme, Token::Warn, " · processor"));
    }
    line
}

fn badge(state: &LabState, theme: &Theme) -> Vec<Span<'static>> {
    let (word, token) = match &state.run {
        RunState::Starting => ("STARTING", Token::Dim),
        RunState::Running => ("RUNNING", Token::Ok),
        RunState::Paused => ("PAUSED", Token::Warn),
        RunState::OutOfMemory => ("OUT OF MEMORY", Token::Danger),
        RunState::StepFailed(_) => ("STEP FAILED", Token::Danger),
        RunState::Finished => ("FINISHED", Token::Ok),
        RunState::Lost(_) => ("DEVICE LOST", Token::Danger),
        RunState::Failed(_) => ("FAILED", Token::Danger),
    };
    let style = theme.style(token).add_modifier(Modifier::REVERSED | Modifier::BOLD);
    let mut line = vec![Span::raw(" "), Span::styled(format!(" {word} "), style)];
    if matches!(state.run, RunState::Paused | RunState::OutOfMemory | RunState::StepFailed(_)) {
        if let Some(phase) = state.view.phase {
            line.push(span(theme, Token::Text, format!("  in {}", phase.label())));
        }
        let op = state.view.names.get(state.view.op);
        if !op.is_empty() {
            line.push(span(theme, Token::Dim, format!(" · {op}")));
        }
    }
    line
}

fn figures_of(state: &LabState, theme: &Theme) -> Vec<Span<'static>> {
    let steps = &state.view.steps;
    let mut line = vec![span(theme, Token::Dim, "step "), span(theme, Token::Strong, format!("{:>5}", steps.finished))];
    if steps.finished == 0 {
        return line;
    }
    line.extend([
        span(theme, Token::Strong, format!("{:>9}", figures::milliseconds(steps.median))),
        span(theme, Token::Dim, if state.simulated { " ms sim" } else { " ms" }),
        span(theme, Token::Strong, format!("{:>8}", figures::short_count(steps.throughput))),
        span(theme, Token::Dim, format!(" {}", state.items)),
    ]);
    if let Some(last) = &steps.last {
        match last.loss {
            Some(loss) => {
                line.push(span(theme, Token::Dim, "   loss "));
                line.push(span(theme, Token::Strong, format!("{loss:>6.3}")));
            }
            None => line.push(span(theme, Token::Dim, "   no loss")),
        }
    }
    if steps.skipped > 0 {
        line.push(span(theme, Token::Warn, format!("   {} skipped", steps.skipped)));
    }
    line
}
