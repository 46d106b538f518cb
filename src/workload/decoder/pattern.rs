//! A choice of layers of a decoder.

/// A repeating choice of layers by number: every fourth, all but every sixth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerPattern {
    period: u8,
    bits: u64,
}

impl LayerPattern {
    /// The longest period.
    pub const LONGEST: usize = 64;
    /// Every layer.
    pub const ALL: Self = Self { period: 1, bits: 1 };
    /// The first layer, and every second one after it.
    pub const EVEN: Self = Self { period: 2, bits: 1 };
    /// No layer.
    pub const NONE: Self = Self { period: 1, bits: 0 };

    /// Of the first `period` layers those for which `has` holds, repeated; a period is at least 1 and at most
    /// [`Self::LONGEST`].
    #[must_use]
    pub fn repeated(period: usize, has: impl Fn(usize) -> bool) -> Option<Self> {
        let within = u8::try_from(period).ok().filter(|_| (1..=Self::LONGEST).contains(&period))?;
        let bits = (0..period).filter(|&layer| has(layer)).fold(0, |bits, layer| bits | 1 << layer);
        Some(Self { period: within, bits })
    }

    /// The shortest pattern that begins with `layers`; `None` if it is longer than [`Self::LONGEST`].
    #[must_use]
    pub fn of(layers: &[bool]) -> Option<Self> {
        let repeats = |period: &usize| layers.iter().zip(layers.iter().skip(*period)).all(|(one, next)| one == next);
        let period = (1..layers.len()).find(repeats).unwrap_or(layers.len());
        Self::repeated(period, |layer| layers.get(layer) == Some(&true))
    }

    /// The same for a file's list under `key`.
    ///
    /// # Errors
    /// A sentence: the list has no such pattern.
    pub(super) fn under(key: &str, layers: &[bool]) -> Result<Self, String> {
        Self::of(layers).ok_or_else(|| {
            let most = Self::LONGEST;
            format!("{key} is a list without a pattern that begins again after {most} layers; use a list that repeats")
        })
    }

    /// Whether the pattern contains a layer.
    #[must_use]
    pub const fn has(self, layer: usize) -> bool {
        self.bits >> (layer % self.period as usize) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_the_beginning_of_its_shortest_pattern() {
        let fourth = LayerPattern::repeated(4, |layer| layer == 3).unwrap();
        let list: Vec<_> = (0..36).map(|layer| layer % 4 == 3).collect();
        assert_eq!(LayerPattern::of(&list), Some(fourth));
        assert!(fourth.has(35) && fourth.has(103) && !fourth.has(36));
        assert_eq!(LayerPattern::of(&[true; 100]), Some(LayerPattern::ALL));
        assert_eq!(LayerPattern::of(&[false]), Some(LayerPattern::NONE));
        let late: Vec<_> = (0..64).map(|layer| layer >= 28).collect();
        assert_eq!(
            LayerPattern::of(&late).map(|late| (late.has(27), late.has(28), late.has(63))),
            Some((false, true, true))
        );
        let late: Vec<_> = (0..80).map(|layer| layer >= 28).collect();
        assert_eq!(LayerPattern::of(&late), None);
        assert_eq!(LayerPattern::of(&[]), None);
    }
}
