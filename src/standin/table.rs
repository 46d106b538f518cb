//! The table of entry points: every function of NVIDIA's libraries that a program may call, and what a call does.
//!
//! There is one file for each library: a line `refusal CODE`, then lines with a name and an answer. The build script
//! makes stubs from them.

use std::fmt;

/// What a call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// Calls the function that is written by hand.
    Meant,
    /// Calls NVIDIA's own function, which needs no device.
    Real,
    /// Does nothing and reports success.
    Done,
    /// Launches a kernel, as the library would.
    Launches,
    /// Creates an opaque handle at the address in this argument, counted from 1.
    Creates(usize),
    /// Writes this many zero bytes at the addresses in these arguments, counted from 1.
    Zeroes(Vec<(usize, usize)>),
    /// Refuses, with the library's result for what it does not support.
    Refused,
    /// Ends the program with a message.
    Stops,
}

/// The entry points of one library.
#[derive(Clone, Debug, Default)]
pub struct EntryTable {
    /// Its result for what it does not support.
    pub refusal: u32,
    /// Names and implementations, in order of the names.
    pub entries: Vec<(String, Implementation)>,
}

/// An error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// Its number, from 1.
    pub line: usize,
    /// Its text.
    pub text: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is no name with an answer, or out of order: {}", self.line, self.text)
    }
}

impl EntryTable {
    /// Parses a file.
    ///
    /// # Errors
    /// The first line that is invalid, repeats a name, or is out of order.
    pub fn read(text: &str) -> Result<Self, TableError> {
        let mut table = Self::default();
        for (at, line) in text.lines().enumerate() {
            let wrong = || TableError { line: at + 1, text: line.to_owned() };
            let line = line.split('#').next().unwrap_or_default().trim();
            let Some((name, answer)) = line.split_once(' ') else {
                if line.is_empty() {
                    continue;
                }
                return Err(wrong());
            };
            if name == "refusal" {
                table.refusal = answer.parse().map_err(|_| wrong())?;
                continue;
            }
            let answer = Implementation::read(answer).ok_or_else(wrong)?;
            if table.entries.last().is_some_and(|(last, _)| **last >= *name) {
                return Err(wrong());
            }
            table.entries.push((name.to_owned(), answer));
        }
        Ok(table)
    }
}

impl Implementation {
    fn read(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let pairs = || {
            let pair = |pair: &str| {
                let (argument, bytes) = pair.split_once(':')?;
                Some((argument.parse().ok()?, bytes.parse().ok()?))
            };
            rest.split(' ').map(pair).collect::<Option<Vec<_>>>()
        };
        match (word, rest) {
            ("meant", "") => Some(Self::Meant),
            ("real", "") => Some(Self::Real),
            ("done", "") => Some(Self::Done),
            ("launches", "") => Some(Self::Launches),
            ("refused", "") => Some(Self::Refused),
            ("stops", "") => Some(Self::Stops),
            ("creates", rest) => rest.parse().ok().map(Self::Creates),
            ("zeroes", _) => pairs().map(Self::Zeroes),
            _ => None,
        }
    }

    /// Whether a stub is generated for it.
    pub fn is_generated(&self) -> bool {
        !matches!(self, Self::Meant | Self::Real)
    }

    /// The stub in Rust: a function with only the arguments that it needs, which the C calling conventions of Linux
    /// allow.
    pub fn stub(&self, name: &str, entry: usize, refusal: u32) -> Option<String> {
        let (taken, body) = match self {
            Self::Meant | Self::Real => return None,
            Self::Done => (vec![], format!("done({entry})")),
            Self::Launches => (vec![], format!("launches({entry})")),
            Self::Creates(at) => (vec![*at], format!("creates({entry}, a{at})")),
            Self::Zeroes(places) => {
                let each = places.iter().map(|(at, bytes)| format!("zeroes({entry}, a{at}, {bytes});"));
                let taken = places.iter().map(|(at, _)| *at).collect();
                (taken, format!("{} 0", each.collect::<Vec<_>>().join(" ")))
            }
            Self::Refused => (vec![], format!("refused({entry}, {refusal})")),
            Self::Stops => (vec![], format!("stops({entry})")),
        };
        let most = taken.iter().max().copied().unwrap_or(0);
        let argument = |at: usize| if taken.contains(&at) { format!("a{at}: usize") } else { "_: usize".to_owned() };
        let arguments = (1..=most).map(argument).collect::<Vec<_>>().join(", ");
        Some(format!(
            "// SAFETY: the name is exported on purpose.\n#[unsafe(no_mangle)]\nextern \"C\" fn {name}({arguments}) -> usize {{ {body} }}\n"
        ))
    }
}
