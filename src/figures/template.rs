//! Text with figures in it: `Peak allocated fell from {before.step_peak_allocated} to {step_peak_allocated}.`

use super::expression::{Quantity, Unanswered};
use super::moments::Moments;
use super::parser::Scope;
use super::token::Misread;

/// A text with quantities in braces; `{a / b:%}` prints in per cent, `{{` and `}}` are braces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq)]
enum Piece {
    Text(String),
    Figure { quantity: Quantity, as_share: bool },
}

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str, scope: &Scope<'_>) -> Result<Self, Misread> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut at = 0;
        while let Some(symbol) = text[at..].chars().next() {
            let rest = &text[at..];
            if rest.starts_with("{{") || rest.starts_with("}}") {
                plain.push(symbol);
                at += 2;
            } else if symbol == '{' {
                // Another one that opens before it closes is the next figure's.
                let end = rest[1..].find(['{', '}']).map(|end| end + 1).filter(|end| rest[*end..].starts_with('}'));
                let length = end.ok_or_else(|| {
                    Misread::new(at, "a brace opens and none closes; write {{ for a brace that is text")
                })?;
                if !plain.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                }
                pieces.push(figure(&rest[1..length], at + 1, scope)?);
                at += length + 1;
            } else if symbol == '}' {
                return Err(Misread::new(at, "a brace closes and none was open; write }} for a brace that is text"));
            } else {
                plain.push(symbol);
                at += symbol.len_utf8();
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The text with what its figures come to.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn fill(&self, moments: &Moments) -> Result<String, Unanswered> {
        self.0.iter().map(|piece| piece.fill(moments)).collect()
    }

    /// The same where what is not known is a dash.
    #[must_use]
    pub fn fill_what_is_known(&self, moments: &Moments) -> String {
        self.0.iter().map(|piece| piece.fill(moments).unwrap_or_else(|_| "–".to_owned())).collect()
    }

    /// The text with its expressions as they were written, for whoever has no run.
    #[must_use]
    pub fn unfilled(&self) -> String {
        let shown = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Figure { quantity, .. } => format!("‹{quantity}›"),
        };
        self.0.iter().map(shown).collect()
    }

    /// Whether there is a figure in it.
    #[must_use]
    pub fn has_figures(&self) -> bool {
        self.quantities().next().is_some()
    }

    /// The quantities in it.
    pub fn quantities(&self) -> impl Iterator<Item = &Quantity> {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Figure { quantity, .. } => Some(quantity),
        })
    }
}

impl Piece {
    fn fill(&self, moments: &Moments) -> Result<String, Unanswered> {
        Ok(match self {
            Self::Text(text) => text.clone(),
            Self::Figure { quantity, as_share } => {
                let amount = quantity.measure(moments)?;
                if *as_share { amount.as_share().to_string() } else { amount.to_string() }
            }
        })
    }
}

/// What stands between two braces, of which the first byte lies at `offset`.
fn figure(inside: &str, offset: usize, scope: &Scope<'_>) -> Result<Piece, Misread> {
    let (written, format) = inside.split_once(':').map_or((inside, None), |(written, format)| (written, Some(format)));
    let misread = |misread: Misread| Misread { offset: offset + misread.offset, ..misread };
    let quantity = Quantity::parse(written, scope).map_err(misread)?;
    let as_share = match format.map(str::trim) {
        None => false,
        Some("%") if quantity.unit().is_bare() => true,
        Some("%") => {
            let reason = format!("{} are no part of a whole; :% is for shares and ratios", quantity.unit().label());
            return Err(Misread::new(offset + written.len(), reason));
        }
        Some(other) => {
            return Err(Misread::new(offset + written.len(), format!("':{other}' is no way to print; there is :%")));
        }
    };
    Ok(Piece::Figure { quantity, as_share })
}
