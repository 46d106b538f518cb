//! The filter of a map: words, each of which must occur in a block's name, op or category.

use vramlab_model::{BlockView, Category, NameId, Names};

/// The words, and for every name a bit for each word that it contains.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    words: u8,
    categories: [u8; Category::ALL.len()],
    names: Vec<u8>,
}

impl Filter {
    /// Words beyond this number are ignored.
    const WORDS: usize = 8;

    /// A filter from a person's text.
    pub fn new(text: &str, names: &Names) -> Self {
        let words: Vec<String> = text.split_whitespace().take(Self::WORDS).map(str::to_lowercase).collect();
        if words.is_empty() {
            return Self::default();
        }
        let bits = |text: &str| {
            let text = text.to_lowercase();
            words.iter().enumerate().fold(0, |bits, (index, word)| bits | u8::from(text.contains(word)) << index)
        };
        Self {
            words: u8::MAX >> (Self::WORDS - words.len()),
            categories: Category::ALL.map(|category| bits(category.label())),
            names: names.0.iter().map(|name| bits(name)).collect(),
        }
    }

    /// True if the filter excludes anything.
    pub const fn is_on(&self) -> bool {
        self.words != 0
    }

    pub fn accepts(&self, block: &BlockView) -> bool {
        let of = |name: NameId| self.names.get(name.0 as usize).copied().unwrap_or(0);
        let found = self.categories[block.category as usize] | of(block.name) | of(block.op);
        found & self.words == self.words
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use vramlab_allocator::units::Bytes;

    #[test]
    fn every_word_stands_somewhere() {
        let names = ["", "blocks.3.attn.qkv output", "blocks.3.attn Linear", "wte.weight"];
        let names = Names(Arc::new(names.map(Arc::from).into()));
        let block = |category, name, op| BlockView {
            offset: Bytes(0),
            size: Bytes(512),
            requested: Bytes(512),
            pending: false,
            category,
            name: NameId(name),
            op: NameId(op),
            born: 0,
        };
        let output = block(Category::Activation, 1, 2);
        let weight = block(Category::Parameter, 3, 0);
        let stranger = block(Category::Other, 9, 9);
        for (text, accepted) in [
            ("", [true, true, true]),
            ("  ", [true, true, true]),
            ("attn", [true, false, false]),
            ("QKV activation linear", [true, false, false]),
            ("qkv weight", [false, false, false]),
            ("parameter", [false, true, false]),
            ("other", [false, false, true]),
            ("e", [true, true, true]),
        ] {
            let filter = Filter::new(text, &names);
            assert_eq!([output, weight, stranger].map(|block| filter.accepts(&block)), accepted, "{text:?}");
            assert_eq!(filter.is_on(), !text.trim().is_empty());
        }
        let many = Filter::new("a t t n q k v o never", &names);
        assert!(many.accepts(&output), "the ninth word is not looked at");
    }
}
