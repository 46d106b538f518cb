//! Keys, ranges and quirks of the configuration string.

use super::values::INTERVALS;
use super::{ErrorClass, RoundupTable, Settings};
use crate::TorchVersion;
use crate::units::Bytes;

fn table(text: &str) -> [u64; INTERVALS] {
    *Settings::parse(text).unwrap().roundup_power2_divisions.entries()
}

#[test]
fn every_key_is_read() {
    let settings = Settings::parse(
        "large_segment_size_mb:32,max_split_size_mb:64,max_non_split_rounding_mb:48,garbage_collection_threshold:0.6,\
         roundup_power2_divisions:8,expandable_segments:True,per_process_memory_fraction:0.5,backend:native,\
         release_lock_on_cudamalloc:True,graph_capture_record_stream_reuse:True,pinned_use_cuda_host_register:True,\
         pinned_use_background_threads:True,pinned_num_register_threads:8,pinned_reserve_segment_size_mb:100",
    )
    .unwrap();
    assert_eq!(settings.large_segment_size, Bytes::mib(32));
    assert_eq!(settings.max_split_size, Bytes::mib(64));
    assert_eq!(settings.max_non_split_rounding, Bytes::mib(48));
    assert_eq!(settings.garbage_collection_threshold, 0.6);
    assert_eq!(settings.roundup_power2_divisions.entries(), &[8; INTERVALS]);
    assert!(settings.expandable_segments && settings.release_lock_on_cudamalloc);
    assert!(settings.graph_capture_record_stream_reuse && settings.pinned_use_cuda_host_register);
    assert!(settings.pinned_use_background_threads);
    assert_eq!(settings.per_process_memory_fraction, 0.5);
    assert_eq!((settings.pinned_num_register_threads, settings.pinned_reserve_segment_size), (8, Bytes::mib(100)));
    let hip = Settings::parse("release_lock_on_hipmalloc:True,pinned_use_hip_host_register:True").unwrap();
    assert!(hip.release_lock_on_cudamalloc && hip.pinned_use_cuda_host_register);
}

