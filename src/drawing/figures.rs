//! Figures on screens: units are chosen once per column, and widths do not jump.

use vramlab_allocator::units::{Bytes, GIB, KIB, MIB};
use vramlab_model::Micros;

/// A binary unit that a column of byte counts shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteUnit {
    /// 2^10 bytes.
    KiB,
    /// 2^20 bytes.
    MiB,
    /// 2^30 bytes.
    GiB,
}

impl ByteUnit {
    /// The unit in which `largest` has at most four digits before the point.
    #[must_use]
    pub const fn for_largest(largest: Bytes) -> Self {
        match largest.get() {
            0..MIB => Self::KiB,
            MIB..GIB => Self::MiB,
            _ => Self::GiB,
        }
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::KiB => KIB,
            Self::MiB => MIB,
            Self::GiB => GIB,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KiB => "KiB",
            Self::MiB => "MiB",
            Self::GiB => "GiB",
        }
    }

    /// `bytes` in this unit: one decimal, two for GiB.
    #[must_use]
    pub fn figure(self, bytes: Bytes) -> String {
        let value = bytes.get() as f64 / self.bytes() as f64;
        if self == Self::GiB { format!("{value:.2}") } else { format!("{value:.1}") }
    }
}

impl ByteUnit {
    /// `bytes` in this unit without its name, or in a smaller unit with its name if this unit would leave at most one
    /// digit: `0.29`, `61 MiB`, `16 KiB`.
    #[must_use]
    pub fn or_smaller(self, bytes: Bytes) -> String {
        if bytes == Bytes::ZERO || self.tells(bytes) { self.figure(bytes) } else { short_bytes(bytes) }
    }

    /// `bytes` in this unit, with its name: `0.45 GiB`.
    #[must_use]
    pub fn named(self, bytes: Bytes) -> String {
        format!("{} {}", self.figure(bytes), self.name())
    }

    /// This unit, or the unit that suits `largest` if this one would leave at most one digit of it.
    #[must_use]
    pub const fn of_part(self, largest: Bytes) -> Self {
        if self.tells(largest) { self } else { Self::for_largest(largest) }
    }

    /// True if this unit leaves more than one digit of `bytes`.
    const fn tells(self, bytes: Bytes) -> bool {
        let parts = if matches!(self, Self::GiB) { 10 } else { 20 };
        bytes.get() >= self.bytes() / parts
    }
}

/// `bytes` in the unit that suits them: `84.2 MiB`, `512 B`.
#[must_use]
pub fn bytes(bytes: Bytes) -> String {
    if bytes.get() < KIB {
        return format!("{} B", bytes.get());
    }
    ByteUnit::for_largest(bytes).named(bytes)
}

