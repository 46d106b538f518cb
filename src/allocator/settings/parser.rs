//! The grammar of the configuration string, and the values that each key allows.
//!
//! PyTorch reads the string twice: first the keys that all its back ends share, then those of the CUDA allocator. Each
//! pass skips the keys of the other. Where a colon or comma belongs, PyTorch accepts *any* word.
//!
//! Before 2.10 there was one pass, which demanded the actual colon or comma, and sizes had to be above 20 MiB.

use std::borrow::Cow;

use super::error::SettingsError;
use super::keys::{
    self, BACKEND, BACKGROUND_THREADS, CAPTURE_REUSE, EXPANDABLE, FRACTION, FREE_CATCH_ALL, GC_THRESHOLD,
    HOST_REGISTER, LARGE_SEGMENT, MAX_CACHED_SIZE, MAX_NON_SPLIT, MAX_ROUND_THRESHOLD, MAX_SPLIT, REGISTER_THREADS,
    RELEASE_LOCK, RESERVE, RESERVE_BY_CLASS, RESERVE_SEGMENT, ROUNDUP, THROW_ON_OOM,
};
use super::tokens::{self, NotANumber, Words};
use super::values::{INTERVALS, Reserve, RoundupTable, Settings};
use crate::rounding::MIN_LARGE_ALLOC;
use crate::units::{Bytes, MIB};
use crate::version::TorchVersion;

/// The most threads that `pinned_num_register_threads` allows.
const MAX_REGISTER_THREADS: u64 = 128;

/// Replaces the spellings of PyTorch's HIP builds, which are accepted everywhere.
fn canonical(key: &str) -> &str {
    match key {
        "release_lock_on_hipmalloc" => RELEASE_LOCK,
        "pinned_use_hip_host_register" => HOST_REGISTER,
        other => other,
    }
}

/// First pass: resets what every string resets, then reads the keys that all back ends share. Refuses keys that neither pass knows.
pub(super) fn apply_common(settings: &mut Settings, text: &str) -> Result<(), SettingsError> {
    settings.max_split_size = Settings::UNLIMITED;
    settings.roundup_power2_divisions = RoundupTable::default();
    settings.garbage_collection_threshold = 0.0;
    text.clone_into(&mut settings.text);

    // Other sizes are checked against this size, wherever it stands in the string.
    let mut words = Words::of(text);
    while let Some(word) = words.next() {
        if word == LARGE_SEGMENT && keys::of(settings.torch).any(|key| key == LARGE_SEGMENT) {
            let mut value = Cursor { words: words.clone(), torch: settings.torch };
            settings.large_segment_size =
                value.mebibytes(LARGE_SEGMENT, MIN_LARGE_ALLOC / MIB + 1, "a number of MiB above 10")?;
        }
    }
    settings.max_non_split_rounding = settings.large_segment_size;

    let torch = settings.torch;
    each_setting(torch, text, |key, value| {
        match canonical(key) {
            unknown if keys::of(torch).all(|known| known != unknown) => {
                return Err(SettingsError::UnknownKey { key: shown(key), torch });
            }
            MAX_SPLIT => settings.max_split_size = value.at_least_a_segment(MAX_SPLIT, settings.large_segment_size)?,
            MAX_NON_SPLIT => {
                settings.max_non_split_rounding =
                    value.at_least_a_segment(MAX_NON_SPLIT, settings.large_segment_size)?;
            }
            GC_THRESHOLD => {
                settings.garbage_collection_threshold =
                    value.number(GC_THRESHOLD, |n| n > 0.0 && n < 1.0, "a number between 0 and 1, both excluded")?;
            }
            ROUNDUP => value.roundup_table(&mut settings.roundup_power2_divisions)?,
            EXPANDABLE => settings.expandable_segments = value.boolean(EXPANDABLE)?,
            BACKGROUND_THREADS => settings.pinned_use_background_threads = value.boolean(BACKGROUND_THREADS)?,
            MAX_ROUND_THRESHOLD => {
                settings.pinned_max_round_threshold =
                    Some(value.mebibytes(MAX_ROUND_THRESHOLD, 0, "a number of MiB")?);
            }
            MAX_CACHED_SIZE => {
                settings.pinned_max_cached_size = Some(value.mebibytes(MAX_CACHED_SIZE, 0, "a number of MiB")?);
            }
            known => value.skip(known)?,
        }
        Ok(())
    })
}

