#![no_main]

#[path = "../../hostile/bodies/toml.rs"]
mod toml;

libfuzzer_sys::fuzz_target!(|data: &[u8]| toml::run(data));
