//! Lengths from a file: a number per line, or a column of a CSV or JSONL file.
//!
//! Files are read piece by piece: only one number per sample is kept.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use thiserror::Error;

use super::super::bounds::Extent;
use vramlab_user_input::{FileError, open_file};

/// The most samples of a file.
const MOST_SAMPLES: usize = 1 << 22;
/// The most bytes of a line.
const LONGEST_LINE: usize = 16 << 20;
/// The most columns of a CSV file, and the most bytes of a field that are read.
const MOST_COLUMNS: usize = 4096;
const LONGEST_FIELD: usize = 256;

/// Why lengths can't be read.
#[derive(Debug, Error)]
pub enum LengthsError {
    /// The file is not read.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its content has no lengths.
    #[error("{}: {why}", .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, and what to do.
        why: String,
    },
}

/// The lengths in a file, and the column that they come from, if it has columns. `column` names one; by default it is the first
/// with a number in the first line that has any. A column of lists in a JSONL file gives the length of each list.
///
/// # Errors
/// [`LengthsError`].
pub fn read_lengths(path: &Path, column: Option<&str>) -> Result<(Vec<u32>, Option<String>), LengthsError> {
    let (file, _) = open_file(path)?;
    let lines = Lines { reader: BufReader::new(file), line: Vec::new(), number: 0 };
    read(lines, column).map_err(|why| LengthsError::Content { path: path.to_owned(), why })
}

fn read(mut lines: Lines<impl BufRead>, column: Option<&str>) -> Result<(Vec<u32>, Option<String>), String> {
    let mut samples = Samples::default();
    let Some(first) = lines.next_with_text()? else {
        return Err("there is nothing in it; give a length a line".to_owned());
    };
    if first.starts_with(b"{") {
        let column = objects(&mut lines, column, &mut samples)?;
        return Ok((samples.some()?, Some(column)));
    }
    if parsed(first).is_some() && !first.contains(&b',') {
        if let Some(column) = column {
            return Err(format!("it has no columns, so there is no '{column}'; leave the column out"));
        }
        plain(&mut lines, &mut samples)?;
        return Ok((samples.some()?, None));
    }
    let column = table(&mut lines, column, &mut samples)?;
    Ok((samples.some()?, Some(column)))
}

/// Lengths that are known so far.
#[derive(Default)]
struct Samples(Vec<u32>);

impl Samples {
    fn push(&mut self, length: f64, line: u64) -> Result<(), String> {
        let most = Extent::MOST.get();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the bounds of an extent")]
        let whole = (length.fract() == 0.0 && length >= 1.0 && length <= most as f64).then_some(length as u32);
        let Some(length) = whole else {
            return Err(format!(
                "line {line}: a length is a whole number from 1 to {most}, and {length} is none; correct it"
            ));
        };
        if self.0.len() == MOST_SAMPLES {
            return Err(format!("it has more than {MOST_SAMPLES} samples; give a part of them"));
        }
        self.0.push(length);
        Ok(())
    }

    fn some(self) -> Result<Vec<u32>, String> {
        if self.0.is_empty() { Err("it has no samples; give a length a line".to_owned()) } else { Ok(self.0) }
    }
}

