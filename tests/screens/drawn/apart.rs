//! Screens distinguish one thing from another: a step from a run, a row from its neighbours, a number from its
//! beginning.

use vramlab::model::{Category, FlipTrials, Remedy, Survivor};
use vramlab::source::{MarkedMoment, Moment};
use vramlab::tui::Panel;
use vramlab::units::MIB;

use super::stacks::with_stacks;
use super::*;
use crate::lab_states;

/// A screen of a picture at a size.
fn screen(key: &str, picture: Picture, (width, height): (u16, u16)) -> String {
    let mut app = dark();
    press(&mut app, key);
    text(&frame(app, picture, width, height))
}

/// The panels that a screen draws.
fn panels(key: &str, picture: Picture, (width, height): (u16, u16)) -> Vec<Panel> {
    let mut app = dark();
    press(&mut app, key);
    app.update(Message::Picture(Arc::new(picture)));
    let area = Rect::new(0, 0, width, height);
    let layout = tui::draw(&app, area, &mut Buffer::empty(area));
    layout.panels.iter().filter(|(area, _)| !area.is_empty()).map(|(_, panel)| *panel).collect()
}

#[test]
fn a_snapshot_that_knows_steps_says_which_one_is_shown() {
    let snapshot = Picture { kind: SourceKind::Snapshot("run.pickle".into()), ..studied() };
    let step = snapshot.study.as_ref().unwrap().steps[0].what;
    let mut study = (**snapshot.study.as_ref().unwrap()).clone();
    study.steps.clear();
    let without = Picture { study: Some(Arc::new(study)), ..snapshot.clone() };
    for (key, name, whole) in [
        ("3", format!("step {step} by category"), "recorded by category"),
        ("4", format!("by op of step {step}"), "by op of the recording"),
        ("6", format!("ledger of step {step}"), "ledger of the recording"),
    ] {
        for size in SIZES {
            let shown = screen(key, snapshot.clone(), size);
            assert!(shown.contains(&name) && !shown.contains(whole), "{name}:\n{shown}");
            let shown = screen(key, without.clone(), size);
            assert!(shown.contains(whole), "{whole}:\n{shown}");
        }
    }
}

/// A step's number that is cut looks like another step: `step 5…` of 55.
#[test]
fn the_step_of_the_header_is_whole_or_left_out() {
    let states = [lab_states::running(), lab_states::paused(), lab_states::looking_back(), studied()];
    for picture in states {
        let mut shown = 0;
        for width in 40..=200 {
            for key in ["1", "4"] {
                let text = screen(key, picture.clone(), (width, 24));
                let header = text.lines().nth(1).unwrap();
                let Some((_, step)) = header.split_once("step ") else { continue };
                let number: String = step.chars().take_while(char::is_ascii_digit).collect();
                let behind = step[number.len()..].chars().next();
                assert!(!number.is_empty() && behind != Some('…'), "{width} columns: {header}");
                shown += 1;
            }
        }
        assert!(shown > 200, "{shown}");
    }
}

#[test]
fn rows_of_what_a_branch_is_allocated_at_differ() {
    for width in [110, 120, 140, 200] {
        let shown = screen("7", with_stacks(), (width, 40));
        let heading = shown.lines().find(|line| line.contains("allocated at")).unwrap();
        let column = heading.split("allocated at").next().unwrap().chars().count();
        let right = shown.lines().map(|line| line.chars().skip(column).collect::<String>());
        let rows: Vec<String> = right
            .skip_while(|line| !line.contains("allocated at"))
            .filter_map(|line| Some(line.strip_prefix("■ ")?.split("  ").next()?.trim().to_owned()))
            .filter(|row| row.contains(':'))
            .collect();
        let apart: std::collections::BTreeSet<&String> = rows.iter().collect();
        assert!(rows.len() > 3 && apart.len() == rows.len(), "{width} columns: {rows:#?}\n{shown}");
        assert!(rows.iter().all(|row| !row.split_once(':').unwrap().1.starts_with('…')), "{rows:#?}");
    }
}

/// There may be many names beside a table; the room under the table still belongs to the curve.
#[test]
fn ops_leave_no_half_of_a_large_screen_empty() {
    let mut study = (**studied().study.as_ref().unwrap()).clone();
    let name = |number| Survivor {
        name: format!("blocks.*.part{number} output"),
        category: Category::Activation,
        bytes: Bytes::mib(1),
        blocks: 2,
    };
    study.at_peak.extend((0..70).map(name));
    let picture = Picture { study: Some(Arc::new(study)), ..studied() };
    for size in [(200, 60), (160, 50)] {
        let shown = panels("4", picture.clone(), size);
        assert!(shown.contains(&Panel::StepCurve), "{shown:?} at {size:?}");
    }
}

/// A first step that fails leaves nothing to compare, and a curve of how far it came.
#[test]
fn a_first_step_that_failed_is_drawn_where_configurations_are_compared() {
    let view = lab_states::out_of_memory();
    let picture = lab_states::edited(lab_states::state_of(view, RunState::OutOfMemory), |view| {
        for one in &mut view.configurations {
            let one = Arc::make_mut(one);
            (one.curve, one.measured) = (None, None);
        }
    });
    for size in SIZES {
        let shown = panels("5", picture.clone(), size);
        assert!(shown.contains(&Panel::StepCurve), "{shown:?} at {size:?}");
    }
}

