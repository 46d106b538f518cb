//! Tags that a person gives to blocks, by regular expressions on their stacks.

use regex_lite::Regex;
use thiserror::Error;

/// Rules. The first one that matches gives a block its tag.
#[derive(Clone, Debug, Default)]
pub struct Tags(Vec<(String, Regex)>);

/// Why a rule is refused.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TagError {
    /// The text is not a rule.
    #[error("\"{0}\" has no name and expression; write NAME=REGEX")]
    NoRule(String),
    /// The text is not a regular expression.
    #[error("the expression of \"{tag}\" can't be read ({reason}); correct it")]
    NoExpression {
        /// The tag.
        tag: String,
        /// What is wrong.
        reason: String,
    },
}

impl Tags {
    /// Adds a rule in the form `attention=.*attn.*`.
    ///
    /// # Errors
    /// [`TagError`] if the rule is malformed.
    pub fn add(&mut self, rule: &str) -> Result<(), TagError> {
        let no_rule = || TagError::NoRule(rule.to_owned());
        let (tag, expression) = rule.split_once('=').ok_or_else(no_rule)?;
        let tag = tag.trim().to_owned();
        if tag.is_empty() || expression.is_empty() {
            return Err(no_rule());
        }
        let refused = |error: regex_lite::Error| TagError::NoExpression { tag: tag.clone(), reason: error.to_string() };
        let expression = Regex::new(expression).map_err(refused)?;
        self.0.push((tag, expression));
        Ok(())
    }

    /// True if there are no rules.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tag of blocks with this name and these frames; `None` if no rule matches.
    #[must_use]
    pub fn of<'t, I: Iterator<Item = &'t str>>(&self, name: &str, frames: impl Fn() -> I) -> Option<&str> {
        let fits = |expression: &Regex| expression.is_match(name) || frames().any(|frame| expression.is_match(frame));
        self.0.iter().find(|(_, expression)| fits(expression)).map(|(tag, _)| tag.as_str())
    }
}

/// Equal if they have the same rules in the same order.
impl PartialEq for Tags {
    fn eq(&self, other: &Self) -> bool {
        let rules = |tags: &Self| -> Vec<(String, String)> {
            tags.0.iter().map(|(tag, expression)| (tag.clone(), expression.as_str().to_owned())).collect()
        };
        rules(self) == rules(other)
    }
}

impl Eq for Tags {}