/// Second pass: the keys of the CUDA allocator.
pub(super) fn apply_cuda(settings: &mut Settings, text: &str) -> Result<(), SettingsError> {
    each_setting(settings.torch, text, |key, value| {
        match canonical(key) {
            FRACTION => {
                settings.per_process_memory_fraction =
                    value.number(FRACTION, |n| (0.0..=1.0).contains(&n), "a number from 0 to 1")?;
            }
            BACKEND => value.backend()?,
            RELEASE_LOCK => settings.release_lock_on_cudamalloc = value.boolean(RELEASE_LOCK)?,
            CAPTURE_REUSE => settings.graph_capture_record_stream_reuse = value.boolean(CAPTURE_REUSE)?,
            HOST_REGISTER => settings.pinned_use_cuda_host_register = value.boolean(HOST_REGISTER)?,
            REGISTER_THREADS => {
                settings.pinned_num_register_threads = value.integer(
                    REGISTER_THREADS,
                    |n| n.is_power_of_two() && n <= MAX_REGISTER_THREADS,
                    "a power of two up to 128",
                )?;
            }
            RESERVE_SEGMENT => {
                settings.pinned_reserve_segment_size =
                    value.mebibytes(RESERVE_SEGMENT, 1, "a number of MiB above 0")?;
            }
            THROW_ON_OOM => settings.throw_on_cudamalloc_oom = value.boolean(THROW_ON_OOM)?,
            FREE_CATCH_ALL => settings.pinned_free_catch_all = value.boolean(FREE_CATCH_ALL)?,
            // PyTorch warns of an invalid value and goes on as if it were absent.
            RESERVE => {
                if let Some(reserve) = Reserve::read(&value.value(RESERVE)?) {
                    settings.expandable_segments_reserve = Some(reserve);
                }
            }
            // Only C++ code can give streams a class.
            RESERVE_BY_CLASS => value.reserves()?,
            other => value.skip(other)?,
        }
        Ok(())
    })
}

/// Calls `read` for each key with a cursor behind the key. `read` moves the cursor behind the value.
fn each_setting(
    torch: TorchVersion,
    text: &str,
    mut read: impl FnMut(&str, &mut Cursor<'_>) -> Result<(), SettingsError>,
) -> Result<(), SettingsError> {
    let mut cursor = Cursor { words: Words::of(text), torch };
    while let Some(key) = cursor.words.next() {
        read(&key, &mut cursor)?;
        cursor.comma(&key)?;
    }
    Ok(())
}

/// A place between the words.
struct Cursor<'a> {
    words: Words<'a>,
    torch: TorchVersion,
}

