//! All claims: the built-in ones, and those of the user's file.

use std::path::Path;

use thiserror::Error;

use super::claim::{Claim, NotHere};
use super::read::{Claims, read};
use crate::user_input::{TomlError, TomlText, hint};
use crate::workload::Catalog;

const BUILT_IN: &str = include_str!("../../lab/folklore.toml");

/// The user's file of claims, in the user's configuration folder.
pub const USERS_FILE: &str = "folklore.toml";

/// Why claims can't be loaded.
#[derive(Debug, Error)]
pub enum FolkloreError {
    /// A built-in claim can't be parsed, because a workload that it names is missing or was replaced by the user's own.
    #[error("vramlab's own claims can't be read: {0}")]
    Malformed(#[from] TomlError),
    /// There is no claim of that name.
    #[error("there is no claim '{name}'{meant}; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// A similar name that exists, for the message.
        meant: String,
        /// The names that exist.
        known: String,
    },
}

/// Claims by name.
#[derive(Clone, Debug)]
pub struct Folklore {
    claims: Vec<Claim>,
    not_here: Vec<NotHere>,
    warnings: Vec<String>,
}

impl Folklore {
    /// The built-in claims, and those of the file [`USERS_FILE`] in `folder`, which replace built-in ones of the same
    /// name.
    ///
    /// # Errors
    /// [`FolkloreError::Malformed`]. Errors in the user's file are only warnings.
    pub fn with_user_claims(folder: Option<&Path>, workloads: &Catalog) -> Result<Self, FolkloreError> {
        let Claims { claims, not_here } = read(&TomlText::built_in(BUILT_IN.into()), workloads, false)?;
        let mut folklore = Self { claims, not_here, warnings: Vec::new() };
        if let Some(path) = folder.map(|folder| folder.join(USERS_FILE)).filter(|path| path.exists()) {
            folklore.add_file(&path, workloads);
        }
        Ok(folklore)
    }

    fn add_file(&mut self, path: &Path, workloads: &Catalog) {
        let text = match TomlText::read(path) {
            Ok(text) => text,
            Err(error) => return self.warnings.push(error.to_string()),
        };
        match read(&text, workloads, true) {
            Ok(Claims { claims, not_here }) => {
                claims.into_iter().for_each(|claim| self.put(claim));
                not_here.into_iter().for_each(|claim| self.put_not_here(claim));
            }
            Err(wrong) => self.warnings.push(format!(
                "{}, line {}, column {}: {}; its claims are left out",
                path.display(),
                wrong.line(),
                wrong.column(),
                wrong.reason()
            )),
        }
    }

    fn put_not_here(&mut self, claim: NotHere) {
        self.claims.retain(|known| known.name != claim.name);
        match self.not_here.iter_mut().find(|known| known.name == claim.name) {
            Some(known) => *known = claim,
            None => self.not_here.push(claim),
        }
    }

    fn put(&mut self, claim: Claim) {
        self.not_here.retain(|known| known.name != claim.name);
        match self.claims.iter_mut().find(|known| known.name == claim.name) {
            Some(known) => *known = claim,
            None => self.claims.push(claim),
        }
    }

    /// All claims, in the order of the table.
    #[must_use]
    pub fn claims(&self) -> &[Claim] {
        &self.claims
    }

    /// The claims that can't be run here, with measurements made elsewhere.
    #[must_use]
    pub fn not_here(&self) -> &[NotHere] {
        &self.not_here
    }

    /// What was left out of the user's file, and why.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let run = self.claims.iter().map(|claim| claim.name.as_str());
        run.chain(self.not_here.iter().map(|claim| claim.name.as_str()))
    }

    /// The claim of this name, if it can be run.
    ///
    /// # Errors
    /// [`FolkloreError::Unknown`].
    pub fn named(&self, name: &str) -> Result<&Claim, FolkloreError> {
        self.claims.iter().find(|claim| claim.name == name).ok_or_else(|| FolkloreError::Unknown {
            name: name.to_owned(),
            meant: hint(name, self.names()),
            known: self.names().collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINE: &str = "[[claim]]\nname = 'mine'\nclaim = 'c'\nsaid_by = 'me'\notherwise = 'false'\nmeasured = ''\n\
                        reason = ''\nholds = ''\nfails = ''\nside = [{ name = 'a', program = [] }]\n";

    fn of(folder: &Path) -> Folklore {
        Folklore::with_user_claims(Some(folder), &Catalog::with_user_workloads(None)).unwrap()
    }

    #[test]
    fn the_users_claims_come_last_and_win_and_broken_ones_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let built_in = of(folder.path());
        assert!(built_in.warnings().is_empty());
        let first = built_in.claims()[0].name.clone();
        let taken = MINE.to_owned() + "[[not_here]]\nname = 'mine'\nclaim = ''\nneeds = ''\nfound = ''\n";
        std::fs::write(folder.path().join(USERS_FILE), taken).unwrap();
        assert!(of(folder.path()).warnings()[0].contains("there is a claim 'mine' already"), "one name, one claim");
        let both = MINE.to_owned() + &MINE.replace("'mine'", &format!("'{first}'"));
        std::fs::write(folder.path().join(USERS_FILE), both).unwrap();
        let folklore = of(folder.path());
        assert_eq!(folklore.claims().len(), built_in.claims().len() + 1);
        assert!(folklore.named("mine").unwrap().users_own && folklore.claims()[0].users_own);
        let unknown = folklore.named("mime").unwrap_err().to_string();
        assert!(unknown.contains("did you mean \"mine\""), "{unknown}");
        std::fs::write(folder.path().join(USERS_FILE), MINE.replace("program", "programm")).unwrap();
        let broken = of(folder.path());
        assert_eq!(broken.claims().len(), built_in.claims().len());
        assert!(broken.warnings()[0].contains("folklore.toml, line 10, column "), "{:?}", broken.warnings());
    }
}
