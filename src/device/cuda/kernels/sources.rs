//! The CUDA C of all kernels.

/// Goes in front of every unit.
pub(in crate::cuda) const PRELUDE: &str = include_str!("prelude.cuh");

/// The translation units, each compiled by itself.
pub(in crate::cuda) const UNITS: &[(&str, &str)] = &[
    ("add_layer_norm", concat!(include_str!("layer_norm.cuh"), include_str!("add_layer_norm.cu"))),
    ("attention", concat!(include_str!("attention.cuh"), include_str!("attention.cu"))),
    ("attention_mma", concat!(include_str!("attention.cuh"), include_str!("attention_mma.cu"))),
    (
        "batch_norm",
        concat!(include_str!("channel_values.cuh"), include_str!("batch_norm.cuh"), include_str!("batch_norm.cu")),
    ),
    (
        "batch_norm_activation",
        concat!(
            include_str!("channel_values.cuh"),
            include_str!("batch_norm.cuh"),
            include_str!("batch_norm_activation.cu")
        ),
    ),
    ("batch_norm_columns", concat!(include_str!("channel_values.cuh"), include_str!("batch_norm_columns.cu"))),
    ("classifier", include_str!("classifier.cu")),
    ("convolution", include_str!("convolution.cu")),
    ("elementwise", concat!(include_str!("gelu.cuh"), include_str!("elementwise.cu"))),
    ("embedding", include_str!("embedding.cu")),
    ("float8", include_str!("float8.cu")),
    ("gelu_sums", concat!(include_str!("gelu.cuh"), include_str!("gelu_sums.cu"))),
    ("gemm", include_str!("gemm.cu")),
    ("layer_norm", concat!(include_str!("layer_norm.cuh"), include_str!("layer_norm.cu"))),
    ("loss", include_str!("loss.cu")),
    ("nf4", include_str!("nf4.cu")),
    ("optimizer", include_str!("optimizer.cu")),
    ("pool", include_str!("pool.cu")),
    ("rms_norm", concat!(include_str!("layer_norm.cuh"), include_str!("rms_norm.cu"))),
    ("rotary", include_str!("rotary.cu")),
    ("routing", include_str!("routing.cu")),
    ("softmax", include_str!("softmax.cu")),
    ("strided", include_str!("strided.cu")),
    ("sums", include_str!("sums.cu")),
];
