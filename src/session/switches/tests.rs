//! What holds for every entry of the table.

use std::collections::BTreeSet;

use super::*;

#[test]
fn words_and_keys_are_unique() {
    let words: BTreeSet<&str> = Switch::all().map(Switch::word).collect();
    let keys: Vec<char> = Switch::all().flat_map(|s| [Some(s.key()), s.key_back()]).flatten().collect();
    assert_eq!(words.len(), TABLE.len());
    assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    for switch in Switch::all() {
        assert_eq!(Switch::named(switch.word()), Some(switch));
        assert_eq!(Switch::of_key(switch.key()), Some((switch, FlipDirection::Next)));
        assert!(switch.teaches().ends_with('.') && !switch.help().is_empty());
    }
}

#[test]
fn a_value_set_is_the_value_read() {
    let setup = Setup::new(Config::new(4));
    for switch in Switch::all() {
        for (choice, word) in switch.values().iter().enumerate() {
            let set = switch.with(&setup.config, Choice(choice));
            assert_eq!(switch.choice(&set), Choice(choice), "{switch:?} {word}");
            let mut written = setup.clone();
            switch.set(&mut written, word).unwrap();
            assert_eq!((written.config, &*switch.value(&written)), (set, *word), "{switch:?}");
        }
        let mut same = setup.clone();
        switch.set(&mut same, &switch.value(&setup)).unwrap();
        assert_eq!(same, setup, "{switch:?}");
    }
}

#[test]
fn next_goes_round_and_a_full_round_differs_nowhere() {
    for switch in Switch::all() {
        let config = Config::new(4);
        let mut round = config;
        for _ in switch.values() {
            round = switch.flipped(&round, FlipDirection::Next);
        }
        assert_eq!(round, config, "{switch:?}");
        assert_eq!(
            switch.flipped(&switch.flipped(&config, FlipDirection::Next), FlipDirection::Previous),
            config,
            "{switch:?}"
        );
    }
}

#[test]
fn batches_go_by_powers_of_two_around_the_present_one() {
    let batch = Switch::named("batch").unwrap();
    let flipped = |n, way| batch.flipped(&Config::new(n), way).batch;
    assert_eq!([1, 8, 12, 20].map(|n| flipped(n, FlipDirection::Next)), [2, 16, 16, 32]);
    let most = BatchSize::MOST.get();
    assert_eq!([most - 1, most].map(|n| flipped(n, FlipDirection::Next)), [most, most]);
    assert_eq!([1, 2, 8, 12, 20].map(|n| flipped(n, FlipDirection::Previous)), [1, 1, 4, 8, 16]);
}

#[test]
fn checkpoints_lie_any_number_of_layers_apart() {
    let ckpt = Switch::named("ckpt").unwrap();
    let set = |text| {
        let mut setup = Setup::new(Config::new(4));
        ckpt.set(&mut setup, text).map(|()| setup)
    };
    let read = |text| ckpt.value(&set(text).unwrap()).into_owned();
    assert_eq!(
        ["off", "on", "every:1", "every:2", "every:3", "every:40"].map(read),
        ["off", "on", "on", "every:2", "every:3", "every:40"]
    );
    assert_eq!(["reentrant", "reentrant:1", "reentrant:3"].map(read), ["reentrant", "reentrant", "reentrant:3"]);
    for text in ["every:0", "every:", "every:-1", "every:2.5", "every 2", "2", "reentrant:0", "reentrant:", ""] {
        let sentence = set(text).unwrap_err();
        assert!(sentence.contains("every:2 for every second block"), "{sentence}");
    }
    let of = |text| -> Vec<usize> {
        let config = set(text).unwrap().config;
        (0..7).filter(|layer| config.checkpointing.of(*layer)).collect()
    };
    assert_eq!((of("off"), of("every:3")), (vec![], vec![0, 3, 6]));
    assert_eq!((of("on"), of("every:7")), ((0..7).collect(), vec![0]));
    assert_eq!((of("reentrant"), of("reentrant:3")), (of("on"), of("every:3")));
    // A value of a person's own counts as the last one that keys go through.
    let from = |way| {
        let config = ckpt.flipped(&set("every:3").unwrap().config, way);
        ckpt.value(&Setup::new(config)).into_owned()
    };
    assert_eq!([FlipDirection::Next, FlipDirection::Previous].map(from), ["off", "every:4"]);
}

#[test]
fn what_is_no_value_changes_nothing_and_is_told() {
    let setup = Setup::new(Config::new(4));
    for switch in Switch::all() {
        let mut tried = setup.clone();
        let refused = switch.set(&mut tried, "seventeen apples");
        assert!(refused.is_err_and(|sentence| !sentence.is_empty()), "{switch:?}");
        assert_eq!(tried, setup, "{switch:?}");
        assert_eq!(switch.with(&setup.config, Choice(17)), setup.config);
    }
}
