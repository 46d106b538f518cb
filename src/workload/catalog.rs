//! The workloads by name: `lab/workloads/*.toml`, embedded, and the user's own over them.

use std::path::Path;

use super::entry::WorkloadEntry;
use super::error::CatalogError;
use vramlab_user_input::{Shelf, ShelfError, TextPosition};

const BUILT_IN: [(&str, &str); 37] = [
    ("bert-large", include_str!("lab/bert-large.toml")),
    ("bert-mini", include_str!("lab/bert-mini.toml")),
    ("churn", include_str!("lab/churn.toml")),
    ("cs336-10b", include_str!("lab/cs336-10b.toml")),
    ("cs336-large", include_str!("lab/cs336-large.toml")),
    ("cs336-medium", include_str!("lab/cs336-medium.toml")),
    ("cs336-mini", include_str!("lab/cs336-mini.toml")),
    ("cs336-small", include_str!("lab/cs336-small.toml")),
    ("cs336-xl", include_str!("lab/cs336-xl.toml")),
    ("dcgan", include_str!("lab/dcgan.toml")),
    ("dcgan-mini", include_str!("lab/dcgan-mini.toml")),
    ("gemma-2-2b", include_str!("lab/gemma-2-2b.toml")),
    ("gpt-char", include_str!("lab/gpt-char.toml")),
    ("gpt-mini", include_str!("lab/gpt-mini.toml")),
    ("gpt2", include_str!("lab/gpt2.toml")),
    ("gpt2-fp32-head", include_str!("lab/gpt2-fp32-head.toml")),
    ("llama-3.1-8b", include_str!("lab/llama-3.1-8b.toml")),
    ("llama-3.2-1b", include_str!("lab/llama-3.2-1b.toml")),
    ("llama-mini", include_str!("lab/llama-mini.toml")),
    ("lora-llama-3.2-1b", include_str!("lab/lora-llama-3.2-1b.toml")),
    ("lora-llama-mini", include_str!("lab/lora-llama-mini.toml")),
    ("mistral-7b", include_str!("lab/mistral-7b.toml")),
    ("mixtral-mini", include_str!("lab/mixtral-mini.toml")),
    ("mlp", include_str!("lab/mlp.toml")),
    ("mlp-mini", include_str!("lab/mlp-mini.toml")),
    ("mlp-saves-input", include_str!("lab/mlp-saves-input.toml")),
    ("qlora-llama-65b", include_str!("lab/qlora-llama-65b.toml")),
    ("qwen3-0.6b", include_str!("lab/qwen3-0.6b.toml")),
    ("qwen3-30b-a3b", include_str!("lab/qwen3-30b-a3b.toml")),
    ("qwen3-8b", include_str!("lab/qwen3-8b.toml")),
    ("resnet-mini", include_str!("lab/resnet-mini.toml")),
    ("resnet152", include_str!("lab/resnet152.toml")),
    ("resnet50", include_str!("lab/resnet50.toml")),
    ("varlen", include_str!("lab/varlen.toml")),
    ("varlen-mini", include_str!("lab/varlen-mini.toml")),
    ("vit-b16", include_str!("lab/vit-b16.toml")),
    ("vit-mini", include_str!("lab/vit-mini.toml")),
];

/// The workload that opens when none is named.
pub const DEFAULT: &str = "gpt-char";

/// All workloads.
#[derive(Clone, Debug)]
pub struct Catalog(Shelf);

impl Catalog {
    /// The built-in workloads and, over them, the `.toml` files in `folder`.
    #[must_use]
    pub fn with_user_workloads(folder: Option<&Path>) -> Self {
        Self(Shelf::new(&BUILT_IN, folder))
    }

    /// Adds a workload, or replaces the one of that name.
    pub fn insert(&mut self, name: &str, source: &str) {
        self.0.insert(name, source);
    }

    /// All names: built-in ones first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// Files of the user's folder that are no workloads, with the reasons.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.0.warnings_of(|name| self.entry(name))
    }

    /// Whether the workload of that name is the user's own.
    #[must_use]
    pub fn is_users_own(&self, name: &str) -> bool {
        self.0.is_users_own(name)
    }

    /// The workload of that name.
    ///
    /// # Errors
    /// When there is none, or its file is not understood.
    pub fn entry(&self, name: &str) -> Result<WorkloadEntry, CatalogError> {
        let entry: WorkloadEntry = self.0.get(name).map_err(|error| match error {
            ShelfError::Unknown => {
                CatalogError::Unknown { name: name.to_owned(), known: self.names().collect::<Vec<_>>().join(", ") }
            }
            ShelfError::File(error) => error.into(),
            ShelfError::Malformed(reason) => CatalogError::Malformed { name: name.to_owned(), reason },
        })?;
        Ok(WorkloadEntry { name: name.to_owned(), ..entry })
    }
}

