//! Families of decoders, by the `config.json` of a mini of each: requests and figures compared with transformers on the
//! stand-in GPU, losses compared with transformers on the processor.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZero;

use serde_json::{Value, json};
use vramlab::device::DType;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::sim::{Card, CardCatalog, SimDevice};
use vramlab::train::{
    Amp, Checkpointing, Config, Libraries, LoopStyle, LossHead, Member, OptimizerForm, Parallelism, PipelineSchedule,
    Trainer, TrainerOptions, Workload, World,
};
use vramlab::units::Bytes;
use vramlab::workload::{
    Data, Extent, Lengths, Lora, ModelConfig, Preparation, Quantization, Share, Sizes, Target, Targets, WorkloadEntry,
};

use crate::alignment::{requests_are_made_on_ada, rows_are_made};
use crate::llama::configured;

/// The `config.json` of each mini.
fn minis() -> BTreeMap<String, Value> {
    serde_json::from_str(include_str!("../data/families/minis.json")).unwrap()
}

/// What `get_peft_model(model, LoraConfig(task_type="CAUSAL_LM"))` of peft 0.21 adapts beside transformers 5.17, by
/// `model_type`. It asks for names of all other families, Mixtral too, which its own list has: it converts experts first.
const DEFAULTS_OF_PEFT: [(&str, &[Target]); 14] = [
    ("bloom", &[Target::WholeQueryKeyValue]),
    ("falcon", &[Target::WholeQueryKeyValue]),
    ("gemma", &[Target::Query, Target::Value]),
    ("gemma2", &[Target::Query, Target::Value]),
    ("gemma3_text", &[Target::Query, Target::Value]),
    ("gpt2", &[Target::WholeAttention]),
    ("gpt_neox", &[Target::WholeQueryKeyValue]),
    ("llama", &[Target::Query, Target::Value]),
    ("mistral", &[Target::Query, Target::Value]),
    ("opt", &[Target::Query, Target::Value]),
    ("phi", &[Target::Query, Target::Value, Target::Wider, Target::Narrower]),
    ("qwen2", &[Target::Query, Target::Value]),
    ("qwen3", &[Target::Query, Target::Value]),
    ("stablelm", &[Target::Query, Target::Value]),
];

/// The targets of recorded programs that say only `lora`: peft's default, or what they named where peft asks for names.
pub fn recorded_targets(config: &Value) -> Option<Targets> {
    match config["model_type"].as_str().unwrap() {
        known if DEFAULTS_OF_PEFT.iter().any(|(of, _)| *of == known) => None,
        "phi3" => Some(Targets::of([Target::QueryKeyValue])),
        _ => Some(Targets::of([Target::Query, Target::Value])),
    }
}

/// A mini in a variant.
pub fn workload(name: &str) -> Box<dyn Workload> {
    let (mini, variant) = name.split_once('.').unwrap();
    let has = |word: &str| variant.contains(word);
    let mut entry = WorkloadEntry::of_config(mini, serde_json::from_value(minis()[mini].clone()).unwrap());
    let weights = match (has("bf16w"), has("fp16w")) {
        (true, _) => DType::Bf16,
        (_, true) => DType::F16,
        _ => DType::F32,
    };
    entry.config.as_mut().unwrap().dtype = Some(weights.label().to_owned());
    let targets = match (has("loraall"), has("loraattn")) {
        (true, _) => Some(Targets::of(Target::ALL)),
        (_, true) => Some(Targets::of([Target::Query, Target::Key, Target::Value, Target::Output])),
        _ if has("loraseven") => Some(Targets::of([
            Target::Query,
            Target::Key,
            Target::Value,
            Target::Output,
            Target::Gate,
            Target::Up,
            Target::Down,
        ])),
        _ if has("loralatent") => {
            Some(Targets::of([Target::LatentQuery, Target::FromLatentQuery, Target::Latent, Target::FromLatent]))
        }
        _ => recorded_targets(&minis()[mini]),
    };
    let dropout = if has("drop") { 0.1 } else { 0.0 };
    let dropout = Share::try_from(dropout).unwrap();
    let dora = has("dora");
    let nested = has("double");
    let quantization = (has("nf4") || nested).then_some(Quantization {
        nested,
        compute: if has("f32") { DType::F32 } else { DType::Bf16 },
        // Taken from the recordings of ranks that have whole models.
        storage: (has("kbit") || has("u8")).then_some(if has("u8") { DType::U8 } else { weights }),
    });
    entry.lora =
        has("lora").then(|| Lora { targets, dropout, dora, quantization, ..Lora::of_rank(Extent::nearest(8)) });
    let sizes = Sizes { seq: Some(Extent::nearest(64)), ..Sizes::default() };
    entry.workload(sizes, Data::Reference, 1).unwrap()
}

/// Every recorded row: requests one by one from the first parameter on, three steps, and the allocator's statistics at
/// the end.
#[test]
fn families_ask_as_those_of_transformers_do() {
    rows_are_made(include_str!("../data/families/rows.jsonl"), program);
}

/// A card with flash attention instead of cuDNN's: requests one by one.
#[test]
fn families_ask_an_ada_card_as_those_of_transformers_do() {
    let plain = ["phi3-mini.bf16w", "qwen2-mini.bf16w", "gemma3-window.bf16w"];
    let dropping = ["phi3-attention.bf16w", "llama-attention.base", "gemma3-attention.bf16"];
    requests_are_made_on_ada(&[plain, dropping].concat(), program);
}

fn program(name: &str) -> (Box<dyn Workload>, Config, u64) {
    (workload(name), configured(name.split_once('.').unwrap().1, 4), 3)
}

/// The `config.json` of published models: the number of trained values is the one that transformers counts.
#[test]
fn published_models_have_their_parameters() {
    let all: BTreeMap<String, Value> = serde_json::from_str(include_str!("../data/families/published.json")).unwrap();
    for (name, model) in all {
        let entry = WorkloadEntry::of_config(&name, serde_json::from_value(model["config"].clone()).unwrap());
        let workload = entry.workload(Sizes::default(), Data::Reference, 1).unwrap();
        // More memory than the largest of them takes.
        let card = CardCatalog::with_user_cards(None).card("h200").unwrap();
        let device = Box::new(SimDevice::new(Card { memory: Bytes::gib(2048), ..card }));
        let (trainer, _) = crate::training::on(device, workload, Config::new(1), Libraries::HOPPER, LoopStyle::Logging);
        assert_eq!(trainer.parameter_count() as u64, model["parameters"].as_u64().unwrap(), "{name}");
    }
}

