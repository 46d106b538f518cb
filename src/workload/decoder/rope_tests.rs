//! Rotary frequencies as a `config.json` specifies them.

use serde_json::json;

use vramlab_device::{DType, Earlier};

use super::super::bounds::Extent;
use super::config::ModelConfig;
use super::rotary_scaling::RotaryScaling;

/// As in `Phi3RotaryEmbedding` of transformers 5.17, before and after the positions that were learned first.
#[test]
fn frequencies_of_longrope_are_those_of_transformers() {
    let mut config = json!({
        "model_type": "phi3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 512, "max_position_embeddings": 2048, "original_max_position_embeddings": 1024,
        "partial_rotary_factor": 0.75, "rope_scaling": {
            "type": "su", "short_factor": [1.0, 1.05, 1.1, 1.2, 1.35, 1.5], "long_factor": [1.0, 1.25, 2.0, 4.5, 9.0, 18.0],
        },
    });
    let sizes = |config: &serde_json::Value| {
        let config: ModelConfig = serde_json::from_value(config.clone()).unwrap();
        config.sizes(Extent::nearest(64), None, None).unwrap()
    };
    let near = |ours: &[f32], theirs: [f32; 6]| {
        assert!(ours.iter().zip(theirs).all(|(ours, theirs)| (ours / theirs - 1.0).abs() < 1e-6), "{ours:?}");
        assert_eq!(ours.len(), 6);
    };
    let made = sizes(&config);
    assert_eq!(made.rotated, Some(12));
    let short = [1.0, 0.205_184_27, 0.042_196_255, 0.008_333_333, 0.001_595_877_2, 0.000_309_439_32];
    near(&made.frequencies(false), short);
    let Some(RotaryScaling::Long(scaling)) = made.scaling else { panic!("{:?}", made.scaling) };
    let long = [1.0, 0.172_354_76, 0.023_207_942, 0.002_222_222_3, 0.000_239_381_6, 0.000_025_786_61];
    near(&made.divided(&scaling.long), long);
    assert_eq!(scaling.original, 1024);
    assert!((scaling.attention - 1.048_808_848_170_151_6).abs() < 1e-12, "{}", scaling.attention);

    config["rope_scaling"]["attention_factor"] = json!(1.25);
    let Some(RotaryScaling::Long(scaling)) = sizes(&config).scaling else { panic!("{config}") };
    assert_eq!(scaling.attention, 1.25);
}

/// As in `ROPE_INIT_FUNCTIONS["yarn"]` of transformers 5.17.
#[test]
fn frequencies_of_yarn_are_those_of_transformers() {
    let check = |rope: serde_json::Value, theirs: [f32; 8], attention: f64| {
        let config = json!({
            "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 32768, "rope_theta": 1e6, "rope_scaling": rope,
        });
        let config: ModelConfig = serde_json::from_value(config).unwrap();
        let made = config.sizes(Extent::nearest(64), None, None).unwrap();
        let ours = made.frequencies(false);
        assert!(ours.iter().zip(theirs).all(|(ours, theirs)| (ours / theirs - 1.0).abs() < 1e-6), "{ours:?}");
        assert_eq!(ours.len(), 8);
        let ours = made.scaling.as_ref().map_or(0.0, RotaryScaling::attention);
        assert!((ours - attention).abs() < 1e-12, "{ours}");
    };
    let theirs = [1.0, 0.177_827_94, 0.031_622_78, 0.004_217_56, 5e-4, 4.445_698_5e-5, 7.905_694e-6, 1.405_853_4e-6];
    let rope = json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192});
    check(rope, theirs, 1.138_629_436_111_989);
    let theirs =
        [1.0, 0.169_884_46, 0.005_589_444, 3.514_633_3e-4, 6.25e-5, 1.111_424_6e-5, 1.976_423_4e-6, 3.514_633_4e-7];
    let rope = json!({
        "rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 512, "beta_fast": 16.0, "beta_slow": 2.0,
        "mscale": 0.707, "mscale_all_dim": 1.0, "truncate": false,
    });
    check(rope, theirs, 0.936_397_506_153_020_4);
}

/// As `GptOssConfig` of transformers 5.17 fills in missing keys.
#[test]
fn gpt_oss_is_yarn_in_16_bits_unless_a_file_says_otherwise() {
    let mut config = json!({
        "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2, "quantization_config":
        {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    });
    let sizes = |config: &serde_json::Value| {
        let config: ModelConfig = serde_json::from_value(config.clone()).unwrap();
        config.sizes(Extent::nearest(64), None, None).unwrap()
    };
    let short = sizes(&config);
    assert_eq!(short.weights, DType::Bf16);
    assert_eq!([0, 1].map(|layer| short.windows.of(layer)), [Earlier::Window(128), Earlier::All]);
    config["rope_scaling"] = json!({
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096,
    });
    assert_eq!(short, sizes(&config));
    config["rope_scaling"] = json!({"rope_type": "default"});
    config["dtype"] = json!("float32");
    let plain = sizes(&config);
    assert_eq!((plain.scaling, plain.theta, plain.weights), (None, 150_000.0, DType::F32));
}

/// As in `ROPE_INIT_FUNCTIONS["dynamic"]` of transformers 5.17, for a sample of 100 positions.
#[test]
fn frequencies_that_follow_samples_are_those_of_transformers() {
    let config = json!({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
        "vocab_size": 512, "max_position_embeddings": 32, "rope_scaling": {"type": "dynamic", "factor": 2.0},
    });
    let config: ModelConfig = serde_json::from_value(config).unwrap();
    let made = config.sizes(Extent::nearest(64), None, None).unwrap();
    let Some(RotaryScaling::Dynamic(scaling)) = made.scaling else { panic!("{:?}", made.scaling) };
    let theirs = [
        1.0,
        0.249_528_47,
        0.062_264_454,
        0.015_536_753,
        0.003_876_862_8,
        9.673_875e-4,
        2.413_907_4e-4,
        6.023_386_2e-5,
    ];
    let ours = made.followed(scaling, 100);
    assert!(ours.iter().zip(theirs).all(|(ours, theirs)| (ours / theirs - 1.0_f32).abs() < 1e-6), "{ours:?}");
    assert_eq!(made.frequencies(false)[1], 1.0 / 10_000.0_f32.powf(0.125));
}
