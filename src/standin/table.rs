//! The table of entry points: every name of NVIDIA's libraries that a program may call, and what a call does.
//!
//! One file a library: a line `refusal CODE`, then lines of a name and an answer. The build script makes stubs of them.

use std::fmt;

/// What a call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// It is written by hand.
    Meant,
    /// NVIDIA's own function is called: it needs no device.
    Real,
    /// Nothing, and says that it is done.
    Done,
    /// A launch, as the library would do one.
    Launches,
    /// Puts an opaque handle where this argument, counted from 1, points.
    Creates(usize),
    /// Puts so many bytes of zero where these arguments, counted from 1, point.
    Zeroes(Vec<(usize, usize)>),
    /// Nothing, and says so: the library's result for what it does not support.
    Refused,
    /// Ends the program with a sentence.
    Stops,
}

/// The entry points of one library.
#[derive(Clone, Debug, Default)]
pub struct EntryTable {
    /// Its result for what it does not support.
    pub refusal: u32,
    /// Names and answers, in the order of the names.
    pub entries: Vec<(String, Implementation)>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableError {
    /// Its number, from 1.
    pub line: usize,
    /// What it says.
    pub text: String,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} is no name with an answer, or out of order: {}", self.line, self.text)
    }
}

impl EntryTable {
    /// Reads a file.
    ///
    /// # Errors
    /// The first line that is none, names something twice, or is out of order.
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

    /// Whether a stub is made of it.
    pub fn is_generated(&self) -> bool {
        !matches!(self, Self::Meant | Self::Real)
    }

    /// The stub's Rust: a function that takes what it needs of the arguments, which the C calling conventions of Linux allow.
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
