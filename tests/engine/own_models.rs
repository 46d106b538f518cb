//! Models that a user's file describes, layer by layer.

use std::collections::HashMap;

use vramlab::device::sim::CardCatalog;
use vramlab::model::EventKind;
use vramlab::session::{DeviceChoice, LabSpec, MemoryLimit};
use vramlab::train::{Checkpointing, Config, DataPath, Libraries, TrainError, Workload};
use vramlab::units::Bytes;
use vramlab::workload::{Catalog, CatalogError, Data, Sizes};

const GPT_MINI: &str = r#"
    input = { kind = "tokens", seq = 32, vocab = 257 }
    [[layers]]
    kind = "embedding"
    width = 32
    positions = 32
    [[layers]]
    kind = "transformer"
    heads = 4
    causal = true
    tanh = true
    repeat = 2
    [[layers]]
    kind = "layer_norm"
    [[layers]]
    kind = "tied_linear"
"#;

const MLP_MINI: &str = r#"
    input = { kind = "vector", values = 32 }
    [[layers]]
    kind = "block"
    repeat = 3
    layers = [{ kind = "linear", outputs = 64 }, { kind = "relu" }]
    [[layers]]
    name = "head"
    kind = "linear"
    outputs = 10
"#;

const VIT_MINI: &str = r#"
    input = { kind = "image", side = 32 }
    [[layers]]
    kind = "patches"
    side = 8
    width = 32
    [[layers]]
    kind = "transformer"
    heads = 4
    repeat = 2
    [[layers]]
    kind = "layer_norm"
    [[layers]]
    kind = "mean"
    [[layers]]
    kind = "linear"
    outputs = 10
"#;

const CONVOLUTIONS: &str = r#"
    input = { kind = "image", side = 16, channels = 1 }
    [[layers]]
    kind = "conv"
    outputs = 8
    kernel = 3
    padding = 1
    bias = false
    [[layers]]
    kind = "batch_norm"
    [[layers]]
    kind = "relu"
    [[layers]]
    kind = "max_pool"
    kernel = 2
    stride = 2
    [[layers]]
    kind = "block"
    repeat = 2
    residual = true
    layers = [{ kind = "conv", outputs = 8, kernel = 3, padding = 1 }, { kind = "tanh" }]
    [[layers]]
    kind = "mean"
    [[layers]]
    kind = "linear"
    outputs = 4
"#;

/// Blocks of a Llama without its attention.
const GATED: &str = r#"
    input = { kind = "tokens", seq = 32, vocab = 257 }
    weights = "transformer"
    [[layers]]
    kind = "embedding"
    width = 32
    [[layers]]
    kind = "block"
    residual = true
    repeat = 2
    layers = [{ kind = "rms_norm" }, { kind = "gated_mlp", hidden = 64 }]
    [[layers]]
    kind = "rms_norm"
    [[layers]]
    kind = "linear"
    outputs = 257
    bias = false
"#;

/// The workload of a file with these lines.
fn of_file(lines: &str) -> Result<Box<dyn Workload>, CatalogError> {
    let folder = tempfile::tempdir().unwrap();
    let head = "title = 'mine'\nabout = 'Mine.'\nmodel = 'layers'\nbatch = 4\ndata = 'synthetic'\n";
    std::fs::write(folder.path().join("mine.toml"), format!("{head}{lines}")).unwrap();
    let catalog = Catalog::with_user_workloads(Some(folder.path()));
    catalog.entry("mine")?.workload(Sizes::default(), Data::Reference, 1)
}

/// The requests of a run to its allocator.
#[derive(Debug, PartialEq)]
enum Request {
    Alloc(u64),
    /// The free of the request with this number.
    Free(usize),
}

/// Requests and losses of three steps.
fn run(workload: Box<dyn Workload>, config: Config) -> (Vec<Request>, Vec<f32>) {
    let (mut trainer, events) = crate::training::trainer(workload, config, Libraries::HOPPER);
    let losses = (0..3).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
    let (mut requests, mut live, mut count) = (Vec::new(), HashMap::new(), 0);
    for event in events.borrow().iter() {
        match &event.kind {
            EventKind::Alloc { address, requested, .. } => {
                live.insert(*address, count);
                count += 1;
                requests.push(Request::Alloc(requested.get()));
            }
            EventKind::FreeRequested { address } => requests.push(Request::Free(live.remove(address).unwrap())),
            _ => {}
        }
    }
    (requests, losses)
}

