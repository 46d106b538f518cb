use super::*;
use crate::event::{Event, EventKind};
use crate::{Lab, Names, SegmentView, Stacks, naming, synthetic};
use vramlab_allocator::units::Micros;

/// A name with its stack, a category, a size, and the number of blocks of that size.
type StackBlocks<'a> = (&'a str, &'a [&'a str], Category, u64, u64);

fn view_of(asked: &[StackBlocks<'_>]) -> View {
    let mut texts: Vec<Arc<str>> = vec!["".into()];
    let mut stacks = std::collections::BTreeMap::new();
    let mut blocks = Vec::new();
    let mut offset = 0;
    for (name, frames, category, size, count) in asked {
        let mut id = |text: &str| {
            texts.push(text.into());
            NameId(u32::try_from(texts.len() - 1).unwrap())
        };
        let name = if name.is_empty() { NameId::NONE } else { id(name) };
        let frames: Vec<NameId> = frames.iter().map(|frame| id(frame)).collect();
        if !frames.is_empty() {
            stacks.insert(name, frames.into());
        }
        for _ in 0..*count {
            blocks.push(crate::BlockView {
                offset: Bytes(offset),
                size: Bytes(*size),
                requested: Bytes(*size),
                pending: false,
                category: *category,
                name,
                op: NameId::NONE,
                born: 0,
            });
            offset += size;
        }
    }
    let segment = SegmentView {
        address: vramlab_allocator::units::Address(1 << 30),
        size: Bytes(offset),
        pool: vramlab_allocator::PoolKind::Large,
        stream: vramlab_allocator::units::StreamId::DEFAULT,
        expandable: false,
        page: None,
        blocks: Arc::new(blocks),
    };
    let (names, stacks) = (Names(Arc::new(texts)), Stacks(Arc::new(stacks)));
    View { segments: Arc::new(vec![segment]), names, stacks, ..View::default() }
}

/// The tree as lines: depth, label, bytes, blocks.
fn drawn(flame: &Flame) -> Vec<String> {
    fn walk(flame: &Flame, index: usize, out: &mut Vec<String>) {
        let node = flame.get(index).unwrap();
        out.push(format!("{}{} {} {}", "  ".repeat(node.depth), node.label, node.bytes.get(), node.blocks));
        node.children.iter().for_each(|child| walk(flame, *child, out));
    }
    let mut out = Vec::new();
    walk(flame, 0, &mut out);
    out
}

const MAIN: &str = "/job/train.py:9 <module>";
const CALL: &str = "/v/site-packages/torch/nn/modules/module.py:1790 _call_impl";
const GELU: &str = "/v/site-packages/torch/nn/functional.py:3 gelu";

fn program() -> View {
    view_of(&[
        ("gelu (model.py:22)", &[GELU, "/job/model.py:22 forward", CALL, MAIN], Category::Activation, 100, 3),
        ("linear (model.py:23)", &["/job/model.py:23 forward", CALL, MAIN], Category::Activation, 50, 2),
        ("init (model.py:5)", &["/job/model.py:5 __init__", MAIN], Category::Parameter, 1000, 1),
        ("", &[], Category::Gradient, 200, 1),
    ])
}

#[test]
fn frames_that_all_go_the_same_way_are_one_node_called_by_the_programs_own() {
    let flame = Flame::of(&program(), Shape::Tree, &Tags::default(), "");
    assert_eq!(
        drawn(&flame),
        [
            "all 1600 7",
            "  train.py:9 <module> 1400 6",
            "    model.py:5 __init__ 1000 1",
            "    module.py:1790 _call_impl 400 5",
            "      model.py:22 forward 300 3",
            "      model.py:23 forward 100 2",
            "  gradients without a stack 200 1",
        ]
    );
    let gelu = flame.get(flame.find(&[MAIN, CALL, "/job/model.py:22 forward"].map(Arc::from))).unwrap();
    assert_eq!(gelu.chain, ["model.py:22 forward", "functional.py:3 gelu"].map(Arc::from));
    assert_eq!(gelu.category(), Category::Activation);
    assert_eq!(flame.total, Bytes(1600));
}

#[test]
fn the_same_memory_by_line_file_module_and_category() {
    let of = |shape| drawn(&Flame::of(&program(), shape, &Tags::default(), ""));
    assert_eq!(
        of(Shape::Line)[1..4],
        ["  model.py:5 __init__ 1000 1", "  model.py:22 forward 300 3", "  gradients without a stack 200 1"]
    );
    assert_eq!(of(Shape::File)[1..3], ["  model.py 1400 6", "    model.py:5 __init__ 1000 1"]);
    assert_eq!(of(Shape::Module)[1..3], ["  model 1400 6", "    model.py:5 __init__ 1000 1"]);
    assert_eq!(
        of(Shape::Category)[1..4],
        ["  model.py:5 __init__ 1000 1", "  activations 400 5", "    model.py:22 forward 300 3"]
    );
}

#[test]
fn tags_of_a_person_stand_for_categories() {
    let mut tags = Tags::default();
    tags.add("feed forward=gelu|:23 ").unwrap();
    tags.add("model=/job/model").unwrap();
    let flame = Flame::of(&program(), Shape::Category, &tags, "");
    let top: Vec<&str> = flame.root().children.iter().map(|child| &*flame.get(*child).unwrap().key).collect();
    assert_eq!(top, ["model", "feed forward", "gradients"], "the first rule that fits");
    assert!(matches!(tags.add("attention"), Err(TagError::NoRule(_))));
    assert!(matches!(tags.add("=x"), Err(TagError::NoRule(_))));
    assert!(matches!(tags.add("a=("), Err(TagError::NoExpression { .. })));
}

#[test]
fn a_search_keeps_the_ways_that_it_lies_on() {
    let found = |search| {
        let flame = Flame::of(&program(), Shape::Tree, &Tags::default(), search);
        (flame.root().bytes.get(), flame.total.get())
    };
    assert_eq!(found("GELU"), (300, 1600));
    assert_eq!(found("_call_impl"), (400, 1600));
    assert_eq!(found("gradients"), (200, 1600));
    assert_eq!(found("no such thing"), (0, 1600));
}

#[test]
fn names_without_stacks_are_ways_of_their_own() {
    let view = view_of(&[
        ("h.0.attn.qkv output", &[], Category::Activation, 10, 1),
        ("h.0.attn.proj output", &[], Category::Activation, 20, 1),
        ("h.1.attn.qkv output", &[], Category::Activation, 25, 1),
        ("tokens", &[], Category::Input, 5, 1),
    ]);
    let of = |shape| drawn(&Flame::of(&view, shape, &Tags::default(), ""));
    assert_eq!(
        of(Shape::Tree),
        [
            "all 60 4",
            "  h 55 3",
            "    0.attn 30 2",
            "      proj output 20 1",
            "      qkv output 10 1",
            "    1.attn.qkv output 25 1",
            "  tokens 5 1",
        ]
    );
    assert_eq!(of(Shape::Line)[1..3], ["  h.*.attn.qkv output 35 2", "    h.1.attn.qkv output 25 1"]);
    assert_eq!(of(Shape::File)[1..3], ["  h.0 30 2", "    h.0.attn.proj output 20 1"]);
    assert_eq!(of(Shape::Module)[1..3], ["  h.*.attn 55 3", "    qkv output 35 2"]);
    assert_eq!(of(Shape::Category)[1..3], ["  activations 55 3", "    h.*.attn.qkv output 35 2"]);
}

#[test]
fn what_a_layer_has_itself_is_part_of_the_layer() {
    let view = view_of(&[
        ("blocks.0.fc output", &[], Category::Activation, 20, 1),
        ("blocks.0 gelu output", &[], Category::Activation, 10, 1),
        ("blocks.1 gelu output", &[], Category::Activation, 10, 1),
        ("head output", &[], Category::Activation, 5, 1),
    ]);
    let flame = Flame::of(&view, Shape::Tree, &Tags::default(), "");
    let tree = ["all 45 4", "  blocks 40 3", "    0 30 2", "      fc output 20 1", "      gelu output 10 1"];
    assert_eq!(drawn(&flame)[..5], tree);
    assert_eq!(drawn(&flame)[5..], ["    1.gelu output 10 1", "  head output 5 1"]);
    let sum = flame.sum(flame.find(&["blocks".into()]), 0..2).unwrap();
    assert_eq!((sum.bytes, sum.blocks, sum.others), (Bytes(40), 3, 2));
    assert_eq!(flame.sum(0, 0..9), None);
}

#[test]
fn what_is_too_small_or_too_much_is_folded() {
    let texts: Vec<String> = (0..200).map(|index| format!("/job/m.py:{index} f")).collect();
    let frames: Vec<[&str; 1]> = texts.iter().map(|text| [text.as_str()]).collect();
    let asked: Vec<StackBlocks<'_>> =
        frames.iter().map(|frames| ("f (m.py)", &frames[..], Category::Other, 512, 1)).collect();
    let flame = Flame::of(&view_of(&asked), Shape::Tree, &Tags::default(), "");
    let children = &flame.root().children;
    assert_eq!(children.len(), Flame::WIDEST + 1);
    let others = flame.get(*children.last().unwrap()).unwrap();
    assert_eq!((others.others, others.blocks, others.bytes), (152, 152, Bytes(152 * 512)));
    assert_eq!(flame.root().bytes, flame.total);
    // A very deep stack.
    let deep: Vec<&str> = vec![GELU; 5000];
    let flame = Flame::of(&view_of(&[("deep", &deep, Category::Other, 1, 1)]), Shape::Tree, &Tags::default(), "");
    assert_eq!(flame.get(1).unwrap().chain.len(), Flame::DEEPEST);
}

#[test]
fn a_tree_holds_every_live_byte_of_a_run() {
    let mut lab = Lab::new();
    let mut looked = 0;
    for (index, event) in synthetic::training_run().iter().enumerate() {
        lab.apply(event);
        if index % 97 != 0 {
            continue;
        }
        let view = lab.view();
        for shape in Shape::ALL {
            let flame = Flame::of(&view, shape, &Tags::default(), "");
            let live: Bytes = view.by_category.iter().copied().sum();
            assert_eq!((flame.root().bytes, flame.total), (live, live), "{shape:?}");
            assert_eq!(flame.root().by_category, view.by_category);
            for node in (0..).map_while(|index| flame.get(index)).filter(|node| !node.children.is_empty()) {
                let parts: Bytes =
                    node.children.iter().filter_map(|child| flame.get(*child)).map(|child| child.bytes).sum();
                // A block named after a whole module belongs to none of its parts.
                assert!(parts <= node.bytes, "{node:?}");
            }
            looked += 1;
        }
    }
    assert!(looked > 50);
    assert_eq!(naming::module("h.0.x"), "h.0");
}

#[test]
fn stacks_are_kept_by_the_lab() {
    let mut lab = Lab::new();
    let tell = |lab: &mut Lab, kind| lab.apply(&Event::new(Micros(0), kind));
    tell(&mut lab, EventKind::Stack { name: NameId(2), frames: [NameId(1)].into() });
    assert_eq!(lab.view().stacks.frames(NameId(2)), [NameId(1)]);
    tell(&mut lab, EventKind::Begin(Arc::default()));
    assert!(lab.view().stacks.is_empty(), "another run begins");
}
