//! The identity by which the ranks of a communicator find each other.

/// A name that only the ranks of one communicator can derive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity([u64; 2]);

impl Identity {
    /// The identity derived from these bytes: FNV-1a, twice.
    pub fn of(bytes: &[u8]) -> Self {
        let hash =
            |seed: u64| bytes.iter().fold(seed, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Self([hash(0xcbf2_9ce4_8422_2325), hash(0x6c62_272e_07bb_0142)])
    }

    /// The identity of a communicator that some ranks of this one make.
    pub fn child(self, what: &str, numbers: &[u64]) -> Self {
        let mut bytes: Vec<u8> = self.0.iter().chain(numbers).flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend(what.as_bytes());
        Self::of(&bytes)
    }

    /// The identity as part of a file's name.
    pub fn name(self) -> String {
        let [first, second] = self.0;
        format!("{first:016x}{second:016x}")
    }
}