/// Keys of a `config.json` that a family does not support, and keys that it does.
#[test]
fn a_key_of_another_family_is_named() {
    let build = |mini: &str, key: &str, value: Value| {
        let mut config = minis()[mini].clone();
        config[key] = value;
        let entry = WorkloadEntry::of_config("mine", serde_json::from_value(config).unwrap());
        entry.workload(Sizes::default(), Data::Reference, 1).map(drop).map_err(|error| error.to_string())
    };
    for (mini, key, value, words) in [
        ("qwen2-mini", "mlp_bias", json!(true), "mlp_bias asks for something that qwen2 does not have"),
        ("olmo2-mini", "logits_scaling", json!(8.0), "logits_scaling asks for something that olmo2 does not have"),
        ("llama-biased", "no_rope_layers", json!([1, 0]), "no_rope_layers asks for something that llama does not have"),
        ("llama-biased", "partial_rotary_factor", json!(0.75), "heads that are rotated in part"),
        ("phi3-mini", "partial_rotary_factor", json!(1.5), "use a number above 0 and at most 1"),
        (
            "phi3-mini",
            "partial_rotary_factor",
            json!(0.45),
            "rotates 7 of a head's 16 elements, which have no two halves",
        ),
        ("phi3-mini", "resid_pdrop", json!(0.1), "resid_pdrop asks for something that phi3 does not have"),
        ("llama-biased", "rope_parameters", json!({"type": "longrope"}), "rope_type 'longrope' is not there"),
        (
            "phi3-mini",
            "rope_parameters",
            json!({"type": "longrope"}),
            "short_factor has 0 numbers; rope_type 'longrope' needs 8",
        ),
        (
            "phi3-longrope",
            "partial_rotary_factor",
            json!(0.75),
            "short_factor has 8 numbers; rope_type 'longrope' needs 6",
        ),
        ("phi3-mini", "rope_parameters", json!({"type": "llama3"}), "phi3 has default and longrope"),
        ("gemma3-mini", "layer_types", json!(["chunked_attention"]), "layer_types has 'chunked_attention'"),
        ("granite-mini", "attention_dropout", json!(1.0), "attention_dropout is 1; use a number from 0 on, below 1"),
        (
            "ernie45-mini",
            "attention_dropout",
            json!(0.1),
            "attention_dropout asks for something that ernie4_5 does not",
        ),
        ("qwen2-mini", "num_experts", json!(8), "num_experts asks for something that qwen2 does not have"),
        (
            "ministral3-mini",
            "rope_parameters",
            json!({"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 16384}),
            "llama_4_scaling_beta is missing in rope_parameters; a config.json of ministral3 has it",
        ),
        (
            "olmo3-mini",
            "rope_parameters",
            json!({"sliding_attention": {"rope_type": "yarn"}}),
            "rope_type 'yarn' of sliding_attention is not there; there is default",
        ),
        (
            "olmo3-mini",
            "rope_parameters",
            json!({"rope_type": "default"}),
            "rope_parameters of olmo3 are read by kinds of layers; put them under full_attention",
        ),
        (
            "olmo3-mini",
            "rope_scaling",
            json!({"type": "yarn", "factor": 8.0}),
            "the type of rope_scaling is not read for olmo3; call it rope_type",
        ),
        ("gemma1-mini", "hidden_act", json!("silu"), "the activation 'silu' of gemma is not there; there is gelu"),
        ("gemma1-mini", "query_pre_attn_scalar", json!(16), "query_pre_attn_scalar asks for something that gemma does"),
        ("gemma1-mini", "hidden_size", json!(null), "hidden_size is missing; a config.json of this family has it"),
        ("gemma1-mini", "num_hidden_layers", json!(null), "num_hidden_layers is missing; a config.json has it"),
        ("mixtral-mini", "moe_intermediate_size", json!(8), "moe_intermediate_size asks for something that mixtral"),
        ("glm4moe-mini", "n_group", json!(3), "n_group is 3 of 8 experts; use a number that leaves each group two"),
        ("glm4moe-mini", "n_group", json!(8), "n_group is 8 of 8 experts; use a number that leaves each group two"),
        ("glm4moe-mini", "topk_group", json!(2), "topk_group is 2 of 1 groups; use 1 at most"),
        ("glm4moe-norms", "num_experts_per_tok", json!(5), "num_experts_per_tok is 5 of 4 experts in topk_group"),
        ("glm4moe-mini", "num_experts_per_tok", json!(9), "num_experts_per_tok is 9 of 8 experts; use 8 at most"),
        ("falcon-mini", "alibi", json!(true), "alibi asks for something that is not there; leave it out"),
        ("falcon-mini", "bias", json!(true), "bias asks for something that is not there; leave it out"),
        ("falcon-mini", "multi_query", json!(false), "multi_query asks for something that is not there; leave it out"),
        ("falcon-mini", "parallel_attn", json!(false), "parallel_attn asks for something that is not there"),
        ("falcon-mini", "num_ln_in_parallel_attn", json!(2), "num_ln_in_parallel_attn asks for something that is not"),
        ("falcon-mini", "hidden_dropout", json!(1.0), "hidden_dropout is 1; use a number from 0 on, below 1"),
        ("falcon-mini", "attention_dropout", json!(0.1), "attention_dropout asks for something that falcon does not"),
        ("falcon-mini", "activation", json!("relu"), "the activation 'relu' of falcon is not there; there is gelu"),
        ("falcon-mini", "hidden_size", json!(66), "hidden_size is 66, which 4 heads do not divide; use a multiple of"),
        ("falcon-new", "num_kv_heads", json!(1), "num_kv_heads is 1 of 4 heads; with new_decoder_architecture use"),
        ("bloom-mini", "slow_but_exact", json!(true), "slow_but_exact asks for something that is not there"),
        (
            "bloom-mini",
            "apply_residual_connection_post_layernorm",
            json!(true),
            "apply_residual_connection_post_layernorm asks for something that is not there",
        ),
        ("bloom-mini", "hidden_size", json!(66), "hidden_size is 66, which 4 heads do not divide; use a multiple of"),
        ("bloom-mini", "attention_dropout", json!(1.0), "attention_dropout is 1; use a number from 0 on, below 1"),
        ("deepseek3-mini", "rope_interleave", json!(false), "rope_interleave asks for something that is not there"),
        ("deepseek3-mini", "qk_rope_head_dim", json!(7), "qk_rope_head_dim is 7; use an even number"),
        ("deepseek3-mini", "n_group", json!(3), "n_group is 3 of 8 experts; use a number that leaves each group two"),
        ("deepseek2-mini", "topk_method", json!("noaux_tc"), "topk_method 'noaux_tc' is not there; there are greedy"),
        ("deepseek2-mini", "mlp_bias", json!(true), "mlp_bias asks for something that deepseek_v2 does not have"),
        ("deepseek2-mini", "quantization_config", json!({"quant_method": "fp8"}), "quant_method 'fp8' is not there"),
        (
            "glm4lite-mini",
            "mlp_layer_types",
            json!(["moe"]),
            "mlp_layer_types has 'moe', which is not there; there are",
        ),
        (
            "qwen3moe-mini",
            "mlp_layer_types",
            json!(["dense"]),
            "mlp_layer_types asks for something that qwen3_moe does",
        ),
        ("dots1-mini", "kv_lora_rank", json!(32), "kv_lora_rank asks for something that dots1 does not have"),
        (
            "ernie45moe-mini",
            "moe_num_shared_experts",
            json!(0),
            "moe_num_shared_experts is 0, which is not there; use 1",
        ),
        ("ernie45moe-mini", "moe_k", json!(9), "num_experts_per_tok is 9 of 8 experts; use 8 at most"),
        ("ernie45moe-mini", "use_bias", json!(true), "use_bias asks for something that ernie4_5_moe does not have"),
        ("ernie45-mini", "moe_k", json!(2), "moe_k asks for something that ernie4_5 does not have"),
        ("llama4-mini", "layer_types", json!(["sliding_attention"]), "there are full_attention and chunked_attention"),
        ("llama4-mini", "num_experts_per_tok", json!(5), "num_experts_per_tok is 5 of 4 experts; use 4 at most"),
        ("llama4-mini", "output_router_logits", json!(true), "output_router_logits asks for something that is not"),
        ("llama4-mini", "router_jitter_noise", json!(0.1), "router_jitter_noise asks for something that is not"),
        (
            "llama4-mini",
            "hidden_act",
            json!("gelu"),
            "the activation 'gelu' of llama4_text is not there; there is silu",
        ),
        ("llama4-mini", "mlp_bias", json!(true), "mlp_bias asks for something that llama4_text does not have"),
        ("llama-biased", "attention_chunk_size", json!(64), "attention_chunk_size asks for something that llama does"),
        (
            "llama-biased",
            "attn_temperature_tuning",
            json!(true),
            "attn_temperature_tuning asks for something that llama",
        ),
        ("mixtral-mini", "moe_layers", json!([1]), "moe_layers asks for something that mixtral does not have"),
        ("helium-mini", "hidden_act", json!("gelu"), "the activation 'gelu' of helium is not there; there is silu"),
        ("llama-biased", "kv_lora_rank", json!(32), "kv_lora_rank asks for something that llama does not have"),
        ("llama-biased", "new_decoder_architecture", json!(true), "new_decoder_architecture asks for something that"),
        ("qwen3moe-mini", "n_group", json!(2), "n_group asks for something that qwen3_moe does not have"),
        ("mixtral-mini", "first_k_dense_replace", json!(1), "first_k_dense_replace asks for something that mixtral"),
        ("mixtral-mini", "output_router_logits", json!(true), "output_router_logits asks for something that is not"),
        ("mixtral-mini", "router_jitter_noise", json!(0.1), "router_jitter_noise asks for something that is not"),
        ("mixtral-mini", "num_experts_per_tok", json!(5), "num_experts_per_tok is 5 of 4 experts; use 4 at most"),
        (
            "ernie45-mini",
            "attention_bias",
            json!(true),
            "attention_bias asks for something that ernie4_5 does not have",
        ),
        ("seed-mini", "residual_dropout", json!(1.0), "residual_dropout is 1; use a number from 0 on, below 1"),
        ("starcoder2-mini", "hidden_act", json!("silu"), "the activation 'silu' of starcoder2 is not there"),
        ("starcoder2-mini", "mlp_bias", json!(true), "mlp_bias asks for something that starcoder2 does not have"),
        ("llama-biased", "embedding_dropout", json!(0.1), "embedding_dropout asks for something that llama does not"),
        ("llama-biased", "attention_out_bias", json!(true), "attention_out_bias asks for something that llama does"),
        ("cohere2-mini", "use_qk_norm", json!(true), "use_qk_norm asks for something that cohere2 does not have"),
        ("llama-biased", "logit_scale", json!(0.5), "logit_scale asks for something that llama does not have"),
        ("qwen3moe-mini", "qkv_bias", json!(true), "qkv_bias asks for something that qwen3_moe does not have"),
        (
            "mixtral-mini",
            "shared_expert_intermediate_size",
            json!(64),
            "shared_expert_intermediate_size asks for something that mixtral does not have",
        ),
        ("qwen2moe-mini", "num_experts_per_tok", json!(9), "num_experts_per_tok is 9 of 8 experts; use 8 at most"),
        ("stablelm-mini", "attention_bias", json!(true), "attention_bias asks for something that stablelm does not"),
        ("llama-biased", "use_qkv_bias", json!(true), "use_qkv_bias asks for something that llama does not have"),
        ("neox-mini", "hidden_act", json!("gelu_fast"), "the activation 'gelu_fast' of gpt_neox is not there"),
        ("neox-mini", "hidden_dropout", json!(1.0), "hidden_dropout is 1; use a number from 0 on, below 1"),
        ("neox-mini", "rotary_pct", json!(0.2), "rotates 3 of a head's 16 elements, which have no two halves"),
        ("llama-biased", "hidden_dropout", json!(0.1), "hidden_dropout asks for something that llama does not have"),
        ("llama-biased", "use_parallel_residual", json!(true), "use_parallel_residual asks for something that llama"),
        ("llama-biased", "rotary_emb_base", json!(1e4), "rotary_emb_base asks for something that llama does not have"),
        ("gpt2-mini", "n_embd", json!(66), "n_embd is 66, which 4 heads do not divide; use a multiple of n_head"),
        (
            "gpt2-mini",
            "activation_function",
            json!("relu"),
            "the activation 'relu' of gpt2 is not there; there is gelu_new",
        ),
        ("gpt2-mini", "attn_pdrop", json!(1.0), "attn_pdrop is 1; use a number from 0 on, below 1"),
        ("gpt2-mini", "attention_dropout", json!(0.1), "attention_dropout asks for something that gpt2 does not have"),
        ("gpt2-mini", "add_cross_attention", json!(true), "add_cross_attention asks for something that is not there"),
        ("gpt2-mini", "scale_attn_weights", json!(false), "scale_attn_weights asks for something that is not there"),
        ("gpt2-mini", "reorder_and_upcast_attn", json!(true), "reorder_and_upcast_attn asks for something that is not"),
        (
            "gpt2-mini",
            "scale_attn_by_inverse_layer_idx",
            json!(true),
            "scale_attn_by_inverse_layer_idx asks for something that is not there",
        ),
        ("neox-mini", "qk_layernorm", json!(true), "qk_layernorm asks for norms of heads, which is not there"),
        ("phi-mini", "resid_pdrop", json!(1.0), "resid_pdrop is 1; use a number from 0 on, below 1"),
        ("phi-mini", "attn_pdrop", json!(0.1), "attn_pdrop asks for something that phi does not have"),
        ("phi-mini", "hidden_act", json!("gelu"), "the activation 'gelu' of phi is not there; there is gelu_new"),
        ("llama-biased", "n_embd", json!(64), "n_embd asks for something that llama does not have"),
        ("llama-biased", "attn_pdrop", json!(0.0), "attn_pdrop asks for something that llama does not have"),
        ("olmoe-mini", "num_experts_per_tok", json!(9), "num_experts_per_tok is 9 of 8 experts; use 8 at most"),
        ("olmoe-mini", "clip_qkv", json!(8.0), "clip_qkv asks for something that olmoe does not have"),
        ("gptoss-mini", "num_experts_per_tok", json!(5), "num_experts_per_tok is 5 of 4 experts; use 4 at most"),
        ("gptoss-mini", "output_router_logits", json!(true), "output_router_logits asks for something that is not"),
        ("gptoss-mini", "hidden_act", json!("gelu"), "the activation 'gelu' of gpt_oss is not there; there is silu"),
        ("gptoss-mini", "quantization_config", json!({"quant_method": "fp8"}), "quant_method 'fp8' is not there"),
        ("mixtral-mini", "quantization_config", json!({"quant_method": "mxfp4"}), "quant_method 'mxfp4' is not there"),
        ("glm4-mini", "use_bias", json!(true), "use_bias asks for something that glm4 does not have"),
        ("glm4-mini", "mlp_bias", json!(true), "mlp_bias asks for something that glm4 does not have"),
        (
            "granite4-mini",
            "layer_types",
            json!(["mamba", "attention"]),
            "layer_types has 'mamba', which is not there; there is attention",
        ),
        ("granite4-mini", "layer_types", json!(null), "layer_types is missing, which makes every layer a mamba"),
        (
            "granite4-mini",
            "shared_intermediate_size",
            json!(0),
            "shared_intermediate_size is 0, which leaves granitemoehybrid no",
        ),
        ("granite4-mini", "num_local_experts", json!(8), "experts beside the MLP of granitemoehybrid are not there"),
        ("granitemoe-mini", "num_local_experts", json!(0), "num_local_experts is 0; use 1 at least"),
        ("granitemoe-mini", "num_experts_per_tok", json!(9), "num_experts_per_tok is 9 of 8 experts; use 8 at most"),
        ("exaone4-window", "layer_types", json!(null), "sliding_window_pattern is a word; give layer_types beside it"),
        ("opt-mini", "do_layer_norm_before", json!(false), "do_layer_norm_before asks for something that is not there"),
        ("opt-mini", "word_embed_proj_dim", json!(32), "word_embed_proj_dim asks for something that is not there"),
        ("opt-mini", "activation_function", json!("gelu"), "the activation 'gelu' of opt is not there; there is relu"),
        ("opt-mini", "dropout", json!(1.0), "dropout is 1; use a number from 0 on, below 1"),
        ("llama-biased", "ffn_dim", json!(256), "ffn_dim asks for something that llama does not have"),
        ("llama-biased", "enable_bias", json!(true), "enable_bias asks for something that llama does not have"),
        ("llama-biased", "norm_eps", json!(1e-5), "norm_eps asks for something that llama does not have"),
        ("arcee-mini", "hidden_act", json!("silu"), "the activation 'silu' of arcee is not there; there is relu2"),
        ("exaone4-mini", "attention_bias", json!(true), "attention_bias asks for something that exaone4 does not have"),
        (
            "qwen2-mini",
            "dtype",
            json!("float64"),
            "dtype 'float64' is not there; there are bfloat16, float16 and float32",
        ),
    ] {
        let error = build(mini, key, value).unwrap_err();
        assert!(error.starts_with("mine: ") && error.contains(words), "{error}");
    }
    assert_eq!(build("mixtral-mini", "output_router_logits", json!(false)), Ok(()));
    assert_eq!(build("gptoss-mini", "quantization_config", json!({"quant_method": "mxfp4"})), Ok(()));
    assert_eq!(build("gpt2-mini", "scale_attn_weights", json!(true)), Ok(()));
    assert_eq!(build("granite-mini", "scale_attn_weights", json!(false)), Ok(()));
    assert_eq!(build("granite-mini", "rotary_pct", json!(0.2)), Ok(()));
    assert_eq!(build("neox-mini", "use_parallel_residual", json!(false)), Ok(()));
    assert_eq!(build("gemma1-mini", "hidden_act", json!("gelu")), Ok(()));
    assert_eq!(build("qwen3moe-mini", "mlp_only_layers", json!([1])), Ok(()));
    assert_eq!(build("llama-biased", "attention_bias", json!(false)), Ok(()));
    assert_eq!(build("qwen2-mini", "layer_types", json!(["full_attention", "sliding_attention"])), Ok(()));
}

/// Models whose position embeddings end: on a card the error does not mention them.
#[test]
fn samples_are_no_longer_than_learned_positions() {
    let build_of = |mini: &str, seq: usize, data: Data| {
        let entry = WorkloadEntry::of_config("mine", serde_json::from_value(minis()[mini].clone()).unwrap());
        let sizes = Sizes { seq: Some(Extent::nearest(seq)), ..Sizes::default() };
        entry.workload(sizes, data, 1).map(drop).map_err(|error| error.to_string())
    };
    let build = |seq, data| build_of("gpt2-mini", seq, data);
    let lengths = |longest| Data::Lengths(Lengths::new(vec![5, longest], None, 1).unwrap());
    let words = "max_position_embeddings is 128, and samples have 129; use --seq 128 at most";
    assert_eq!(build_of("opt-mini", 128, Data::Reference), Ok(()));
    assert_eq!(build_of("opt-mini", 129, Data::Reference), Err(format!("mine: {words}")));
    assert_eq!(build(128, Data::Reference), Ok(()));
    assert_eq!(build(128, lengths(128)), Ok(()));
    let words = "n_positions is 128, and samples have 129; use --seq 128 at most";
    assert_eq!(build(129, Data::Reference), Err(format!("mine: {words}")));
    let words = "the longest sample has 129 positions, and there are embeddings of 128; cut samples with --seq 128";
    assert_eq!(build(128, lengths(129)), Err(words.to_owned()));
}

/// peft gives experts and their router adapters of their own, unless one more expert sees every position.
#[test]
fn adapters_beside_experts_are_refused() {
    let build = |mini: &str, targets: Option<Targets>| {
        let mut entry = WorkloadEntry::of_config("mine", serde_json::from_value(minis()[mini].clone()).unwrap());
        entry.lora = Some(Lora { targets, ..Lora::of_rank(Extent::nearest(8)) });
        entry.workload(Sizes::default(), Data::Reference, 1).map(drop).map_err(|error| error.to_string())
    };
    let (some, all) = (|targets: [Target; 2]| Some(Targets::of(targets)), Some(Targets::of(Target::ALL)));
    let words =
        "adapters beside experts are not there; name some of attention's layers as targets, such as q_proj and o_proj";
    for mini in ["mixtral-mini", "olmoe-mini", "qwen3moe-mini"] {
        for targets in [all, some([Target::Query, Target::Down])] {
            assert_eq!(build(mini, targets), Err(words.to_owned()), "{mini}");
        }
        assert_eq!(build(mini, some([Target::Query, Target::Value])), Ok(()));
    }
    // peft has no default for DeepSeek, whose layers have names of their own.
    for mini in ["deepseek2-mini", "deepseek3-mini", "glm4lite-mini"] {
        assert_eq!(build(mini, all), Err(words.to_owned()), "{mini}");
        let error = build(mini, None).unwrap_err();
        assert!(
            error.starts_with("peft has no default targets for this family; name some of q_proj, q_a_proj"),
            "{error}"
        );
        assert_eq!(build(mini, some([Target::FromLatent, Target::Output])), Ok(()));
    }
    let error = build("dots1-mini", None).unwrap_err();
    assert_eq!(error, "peft has no default targets for this family; name some of q_proj, k_proj, v_proj and o_proj");
    assert_eq!(build("dots1-mini", all), Err(words.to_owned()));
    assert_eq!(build("granitemoeshared-mini", all), Ok(()));
    assert_eq!(build("granitemoeshared-mini", some([Target::Query, Target::Down])), Err(words.to_owned()));
    assert_eq!(build("qwen2moe-mini", all), Ok(()));
    assert_eq!(build("ernie45moe-mini", all), Err(words.to_owned()));
    assert_eq!(build("ernie45moe-mini", some([Target::Query, Target::Output])), Ok(()));
    // Its router is a linear layer with two results.
    let error = build("llama4-mini", all).unwrap_err();
    assert!(
        error.starts_with("all-linear gives the router of this family an adapter, and peft can't run that; name"),
        "{error}"
    );
    assert_eq!(build("llama4-mini", some([Target::Query, Target::Down])), Ok(()));
    // The layers of gpt-oss and GraniteMoE are no linear layers, so all of these leave them out.
    assert_eq!(build("granitemoe-mini", all), Ok(()));
    assert_eq!(build("granitemoe-mini", some([Target::Query, Target::Down])), Err(words.to_owned()));
    assert_eq!(build("gptoss-mini", all), Ok(()));
    assert_eq!(build("gptoss-mini", some([Target::Query, Target::Down])), Err(words.to_owned()));
}

/// Each family gets the adapters that peft gives it when no layer is named, or asks for names where peft does.
#[test]
fn default_targets_are_those_of_peft() {
    let mut seen = BTreeMap::new();
    for (mini, config) in minis() {
        let family = config["model_type"].as_str().unwrap().to_owned();
        let mut entry = WorkloadEntry::of_config(&mini, serde_json::from_value(config).unwrap());
        entry.lora = Some(Lora::of_rank(Extent::nearest(8)));
        let adapted = match entry.workload(Sizes::default(), Data::Reference, 1) {
            Ok(workload) => adapted_layers(workload),
            Err(error) => {
                let error = error.to_string();
                assert!(error.starts_with("peft has no default targets for this family; name some of "), "{error}");
                BTreeSet::new()
            }
        };
        let other = seen.insert(family.clone(), adapted.clone());
        assert!(other.is_none_or(|other| other == adapted), "{family}");
    }
    // No mini of these tests is Mistral's.
    let mut mistral = minis()["llama-biased"].clone();
    mistral.as_object_mut().unwrap().retain(|key, _| !key.ends_with("_bias"));
    mistral["model_type"] = json!("mistral");
    let mut entry = WorkloadEntry::of_config("mine", serde_json::from_value(mistral).unwrap());
    entry.lora = Some(Lora::of_rank(Extent::nearest(8)));
    let workload = entry.workload(Sizes::default(), Data::Reference, 1).unwrap();
    seen.insert("mistral".to_owned(), adapted_layers(workload));
    let known = serde_json::from_value::<ModelConfig>(json!({"model_type": "mamba"})).unwrap();
    let known =
        WorkloadEntry::of_config("mine", known).workload(Sizes::default(), Data::Reference, 1).map(drop).unwrap_err();
    let (_, known) =
        known.to_string().split_once("nearest that is: ").map(|(_, known)| ((), known.to_owned())).unwrap();
    assert_eq!(seen.keys().map(String::as_str).collect::<Vec<_>>(), known.split(", ").collect::<Vec<_>>());
    for (family, adapted) in seen {
        let of_peft = DEFAULTS_OF_PEFT.iter().find(|(of, _)| *of == family).map_or(&[][..], |(_, targets)| targets);
        let of_peft: BTreeSet<_> = of_peft.iter().map(|target| target.word().to_owned()).collect();
        assert_eq!(adapted, of_peft, "{family}");
    }
}

/// The names of the layers that have adapters, on a simulated device.
fn adapted_layers(workload: Box<dyn Workload>) -> BTreeSet<String> {
    let device = Box::new(SimDevice::new(CardCatalog::with_user_cards(None).card("h200").unwrap()));
    let (trainer, _) = crate::training::on(device, workload, Config::new(1), Libraries::HOPPER, LoopStyle::Logging);
    let layer = |(name, _): (&str, _)| Some(name.split_once(".lora_A")?.0.rsplit('.').next()?.to_owned());
    trainer.parameters().filter_map(layer).collect()
}

/// What is said of a mini's model with these adapters.
fn build(mini: &str, lora: Lora) -> Result<(), String> {
    let mut entry = WorkloadEntry::of_config("mine", serde_json::from_value(minis()[mini].clone()).unwrap());
    entry.lora = Some(lora);
    entry.workload(Sizes::default(), Data::Reference, 1).map(drop).map_err(|error| error.to_string())
}

/// Adapters of rank 8, and the same above layers in 4 bits.
fn whole_and_in_4_bits() -> [Lora; 2] {
    let whole = Lora::of_rank(Extent::nearest(8));
    let quantization = Some(Quantization { nested: false, compute: DType::Bf16, storage: None });
    [whole, Lora { quantization, ..whole }]
}

/// bitsandbytes and peft support `Conv1D`; we do not compare it, so it is refused.
#[test]
fn conv1d_in_4_bits_or_with_dora_is_refused() {
    let [whole, in_4_bits] = whole_and_in_4_bits();
    let words = "layers of Conv1D are not there in 4 bits, nor with DoRA; leave --quantize and --dora out";
    for lora in [in_4_bits, Lora { dora: true, ..whole }] {
        assert_eq!(build("gpt2-mini", lora), Err(words.to_owned()));
    }
    assert_eq!(build("gpt2-mini", whole), Ok(()));
}

/// transformers 5.17 converts where `type(module) is nn.Linear`; Falcon's layers are `FalconLinear` and stay whole.
#[test]
fn falcon_in_4_bits_is_refused() {
    let [whole, in_4_bits] = whole_and_in_4_bits();
    let words = "transformers quantises no layer of Falcon; leave --quantize out";
    assert_eq!(build("falcon-mini", in_4_bits), Err(words.to_owned()));
    assert_eq!(build("falcon-mini", whole), Ok(()));
}

/// Several ranks with experts beside layers in 4 bits were not compared, so what shards parameters refuses them.
#[test]
fn experts_beside_layers_in_4_bits_are_not_sharded() {
    let make = |parallelism| {
        let member = Member { parallelism, world: World::new(2, 0).unwrap() };
        let options = TrainerOptions { member: Some(member), ..TrainerOptions::default() };
        let (device, model) = (Box::new(SimDevice::h200().unwrap()), workload("qwen3moe-mini.bf16wnf4loraattn"));
        Trainer::new(device, model, Config::new(2), options, Box::new(())).map(drop).map_err(|error| error.to_string())
    };
    let words = "experts beside layers in 4 bits are not sharded here; use ddp, or leave --quantize out";
    assert_eq!(make(Parallelism::Fsdp), Err(words.to_owned()));
    assert_eq!(make(Parallelism::Ddp), Ok(()));
}

/// What transformers builds from a file with a `text_config` is more than a language model, or nothing.
#[test]
fn a_vision_tower_that_is_not_there_is_refused() {
    let build = |config: &Value| {
        let entry = WorkloadEntry::of_config("mine", serde_json::from_value(config.clone()).unwrap());
        entry.workload(Sizes::default(), Data::Reference, 1).map_err(|error| error.to_string())
    };
    let all = minis();
    let mut config = all["gemma3vl-mini"].clone();
    let member = Member { parallelism: Parallelism::Ddp, world: World::new(2, 0).unwrap() };
    let options = TrainerOptions { member: Some(member), ..TrainerOptions::default() };
    let (device, model) = (Box::new(SimDevice::h200().unwrap()), build(&config).unwrap());
    let made = Trainer::new(device, model, Config::new(2), options, Box::new(()));
    assert_eq!(
        made.err().unwrap().to_string(),
        "ranks wait for gradients that a vision tower does not get from text; train it on one card, or its text_config alone"
    );
    config["vision_config"]["vision_use_head"] = json!(true);
    let words = "vision_use_head is on unless a file says otherwise, which is not there; give false";
    assert_eq!(build(&config).err().unwrap(), format!("mine: {words}"));
    config["vision_config"]["model_type"] = json!("pixtral");
    let words = "a vision tower of type 'pixtral' is not there; there is siglip_vision_model";
    assert_eq!(build(&config).err().unwrap(), format!("mine: {words}"));
    config["model_type"] = json!("mistral3");
    build(&config).unwrap();
    config["vision_config"]["model_type"] = json!("clip_vision_model");
    let words = "a vision tower of type 'clip_vision_model' is not there; there is pixtral";
    assert_eq!(build(&config).err().unwrap(), format!("mine: {words}"));
    config["model_type"] = json!("llava");
    let words =
        "llava has a vision tower, which is not there; put what its text_config holds into a config.json of its own";
    assert_eq!(build(&config).err().unwrap(), format!("mine: {words}"));
}

/// If a user does what a refusal says, the result is not refused again.
#[test]
fn the_advice_of_a_refused_family_leads_to_a_model() {
    let build = |config: &Value| {
        let entry = WorkloadEntry::of_config("mine", serde_json::from_value(config.clone()).unwrap());
        entry.workload(Sizes::default(), Data::Reference, 1).map(drop).map_err(|error| error.to_string())
    };
    let all = minis();
    let text = &all["qwen3-mini"];
    for (family, of_text) in [
        ("llava", Some("qwen3")),
        ("qwen2_5_vl", Some("qwen2_5_vl_text")),
        ("qwen3_vl", Some("qwen3_vl_text")),
        ("gemma3n", Some("gemma3n_text")),
        ("mllama", Some("mllama_text_model")),
        ("mpt", None),
    ] {
        let mut inner = text.clone();
        inner["model_type"] = json!(of_text.unwrap_or(family));
        let config = match of_text {
            Some(_) => json!({"model_type": family, "text_config": inner, "vision_config": {}}),
            None => inner.clone(),
        };
        let said = build(&config).unwrap_err();
        assert_eq!(said, format!("mine: {}", ModelConfig::unknown_family(&config.to_string()).unwrap()));
        if said.contains("put what its text_config holds") {
            assert_eq!(build(&inner), Ok(()), "{family}: {said}");
            continue;
        }
        // The refusal lists what exists, and the sizes of its text make one of these.
        let known = said.rsplit_once(": ").unwrap().1;
        let nearest = known.split(", ").find(|known| *known == "qwen3").unwrap();
        inner["model_type"] = json!(nearest);
        assert_eq!(build(&inner), Ok(()), "{family}: {said}");
    }
}

/// Weights of a tower that no image reaches have no gradient and no optimizer state.
#[test]
fn a_vision_tower_weighs_what_its_weights_do() {
    let after_a_step = |name: &str| {
        let device = Box::new(SimDevice::h200().unwrap());
        let config = configured("base", 4);
        let (mut trainer, _) =
            crate::training::on(device, workload(name), config, Libraries::HOPPER, LoopStyle::Logging);
        let weights = trainer.parameters().map(|(_, data)| data.bytes().get().next_multiple_of(512)).sum::<u64>();
        trainer.step().unwrap();
        (weights, trainer.statistics().allocated_bytes.all.current)
    };
    let ((with, all), (without, alone)) = (after_a_step("gemma3vl-mini.base"), after_a_step("gemma3-mini.base"));
    // And the positions of its patches.
    assert_eq!(u64::try_from(all - alone).unwrap(), with - without + 512);
}

/// In a checkpoint's second run, dropout drops the same values as in the first, and each step draws new ones.
#[test]
fn dropout_beside_checkpoints_is_the_same_dropout() {
    let losses = |name: &str, checkpointing| {
        let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
        let mut config = configured("base", 4);
        (config.checkpointing, config.hyper.adam_lr) = (checkpointing, 0.02);
        let style = LoopStyle::Logging;
        let (mut trainer, _) =
            crate::training::on(Box::new(device), workload(name), config, Libraries::PROCESSOR, style);
        (0..4).map(|_| trainer.step().unwrap().loss.unwrap()).collect::<Vec<_>>()
    };
    let dropped = losses("llama-biased.loraalldrop", Checkpointing::Off);
    let plain = losses("llama-biased.loraall", Checkpointing::Off);
    assert_eq!(dropped[0], plain[0], "an adapter adds nothing before its first step");
    assert!(dropped[3] != plain[3] && (dropped[3] - plain[3]).abs() < 0.1, "{dropped:?} {plain:?}");
    for checkpointing in [Checkpointing::ALL, Checkpointing::Reentrant(NonZero::<usize>::MIN)] {
        for (one, other) in losses("llama-biased.loraalldrop", checkpointing).iter().zip(&dropped) {
            assert!((one - other).abs() < 1e-5, "{one} for {other}, checkpointing {checkpointing}");
        }
    }
}

/// Checks six losses of Llama's mini on the processor, each within `most` of PyTorch's.
fn learns_as(variant: &str, lr: f64, most: f64, theirs: [f64; 6]) {
    let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
    let mut config = configured(variant, 4);
    (config.hyper.adam_lr, config.hyper.sgd_lr) = (lr, lr);
    let workload = workload(&format!("llama-mini.{variant}"));
    let (mut trainer, _) =
        crate::training::on(Box::new(device), workload, config, Libraries::PROCESSOR, LoopStyle::Logging);
    for theirs in theirs {
        let ours = f64::from(trainer.step().unwrap().loss.unwrap());
        assert!((ours - theirs).abs() < most, "{variant}: {ours} for {theirs}");
        if most > 1e-8 {
            assert!((ours - theirs).abs() < most, "{variant}: {ours} for {theirs}");
        }
    }
}

/// peft's DoRA, with weights in bf16 and under autocast: every op of PyTorch rounds, but some of ours are one kernel.
#[test]
fn dora_in_16_bits_learns_as_that_of_peft() {
    learns_as("bf16wloraalldora", 0.02, 1e-2, [6.250_165, 6.253_321, 6.263_660, 6.272_082, 6.198_245, 6.186_800]);
    learns_as("bf16loraalldora", 0.02, 1e-2, [6.250_145, 6.253_762, 6.263_499, 6.273_397, 6.195_478, 6.190_632]);
}

/// Weights, gradients and momentum in fp16, as transformers trains them.
#[test]
fn weights_in_fp16_learn_as_those_of_transformers_do() {
    learns_as("fp16wsgd", 0.1, 1e-3, [6.250_154, 6.250_661, 6.257_735, 6.260_432, 6.055_966, 6.052_856]);
    learns_as("fp16weagersgd", 0.1, 1e-3, [6.250_158, 6.250_658, 6.257_731, 6.260_426, 6.055_974, 6.052_841]);
}

/// `GradScaler` does not unscale gradients in fp16; those of adapters are in f32, and a fused optimizer unscales by
/// itself.
#[test]
fn the_scaler_refuses_gradients_in_fp16_as_pytorch_does() {
    let step = |variant: &str, form| {
        let config = Config { form, ..configured(variant, 4) };
        let device = Box::new(SimDevice::h200().unwrap());
        let workload = workload(&format!("llama-mini.{variant}"));
        let (mut trainer, _) = crate::training::on(device, workload, config, Libraries::HOPPER, LoopStyle::Logging);
        trainer.step().map(drop).map_err(|error| error.to_string())
    };
    let error = step("fp16wampfp16", OptimizerForm::Foreach).unwrap_err();
    assert!(error.starts_with("Attempting to unscale FP16 gradients."), "{error}");
    assert_eq!(step("fp16wampfp16", OptimizerForm::Fused), Ok(()));
    assert_eq!(step("fp16wloraampfp16", OptimizerForm::Foreach), Ok(()));
}

/// Liger's op would ignore it.
#[test]
fn the_fused_loss_of_a_head_with_a_bias_is_refused() {
    let config = Config { loss_head: LossHead::Fused, ..configured("bf16w", 4) };
    let device = Box::new(SimDevice::h200().unwrap());
    let workload = workload("phi-mini.bf16w");
    let (mut trainer, _) = crate::training::on(device, workload, config, Libraries::HOPPER, LoopStyle::Logging);
    let error = trainer.step().unwrap_err().to_string();
    assert!(error.ends_with("the fused loss of a head with a bias is not there; choose another --loss"), "{error}");
}

/// Its norms need whole weights, which only ranks that don't shard them have.
#[test]
fn dora_is_shared_but_not_sharded() {
    let trainer = |parallelism| {
        let member = Member { parallelism, world: World::new(2, 0).unwrap() };
        let style = LoopStyle::Logging;
        let options = TrainerOptions { style, member: Some(member), ..TrainerOptions::default() };
        let (device, config) = (Box::new(SimDevice::h200().unwrap()), configured("base", 2));
        Trainer::new(device, workload("llama-mini.loraalldora"), config, options, Box::new(()))
    };
    for (way, words) in [
        (Parallelism::Fsdp, "DoRA with fsdp is not there; use ddp"),
        (Parallelism::Zero2, "DoRA with zero2 is not there; use ddp"),
    ] {
        assert_eq!(trainer(way).err().unwrap().to_string(), words);
    }
    trainer(Parallelism::Ddp).unwrap().step().unwrap();
}

/// Stages in the middle of a pipeline are one run if their layers are of one kind: in Gemma 3 every sixth layer sees
/// all positions.
#[test]
fn stages_of_one_kind_are_alike() {
    let alike = |layers: u64, ranks: usize| {
        let mut config = minis()["gemma3-mini"].clone();
        (config["num_hidden_layers"], config["layer_types"]) = (json!(layers), json!(null));
        let entry = WorkloadEntry::of_config("mine", serde_json::from_value(config).unwrap());
        let workload = entry.workload(Sizes::default(), Data::Reference, 1).unwrap();
        let way = Parallelism::Pipeline(PipelineSchedule::GPipe);
        let member = Member { parallelism: way, world: World::new(ranks, 0).unwrap() };
        let options = TrainerOptions { member: Some(member), ..TrainerOptions::default() };
        let device = Box::new(SimDevice::h200().unwrap());
        Trainer::new(device, workload, Config::new(4), options, Box::new(())).unwrap().alike_ranks()
    };
    assert_eq!(alike(6, 6), [0, 1, 1, 1, 1, 5]);
    assert_eq!(alike(12, 6), [0, 1, 2, 1, 1, 5]);
}

/// Six steps with the reference's weights, tokens and AdamW, in f32.
#[test]
fn families_learn_as_those_of_transformers_do() {
    let all: BTreeMap<String, [f64; 6]> = serde_json::from_str(include_str!("../data/families/losses.json")).unwrap();
    for (name, theirs) in all {
        let variant = name.split_once('.').unwrap().1;
        let device = CpuDevice::open(CpuOptions { memory: Some(Bytes::gib(1)), threads: Some(2) }).unwrap();
        let mut config = configured(variant, 4);
        if variant.contains("lora") {
            config.hyper.adam_lr = 0.02;
        }
        let (mut trainer, _) =
            crate::training::on(Box::new(device), workload(&name), config, Libraries::PROCESSOR, LoopStyle::Logging);
        // Blocks run again for two steps, and with reentrance for two: a wrong gradient in either way shows in the
        // losses that follow.
        let ways = [Checkpointing::ALL, Checkpointing::Reentrant(NonZero::<usize>::MIN), Checkpointing::Off];
        for (checkpointing, theirs) in ways.into_iter().zip(theirs.chunks(2)) {
            trainer.configure(Config { checkpointing, ..config }).unwrap();
            for theirs in theirs {
                let ours = f64::from(trainer.step().unwrap().loss.unwrap());
                assert!((ours - theirs).abs() < 1e-4, "{name}, checkpointing {checkpointing}: {ours} for {theirs}");
            }
        }
    }
}

/// One-GPU rows of FMS acceleration's benchmarks (A100 80 GB, 4 × 4,096 tokens, checkpoints, bf16), in GiB: the peak of
/// allocated without fused kernels, and what stays allocated after a step. Its transformers was 4.45 to 4.48.
#[test]
fn published_peaks_are_met() {
    let mistral = json!({
        "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 32000, "rms_norm_eps": 1e-5, "sliding_window": 4096, "torch_dtype": "bfloat16",
    });
    let lora = Lora {
        targets: Some(Targets::of([Target::Query, Target::Key, Target::Value, Target::Output])),
        ..Lora::of_rank(Extent::nearest(16))
    };
    // Llama 3 8B.
    let mut llama = mistral.clone();
    llama["model_type"] = json!("llama");
    llama["vocab_size"] = json!(128_256);
    llama["sliding_window"] = json!(null);
    // Their QLoRA quantises the magnitudes too, and leaves other parameters in bf16. Their loss of Llama has its own
    // kernels.
    let quantization = Some("nf4-double".parse().unwrap());
    let qlora = Lora { quantization, prepare: Preparation::Nothing, ..lora };
    // Rows with Liger run under autocast, with kernels for norms, rotations and the loss, and with dropout in adapters.
    let plain = Config { checkpointing: Checkpointing::ALL, ..Config::new(4) };
    let kernels = Config { amp: Amp::Bf16, fuse: true, gates_as_written: true, loss_head: LossHead::FusedF32, ..plain };
    let dropout = Share::try_from(0.1).unwrap();
    let (of_liger, of_liger_in_4_bits) = (Lora { dropout, ..lora }, Lora { dropout, ..qlora });
    for (model, lora, config, peak, rests) in [
        (&mistral, None, plain, Some(67.460), Some(40.483)),
        (&mistral, Some(lora), plain, Some(24.871), Some(13.657)),
        (&llama, Some(lora), plain, None, Some(15.126)),
        (&llama, Some(qlora), plain, None, Some(5.480)),
        (&llama, Some(of_liger), kernels, Some(23.195), None),
        (&llama, Some(of_liger), Config { batch: 8, ..kernels }, Some(31.262), None),
        (&llama, Some(of_liger_in_4_bits), kernels, Some(13.422), None),
        (&llama, Some(of_liger_in_4_bits), Config { batch: 32, ..kernels }, Some(69.001), None),
    ] {
        let mut entry = WorkloadEntry::of_config("published", serde_json::from_value(model.clone()).unwrap());
        entry.lora = lora;
        let sizes = Sizes { seq: Some(Extent::nearest(4096)), ..Sizes::default() };
        let workload = entry.workload(sizes, Data::Reference, 1).unwrap();
        let card = CardCatalog::with_user_cards(None).card("a100-80g").unwrap();
        let libraries = Libraries { compute_capability: 80, multiprocessors: 108, workspaces: true };
        let device = Box::new(SimDevice::new(card));
        let (mut trainer, _) = crate::training::on(device, workload, config, libraries, LoopStyle::Logging);
        for _ in 0..2 {
            trainer.step().unwrap();
        }
        let allocated = trainer.statistics().allocated_bytes.all;
        let near = |ours: i64, theirs: f64, most: f64| {
            let ours = ours as f64 / f64::from(1 << 30);
            assert!((ours / theirs - 1.0).abs() < most, "{ours} GiB for {theirs}");
        };
        if let Some(peak) = peak {
            near(allocated.peak, peak, 0.01);
        }
        if let Some(rests) = rests {
            near(allocated.current, rests, 0.001);
        }
    }
}