/// Lines of a file, up to the longest that is read.
struct Lines<R> {
    reader: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Lines<R> {
    /// The next line that is not empty, without the blanks around it.
    fn next_with_text(&mut self) -> Result<Option<&[u8]>, String> {
        loop {
            self.line.clear();
            let mut limited = (&mut self.reader).take(LONGEST_LINE as u64 + 1);
            let read =
                limited.read_until(b'\n', &mut self.line).map_err(|error| format!("it can't be read ({error})"))?;
            self.number += 1;
            if read > LONGEST_LINE {
                return Err(format!("line {} is longer than 16 MiB; is it a list of lengths?", self.number));
            }
            if read == 0 {
                return Ok(None);
            }
            if self.number == 1 && self.line.starts_with(b"\xEF\xBB\xBF") {
                self.line.drain(..3);
            }
            if !self.line.trim_ascii().is_empty() {
                break;
            }
        }
        Ok(Some(self.line.trim_ascii()))
    }
}

fn number(text: &[u8]) -> Option<f64> {
    parsed(text).filter(|number| number.is_finite())
}

/// The number in `text`, which may be infinite; `None` if it is none.
fn parsed(text: &[u8]) -> Option<f64> {
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

/// The beginning of `text`, short enough for a sentence.
fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().take(40).collect()
}

/// Reads one number per line; the first line is already read.
fn plain(lines: &mut Lines<impl BufRead>, samples: &mut Samples) -> Result<(), String> {
    loop {
        let line = lines.number;
        let text = lines.line.trim_ascii();
        let Some(length) = number(text) else {
            return Err(format!("line {line}: '{}' is no number; give a length a line", shown(text)));
        };
        samples.push(length, line)?;
        if lines.next_with_text()?.is_none() {
            return Ok(());
        }
    }
}

/// Reads one object per line; the first line is already read.
fn objects(lines: &mut Lines<impl BufRead>, column: Option<&str>, samples: &mut Samples) -> Result<String, String> {
    let mut wanted = column.map(str::to_owned);
    loop {
        let line = lines.number;
        let row = Row { wanted: wanted.as_deref() };
        let mut text = serde_json::Deserializer::from_slice(lines.line.trim_ascii());
        let found = de::DeserializeSeed::deserialize(row, &mut text).and_then(|found| text.end().map(|()| found));
        let found = found.map_err(|error| format!("line {line} is no JSON object ({error}); correct it"))?;
        let LengthColumn { cell, keys } = found;
        let keys = if keys.is_empty() { "none".to_owned() } else { keys.join(", ") };
        match (cell, wanted.is_some()) {
            (Some((_, Cell::Number(length))), true) => samples.push(length, line)?,
            (Some((_, Cell::Items(items))), true) => samples.push(items as f64, line)?,
            (Some((name, Cell::Number(length))), false) => {
                samples.push(length, line)?;
                wanted = Some(name);
            }
            (Some((name, _)), _) => return Err(format!("line {line}: '{name}' is no number; correct it")),
            (None, true) => {
                let name = wanted.unwrap_or_default();
                return Err(format!("line {line} has no '{name}'; its keys are {keys}"));
            }
            (None, false) => {
                return Err(format!("line {line} has no number; its keys are {keys}; name a list"));
            }
        }
        if lines.next_with_text()?.is_none() {
            return Ok(wanted.unwrap_or_default());
        }
    }
}

/// The content of a row's cell.
enum Cell {
    Number(f64),
    Items(usize),
    Other,
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Looks;
        impl<'de> Visitor<'de> for Looks {
            type Value = Cell;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
            fn visit_i64<E>(self, number: i64) -> Result<Cell, E> {
                Ok(Cell::Number(number as f64))
            }
            #[expect(clippy::cast_precision_loss, reason = "lengths are small")]
            fn visit_u64<E>(self, number: u64) -> Result<Cell, E> {
                Ok(Cell::Number(number as f64))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Cell, E> {
                Ok(Cell::Number(number))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Cell, E> {
                Ok(Cell::Other)
            }
            fn visit_str<E>(self, _: &str) -> Result<Cell, E> {
                Ok(Cell::Other)
            }
            fn visit_unit<E>(self) -> Result<Cell, E> {
                Ok(Cell::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Cell, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Cell::Other)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Cell, A::Error> {
                let mut items = 0;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    items += 1;
                }
                Ok(Cell::Items(items))
            }
        }
        deserializer.deserialize_any(Looks)
    }
}

/// Looks for one cell of an object: the wanted one, or the first number.
struct Row<'a> {
    wanted: Option<&'a str>,
}

#[derive(Default)]
struct LengthColumn {
    cell: Option<(String, Cell)>,
    keys: Vec<String>,
}

impl<'de> de::DeserializeSeed<'de> for Row<'_> {
    type Value = LengthColumn;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LengthColumn, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = LengthColumn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LengthColumn, A::Error> {
        let mut found = LengthColumn::default();
        while let Some(key) = map.next_key::<String>()? {
            if found.keys.len() < 8 {
                found.keys.push(shown(key.as_bytes()));
            }
            let looked_for = self.wanted.is_none_or(|wanted| wanted == key) && found.cell.is_none();
            if !looked_for {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let cell: Cell = map.next_value()?;
            if self.wanted.is_some() || matches!(cell, Cell::Number(_)) {
                found.cell = Some((key, cell));
            }
        }
        Ok(found)
    }
}

/// Reads a table with a header line, which is already read.
fn table(lines: &mut Lines<impl BufRead>, column: Option<&str>, samples: &mut Samples) -> Result<String, String> {
    let tabs = lines.line.contains(&b'\t') && !lines.line.contains(&b',');
    let mut records = Records { lines, separator: if tabs { b'\t' } else { b',' } };
    let names: Vec<String> = records.fields()?.iter().map(|field| shown(field.trim_ascii())).collect();
    let known = || names.iter().take(8).cloned().collect::<Vec<_>>().join(", ");
    let mut wanted = None;
    if let Some(column) = column {
        let found = names.iter().position(|name| name == column);
        wanted = Some(found.ok_or_else(|| format!("it has no column '{column}'; there are {}", known()))?);
    }
    while records.lines.next_with_text()?.is_some() {
        let line = records.lines.number;
        let fields = records.fields()?;
        let at = wanted.or_else(|| fields.iter().position(|field| number(field).is_some()));
        let Some(at) = at else {
            return Err(format!("line {line}: none of its columns ({}) is a number; give lengths", known()));
        };
        wanted = Some(at);
        let name = names.get(at).map_or("", |name| name);
        let field = fields.get(at).map_or(&[][..], |field| field);
        let Some(length) = number(field) else {
            return Err(format!(
                "line {line}: '{}' in column '{name}' is no number; correct it, or name another",
                shown(field)
            ));
        };
        samples.push(length, line)?;
    }
    let at = wanted.ok_or_else(|| format!("it has a line of names ({}) and no samples", known()))?;
    Ok(names.into_iter().nth(at).unwrap_or_default())
}

/// Records of a table: fields in quotes may have separators, line ends and doubled quotes in them.
struct Records<'a, R> {
    lines: &'a mut Lines<R>,
    separator: u8,
}

