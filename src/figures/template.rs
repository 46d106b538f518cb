//! Texts with figures: `Peak allocated fell from {before.step_peak_allocated} to {step_peak_allocated}.`

use super::expression::{EvaluationError, Quantity};
use super::moments::Moments;
use super::parser::Scope;
use super::token::Misread;

/// A text with quantities in braces. `{a / b:%}` prints per cent, `{steps:step|steps}` prints a count with its word,
/// and `{{` and `}}` print braces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template(Vec<TemplatePiece>);

#[derive(Clone, Debug, PartialEq)]
enum TemplatePiece {
    Text(String),
    Figure { quantity: Quantity, form: PrintedForm },
}

/// How a quantity is printed.
#[derive(Clone, Debug, PartialEq)]
enum PrintedForm {
    /// With its unit.
    Plain,
    /// In per cent.
    Share,
    /// With a word: one for 1, the other for any other number.
    Counted { one: String, many: String },
}

impl Template {
    /// Parses a text.
    ///
    /// # Errors
    /// What is wrong, with its place.
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
                // If another brace opens before this one closes, it belongs to the next figure.
                let end = rest[1..].find(['{', '}']).map(|end| end + 1).filter(|end| rest[*end..].starts_with('}'));
                let length = end.ok_or_else(|| {
                    Misread::new(at, "a brace opens and none closes; write {{ for a brace that is text")
                })?;
                if !plain.is_empty() {
                    pieces.push(TemplatePiece::Text(std::mem::take(&mut plain)));
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
            pieces.push(TemplatePiece::Text(plain));
        }
        Ok(Self(pieces))
    }

    /// The text with the values of its figures filled in.
    ///
    /// # Errors
    /// [`EvaluationError`].
    pub fn fill(&self, moments: &Moments) -> Result<String, EvaluationError> {
        self.0.iter().map(|piece| piece.fill(moments)).collect()
    }

    /// The same, with a dash for each unknown figure.
    #[must_use]
    pub fn fill_what_is_known(&self, moments: &Moments) -> String {
        self.0.iter().map(|piece| piece.fill(moments).unwrap_or_else(|_| "–".to_owned())).collect()
    }

    /// The text with its expressions as they were written, for use without a run.
    #[must_use]
    pub fn unfilled(&self) -> String {
        let shown = |piece: &TemplatePiece| match piece {
            TemplatePiece::Text(text) => text.clone(),
            TemplatePiece::Figure { quantity, .. } => format!("‹{quantity}›"),
        };
        self.0.iter().map(shown).collect()
    }

    /// The text with a line to write on in place of each figure.
    #[must_use]
    pub fn to_write_on(&self) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            text.push_str(match piece {
                TemplatePiece::Text(text) => text,
                TemplatePiece::Figure { .. } => "________",
            });
        }
        text
    }

    /// Whether the text has figures.
    #[must_use]
    pub fn has_figures(&self) -> bool {
        self.quantities().next().is_some()
    }

    /// The quantities in the text.
    pub fn quantities(&self) -> impl Iterator<Item = &Quantity> {
        self.0.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Figure { quantity, .. } => Some(quantity),
        })
    }
}

impl TemplatePiece {
    fn fill(&self, moments: &Moments) -> Result<String, EvaluationError> {
        Ok(match self {
            Self::Text(text) => text.clone(),
            Self::Figure { quantity, form } => {
                let amount = quantity.measure(moments)?;
                match form {
                    PrintedForm::Plain => amount.to_string(),
                    PrintedForm::Share => amount.as_share().to_string(),
                    PrintedForm::Counted { one, .. } if amount.to_string() == "1" => format!("1 {one}"),
                    PrintedForm::Counted { many, .. } => format!("{amount} {many}"),
                }
            }
        })
    }
}

/// Parses the text between two braces; its first byte is at `offset`.
fn figure(inside: &str, offset: usize, scope: &Scope<'_>) -> Result<TemplatePiece, Misread> {
    let (written, format) = inside.split_once(':').map_or((inside, None), |(written, format)| (written, Some(format)));
    let misread = |misread: Misread| Misread { offset: offset + misread.offset, ..misread };
    let quantity = Quantity::parse(written, scope).map_err(misread)?;
    let bare = quantity.unit().is_bare();
    let wrong = |reason: String| Err(Misread::new(offset + written.len(), reason));
    let form = match format.map(str::trim) {
        None => PrintedForm::Plain,
        Some("%") if bare => PrintedForm::Share,
        Some("%") => {
            return wrong(format!("{} are no part of a whole; :% is for shares and ratios", quantity.unit().label()));
        }
        Some(words) => match words.split_once('|') {
            Some((one, many)) if bare => {
                PrintedForm::Counted { one: one.trim().to_owned(), many: many.trim().to_owned() }
            }
            Some(_) => return wrong(format!("{} are not counted; :one|many is for counts", quantity.unit().label())),
            None => return wrong(format!("':{words}' is no way to print; there are :% and :step|steps")),
        },
    };
    Ok(TemplatePiece::Figure { quantity, form })
}