#[test]
fn values_outside_the_range_are_refused_with_the_key_and_what_is_allowed() {
    for text in [
        "large_segment_size_mb:10",
        "max_split_size_mb:19",
        "max_split_size_mb:40,large_segment_size_mb:64",
        "max_non_split_rounding_mb:19",
        "garbage_collection_threshold:0",
        "garbage_collection_threshold:1.0",
        "garbage_collection_threshold:nan",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:0",
        "roundup_power2_divisions:[3:1]",
        "roundup_power2_divisions:[4:3]",
        "expandable_segments:true",
        "expandable_segments:1",
        "per_process_memory_fraction:1.1",
        "backend:malloc",
        "pinned_num_register_threads:3",
        "pinned_num_register_threads:256",
        "pinned_reserve_segment_size_mb:0",
        "pinned_use_background_threads:yes",
        "max_split_size_mb:many",
    ] {
        let error = Settings::parse(text).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Value, "{text}");
        let message = error.to_string();
        assert!(message.contains("; it takes "), "{message}");
        assert!(text.split([':', ',']).any(|word| message.contains(word)), "{message}");
    }
    for text in ["garbage_collection_threshold:0.01", "max_split_size_mb:20", "per_process_memory_fraction:1"] {
        assert!(Settings::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn malformed_text_has_pytorchs_error_classes() {
    for (text, class) in [
        ("max_split:40", ErrorClass::Value),
        (",max_split_size_mb:40", ErrorClass::Value),
        ("max_split_size_mb:40,,expandable_segments:True", ErrorClass::Value),
        ("max_split_size_mb", ErrorClass::Runtime),
        ("max_split_size_mb:", ErrorClass::Runtime),
        ("roundup_power2_divisions:[256:1", ErrorClass::Runtime),
        ("backend:cudaMallocAsync", ErrorClass::Runtime),
        ("max_split_size_mb:99999999999999999999", ErrorClass::Index),
        ("garbage_collection_threshold:1e999", ErrorClass::Index),
    ] {
        assert_eq!(Settings::parse(text).unwrap_err().class(), class, "{text}");
    }
    assert!(Settings::parse("max_split:40").unwrap_err().to_string().contains("\"max_split\""));
}

#[test]
fn the_parser_is_as_lenient_as_pytorchs() {
    for (text, mebibytes) in [
        ("max_split_size_mb,40", 40),
        ("max_split_size_mb:40,", 40),
        (" max_split _size_mb : 4 0 ", 40),
        ("max_split_size_mb:40:max_split_size_mb:50", 50),
        ("max_split_size_mb:30.7", 30),
        ("max_split_size_mb:30,max_split_size_mb:60", 60),
    ] {
        assert_eq!(Settings::parse(text).unwrap().max_split_size, Bytes::mib(mebibytes), "{text}");
    }
    assert!(Settings::parse("max_split_size_mb:-1").unwrap().max_split_size > Bytes(1 << 63));
    assert_eq!(Settings::parse("").unwrap(), Settings::default());
}

#[test]
fn roundup_lists_fill_as_pytorch_fills_them() {
    let expected = [1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8, 8, 8, 8, 8];
    assert_eq!(table("roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"), expected);
    assert_eq!(table("roundup_power2_divisions:[]"), [0; INTERVALS]);
    let gaps = table("roundup_power2_divisions:[4:2,32:8]");
    assert_eq!(gaps, [2, 2, 2, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "entries between keys stay off");
    let rest = table("roundup_power2_divisions:[>:4]");
    assert_eq!((rest[0], rest[1], rest[15]), (0, 4, 4));
    let later = table("roundup_power2_divisions:[2:1,>:4,16:0]");
    assert_eq!(&later[..6], [1, 1, 4, 4, 0, 4]);
    assert_eq!(table("roundup_power2_divisions:[65536:2]")[15], 2, "keys beyond the table are clamped");
}

#[test]
fn reading_is_not_a_transaction() {
    let mut settings =
        Settings::parse("max_split_size_mb:100,large_segment_size_mb:64,expandable_segments:True").unwrap();
    let bad = "garbage_collection_threshold:0.5,max_split_size_mb:10,roundup_power2_divisions:4";
    assert!(settings.apply(bad).is_err());
    assert_eq!(settings.max_split_size, Settings::UNLIMITED, "reset before reading");
    assert_eq!(settings.max_non_split_rounding, Bytes::mib(64), "follows the segment size, which stays");
    assert_eq!(settings.garbage_collection_threshold, 0.5, "read before the error");
    assert_eq!(settings.roundup_power2_divisions, RoundupTable::default(), "not reached");
    assert!(settings.expandable_segments, "not reset when absent");
    assert_eq!(settings.text(), bad);
    settings.apply("").unwrap();
    assert_eq!((settings.garbage_collection_threshold, settings.large_segment_size), (0.0, Bytes::mib(64)));
}

#[test]
fn the_first_variable_that_is_set_wins() {
    let from = |pairs: &[(&str, &str)]| {
        Settings::from_environment(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    };
    let both = [("PYTORCH_ALLOC_CONF", "max_split_size_mb:40"), ("PYTORCH_CUDA_ALLOC_CONF", "")];
    assert_eq!(from(&both).unwrap(), Settings::default(), "an empty value counts as set");
    assert_eq!(from(&both[..1]).unwrap().max_split_size, Bytes::mib(40));
    let hip = from(&[("PYTORCH_HIP_ALLOC_CONF", "max_split_size_mb:40,pinned_num_register_threads:4")]).unwrap();
    assert_eq!((hip.max_split_size, hip.pinned_num_register_threads), (Bytes::mib(40), 1));
    assert_eq!(from(&[]).unwrap(), Settings::default());
}

/// The first version that accepts each setting, as the parsers of the released libraries do.
const SINCE: [(TorchVersion, &str); 28] = {
    use TorchVersion::{V2_1, V2_2, V2_4, V2_6, V2_9, V2_10, V2_11, V2_12, V2_13, V2_15};
    [
        (V2_1, ""),
        (V2_1, "max_split_size_mb:21"),
        (V2_1, "garbage_collection_threshold:0.8"),
        (V2_1, "roundup_power2_divisions:8"),
        (V2_1, "roundup_power2_divisions:[256:1,512:2,>:8],backend:native,"),
        (V2_1, "expandable_segments:True"),
        (V2_2, "release_lock_on_cudamalloc:True"),
        (V2_2, "release_lock_on_hipmalloc:True"),
        (V2_2, "pinned_use_cuda_host_register:True,pinned_num_register_threads:8"),
        (V2_2, "pinned_use_hip_host_register:True"),
        (V2_4, "roundup_power2_divisions:[256:0,512:2]"),
        (V2_6, "max_non_split_rounding_mb:21"),
        (V2_6, "pinned_use_background_threads:True"),
        (V2_9, "graph_capture_record_stream_reuse:True"),
        (V2_10, "per_process_memory_fraction:0.5"),
        (V2_10, "pinned_reserve_segment_size_mb:64"),
        // One parser for all back ends: sizes may be 20 MiB, and any word is accepted in place of a colon or a comma.
        (V2_10, "max_split_size_mb:20"),
        (V2_10, "max_non_split_rounding_mb:20"),
        (V2_10, "max_split_size_mb,40"),
        (V2_10, "max_split_size_mb:40:max_split_size_mb:50"),
        (V2_10, "roundup_power2_divisions:[256,1]"),
        (V2_11, "large_segment_size_mb:32"),
        (V2_12, "throw_on_cudamalloc_oom:True"),
        (V2_12, "pinned_free_catch_all:True"),
        (V2_13, "pinned_max_cached_size_mb:7"),
        (V2_13, "pinned_max_round_threshold_mb:0"),
        (V2_15, "expandable_segments_reserve:0.5"),
        (V2_15, "expandable_segments_reserve_by_class:[a:0.5,b:40G]"),
    ]
};

#[test]
fn each_version_takes_what_its_release_takes() {
    for (since, text) in SINCE {
        for torch in TorchVersion::ALL {
            assert_eq!(Settings::parse_for(torch, text).is_ok(), torch >= since, "{text} in {torch}");
            assert_eq!(Settings::of(torch).torch(), torch);
        }
        assert_eq!(Settings::since(text), Some(since), "{text}");
    }
    assert_eq!(Settings::since("max_split:40"), None);
}

#[test]
fn a_refusal_names_the_keys_of_that_version_alone() {
    for torch in TorchVersion::ALL {
        let message = Settings::parse_for(torch, "nothing:1").unwrap_err().to_string();
        for (since, text) in SINCE {
            let key = text.split([':', ',']).next().unwrap();
            let named = message.split(&[' ', ','][..]).any(|word| word == key);
            // A value can be newer than its key, and HIP's spellings have CUDA's names.
            if torch >= since && !key.is_empty() && !key.contains("hip") {
                assert!(named, "{key} in {torch}: {message}");
            }
        }
    }
}

#[test]
fn a_reserve_is_a_share_or_gibibytes_and_else_left_out() {
    let reserve = |value: &str| {
        let text = format!("expandable_segments_reserve:{value}");
        let settings = Settings::parse_for(TorchVersion::V2_15, &text).unwrap();
        settings.expandable_segments_reserve.map(|reserve| reserve.bytes(Bytes::gib(80)))
    };
    assert_eq!(reserve("0.5"), Some(Bytes::gib(40)));
    assert_eq!(reserve("3G"), Some(Bytes::gib(3)));
    assert_eq!(reserve("1e30g"), Some(Bytes(u64::MAX)));
    for value in ["40M", "40GB", "0", "-1", "inf", "nan", "0.5x", "bad"] {
        assert_eq!(reserve(value), None, "{value}");
    }
}
