use super::*;
use crate::{EventKind, Lab, Micros, NameId, synthetic};
use vramlab_allocator::units::Address;

/// The events of a run, its lab at the range's begin, and a study of the range.
fn study(events: &[Event], range: Range<usize>, grouping: Grouping) -> Study {
    let mut lab = Lab::new();
    events[..range.start].iter().for_each(|event| lab.apply(event));
    let positions = range.start as u64..range.end as u64;
    Study::of(positions.clone(), lab.memory(), lab.names(), grouping, |each| {
        positions.clone().zip(&events[range.clone()]).for_each(|(position, event)| each(position, event));
    })
}

fn memory_at(events: &[Event], position: u64) -> MemoryModel {
    let mut memory = MemoryModel::new();
    for event in &events[..usize::try_from(position).unwrap()] {
        memory.apply(event).unwrap();
    }
    memory
}

#[test]
fn the_areas_of_every_moment_add_up_to_what_the_model_says_of_it() {
    let events = synthetic::training_run();
    for range in [0..events.len(), events.len() / 3..events.len() / 2, 7..900.min(events.len())] {
        for grouping in Grouping::ALL {
            let study = study(&events, range.clone(), grouping);
            assert!(study.moments.len() <= Study::MOMENTS && study.groups.len() <= Study::GROUPS);
            for (index, moment) in study.moments.iter().enumerate().step_by(17) {
                let memory = memory_at(&events, moment.position);
                assert_eq!(moment.allocated, memory.allocated());
                let stacked: Bytes = study.groups.iter().map(|group| group.bytes[index]).sum();
                assert_eq!(stacked, moment.allocated, "{grouping:?} at {}", moment.position);
                if grouping == Grouping::Category {
                    for group in &study.groups {
                        assert_eq!(group.bytes[index], memory.by_category()[group.category as usize], "{}", group.name);
                    }
                }
            }
        }
    }
}

#[test]
fn the_peak_and_the_highest_reserved_survive_however_few_moments_there_are() {
    let (setup, churn) = synthetic::churn(500, 20_000);
    let events: Vec<Event> = setup.into_iter().chain(churn).collect();
    let study = study(&events, 0..events.len(), Grouping::Name);
    let (mut memory, mut peak, mut reserved, mut floor) = (MemoryModel::new(), (0, Bytes::ZERO), Bytes::ZERO, None);
    for (index, event) in events.iter().enumerate() {
        memory.apply(event).unwrap();
        if memory.allocated() > peak.1 {
            peak = (index as u64 + 1, memory.allocated());
        }
        reserved = reserved.max(memory.reserved());
        if event.kind.changes_memory() {
            floor = Some(floor.map_or(memory.allocated(), |floor: Bytes| floor.min(memory.allocated())));
        }
    }
    assert!(study.stride > 1 && study.moments.len() > Study::MOMENTS / 2);
    assert_eq!(study.peak.map(|moment| (moment.position, moment.allocated)), Some(peak));
    assert_eq!(study.moments.iter().map(|moment| moment.reserved).max(), Some(reserved));
    assert_eq!(study.moments.iter().map(|moment| moment.floor).min(), floor);
    let at_peak: Bytes = study.groups.iter().map(|group| group.at_peak).sum();
    assert_eq!(at_peak, peak.1);
}

#[test]
fn lives_tell_what_was_alive_at_any_position() {
    let events = synthetic::training_run();
    let (begin, end) = (events.len() / 4, events.len() / 2);
    let study = study(&events, begin..end, Grouping::Category);
    for position in (begin as u64..=end as u64).step_by(131) {
        let memory = memory_at(&events, position);
        let mut alive: Vec<(Address, Bytes, Category, NameId)> = study
            .lives
            .iter()
            .filter(|life| life.is_alive_at(position))
            .map(|life| (life.address, life.size, life.category, life.name))
            .collect();
        alive.sort();
        let mut held = Vec::new();
        for segment in memory.segments() {
            for block in segment.blocks().filter(|block| !block.pending) {
                held.push((segment.address().offset(block.offset), block.size, block.category, block.name));
            }
        }
        held.sort();
        assert_eq!(alive, held, "at {position}");
    }
}

