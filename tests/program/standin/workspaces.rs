//! Workspaces of plans: what is known about one without a card.

use vramlab::device::sim::CardCatalog;

use super::plans::{Chip, Plan, WorkspaceSource, without_counter};

/// cuDNN's JSON of a plan, shortened: a weight's gradient of 1 × 1 windows in half precision.
fn json(version: u64, sizes: [[u64; 4]; 3], engine: i64, knobs: &str) -> String {
    let packed = |[_, c, h, w]: [u64; 4]| format!("[{},{},{w},1]", c * h * w, h * w);
    let tensor = |name: &str, sizes: [u64; 4]| {
        let strides = packed(sizes);
        format!(r#"{{"name":"{name}","dataType":"CUDNN_DATA_HALF","dim":{sizes:?},"stride":{strides}}}"#)
    };
    let [x, w, y] = sizes;
    let tensors = [tensor("120", x), tensor("119", w), tensor("121", y)].join(",");
    format!(
        r#"{{"cudnnVersion":{version},"operationGraph":{{"tensors":[{tensors}],"nodes":[{{"operation":"CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR","pad":[0,0],"stride":[1,1],"dilation":[1,1],"X":"120","dW":"119","dY":"121"}}]}},"engine":{{"engineId":{engine},"smVersion":900,"knobChoices":{{{knobs}}}}}}}"#
    )
}

const H200: Chip<'_> = Chip { title: "NVIDIA H200", capability: 90, multiprocessors: 132 };

const SIZES: [[u64; 4]; 3] = [[32, 64, 56, 56], [256, 64, 1, 1], [32, 256, 56, 56]];

fn sharing(workspace: i64) -> String {
    let knobs = [
        ("TILE_SIZE", 1),
        ("TILEK", 1),
        ("IDX_MODE", 1),
        ("WORKSPACE", workspace),
        ("TILE_CGA_M", 1),
        ("TILE_CGA_N", 3),
    ];
    knobs.map(|(name, value)| format!(r#""CUDNN_KNOB_TYPE_{name}":{value}"#)).join(",")
}

#[test]
fn sums_are_shared_by_as_many_clusters_as_the_card_runs() {
    // An H200 answered 67,961,511 for this plan: 64,225,296 for copies of the tensors, and 57 parts of each tile of two
    // columns of tiles.
    let plan = Plan::read(&json(1, SIZES, 65, &sharing(0))).unwrap();
    assert_eq!(plan.known(H200), WorkspaceSource::Shared(67_961_511 - 64_225_296));
    // A card with half the multiprocessors runs half the clusters.
    let WorkspaceSource::Shared(bytes) = plan.known(Chip { multiprocessors: 66, ..H200 }) else { panic!("{plan:?}") };
    assert!(bytes < (67_961_511 - 64_225_296) / 2 + 4096, "{bytes}");
    // Two tiles that run at once need no counter.
    let plan = Plan::read(&json(1, SIZES, 65, &sharing(1))).unwrap();
    assert_eq!(plan.known(H200), WorkspaceSource::Uncounted);
    assert_eq!(
        (without_counter(64_225_427), without_counter(64_225_296), without_counter(0)),
        (Some(64_225_296), None, None)
    );
}

#[test]
fn what_was_recorded_counts_on_the_card_and_for_the_library_that_were_asked() {
    let sizes = [[32, 64, 56, 56], [64, 64, 1, 1], [32, 64, 56, 56]];
    let asks_blas = r#""CUDNN_KNOB_TYPE_WORKSPACE":1"#;
    let known = |version, chip| Plan::read(&json(version, sizes, 62, asks_blas)).unwrap().known(chip);
    assert_eq!(known(91_900, Chip { capability: 80, ..H200 }), WorkspaceSource::Usual);
    assert_eq!(known(92_600, H200), WorkspaceSource::Usual);
    let without = r#""CUDNN_KNOB_TYPE_WORKSPACE":0"#;
    assert_eq!(Plan::read(&json(91_900, sizes, 62, without)).unwrap().known(H200), WorkspaceSource::Computed);
    let other = r#""CUDNN_KNOB_TYPE_SPLIT_K":27,"CUDNN_KNOB_TYPE_TILE_SIZE":5"#;
    assert_eq!(Plan::read(&json(91_900, sizes, 49, other)).unwrap().known(H200), WorkspaceSource::Computed);
}

#[test]
fn products_of_few_columns_in_half_precision_take_nothing() {
    let asks_blas = r#""CUDNN_KNOB_TYPE_WORKSPACE":2"#;
    let gradient = |side| json(92_600, [[16, 64, side, side], [32, 64, 1, 1], [16, 32, side, side]], 58, asks_blas);
    let forward =
        |side| gradient(side).replace("CONVOLUTION_BACKWARD_FILTER", "CONVOLUTION_FORWARD").replace("\"dW\"", "\"W\"");
    let known = |json: String| Plan::read(&json).unwrap().known(H200);
    assert_eq!(known(forward(11)), WorkspaceSource::Nothing, "1936 columns");
    assert_eq!(known(forward(12)), WorkspaceSource::Usual, "2304 columns");
    assert_eq!(known(forward(11).replace("DATA_HALF", "DATA_FLOAT")), WorkspaceSource::Usual);
    assert_eq!(known(gradient(11)), WorkspaceSource::Usual, "a weight's gradient sums over the columns");
}

#[test]
fn an_answer_of_the_table_is_found() {
    let (sizes, engine, workspace, answer) = RECORDED;
    let knobs = format!(r#""CUDNN_KNOB_TYPE_WORKSPACE":{workspace}"#);
    let plan = Plan::read(&json(91_900, sizes, engine, &knobs)).unwrap();
    assert_eq!(plan.known(H200), WorkspaceSource::Recorded(answer));
    assert!(!plan.known(H200).is_estimate());
    // Another card with as many multiprocessors did not answer: there the same figure is an estimate.
    for title in ["NVIDIA H100 80GB HBM3", "NVIDIA H100 NVL"] {
        let known = plan.known(Chip { title, ..H200 });
        assert_eq!(known, WorkspaceSource::Borrowed(answer));
        assert!(known.is_estimate());
    }
    assert_eq!(plan.known(Chip { multiprocessors: 114, ..H200 }), WorkspaceSource::Usual);
}

#[test]
fn recorded_answers_belong_to_one_card_of_the_catalog() {
    let catalog = CardCatalog::with_user_cards(None);
    let recorded = catalog.names().filter(|name| {
        let card = catalog.card(name).unwrap();
        let chip = Chip {
            title: &card.title,
            capability: i32::try_from(card.compute_capability).unwrap(),
            multiprocessors: i32::try_from(card.multiprocessors).unwrap(),
        };
        let (sizes, engine, workspace, _) = RECORDED;
        let knobs = format!(r#""CUDNN_KNOB_TYPE_WORKSPACE":{workspace}"#);
        matches!(Plan::read(&json(91_900, sizes, engine, &knobs)).unwrap().known(chip), WorkspaceSource::Recorded(_))
    });
    assert_eq!(recorded.collect::<Vec<_>>(), ["h200"]);
}

/// An answer of an H200: the sizes of input, weight and output, the engine, its knob, the workspace.
const RECORDED: ([[u64; 4]; 3], i64, i64, u64) = ([[4, 128, 54, 54], [16, 128, 1, 1], [4, 16, 54, 54]], 62, 2, 32_768);

#[test]
fn what_is_no_convolution_is_left_to_cudnn() {
    assert_eq!(Plan::read("{}"), None);
    assert_eq!(Plan::read(&json(1, SIZES, 65, "").replace("CONVOLUTION_BACKWARD_FILTER", "MATMUL")), None);
    assert!(Plan::read(&"[".repeat(1000)).is_none());
}