/// A duration in words: `12 s`, `3 min 5 s`, `2 h 1 min`.
#[must_use]
pub fn duration(time: std::time::Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A size with its unit in at most eight characters: `2 MiB`, `1.6 GiB`, `22 MiB`.
#[must_use]
pub fn short_bytes(bytes: Bytes) -> String {
    if bytes.get() < KIB {
        return format!("{} B", bytes.get());
    }
    let unit = ByteUnit::for_largest(bytes);
    let (whole, rest) = (bytes.get() / unit.bytes(), bytes.get() % unit.bytes());
    if rest == 0 || whole >= 10 {
        format!("{} {}", whole + u64::from(rest >= unit.bytes() / 2), unit.name())
    } else {
        format!("{:.1} {}", bytes.get() as f64 / unit.bytes() as f64, unit.name())
    }
}

/// A size as a person would type it: `22.5GiB`, `512MiB`. MiB are whole numbers, at least one; GiB have up to two
/// decimals. From 1 MiB on, never more than `bytes`.
#[must_use]
pub fn typed(bytes: Bytes) -> String {
    if bytes.get() < GIB {
        return format!("{}MiB", (bytes.get() / MIB).max(1));
    }
    let hundredths = u128::from(bytes.get()) * 100 / u128::from(GIB);
    let figure = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    format!("{}GiB", figure.trim_end_matches('0').trim_end_matches('.'))
}

/// The bytes that a cell of a map stands for, exactly: `24 MiB`, `1.25 GiB`.
#[must_use]
pub fn scale(bytes: Bytes) -> String {
    let unit = ByteUnit::for_largest(bytes);
    match (bytes.get() % unit.bytes(), bytes.get() / unit.bytes()) {
        (1.., 0..10) if bytes.get() >= KIB => {
            // A scale has two decimals at most.
            let figure = format!("{:.2}", bytes.get() as f64 / unit.bytes() as f64);
            format!("{} {}", figure.trim_end_matches('0').trim_end_matches('.'), unit.name())
        }
        _ => short_bytes(bytes),
    }
}

/// The lowest scale of at least `bytes` that [`scale`] writes exactly: with two decimals below ten units, in whole
/// units from there on.
#[must_use]
pub fn scale_from(bytes: Bytes) -> Bytes {
    let unit = ByteUnit::for_largest(bytes).bytes();
    let step = if bytes.get() < 10 * unit { 100 } else { 1 };
    let steps = (u128::from(bytes.get()) * step).div_ceil(u128::from(unit));
    Bytes(u64::try_from((steps * u128::from(unit)).div_ceil(step)).unwrap_or(u64::MAX))
}

/// Milliseconds with one decimal; below one millisecond, with as many decimals as it takes to see a digit: `297.0`,
/// `0.11`, `0.004`.
#[must_use]
pub fn milliseconds(time: Micros) -> String {
    let decimals = match time.0 {
        1..10 => 3,
        10..1000 => 2,
        _ => 1,
    };
    format!("{:.decimals$}", time.0 as f64 / 1000.0)
}

/// A rate or count in at most five characters: `87`, `12.5k`, `389k`, `1.2M`.
#[must_use]
pub fn short_count(value: f64) -> String {
    if !value.is_finite() || value < 0.0 {
        return "–".to_owned();
    }
    match value {
        v if v < 999.5 => format!("{v:.0}"),
        v if v < 99_950.0 => format!("{:.1}k", v / 1e3),
        v if v < 999_500.0 => format!("{:.0}k", v / 1e3),
        v if v < 99_950_000.0 => format!("{:.1}M", v / 1e6),
        v => format!("{:.0}M", v / 1e6),
    }
}

/// A share in whole per cent. A share just above nothing is not written as nothing.
#[must_use]
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 || part == 0 {
        return "0 %".to_owned();
    }
    let share = 100.0 * part as f64 / whole as f64;
    if share < 0.5 { "<1 %".to_owned() } else { format!("{share:.0} %") }
}

/// The change from `before` to `after` in per cent with its sign, or as a factor from ten times on; `None` if there is
/// nothing to compare with.
#[must_use]
pub fn change(before: f64, after: f64) -> Option<String> {
    if !(before.is_finite() && after.is_finite()) || before <= 0.0 {
        return None;
    }
    let percent = (100.0 * (after - before) / before).round();
    Some(match percent {
        // A change of many times is easier to read as a factor.
        p if p >= 900.0 => format!("×{:.0}", after / before),
        p if p > 0.0 => format!("+{p:.0} %"),
        p if p < 0.0 => format!("−{:.0} %", -p),
        _ => "±0 %".to_owned(),
    })
}

