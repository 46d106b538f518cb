//! Writes pickles of protocol 4, like PyTorch's snapshots, with no opcode that PyTorch's viewer can't read.

use std::collections::HashMap;
use std::io::{self, Write};

/// Writes a pickle, value by value.
///
/// Lists and dictionaries are opened and closed, and the values written in between go into them; in a dictionary, each
/// key comes before its value. Only texts that were [shared](Pickler::shared) are kept.
#[derive(Debug)]
pub(super) struct Pickler<W> {
    out: W,
    /// Number of values that can be recalled.
    memoized: u32,
    texts: HashMap<Box<str>, Memo>,
    /// For each open list, the number of items since its last batch.
    lists: Vec<u32>,
}

/// A value that can be written again in a few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memo(u32);

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const NEW_TRUE: u8 = 0x88;
const NEW_FALSE: u8 = 0x89;
const BIN_INT: u8 = b'J';
const BIN_INT_1: u8 = b'K';
const BIN_INT_2: u8 = b'M';
const LONG_1: u8 = 0x8a;
const BIN_FLOAT: u8 = b'G';
const SHORT_BIN_UNICODE: u8 = 0x8c;
const BIN_UNICODE: u8 = b'X';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const EMPTY_DICT: u8 = b'}';
const SET_ITEMS: u8 = b'u';
const TUPLE_2: u8 = 0x86;
const MEMOIZE: u8 = 0x94;
const BIN_GET: u8 = b'h';
const LONG_BIN_GET: u8 = b'j';

impl<W: Write> Pickler<W> {
    /// The most items that a reader has on its stack: as many as with Python's own writer.
    const BATCH: u32 = 1000;

    /// Begins a pickle.
    pub fn new(mut out: W) -> io::Result<Self> {
        out.write_all(&[PROTO, 4])?;
        Ok(Self { out, memoized: 0, texts: HashMap::new(), lists: Vec::new() })
    }

