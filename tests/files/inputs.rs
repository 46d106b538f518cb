//! Runs the fuzz targets `keys` and `toml` on a stored corpus, and on mutations of it.

#[path = "../hostile/bodies/keys.rs"]
mod keys;
#[path = "../hostile/bodies/toml.rs"]
mod toml;

use crate::lab_states;
use vramlab::workload::Random;

/// What the fuzzers found, and scripts to begin with.
const KEYS: [&[u8]; 5] = [
    b"\x00\x01\xf4\x1b[<0;91;7M\x1b[<0;9\x03\x50\x18\xf4mcapozLx?TjT?[]\x01\xffqqqqqqqqqqqqqqqq",
    b"\x00\x01\xf4\x1b[200~512MiB\x1b[2\xf401~\r\x02\x03\x28\x0c\xf4L9999999999999\r\x00\x07P",
    b"\x00\x03\xf4\x1b[1;5C\x1b[99;5u\x1b]0;x\x02\x03\x00\x00\x03\xff\xff\x00\x06\xf4jkl \x1bOA\t\x1b[Z",
    b"\x00\x02\xf4xexpandable_segm\xf4ents:True\x7f\x15\xc3\xa9\xff\xfe\x04\x1b\x03\x01\x01\x02\x02",
    b"\x00\x08\xf4\x1b[<35;0;0M\x1b[<65;\xf499999;1M\x1b[M   \x03\x14\x05\x00\x05\x03\x2c\x10",
];

const OWN_MODEL: &str = "title='t'\nabout='a'\nmodel='layers'\nbatch=4\ndata='synthetic'\n\
    input={kind='image',side=16,channels=1}\nlayers=[{kind='conv',outputs=8,kernel=3,padding=1},\
    {kind='batch_norm'},{kind='max_pool',kernel=2,stride=2},{kind='block',repeat=2,residual=true,\
    layers=[{kind='tanh'}]},{kind='mean'},{kind='linear',outputs=4,bias=false}]\n";
const OWN_GPT: &str = "title='t'\nabout='a'\nmodel='layers'\nbatch=4\ndata='fresh'\nlengths=[8,4]\n\
    input={kind='tokens',seq=8,vocab=300}\nlayers=[{kind='embedding',width=8,positions=8},\
    {kind='transformer',heads=2,causal=true,repeat=2},{kind='layer_norm'},{kind='tied_linear',name='head'}]\n";

fn files() -> Vec<Vec<u8>> {
    let file = |kind: u8, text: &str| [&[kind], text.as_bytes()].concat();
    vec![
        file(0, OWN_MODEL),
        file(0, OWN_GPT),
        file(0, include_str!("../../lab/workloads/churn.toml")),
        file(0, include_str!("../../lab/workloads/gpt-mini.toml")),
        file(0, include_str!("../../lab/workloads/vit-mini.toml")),
        file(0, include_str!("../../lab/workloads/dcgan-mini.toml")),
        file(0, include_str!("../../lab/workloads/resnet-mini.toml")),
        file(1, include_str!("../../lab/devices/t4.toml")),
        file(1, include_str!("../../lab/devices/h200.toml")),
        file(2, include_str!("../../themes/dark.toml")),
        file(2, "parent = 'fuzzed'\n[styles]\naccent = { rgb = '#123456', ansi = 'red', bold = true }"),
    ]
}

/// Pieces that mean something to one of the parsers.
const PIECES: [&[u8]; 16] = [
    b"\x1b[",
    b"\x1b[<",
    b"\x1b[200~",
    b"\x1b[201~",
    b";",
    b"0",
    b"-1",
    b"9999999999",
    b"9223372036854775807",
    b"nan",
    b"1e300",
    b"[[",
    b"{",
    b"\n[layers]\n",
    b"''",
    b"\xff",
];

/// The same changes on every machine: bytes are replaced, pieces inserted, parts removed or doubled.
fn changed(seed: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let end = (at + random.below(12)).min(bytes.len());
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] = u8::try_from(random.below(256)).unwrap(),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            _ => drop(bytes.splice(at..at, PIECES[random.below(PIECES.len())].iter().copied())),
        }
    }
    bytes
}

fn walk<'a>(seeds: impl IntoIterator<Item = &'a [u8]>, changes: usize, run: fn(&[u8])) {
    let mut random = Random::new(7);
    for seed in seeds {
        run(seed);
        for _ in 0..changes {
            run(&changed(seed, &mut random));
        }
    }
}

#[test]
fn no_key_press_panics() {
    walk(KEYS, 60, keys::run);
}

#[test]
fn no_file_panics() {
    walk(files().iter().map(|file| &**file), 150, toml::run);
}