/// `n thing` or `n things`.
#[must_use]
pub fn counted(n: u64, thing: &str) -> String {
    if n == 1 { format!("1 {thing}") } else { format!("{n} {thing}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_typed_as_people_do_and_is_read_again() {
        let sizes =
            [Bytes(1), Bytes::mib(193), Bytes::gib(25), Bytes(45 * GIB / 2), Bytes(75 * GIB / 4), Bytes(GIB + MIB)];
        let words = ["1MiB", "193MiB", "25GiB", "22.5GiB", "18.75GiB", "1GiB"];
        assert_eq!(sizes.map(typed), words);
        for (size, word) in sizes.into_iter().zip(words).skip(1) {
            let read: Bytes = word.parse().unwrap();
            assert!(read <= size && size.get() - read.get() <= GIB / 100, "{word}");
        }
    }

    #[test]
    fn a_scale_in_quarters_is_exact() {
        let quarters = [4, 5, 6, 7, 8, 10, 14, 20, 28].map(|quarters| scale(Bytes(quarters << 18)));
        let exact = ["1", "1.25", "1.5", "1.75", "2", "2.5", "3.5", "5", "7"].map(|figure| format!("{figure} MiB"));
        assert_eq!(quarters, exact);
        assert_eq!((scale(Bytes(640)), scale(Bytes::mib(20))), ("640 B".to_owned(), "20 MiB".to_owned()));
    }

    #[test]
    fn a_scale_is_what_is_written_of_it() {
        for bytes in [1025, 9_101_130, 10_485_761, 290_000_000, 1 << 31].map(Bytes) {
            let from = scale_from(bytes);
            assert!(from >= bytes && from.get() <= bytes.get() + bytes.get() / 10 + 1, "{from:?} from {bytes:?}");
            let written = scale(from);
            let (figure, unit) = written.split_once(' ').unwrap();
            let unit = [ByteUnit::KiB, ByteUnit::MiB, ByteUnit::GiB].into_iter().find(|of| of.name() == unit).unwrap();
            let exact = figure.parse::<f64>().unwrap() * unit.bytes() as f64;
            assert!((exact - from.get() as f64).abs() < 1.0, "{written} of {from:?}");
        }
    }

    #[test]
    fn bytes_take_the_unit_below_them() {
        assert_eq!(bytes(Bytes(512)), "512 B");
        assert_eq!(bytes(Bytes::kib(1)), "1.0 KiB");
        assert_eq!(bytes(Bytes(88_290_099)), "84.2 MiB");
        assert_eq!(bytes(Bytes::gib(3)), "3.00 GiB");
    }

    #[test]
    fn short_sizes_keep_their_unit() {
        for (bytes, text) in [
            (Bytes(512), "512 B"),
            (Bytes::mib(2), "2 MiB"),
            (Bytes(5 * MIB / 2), "2.5 MiB"),
            (Bytes(45 * MIB / 2), "23 MiB"),
            (Bytes::mib(1618), "1.6 GiB"),
            (Bytes::mib(1023), "1023 MiB"),
        ] {
            assert_eq!(short_bytes(bytes), text);
        }
    }

    #[test]
    fn a_figure_of_a_column_is_nothing_only_where_there_is_nothing() {
        for (bytes, text) in [
            (Bytes::ZERO, "0.00"),
            (Bytes::kib(16), "16 KiB"),
            (Bytes::mib(5), "5 MiB"),
            (Bytes::mib(61), "61 MiB"),
            (Bytes::mib(110), "0.11"),
            (Bytes::gib(3), "3.00"),
        ] {
            assert_eq!(ByteUnit::GiB.or_smaller(bytes), text);
        }
        assert_eq!(ByteUnit::MiB.or_smaller(Bytes(512)), "512 B");
    }

    #[test]
    fn a_part_has_the_unit_of_the_whole_as_long_as_that_tells_it() {
        assert_eq!(ByteUnit::GiB.of_part(Bytes::mib(463)), ByteUnit::GiB);
        assert_eq!(ByteUnit::GiB.of_part(Bytes::mib(61)), ByteUnit::MiB);
        assert_eq!(ByteUnit::MiB.of_part(Bytes::kib(100)), ByteUnit::MiB);
        assert_eq!(ByteUnit::MiB.of_part(Bytes::kib(16)), ByteUnit::KiB);
    }

    #[test]
    fn counts_stay_within_five_characters() {
        for (value, text) in [
            (87.4, "87"),
            (999.6, "1.0k"),
            (12_460.0, "12.5k"),
            (389_400.0, "389k"),
            (1_234_000.0, "1.2M"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(short_count(value), text);
        }
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!(change(16.0, 11.4).as_deref(), Some("−29 %"));
        assert_eq!(change(70.4, 81.1).as_deref(), Some("+15 %"));
        assert_eq!(change(10.0, 10.01).as_deref(), Some("±0 %"));
        assert_eq!(change(10.0, 99.0).as_deref(), Some("+890 %"));
        assert_eq!(change(0.09, 2.81).as_deref(), Some("×31"));
        assert_eq!(change(0.0, 1.0), None);
    }

    #[test]
    fn shares_say_when_they_are_not_quite_nothing() {
        assert_eq!(percent(1, 1000), "<1 %");
        assert_eq!(percent(0, 1000), "0 %");
        assert_eq!(percent(5, 0), "0 %");
        assert_eq!(percent(61, 100), "61 %");
    }
}