impl<'a> Cursor<'a> {
    /// The next word.
    fn next(&mut self, key: &str) -> Result<Cow<'a, str>, SettingsError> {
        self.words.next().ok_or_else(|| SettingsError::MissingValue { key: shown(key) })
    }

    /// The word behind the colon.
    fn value(&mut self, key: &str) -> Result<Cow<'a, str>, SettingsError> {
        let colon = self.next(key)?;
        self.is(&colon, ":", key)?;
        self.next(key)
    }

    /// Skips the comma, unless the text ends here.
    fn comma(&mut self, key: &str) -> Result<(), SettingsError> {
        self.words.next().map_or(Ok(()), |comma| self.is(&comma, ",", key))
    }

    /// Since 2.10 any word passes for a colon or a comma.
    fn is(&self, word: &str, mark: &str, key: &str) -> Result<(), SettingsError> {
        if word == mark || self.torch >= TorchVersion::V2_10 {
            return Ok(());
        }
        Err(SettingsError::MissingValue { key: shown(key) })
    }

    /// Skips the value, a list or a single word.
    fn skip(&mut self, key: &str) -> Result<(), SettingsError> {
        if self.value(key)? == "[" && !self.words.any(|word| word == "]") {
            return Err(SettingsError::UnclosedList { key: shown(key) });
        }
        Ok(())
    }

    fn boolean(&mut self, key: &'static str) -> Result<bool, SettingsError> {
        match &*self.value(key)? {
            "True" => Ok(true),
            "False" => Ok(false),
            other => Err(refused(key, other, "True or False")),
        }
    }

    fn number(&mut self, key: &'static str, allowed: fn(f64) -> bool, what: &str) -> Result<f64, SettingsError> {
        let word = self.value(key)?;
        match tokens::leading_float(&word) {
            Ok(n) if allowed(n) => Ok(n),
            Ok(_) | Err(NotANumber::NoDigits) => Err(refused(key, &word, what)),
            Err(NotANumber::TooLarge) => Err(too_large(key, &word, what)),
        }
    }

    fn integer(&mut self, key: &'static str, allowed: impl Fn(u64) -> bool, what: &str) -> Result<u64, SettingsError> {
        let word = self.value(key)?;
        let n = integer(key, &word, what)?;
        if allowed(n) { Ok(n) } else { Err(refused(key, &word, what)) }
    }

    /// A number of MiB. A number whose bytes don't fit in 64 bits is reduced to what fits.
    fn mebibytes(&mut self, key: &'static str, least: u64, what: &str) -> Result<Bytes, SettingsError> {
        let n = self.integer(key, |n| n >= least, what)?;
        Ok(Bytes::mib(n.min(u64::MAX / MIB)))
    }

    fn at_least_a_segment(&mut self, key: &'static str, segment: Bytes) -> Result<Bytes, SettingsError> {
        let segment = segment.0 / MIB;
        let (least, what) = if self.torch < TorchVersion::V2_10 {
            (segment + 1, format!("a number of MiB above {segment}"))
        } else if self.torch < TorchVersion::V2_11 {
            (segment, format!("a number of MiB from {segment} on"))
        } else {
            (segment, format!("a number of MiB from {segment} (large_segment_size_mb) on"))
        };
        self.mebibytes(key, least, &what)
    }

    /// Reads a list of `class:value` and keeps nothing of it.
    fn reserves(&mut self) -> Result<(), SettingsError> {
        const KEY: &str = RESERVE_BY_CLASS;
        if self.value(KEY)? != "[" {
            return Err(SettingsError::MissingValue { key: KEY.to_owned() });
        }
        while self.next(KEY)? != "]" {
            self.value(KEY)?;
            if self.words.clone().next().is_none_or(|word| word != "]") {
                self.words.next(); // the word in the comma's place
            }
        }
        Ok(())
    }

    fn backend(&mut self) -> Result<(), SettingsError> {
        match &*self.value(BACKEND)? {
            "native" => Ok(()),
            value @ "cudaMallocAsync" => Err(SettingsError::OtherBackend { value: value.to_owned() }),
            other => Err(refused(BACKEND, other, "native or cudaMallocAsync")),
        }
    }

    /// One number for all intervals, or a list of `interval:divisions`. Entries read before an error stay.
    fn roundup_table(&mut self, table: &mut RoundupTable) -> Result<(), SettingsError> {
        const DIVISIONS: &str = "powers of two as divisions (in lists also 0, from PyTorch 2.4 on)";
        const INTERVAL: &str = "powers of two (in MiB) or > as intervals";
        let word = self.value(ROUNDUP)?;
        if word != "[" {
            let divisions = integer(ROUNDUP, &word, DIVISIONS)?;
            if !divisions.is_power_of_two() {
                return Err(refused(ROUNDUP, &word, "a power of two, or a list"));
            }
            table.0 = [divisions; INTERVALS];
            return Ok(());
        }
        let mut first = true;
        let mut last = 0;
        loop {
            let Some(interval) = self.words.next() else {
                return Err(SettingsError::UnclosedList { key: ROUNDUP.to_owned() });
            };
            if interval == "]" {
                return Ok(());
            }
            let word = self.value(ROUNDUP)?;
            let divisions = integer(ROUNDUP, &word, DIVISIONS)?;
            let off = divisions == 0 && self.torch >= TorchVersion::V2_4;
            if !off && !divisions.is_power_of_two() {
                return Err(refused(ROUNDUP, &word, DIVISIONS));
            }
            if interval == ">" {
                table.0[last + 1..].fill(divisions);
            } else {
                let mebibytes = integer(ROUNDUP, &interval, INTERVAL)?;
                if !mebibytes.is_power_of_two() {
                    return Err(refused(ROUNDUP, &interval, INTERVAL));
                }
                last = (mebibytes.ilog2() as usize).min(INTERVALS - 1);
                if std::mem::take(&mut first) {
                    table.0[..last].fill(divisions);
                }
                table.0[last] = divisions;
            }
            if self.words.clone().next().is_none_or(|word| word != "]") {
                self.comma(ROUNDUP)?;
            }
        }
    }
}

fn integer(key: &'static str, word: &str, what: &str) -> Result<u64, SettingsError> {
    tokens::leading_integer(word).map_err(|reason| match reason {
        NotANumber::NoDigits => refused(key, word, what),
        NotANumber::TooLarge => too_large(key, word, what),
    })
}

fn refused(key: &'static str, value: &str, allowed: &str) -> SettingsError {
    SettingsError::Refused { key, value: shown(value), allowed: allowed.to_owned() }
}

fn too_large(key: &'static str, value: &str, allowed: &str) -> SettingsError {
    SettingsError::TooLarge { key, value: shown(value), allowed: allowed.to_owned() }
}

/// A word as messages show it, cut to a reasonable length.
fn shown(word: &str) -> String {
    const LONGEST: usize = 60;
    match word.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    }
}
