#![no_main]

#[path = "../../hostile/bodies/recording.rs"]
mod body;

libfuzzer_sys::fuzz_target!(|data: &[u8]| body::run(data));