/// At the smallest usual size, a user who goes from op to op sees more of the map than one who lets steps run.
#[test]
fn stepping_makes_room_for_the_map() {
    let rows = |picture: Picture| {
        let shown = screen("1", picture, (80, 24));
        let map = shown.lines().skip_while(|line| !line.contains(" blocks ")).skip(1);
        map.take_while(|line| !line.contains("c ckpt")).count()
    };
    let stepped = lab_states::edited(lab_states::paused(), |view| view.effects.clear());
    let running = lab_states::with_run(stepped.clone(), RunState::Running);
    assert!(rows(stepped.clone()) >= rows(running.clone()) + 2, "{} {}", rows(stepped), rows(running));
}

#[test]
fn a_run_without_findings_says_what_memory_is_for() {
    let quiet = lab_states::edited(lab_states::running(), |view| {
        view.findings.clear();
        view.effects.clear();
    });
    let shown = right_column(&screen("1", quiet, (120, 40)), 120);
    assert!(shown.contains("Nothing stands out: "), "{shown}");
}

/// The best of the flips that were tried is a remedy, if it gains enough.
#[test]
fn a_run_without_findings_names_the_best_flip() {
    let with = |peaks: [u64; 2]| {
        lab_states::edited(lab_states::running(), |view| {
            view.findings.clear();
            view.effects.clear();
            let flip =
                |switch: &'static str, value: &'static str| Remedy::Flip { switch: switch.into(), value: value.into() };
            let flips = [flip("ckpt", "off"), flip("accum", "2")].into_iter().zip(peaks.map(Bytes::mib)).collect();
            view.weighed = Some(Arc::new(FlipTrials { step: 0, peak: Bytes::mib(200), flips }));
        })
    };
    for (peaks, named) in [([190, 100], true), ([300, 199], false)] {
        let words = right_column(&screen("1", with(peaks), (120, 40)), 120);
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.contains("The best flip is a"), named, "{words}");
        assert_eq!(words.contains("200.00 → 100.00 MiB"), named, "{words}");
        assert_eq!(words.contains("Nothing stands out"), !named, "{words}");
    }
}

/// The run went on to steps that look different.
#[test]
fn history_and_why_are_of_the_step_that_is_looked_at() {
    let whole = lab_states::looking_back();
    let last = whole.history.latest().unwrap();
    let peak = |bytes: Bytes| format!("peak {:.1} ", bytes.get() as f64 / MIB as f64);
    let mut steps = (0..).map_while(|index| whole.history.column(0, index));
    let step = steps.find(|step| peak(step.peak) != peak(last.peak)).unwrap();
    let mut picture = lab_states::edited(whole, |view| view.position = step.position + 1);
    picture.cursor = Cursor::At(step.position + 1);
    // A recording without a notice of its end, at a moment that nobody chose.
    let marked = MarkedMoment {
        moment: Moment::RunPeak,
        view: Arc::clone(&picture.view),
        step: picture.step.clone(),
        ghost: None,
    };
    let over = lab_states::edited(picture.clone(), |view| {
        view.position += 1_000;
        view.findings.clear();
    });
    let over =
        Picture { kind: SourceKind::Recording("run.vram".into()), cursor: Cursor::Now, marked: Some(marked), ..over };
    for size in SIZES {
        for picture in [&picture, &over] {
            let shown = screen("1", picture.clone(), size);
            // In its title, or in a row of its own.
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&format!("■ {}", peak(step.peak))), "{shown}");
            assert!(shown.contains("of reserved) are "), "{shown}");
        }
    }
}

/// The mark of the moment is shown at the size that most terminals begin with, however long a run has been.
#[test]
fn the_mark_of_the_moment_stays_in_the_header() {
    for steps in [1, 10, 100, 1000, 9999] {
        let mut picture = lab_states::running();
        let marked = picture.marked.as_mut().unwrap();
        Arc::make_mut(&mut marked.view).steps.finished = steps;
        for key in ["1", "2", "3", "4", "5", "6", "7"] {
            for width in [80, 120] {
                let text = screen(key, picture.clone(), (width, 24));
                let header = text.lines().nth(1).unwrap();
                assert!(header.contains(&format!("step {steps}")) && header.contains('▼'), "{header}");
                // In few columns the phase takes precedence over names of screens that are not shown.
                assert!(header.contains(" Blocks") && header.contains(" Stacks") || width < 120, "{header}");
                assert!(header.contains("· backward"), "{header}");
            }
        }
    }
}

/// Announces once what is not told in "why", wherever there is room for a second row.
#[test]
fn findings_that_wait_are_announced_once() {
    for picture in [lab_states::running(), lab_states::on_gpu(), lab_states::looking_back()] {
        for (width, height) in [(60, 20), (80, 24), (100, 30), (120, 40), (200, 60)] {
            let text = screen("1", picture.clone(), (width, height));
            let said = [" w +", "w: all", "more finding"].map(|words| text.matches(words).count());
            assert!(said.iter().sum::<usize>() <= 1, "{said:?} at {width}×{height}:\n{text}");
            assert!(width > 80 || said.iter().sum::<usize>() == 1, "{width}×{height}:\n{text}");
        }
    }
}
