#![no_main]

#[path = "../bodies/toml.rs"]
mod toml;

libfuzzer_sys::fuzz_target!(|data: &[u8]| toml::run(data));