impl Catalog {
    /// Where in a user's own file of that name the sizes or layers are that make no model; `None` for a workload that is not
    /// the user's.
    #[must_use]
    pub fn place(&self, name: &str, error: &CatalogError) -> Option<TextPosition> {
        if !self.is_users_own(name) || !matches!(error, CatalogError::Sizes(_) | CatalogError::Data(_)) {
            return None;
        }
        let text = self.0.text(name).ok()?;
        let layer = error.to_string().strip_prefix("layer ").and_then(|rest| rest.split_once(' ')?.0.parse().ok());
        let of_layer = layer.and_then(|layer: usize| text.nth_place_of("[[layers]]", layer.checked_sub(1)?));
        of_layer.or_else(|| text.place_of("[sizes]")).or_else(|| text.place_of("model"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Data, Extent, Sizes, Text};
    use super::*;

    #[test]
    fn every_built_in_workload_parses_and_builds() {
        let catalog = Catalog::with_user_workloads(None);
        for name in catalog.names() {
            let entry = catalog.entry(name).unwrap();
            assert_eq!(entry.name, name);
            entry.workload(Sizes::default(), entry.data.data(), 1).unwrap();
            assert!(!catalog.is_users_own(name));
        }
        catalog.entry(DEFAULT).unwrap();
    }

    #[test]
    fn an_unknown_name_is_told_the_known_ones() {
        let error = Catalog::with_user_workloads(None).entry("gpt-5").unwrap_err().to_string();
        assert!(error.starts_with("there is no workload 'gpt-5'; there are bert-large, bert-mini, churn, "), "{error}");
    }

    #[test]
    fn a_users_file_wins_and_a_broken_one_is_told() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("gpt-mini.toml"), "title = 3").unwrap();
        let catalog = Catalog::with_user_workloads(Some(folder.path()));
        assert!(catalog.is_users_own("gpt-mini"));
        assert!(matches!(catalog.entry("gpt-mini"), Err(CatalogError::Malformed { .. })));
    }

    #[test]
    fn what_makes_no_model_is_told_by_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let head = "title = 'a'\nabout = 'b'\nbatch = 4\ndata = 'synthetic'\n";
        for (name, rest) in [
            ("lacks", "model = 'gpt'\n[sizes]\nlayers = 2\n"),
            (
                "odd",
                "model = 'layers'\ninput = { kind = 'vector', values = 8 }\n[[layers]]\nkind = 'relu'\n\n[[layers]]\nkind = 'conv'\noutputs = 4\nkernel = 3\n",
            ),
        ] {
            std::fs::write(folder.path().join(format!("{name}.toml")), format!("{head}{rest}")).unwrap();
        }
        let catalog = Catalog::with_user_workloads(Some(folder.path()));
        let line = |name: &str| {
            let error = catalog.entry(name).unwrap().workload(Sizes::default(), Data::Reference, 1).err().unwrap();
            (error.to_string(), catalog.place(name, &error).map(|place| place.line()))
        };
        assert_eq!(line("lacks").1, Some(6), "{:?}", line("lacks"));
        assert_eq!(line("odd").1, Some(10), "{:?}", line("odd"));
        let refused = CatalogError::Data("it is not".to_owned());
        assert_eq!(catalog.place("gpt-mini", &refused), None);
    }

    #[test]
    fn impossible_sizes_and_data_are_refused() {
        let catalog = Catalog::with_user_workloads(None);
        let refused = |name: &str, sizes: Sizes, data: Data| {
            catalog.entry(name).unwrap().workload(sizes, data, 1).err().unwrap().to_string()
        };
        let text = || Data::Text(Text::source());
        let (none, size) = (Sizes::default(), |n| Some(Extent::nearest(n)));
        for (error, words) in [
            (refused("gpt-mini", Sizes { heads: size(5), ..none }, Data::Reference), "do not divide a width of 32"),
            (refused("gpt-mini", Sizes { vocab: size(100), ..none }, text()), "--vocab 256"),
            (refused("gpt-mini", Sizes { image: size(100), ..none }, text()), "gpt-mini has no size 'image'"),
            (refused("bert-mini", none, text()), "sees each next byte"),
            (refused("mlp-mini", none, text()), "classifies vectors"),
            (refused("vit-mini", none, text()), "classifies images"),
            (refused("vit-mini", Sizes { image: size(33), ..none }, Data::Reference), "a side that divides 33"),
            (refused("resnet-mini", none, text()), "can't read text"),
            (refused("dcgan-mini", Sizes { image: size(32), ..none }, Data::Reference), "no size 'image'"),
            (refused("varlen-mini", none, Data::Reference), "--data fresh"),
            (refused("varlen-mini", Sizes { seq: size(64), ..none }, Data::Fresh), "a length of 128"),
            (refused("churn", Sizes { width: size(64), ..none }, Data::Fresh), "none to change"),
        ] {
            assert!(error.contains(words), "{error}");
        }
        let classes = Sizes { vocab: size(7), ..none };
        catalog.entry("mlp-mini").unwrap().workload(classes, Data::Reference, 1).unwrap();
    }
}
