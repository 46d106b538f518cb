#![no_main]

#[path = "../../hostile/bodies/keys.rs"]
mod keys;
#[path = "../../common/lab_states.rs"]
mod lab_states;
#[path = "../../common/synthetic.rs"]
mod synthetic;

libfuzzer_sys::fuzz_target!(|data: &[u8]| keys::run(data));