/// One op allocates three blocks and keeps one; another op allocates none.
fn two_ops() -> Vec<Event> {
    let mut source = synthetic::Source::new(None);
    let old = source.alloc(Category::Parameter, "head weight", 4096).unwrap();
    let tokens = source.alloc(Category::Input, "tokens", 512).unwrap();
    let name = source.name("blocks.0.fc linear");
    let relu = source.name("blocks.1 relu");
    source.emit(EventKind::OpBegin { name });
    source.wait(30);
    let scratch = source.alloc(Category::Workspace, "cuBLAS workspace", 8192).unwrap();
    let more = source.alloc(Category::Workspace, "cuBLAS workspace", 1024).unwrap();
    let kept = source.alloc(Category::Activation, "blocks.0.fc output", 2048).unwrap();
    source.free(scratch);
    source.free(more);
    source.emit(EventKind::OpEnd);
    source.emit(EventKind::OpBegin { name: relu });
    source.wait(5);
    source.emit(EventKind::OpEnd);
    source.free(old);
    let _ = (tokens, kept);
    source.events
}

#[test]
fn ops_are_told_what_they_took_kept_and_held() {
    let events = two_ops();
    let begin = events.iter().position(|event| matches!(event.kind, EventKind::OpBegin { .. })).unwrap();
    let study = study(&events, begin..events.len(), Grouping::Module);
    let rows = study.op_rows(OpTotals::Op, Sort::AtPeak);
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    let linear = row("linear");
    assert_eq!((linear.calls, linear.time, linear.blocks), (1, Micros(30), 3));
    assert_eq!((linear.taken, linear.kept, linear.workspace), (Bytes(11_264), Bytes(2048), Bytes(9216)));
    assert_eq!(linear.peak(), Bytes(11_264), "the range is fullest while the op runs");
    assert_eq!((row("relu").calls, row("relu").taken, row("relu").time), (1, Bytes::ZERO, Micros(5)));
    assert_eq!((row("parameters").calls, row("parameters").peak()), (0, Bytes(4096)), "of no op: what it is for");
    assert_eq!(rows.iter().map(|row| row.peak()).sum::<Bytes>(), study.peak.unwrap().allocated);
    assert_eq!(study.at_peak.iter().map(|at| at.bytes).sum::<Bytes>(), study.peak.unwrap().allocated);
    let modules: Vec<String> =
        study.op_rows(OpTotals::Module, Sort::Taken).into_iter().map(|row| row.name.clone()).collect();
    assert_eq!(modules, ["blocks.0", "blocks.1", "head", "tokens"]);
    assert_eq!(study.op_rows(OpTotals::Place, Sort::Time)[0].name, "blocks.0.fc");
}

#[test]
fn a_name_is_of_the_category_that_most_of_its_bytes_are() {
    let mut source = synthetic::Source::new(None);
    for (category, size) in [(Category::Workspace, 512), (Category::Activation, 4096), (Category::Activation, 2048)] {
        source.alloc(category, "forward (main.py:67)", size).unwrap();
    }
    source.alloc(Category::Activation, "gelu (main.py:70)", 1024).unwrap();
    let study = study(&source.events, 0..source.events.len(), Grouping::Category);
    let held =
        |name: &str, category, bytes, blocks| Survivor { name: name.to_owned(), category, bytes: Bytes(bytes), blocks };
    let gelu = held("gelu (main.py:70)", Category::Activation, 1024, 1);
    assert_eq!(study.at_peak, [held("forward (main.py:67)", Category::Activation, 6656, 3), gelu.clone()]);
    let of = study.alive_at_peak_of(Category::Activation);
    assert_eq!(of, [held("forward (main.py:67)", Category::Activation, 6144, 2), gelu], "none of the workspace");
}

#[test]
fn what_survived_and_what_went_is_told_by_name() {
    let events = two_ops();
    let begin = events.iter().position(|event| matches!(event.kind, EventKind::OpBegin { .. })).unwrap();
    let study = study(&events, begin..events.len(), Grouping::Category);
    let told = |survivors: Vec<Survivor>| -> Vec<(String, u64, u64)> {
        survivors.into_iter().map(|survivor| (survivor.name, survivor.bytes.0, survivor.blocks)).collect()
    };
    assert_eq!(told(study.survivors()), [("blocks.*.fc output".to_owned(), 2048, 1)]);
    assert_eq!(told(study.departed()), [("head weight".to_owned(), 4096, 1)]);
}

#[test]
fn a_stream_that_contradicts_itself_is_studied_without_harm() {
    let mut events = synthetic::training_run();
    let doubled: Vec<Event> = events.iter().skip(40).step_by(3).cloned().collect();
    let middle = events.len() / 2;
    events.splice(middle..middle, doubled);
    let study = study(&events, 0..events.len(), Grouping::Name);
    assert!(!study.moments.is_empty());
    for sort in [Sort::AtPeak, Sort::Taken, Sort::Kept, Sort::Time, Sort::Calls] {
        assert!(!study.op_rows(OpTotals::Module, sort).is_empty());
    }
}
