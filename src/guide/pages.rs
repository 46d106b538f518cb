//! The guide's pages, by name.

use crate::user_input;

/// The page that lists all others.
pub const CONTENTS: &str = "README";

/// A page of the guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its name: the path of its file below `lab/guide`, without `.md`.
    pub name: &'static str,
    /// Its text, in Markdown.
    pub text: &'static str,
}

/// Pages of these names, each with the text of its file.
macro_rules! pages {
    ($($name:literal),+ $(,)?) => {
        &[$(Page {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lab/guide/", $name, ".md")),
        }),+]
    };
}

/// The pages in the order of a book: what to see, what to do, how it is made.
const PAGES: &[Page] = pages![
    "README",
    "explore",
    "screens",
    "keys",
    "switches",
    "switches/amp",
    "switches/ckpt",
    "switches/accum",
    "switches/pin",
    "switches/opt",
    "switches/zero-grad",
    "switches/opt-form",
    "switches/batch",
    "switches/offload",
    "switches/attention",
    "switches/loss",
    "switches/attention-mask",
    "switches/drop-output",
    "switches/fp8",
    "switches/tf32",
    "switches/schedule",
    "switches/fuse",
    "switches/retain",
    "switches/on-oom",
    "switches/limit",
    "switches/alloc-conf",
    "simulated-cards",
    "several-gpus",
    "not-here",
    "read-back",
    "gpu",
    "inference",
    "own-models",
    "fine-tuning",
    "lengths",
    "snapshots",
    "what-if",
    "fit",
    "folklore",
    "watch",
    "stand-in",
    "python",
    "recordings",
    "take-away",
    "teach",
    "settings",
    "selftest",
    "numbers",
    "compared",
    "checked",
];

impl Page {
    /// Its heading.
    #[must_use]
    pub fn title(&self) -> &'static str {
        let heading = self.text.lines().find_map(|line| line.strip_prefix("# "));
        heading.unwrap_or(self.name)
    }

    /// Its subject: the first paragraph.
    #[must_use]
    pub fn about(&self) -> String {
        let lines = self.text.lines().skip_while(|line| line.is_empty() || line.starts_with('#'));
        lines.take_while(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The part of its name after the folder: `amp` of `switches/amp`.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }
}

/// All pages.
#[must_use]
pub const fn pages() -> &'static [Page] {
    PAGES
}

/// The page of this name, with or without its folder and `.md`.
///
/// # Errors
/// A sentence that names a similar page, if there is one.
pub fn page(name: &str) -> Result<&'static Page, String> {
    let wanted = name.strip_suffix(".md").unwrap_or(name);
    let called = |name: &str| name.eq_ignore_ascii_case(wanted);
    let found =
        PAGES.iter().find(|page| called(page.name)).or_else(|| PAGES.iter().find(|page| called(page.short_name())));
    found.ok_or_else(|| {
        let meant = user_input::hint(wanted, PAGES.iter().map(Page::short_name));
        format!("the guide has no page \"{wanted}\"{meant}; `vramlab guide --list` lists all")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_found_by_its_name_with_or_without_its_folder() {
        assert_eq!(page("switches/amp").unwrap().name, "switches/amp");
        assert_eq!(page("AMP").unwrap().name, "switches/amp");
        assert_eq!(page("keys.md").unwrap().title(), "Keys");
        assert_eq!(
            page("swiches").unwrap_err().split(';').next(),
            Some("the guide has no page \"swiches\" (did you mean \"switches\"?)")
        );
    }

    #[test]
    fn no_two_pages_are_called_alike_and_each_says_what_it_is_about() {
        for (index, one) in PAGES.iter().enumerate() {
            assert!(PAGES[index + 1..].iter().all(|other| other.short_name() != one.short_name()), "{}", one.name);
            assert!(one.text.starts_with("# ") && one.about().len() > 20, "{}: {}", one.name, one.about());
        }
    }
}
