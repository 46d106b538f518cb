//! Ghosts: the same run under other settings.

use super::*;

fn ghost(conf: &str) -> Request {
    Request::Ghost(Some(Arc::new(Conditions::parse(conf, None).unwrap())))
}

/// Whether the ghost is where the run is.
fn followed(picture: &Arc<Picture>) -> bool {
    picture.ghost.as_ref().is_some_and(|ghost| ghost.catching_up.is_none() && ghost.step.is_some())
}

/// What a ghost and the run hold at one moment.
fn held(picture: &Picture) -> [(Bytes, Bytes); 3] {
    let figures = picture.ghost.as_ref().unwrap().figures.unwrap();
    let ledger = &picture.view.ledger;
    [
        (figures.reserved, ledger.reserved()),
        (figures.allocated, ledger.allocated()),
        (figures.stranded, ledger.stranded),
    ]
}

#[test]
fn a_ghost_that_begins_late_has_followed_from_the_start_and_goes_along() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut front = Front::live(spec());
    front.ask(Request::Record(path.clone()));
    front.wait("some steps", |picture| picture.extent.steps > 5);
    front.ask(ghost(""));
    front.wait("a ghost", followed);
    front.flip("amp");
    let steps = front.last().extent.steps;
    front.wait("more steps", |picture| picture.extent.steps > steps + 3);
    front.command(Command::Pause);
    let paused = front.wait("a pause", |picture| picture.run == RunState::Paused && followed(picture));
    assert!(held(&paused).iter().all(|(ghost, run)| ghost == run), "{:?}", held(&paused));
    let beside = paused.ghost.as_ref().unwrap();
    assert_eq!(beside.since, 0);
    let columns = |history: &vramlab::model::History| -> Vec<_> {
        history.page(0, 2000).columns.iter().map(|column| (column.step, column.position, column.reserved)).collect()
    };
    assert_eq!(columns(&beside.history), columns(&paused.history), "step by step the run's own");

    // A cursor that looks back finds the step there.
    front.ask(Request::Move(Move::Step(3)));
    let back = front.wait("step 3", |picture| !picture.is_now() && followed(picture));
    let (ghost_step, own) = back.ghost.as_ref().unwrap().step.unwrap();
    assert_eq!((ghost_step.step, own.step), (3, 3));
    assert_eq!((ghost_step.reserved, ghost_step.stranded), (own.reserved, own.stranded));

    front.ask(ghost("limit:1MiB"));
    let other = |picture: &Arc<Picture>| {
        followed(picture) && picture.ghost.as_ref().is_some_and(|ghost| ghost.conditions.text() != "")
    };
    let other = front.wait("another ghost", other);
    let figures = other.ghost.as_ref().unwrap().figures.unwrap();
    assert!(figures.reserved == Bytes::ZERO && figures.ooms > 100, "no segment is that small: {figures:?}");
    front.ask(Request::Ghost(None));
    front.wait("no ghost", |picture| picture.ghost.is_none());
    drop(front);

    let mut front = Front::recording(&path, false);
    front.ask(ghost(""));
    let read = front.wait("the whole recording", |picture| !picture.extent.grows && followed(picture));
    assert!(held(&read).iter().all(|(ghost, run)| ghost == run), "{:?}", held(&read));
}

#[test]
fn a_ghost_of_pytorchs_own_history_comes_to_pytorchs_figures() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/gpt-frames.pickle.xz");
    let mut front = Front::of(source::snapshot(&path, None).unwrap());
    front.ask(ghost(""));
    let read = front.wait("the whole history", |picture| !picture.extent.grows && followed(picture));
    assert!(held(&read).iter().all(|(ghost, run)| ghost == run), "{:?}", held(&read));
}

/// What lies where, without addresses, which are a driver's own.
fn laid_out(segments: &[vramlab::model::SegmentView]) -> Vec<(Bytes, Vec<vramlab::model::BlockView>)> {
    let mut all: Vec<_> = segments.iter().map(|segment| (segment.size, segment.blocks.to_vec())).collect();
    all.sort_by_key(|(size, blocks)| (*size, blocks.first().map(|block| block.born)));
    all
}