#[test]
fn a_file_that_spells_out_a_built_in_model_is_that_model() {
    for (name, lines) in [("gpt-mini", GPT_MINI), ("mlp-mini", MLP_MINI), ("vit-mini", VIT_MINI)] {
        for variant in ["base", "bf16", "ckpt"] {
            let (built_in, batch) = crate::training::workload(name);
            let config = crate::training::variant(variant, batch);
            let theirs = run(built_in, config);
            let ours = run(of_file(lines).unwrap(), config);
            assert!(ours.1.iter().all(|loss| loss.is_finite()));
            assert_eq!(ours.1, theirs.1, "losses of {name} {variant}");
            assert!(ours.0 == theirs.0, "requests of {name} {variant}");
        }
    }
}

/// The bytes requested and not freed: summed over all requests, and at the end.
fn held_and_left(requests: &[Request]) -> [u64; 2] {
    let (mut sizes, mut live, mut held) = (Vec::new(), 0, 0);
    for request in requests {
        match *request {
            Request::Alloc(size) => {
                sizes.push(size);
                live += size;
            }
            Request::Free(number) => live -= sizes[number],
        }
        held += live;
    }
    [held, live]
}

#[test]
fn a_relu_that_saves_its_input_holds_it_until_backward() {
    let saving = MLP_MINI.replace(r#"{ kind = "relu" }"#, r#"{ kind = "relu", saves_input = true }"#);
    assert_ne!(saving, MLP_MINI);
    for variant in ["base", "bf16", "ckpt"] {
        let config = crate::training::variant(variant, crate::training::workload("mlp-mini").1);
        let (right, too_much) = (run(of_file(MLP_MINI).unwrap(), config), run(of_file(&saving).unwrap(), config));
        assert_eq!(right.1, too_much.1, "losses under {variant}");
        let asked = |requests: &[Request]| -> Vec<u64> {
            requests
                .iter()
                .filter_map(|request| if let Request::Alloc(size) = request { Some(*size) } else { None })
                .collect()
        };
        assert_eq!(asked(&right.0), asked(&too_much.0), "the same is asked for under {variant}");
        let ([held, left], [longer, same]) = (held_and_left(&right.0), held_and_left(&too_much.0));
        assert!(longer > held, "{variant}: {longer} and {held}");
        assert_eq!(same, left, "backward lets go of it");
    }
    let image = "input = { kind = 'image', side = 8 }\nlayers = [{ kind = 'relu', saves_input = true }]";
    assert!(of_file(image).is_err_and(|error| error.to_string().contains("takes rows or a vector")));
}

#[test]
fn a_block_without_autocast_computes_in_32_bits() {
    let region = GPT_MINI
        .replace("kind = \"tied_linear\"", "kind = \"block\"\nautocast = false\nlayers = [{ kind = \"tied_linear\" }]");
    let batch = crate::training::workload("gpt-mini").1;
    let of = |lines: &str, variant: &str| run(of_file(lines).unwrap(), crate::training::variant(variant, batch));
    let base = of(GPT_MINI, "base");
    assert!(of(&region, "base") == base, "without autocast there is nothing to turn off");
    let (whole, head) = (of(GPT_MINI, "bf16"), of(&region, "bf16"));
    let logits = Request::Alloc((batch * 32 * 257 * 2) as u64);
    let in_16_bits = |requests: &[Request]| requests.iter().filter(|request| **request == logits).count();
    assert!(in_16_bits(&whole.0) > in_16_bits(&base.0));
    assert_eq!(in_16_bits(&head.0), in_16_bits(&base.0), "no logit has 16 bits");
    assert_ne!(head.1, whole.1);
    let far = |losses: &[f32]| losses.iter().zip(&base.1).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(far(&head.1) < 0.02, "{:?} and {:?}", head.1, base.1);
}

#[test]
fn convolutions_of_a_users_own_learn() {
    for config in [Config::new(8), Config { checkpointing: Checkpointing::ALL, ..Config::new(8) }] {
        let (mut trainer, _events) =
            crate::training::trainer(of_file(CONVOLUTIONS).unwrap(), config, Libraries::PROCESSOR);
        let losses: Vec<f32> = (0..40).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
        assert!(losses[36..].iter().sum::<f32>() < 0.8 * losses[..4].iter().sum::<f32>(), "{losses:?}");
    }
}

#[test]
fn what_does_not_fit_is_told_with_its_layer() {
    let vector = "input = { kind = 'vector', values = 32 }\n";
    let tokens = "input = { kind = 'tokens', seq = 8, vocab = 100 }\n";
    let image = "input = { kind = 'image', side = 30 }\n";
    for (input, layers, words) in [
        (
            vector,
            "[[layers]]\nkind = 'embedding'\nwidth = 8",
            "layer 1 (embedding) gets a vector of 32 values and takes tokens",
        ),
        (tokens, "[[layers]]\nkind = 'relu'", "layer 1 (relu) gets 8 tokens and takes numbers"),
        (
            tokens,
            "[[layers]]\nkind = 'embedding'\nwidth = 8\npositions = 4",
            "layer 1 (embedding) has 4 positions for sequences of 8",
        ),
        (
            tokens,
            "[[layers]]\nkind = 'embedding'\nwidth = 8",
            "the last layer makes 8 rows of 8 values; let it make 100 values",
        ),
        (
            image,
            "[[layers]]\nkind = 'patches'\nside = 8\nwidth = 16",
            "layer 1 (patches) can't cut an image of 3 × 30 × 30 into squares of 8",
        ),
        (
            image,
            "[[layers]]\nkind = 'conv'\noutputs = 8\nkernel = 31",
            "layer 1 (conv) has a kernel of 31, larger than",
        ),
        (
            vector,
            "[[layers]]\nkind = 'block'\nresidual = true\nlayers = [{ kind = 'linear', outputs = 8 }]",
            "layer 1 (block) makes a vector of 8 values of a vector of 32 values",
        ),
        (
            vector,
            "[[layers]]\nkind = 'block'\nlayers = [{ kind = 'relu' }, { kind = 'mean' }]",
            "layer 1.2 (mean) gets a vector",
        ),
        (
            vector,
            "[[layers]]\nkind = 'linear'\noutputs = 0",
            "(line 7: 0 can't be; give a whole number from 1 to 16777216)",
        ),
        (vector, "[[layers]]\nkind = 'linear'\noutputs = 8\ncolour = 3", "colour"),
        (vector, "[[layers]]\nkind = 'lstm'", "lstm"),
        ("", "[[layers]]\nkind = 'relu'", "mine has no input"),
    ] {
        let Err(error) = of_file(&format!("{input}{layers}")) else { panic!("{layers} is accepted") };
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn churn_goes_on_and_gives_everything_back() {
    let catalog = Catalog::with_user_workloads(None);
    let workload = catalog.entry("churn").unwrap().workload(Sizes::default(), Data::Fresh, 1).unwrap();
    let config = Config { data: DataPath::Fresh, ..Config::new(1) };
    let (mut trainer, _events) = crate::training::simulated(workload, config);
    let mut allocated = Vec::new();
    for _ in 0..20 {
        trainer.step().unwrap();
        allocated.push(trainer.memory().allocated().get());
    }
    let statistics = trainer.statistics();
    assert_eq!(statistics.allocation.all.allocated, 20 * 400);
    assert_eq!(statistics.allocation.all.current, 120);
    assert!(statistics.inactive_split_bytes.all.current > 0);
    trainer.configure(Config { accumulation: 2, ..config }).unwrap();
    assert_eq!(trainer.memory().allocated().get(), 0);
}

/// Trains a step on a small card.
///
/// # Errors
/// A sentence, if the file is refused or something does not fit.
fn train_on_a_small_card(catalog: &Catalog, name: &str) -> Result<(), String> {
    let workload = catalog.entry(name).map_err(|error| error.to_string())?;
    let card = CardCatalog::with_user_cards(None).card("t4").unwrap();
    let spec = LabSpec {
        config: Config { data: DataPath::Streamed, ..Config::new(workload.batch.get()) },
        device: DeviceChoice::Sim(Box::new(card)),
        limit: Some(MemoryLimit::Bytes(Bytes::mib(40))),
        ..LabSpec::new(workload)
    };
    let mut trainer = spec.build(Box::new(spec.pace())).map_err(|error| error.to_string())?;
    match trainer.step() {
        Ok(_) => Ok(()),
        Err(error @ TrainError::OutOfMemory { .. }) => Err(error.to_string()),
        Err(other) => panic!("{name}: {other}"),
    }
}

/// Every number of a file in turn is replaced by each of these.
#[test]
fn no_number_of_a_file_does_more_than_be_refused() {
    const VALUES: [&str; 11] = [
        "0",
        "1",
        "10000",
        "65536",
        "4194304",
        "16777216",
        "2147483648",
        "4294967296",
        "9223372036854775807",
        "18446744073709551615",
        "-1",
    ];
    const CHURN: &str = "[churn]\ncount = 40\nlargest_mib = 4\nkept = 10\nkept_long = 20\n";
    const GPT: &str = "[sizes]\nlayers = 2\nwidth = 32\nheads = 4\nseq = 32\ncontext = 32\nvocab = 257\n";
    const RESNET: &str = "[sizes]\nstages = [1, 1, 1, 1]\nwidth = 8\nimage = 32\nclasses = 10\n";
    let models = [
        ("layers", "", GPT_MINI),
        ("layers", "", MLP_MINI),
        ("layers", "", VIT_MINI),
        ("layers", "", CONVOLUTIONS),
        ("churn", "", CHURN),
        ("gpt", "lengths = [32, 16]\nsample_every = 3\n", GPT),
        ("resnet", "", RESNET),
    ];
    let mut trained = 0;
    for (model, more, lines) in models {
        let data = if more.is_empty() { "synthetic" } else { "fresh" };
        let head = "title = 'mine'\nabout = 'Mine.'\n";
        let file = format!("{head}model = '{model}'\nbatch = 4\ndata = '{data}'\n{more}{lines}");
        let starts = file.match_indices(|symbol: char| symbol.is_ascii_digit()).map(|(at, _)| at);
        let numbers: Vec<usize> =
            starts.filter(|at| !file[..*at].ends_with(|before: char| before.is_ascii_digit())).collect();
        for start in numbers {
            let len = file[start..].bytes().take_while(u8::is_ascii_digit).count();
            for value in VALUES {
                let changed = format!("{}{value}{}", &file[..start], &file[start + len..]);
                let mut catalog = Catalog::with_user_workloads(None);
                catalog.insert("mine", &changed);
                match train_on_a_small_card(&catalog, "mine") {
                    Ok(()) => trained += 1,
                    Err(sentence) => assert!(!sentence.contains("bug"), "{changed}: {sentence}"),
                }
            }
        }
    }
    assert!(trained >= 50, "most small sizes train: {trained}");
}

#[test]
fn what_multiplies_in_a_file_is_bounded_as_a_whole() {
    let deep = |depth: usize| {
        let inner = "{ kind = 'relu' }".to_owned();
        let layer = (0..depth).fold(inner, |layer, _| format!("{{ kind = 'block', layers = [{layer}] }}"));
        format!("input = {{ kind = 'vector', values = 4 }}\nlayers = [{layer}]")
    };
    let refused = |lines: &str| of_file(lines).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(refused(&deep(16)), "");
    assert!(refused(&deep(17)).contains("lies within 16 others"), "{}", refused(&deep(17)));
    assert!(!refused(&deep(5000)).is_empty(), "and does not take the stack");
    let repeated = "input = { kind = 'vector', values = 4 }
        layers = [{ kind = 'block', repeat = 10000, layers = [
            { kind = 'block', repeat = 10000, layers = [{ kind = 'linear', outputs = 4 }] },
        ] }]";
    assert!(refused(repeated).contains("at most 40000 modules"), "{}", refused(repeated));
    let named = format!("{}\nname = '{}'", MLP_MINI, "x".repeat(1000));
    assert!(refused(&named.replace("name = \"head\"", "")).contains("at most 60"), "{}", refused(&named));
    let large = "input = { kind = 'image', side = 16777216 }\nlayers = [{ kind = 'mean' }]";
    assert!(refused(large).contains("more than any device holds"), "{}", refused(large));
}

#[test]
fn root_mean_square_norms_and_gated_mlps_have_the_losses_of_pytorch() {
    let mut config = crate::training::variant("base", 4);
    let (mut trainer, _) = crate::training::trainer(of_file(GATED).unwrap(), config, Libraries::PROCESSOR);
    let losses: Vec<f32> = (0..6).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
    // PyTorch 2.11 on a processor, with LlamaRMSNorm and LlamaMLP of transformers 5.17 and the same first weights.
    let theirs = [5.558_905_f32, 5.558_769, 5.551_71, 5.557_907, 5.433_707, 5.461_347];
    for (ours, theirs) in losses.iter().zip(theirs) {
        assert!((ours - theirs).abs() < 1e-4 * theirs, "{losses:?}");
    }
    for variant in ["bf16", "ckpt", "bf16ckpt"] {
        config = crate::training::variant(variant, 4);
        let (_, others) = run(of_file(GATED).unwrap(), config);
        for (other, plain) in others.iter().zip(&losses) {
            assert!((other - plain).abs() < 1e-2 * plain, "{variant}: {others:?} for {losses:?}");
        }
    }
}
