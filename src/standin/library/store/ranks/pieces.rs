//! The known parts of some bytes.

/// Known pieces, by their offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces(pub Vec<(u64, Vec<u8>)>);

impl Pieces {
    /// Whether no byte is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The part of `size` bytes from `offset` on; its offsets count from `offset`.
    pub fn part(&self, offset: u64, size: u64) -> Self {
        let end = offset.saturating_add(size);
        let cut = |(at, bytes): &(u64, Vec<u8>)| {
            let from = offset.max(*at);
            let until = end.min(at + bytes.len() as u64);
            (from < until).then(|| {
                let piece = bytes.get((from - at) as usize..(until - at) as usize);
                (from - offset, piece.unwrap_or_default().to_vec())
            })
        };
        Self(self.0.iter().filter_map(cut).collect())
    }

    /// The same pieces, moved by `offset` bytes.
    pub fn moved(self, offset: u64) -> Self {
        Self(self.0.into_iter().map(|(at, bytes)| (at + offset, bytes)).collect())
    }

    /// The bytes from `offset` on, if all `size` of them are known.
    pub fn whole(&self, offset: u64, size: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; size];
        let mut known = 0;
        for (at, piece) in self.part(offset, size as u64).0 {
            bytes.get_mut(at as usize..at as usize + piece.len())?.copy_from_slice(&piece);
            known += piece.len();
        }
        (known == size).then_some(bytes)
    }

    /// As bytes for another process.
    pub fn written(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (at, bytes) in &self.0 {
            text.extend(at.to_le_bytes());
            text.extend((bytes.len() as u64).to_le_bytes());
            text.extend(bytes);
        }
        text
    }

    /// Parses what another process wrote; if it is malformed, no byte is known.
    pub fn read(mut text: &[u8]) -> Self {
        let mut pieces = Vec::new();
        while let Some((head, rest)) = text.split_at_checked(16) {
            let (at, length) = head.split_at(8);
            let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_le_bytes);
            let Some((bytes, rest)) = rest.split_at_checked(number(length) as usize) else { break };
            pieces.push((number(at), bytes.to_vec()));
            text = rest;
        }
        Self(pieces)
    }
}