#[test]
fn a_ghost_under_the_runs_own_settings_has_its_map_wherever_the_cursor_looks() {
    let folder = folder();
    let path = folder.path().join("run.vram");
    let mut front = Front::live(spec());
    front.ask(Request::Record(path.clone()));
    front.wait("some steps", |picture| picture.extent.steps > 5);
    drop(front);

    let mut front = Front::recording(&path, false);
    front.ask(ghost(""));
    let end = front.wait("the whole recording", |picture| !picture.extent.grows && followed(picture)).extent.end;
    let (mut held, mut from) = (0, end);
    // Far back, a step forward, a step back, and to the end.
    for position in [end / 3, end / 3 + 1, end / 3 + 400, end / 3, end / 2, end - 1, 3, end / 3 * 2] {
        front.ask(Request::Move(Move::To(position)));
        let stands = |picture: &Arc<Picture>| {
            picture.cursor == Cursor::At(position)
                && picture.ghost.as_ref().is_some_and(|ghost| ghost.occupancy.is_some())
        };
        let picture = front.wait("the ghost at the cursor", stands);
        let occupancy = picture.ghost.as_ref().unwrap().occupancy.clone().unwrap();
        let what = format!("from {from} to {position}");
        assert_eq!(laid_out(&occupancy.segments), laid_out(&picture.view.segments), "{what}");
        assert_eq!(occupancy.ledger, picture.view.ledger, "{what}");
        assert_eq!(occupancy.largest_hole, picture.view.largest_hole, "{what}");
        held += occupancy.segments.iter().map(|segment| segment.blocks.len()).sum::<usize>();
        from = position;
    }
    assert!(held > 100, "{held} blocks were compared");
}

#[test]
fn a_ghost_of_a_history_that_begins_late_comes_to_what_whatif_does() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/strangers");
    let mut estimated = 0;
    for name in ["timm-convnext-ring", "leak-outputs"] {
        let path = folder.join(format!("{name}.pickle.xz"));
        let whole = vramlab::source::Whole::read(&path, None, |_| {}).unwrap();
        let recorded =
            vramlab::source::asked(&whole, vramlab::source::RunHints::default(), |_, _| {}).unwrap().swap_remove(0);
        for conf in ["", "expandable_segments:True", "max_split_size_mb:128"] {
            let conditions = recorded.under(conf).unwrap();
            let predicted = recorded.program.replay(&conditions).figures;
            let mut front = Front::of(source::snapshot(&path, None).unwrap());
            front.ask(ghost(conf));
            let read = front.wait("the whole history", |picture| !picture.extent.grows && followed(picture));
            let ghost = read.ghost.as_ref().unwrap();
            let figures = ghost.figures.unwrap();
            let what = format!("{name} under {conf:?}");
            assert_eq!(ghost.starting, recorded.program.starting(&conditions), "{what}");
            assert_eq!(figures.peak_reserved, predicted.peak_reserved, "{what}");
            assert_eq!(figures.reserved, predicted.reserved, "{what}");
            assert_eq!(figures.peak_allocated, predicted.peak_allocated, "{what}");
            assert_eq!(figures.segments_allocated, predicted.segments_allocated, "{what}");
            // Its memory is shown where the run's is: at the end it has the final figures.
            front.ask(Request::Move(Move::To(read.extent.end)));
            let end = front.wait("the end", |picture| {
                !picture.is_now() && picture.ghost.as_ref().is_some_and(|ghost| ghost.occupancy.is_some())
            });
            let occupancy = end.ghost.as_ref().unwrap().occupancy.as_ref().unwrap();
            assert_eq!(occupancy.ledger.reserved(), figures.reserved, "{what}");
            assert_eq!(occupancy.ledger.stranded, figures.stranded, "{what}");
            estimated += usize::from(ghost.starting == vramlab::whatif::StartState::Anew);
        }
    }
    assert!(estimated > 0, "none of them began with an estimate");
}