    /// Ends the pickle; exactly one value must have been written.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[STOP])
    }

    pub fn bool(&mut self, value: bool) -> io::Result<()> {
        self.out.write_all(&[if value { NEW_TRUE } else { NEW_FALSE }])
    }

    pub fn float(&mut self, value: f64) -> io::Result<()> {
        self.out.write_all(&[BIN_FLOAT])?;
        self.out.write_all(&value.to_be_bytes())
    }

    pub fn int(&mut self, value: impl Into<i128>) -> io::Result<()> {
        let value: i128 = value.into();
        if let Ok(byte) = u8::try_from(value) {
            return self.out.write_all(&[BIN_INT_1, byte]);
        }
        if let Ok(short) = u16::try_from(value) {
            self.out.write_all(&[BIN_INT_2])?;
            return self.out.write_all(&short.to_le_bytes());
        }
        if let Ok(int) = i32::try_from(value) {
            self.out.write_all(&[BIN_INT])?;
            return self.out.write_all(&int.to_le_bytes());
        }
        // Two's complement, in the fewest bytes that keep the sign.
        let bytes = value.to_le_bytes();
        let sign_bits = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        let length = (i128::BITS - sign_bits) as usize / 8 + 1;
        self.out.write_all(&[LONG_1, length as u8])?;
        self.out.write_all(&bytes[..length])
    }

    /// Writes a text that will probably not be repeated.
    pub fn text(&mut self, text: &str) -> io::Result<()> {
        match u8::try_from(text.len()) {
            Ok(length) => self.out.write_all(&[SHORT_BIN_UNICODE, length])?,
            Err(_) => {
                // No text that was read here is longer than a recording's frame.
                let length = u32::try_from(text.len()).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
                self.out.write_all(&[BIN_UNICODE])?;
                self.out.write_all(&length.to_le_bytes())?;
            }
        }
        self.out.write_all(text.as_bytes())
    }

    /// Writes a text; repetitions take a few bytes.
    pub fn shared(&mut self, text: &str) -> io::Result<()> {
        if let Some(memo) = self.texts.get(text) {
            return self.recall(*memo);
        }
        self.text(text)?;
        let memo = self.memoize()?;
        self.texts.insert(text.into(), memo);
        Ok(())
    }

    /// Makes the last value (or the last opened list or dictionary) recallable.
    pub fn memoize(&mut self) -> io::Result<Memo> {
        let memo = Memo(self.memoized);
        self.memoized += 1;
        self.out.write_all(&[MEMOIZE])?;
        Ok(memo)
    }

    /// Writes the same value again.
    pub fn recall(&mut self, Memo(index): Memo) -> io::Result<()> {
        match u8::try_from(index) {
            Ok(index) => self.out.write_all(&[BIN_GET, index]),
            Err(_) => {
                self.out.write_all(&[LONG_BIN_GET])?;
                self.out.write_all(&index.to_le_bytes())
            }
        }
    }

    /// Opens a list; a call of [`Pickler::item`] comes before each value in it.
    pub fn open_list(&mut self) -> io::Result<()> {
        self.lists.push(0);
        self.out.write_all(&[EMPTY_LIST])
    }

    /// Announces that the next value is an item of the innermost open list.
    pub fn item(&mut self) -> io::Result<()> {
        let Some(items) = self.lists.last_mut() else { return Ok(()) };
        let batch = match *items {
            0 => &[MARK][..],
            Self::BATCH => &[APPENDS, MARK],
            _ => &[],
        };
        *items = *items % Self::BATCH + 1;
        self.out.write_all(batch)
    }

    pub fn close_list(&mut self) -> io::Result<()> {
        if self.lists.pop().unwrap_or(0) > 0 { self.out.write_all(&[APPENDS]) } else { Ok(()) }
    }

    /// Opens a dictionary, which must get at least one pair.
    pub fn open_dict(&mut self) -> io::Result<()> {
        self.out.write_all(&[EMPTY_DICT, MARK])
    }

    pub fn close_dict(&mut self) -> io::Result<()> {
        self.out.write_all(&[SET_ITEMS])
    }

    /// Makes a pair of the last two values.
    pub fn pair(&mut self) -> io::Result<()> {
        self.out.write_all(&[TUPLE_2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl Fn(&mut Pickler<&mut Vec<u8>>) -> io::Result<()>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut pickler = Pickler::new(&mut out).unwrap();
        write(&mut pickler).unwrap();
        pickler.finish().unwrap();
        out[2..out.len() - 1].to_vec()
    }

    #[test]
    fn numbers_are_written_as_python_writes_them() {
        // The bytes that `pickle.dumps(n, 4)` writes between its header and its end.
        for (number, bytes) in [
            (0_i128, &b"K\x00"[..]),
            (255, b"K\xff"),
            (256, b"M\x00\x01"),
            (65_535, b"M\xff\xff"),
            (65_536, b"J\x00\x00\x01\x00"),
            (-1, b"J\xff\xff\xff\xff"),
            (2_147_483_647, b"J\xff\xff\xff\x7f"),
            (2_147_483_648, b"\x8a\x05\x00\x00\x00\x80\x00"),
            (140_021_973_647_360, b"\x8a\x06\x00\x00\x00\x68\x59\x7f"),
            (-2_147_483_649, b"\x8a\x05\xff\xff\xff\x7f\xff"),
            (18_446_744_073_709_551_615, b"\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00"),
        ] {
            assert_eq!(written(|pickler| pickler.int(number)), bytes, "{number}");
        }
    }

    #[test]
    fn a_long_list_comes_in_batches() {
        let list = |items: u32| {
            written(|pickler| {
                pickler.open_list()?;
                for _ in 0..items {
                    pickler.item()?;
                    pickler.bool(true)?;
                }
                pickler.close_list()
            })
        };
        assert_eq!(list(0), b"]");
        assert_eq!(list(2), b"](\x88\x88e");
        let count = |bytes: &[u8], code: u8| bytes.iter().filter(|byte| **byte == code).count();
        for (items, batches) in [(1000, 1), (1001, 2), (2500, 3)] {
            let bytes = list(items);
            assert_eq!((count(&bytes, MARK), count(&bytes, APPENDS)), (batches, batches), "{items}");
            assert_eq!(count(&bytes, NEW_TRUE), items as usize);
        }
    }

    #[test]
    fn a_shared_text_is_written_once() {
        let bytes = written(|pickler| {
            pickler.shared("addr")?;
            pickler.text("x")?;
            pickler.shared("addr")
        });
        assert_eq!(bytes, b"\x8c\x04addr\x94\x8c\x01xh\x00");
        let long = "x".repeat(300);
        assert_eq!(written(|pickler| pickler.text(&long)).len(), 5 + 300);
    }
}