impl<R: BufRead> Records<'_, R> {
    /// The fields of the record that begins with the current line, each cut to the bytes that a number could have.
    fn fields(&mut self) -> Result<Vec<Vec<u8>>, String> {
        let (begun, mut size) = (self.lines.number, 0);
        let mut fields = vec![Vec::new()];
        let mut quoted = false;
        loop {
            let line = self.lines.line.trim_ascii_end();
            size += line.len();
            for &byte in line {
                match byte {
                    // A doubled quote closes and reopens the field.
                    b'"' => quoted = !quoted,
                    byte if byte == self.separator && !quoted => {
                        if fields.len() == MOST_COLUMNS {
                            return Err(format!("line {begun} has more than {MOST_COLUMNS} columns; is it a table?"));
                        }
                        fields.push(Vec::new());
                    }
                    byte => {
                        if let Some(field) = fields.last_mut().filter(|field| field.len() < LONGEST_FIELD) {
                            field.push(byte);
                        }
                    }
                }
            }
            if !quoted {
                return Ok(fields);
            }
            if size > LONGEST_LINE || self.lines.next_with_text()?.is_none() {
                return Err(format!("line {begun}: its quotes don't end; correct it"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(text: &str, column: Option<&str>) -> Result<(Vec<u32>, Option<String>), String> {
        read(Lines { reader: text.as_bytes(), line: Vec::new(), number: 0 }, column)
    }

    #[test]
    fn a_number_a_line_a_column_and_a_key_are_lengths() {
        assert_eq!(lengths("\u{feff}3\r\n\n 14\n15.0", None), Ok((vec![3, 14, 15], None)));
        let table = "text,n,length\n\"a \"\"b\"\",\nc\",7,11\nd,8,12\n";
        assert_eq!(lengths(table, None), Ok((vec![7, 8], Some("n".to_owned()))));
        assert_eq!(lengths(table, Some("length")), Ok((vec![11, 12], Some("length".to_owned()))));
        assert_eq!(lengths("a\tb\nx\t5\n", None), Ok((vec![5], Some("b".to_owned()))));
        let objects = "{\"text\": \"{1}\", \"n\": 7, \"ids\": [1, [2], 3]}\n{\"ids\": [], \"n\": 9}\n";
        assert_eq!(lengths(objects, None), Ok((vec![7, 9], Some("n".to_owned()))));
        assert_eq!(lengths(objects.lines().next().unwrap(), Some("ids")), Ok((vec![3], Some("ids".to_owned()))));
    }

    #[test]
    fn what_is_no_length_is_told_by_its_line() {
        for (text, column, words) in [
            ("", None, "nothing in it"),
            (" \n\n", None, "nothing in it"),
            ("3\nfour\n", None, "line 2: 'four' is no number"),
            ("3\n0\n", None, "line 2: a length is a whole number from 1 to 16777216, and 0 is none"),
            ("3\n-2\n", None, "and -2 is none"),
            ("3\n2.5\n", None, "and 2.5 is none"),
            ("3\n1e300\n", None, "line 2: a length is a whole number"),
            ("nan\n3\n", None, "'nan'"),
            ("3\n4", Some("n"), "it has no columns, so there is no 'n'"),
            ("a,b\n", None, "no samples"),
            ("a,b\nx,y\n", None, "line 2: none of its columns (a, b) is a number"),
            ("a,b\n1,2\n,3\n", None, "line 3: '' in column 'a' is no number"),
            ("a,b\n1,2\n", Some("c"), "no column 'c'; there are a, b"),
            ("a,b\n\"1,2\n", None, "line 2: its quotes don't end"),
            ("{\"a\": \"x\"}", None, "line 1 has no number; its keys are a"),
            ("{\"a\": 1}\n{\"b\": 1}", None, "line 2 has no 'a'; its keys are b"),
            ("{\"a\": 1}\n{\"a\": true}", None, "line 2: 'a' is no number"),
            ("{\"a\": 1}\n[2]", None, "line 2 is no JSON object"),
            ("{\"a\": 1} 2", None, "line 1 is no JSON object"),
        ] {
            let told = lengths(text, column).unwrap_err();
            assert!(told.contains(words), "{text:?}: {told}");
        }
    }

    #[test]
    fn no_file_takes_more_memory_than_its_lengths() {
        let endless = || Lines { reader: BufReader::new(std::io::repeat(b'7')), line: Vec::new(), number: 0 };
        assert!(read(endless(), None).unwrap_err().contains("longer than 16 MiB"));
        let deep = format!("{{\"a\": {}", "[".repeat(1 << 20));
        assert!(lengths(&deep, None).unwrap_err().contains("line 1 is no JSON object"));
        let wide = format!("a{}\n1\n", ",".repeat(MOST_COLUMNS));
        assert!(lengths(&wide, None).unwrap_err().contains("columns"));
        let many = "1\n".repeat(MOST_SAMPLES + 1);
        assert!(lengths(&many, None).unwrap_err().contains("more than 4194304 samples"));
    }

    #[test]
    fn what_is_no_file_is_refused() {
        assert!(matches!(read_lengths(Path::new("/dev/zero"), None), Err(LengthsError::File(_))));
    }
}
