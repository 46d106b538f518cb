//! Compressed files: gzip, xz and zstd are unpacked while they are read; other formats are named.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;

use super::error::SnapshotError;
use super::pickle::PickleSource;

const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";
const GZIP_MAGIC: &[u8] = b"\x1f\x8b";
const ZSTD_MAGIC: &[u8] = b"\x28\xb5\x2f\xfd";
/// The largest zstd window that is accepted, as a power of two of bytes: what `zstd --ultra -22` uses.
const LARGEST_WINDOW: u32 = 27;
/// The largest xz dictionary that is accepted, in bytes: what `xz -9` uses.
const MAX_DICTIONARY: u64 = 64 << 20;
/// The formats that are not read.
const OTHERS: [Format; 4] = [
    Format { magic: b"BZh", name: "bzip2", remedy: "Unpack it with bunzip2, and pass what that leaves." },
    Format { magic: b"\x04\x22\x4d\x18", name: "lz4", remedy: "Unpack it with unlz4, and pass what that leaves." },
    Format { magic: b"7z\xbc\xaf\x27\x1c", name: "7-Zip", remedy: "Unpack it with 7z x, and pass what that leaves." },
    Format {
        magic: b"PK\x03\x04",
        name: "zip",
        remedy: "If torch.save() wrote it, it holds no snapshot; else unpack it with unzip, and pass what that leaves.",
    },
];

/// Every file may unpack to this many bytes, whatever its length.
const FREE: u64 = 64 << 20;
/// Bytes to which each further byte of the file may unpack. Recorded snapshots are compressed to between 1/7 and 1/40;
/// those with stacks a thousand frames deep, which repeat most, to 1/400. xz itself reaches 1/7000.
const LARGEST_RATIO: u64 = 1000;
/// How many unpacked bytes per byte of the file count towards the pickle's budget: a small file must not earn much
/// memory by unpacking to much data. A snapshot that is compressed further repeats itself, and takes less memory per
/// byte.
const WORTH: u64 = 64;

/// A compressed format that is not read.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The first bytes of its files.
    magic: &'static [u8],
    /// What people call it.
    pub name: &'static str,
    /// What the user can do, as a sentence.
    pub remedy: &'static str,
}

/// How a file is compressed.
#[derive(Clone, Copy, Debug)]
pub enum Compression {
    /// Not compressed.
    None,
    /// Compressed with xz.
    Xz,
    /// Compressed with gzip.
    Gzip,
    /// Compressed with zstd.
    Zstd,
    /// Compressed in a format that is not read.
    Other(Format),
}

impl Compression {
    /// Recognises the compression by a file's first bytes.
    pub fn of(head: &[u8]) -> Self {
        for (magic, packing) in [(XZ_MAGIC, Self::Xz), (GZIP_MAGIC, Self::Gzip), (ZSTD_MAGIC, Self::Zstd)] {
            if head.starts_with(magic) {
                return packing;
            }
        }
        OTHERS.into_iter().find(|format| head.starts_with(format.magic)).map_or(Self::None, Self::Other)
    }
}

/// The unpacked content of a compressed file, as a reader.
pub struct Decompressed<D> {
    decoder: D,
    /// Bytes of the file that were read.
    packed: Rc<Cell<u64>>,
    unpacked: u64,
}

impl<R: BufRead> Decompressed<XzReader<BoundedXz<CountingReader<R>>>> {
    /// Unpacks an xz file.
    pub fn xz(file: R) -> Self {
        Self::new(file, |file| XzReader::new(BoundedXz::new(file), true))
    }
}

impl<R: BufRead> Decompressed<MultiGzDecoder<CountingReader<R>>> {
    /// Unpacks a gzip file.
    pub fn gzip(file: R) -> Self {
        Self::new(file, MultiGzDecoder::new)
    }
}

impl<R: BufRead> Decompressed<zstd::Decoder<'static, BufReader<CountingReader<R>>>> {
    /// Unpacks a zstd file.
    ///
    /// # Errors
    /// If there is no memory for the decoder.
    pub fn zstd(file: R) -> io::Result<Self> {
        let packed = Rc::default();
        let mut decoder = zstd::Decoder::new(CountingReader { file, read: Rc::clone(&packed) })?;
        decoder.window_log_max(LARGEST_WINDOW)?;
        Ok(Self { decoder, packed, unpacked: 0 })
    }
}

impl<D> Decompressed<D> {
    fn new<R>(file: R, decoder: impl FnOnce(CountingReader<R>) -> D) -> Self {
        let packed = Rc::default();
        Self { decoder: decoder(CountingReader { file, read: Rc::clone(&packed) }), packed, unpacked: 0 }
    }
}

impl<D: Read> Read for Decompressed<D> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(buffer)?;
        self.unpacked += read as u64;
        if self.unpacked > FREE + LARGEST_RATIO * self.packed.get() {
            return Err(io::Error::other(format!(
                "it unpacks to more than {LARGEST_RATIO} times its length, which no snapshot does"
            )));
        }
        Ok(read)
    }
}

impl<D: Read> PickleSource for Decompressed<D> {
    fn worth(&self) -> u64 {
        WORTH * self.packed.get()
    }
}

/// A reader that counts the bytes read from a file.
pub struct CountingReader<R> {
    file: R,
    read: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.read.set(self.read.get() + read as u64);
        Ok(read)
    }
}

/// An xz file whose blocks may only use dictionaries within bounds. If a block asks for a larger one, reading ends with
/// an error before any memory is taken for it.
///
/// Only the decoder knows where blocks begin. Block headers lie at multiples of four bytes and carry their own
/// checksum, so every position that could hold one is examined.
pub struct BoundedXz<R> {
    file: R,
    /// Bytes that were read from the file and not yet handed on, after `done` bytes that were.
    ahead: Vec<u8>,
    done: usize,
    /// How many bytes of `ahead` contain no header that asks for too much.
    safe: usize,
    ended: bool,
}

impl<R: Read> BoundedXz<R> {
    /// The longest header of a block.
    const HEADER: usize = 1024;
    const AT_ONCE: usize = 1 << 12;

    pub const fn new(file: R) -> Self {
        Self { file, ahead: Vec::new(), done: 0, safe: 0, ended: false }
    }

    /// Reads on, and examines all headers that have been read completely.
    fn look_ahead(&mut self) -> io::Result<()> {
        // The kept bytes begin at a multiple of four in the file.
        let handed_on = self.done / 4 * 4;
        self.ahead.drain(..handed_on);
        self.done -= handed_on;
        self.safe -= handed_on;
        let wanted = (Self::AT_ONCE + Self::HEADER).saturating_sub(self.ahead.len());
        let read = self.file.by_ref().take(wanted as u64).read_to_end(&mut self.ahead)?;
        self.ended = read < wanted;
        let end = if self.ended { self.ahead.len() } else { self.ahead.len() - Self::HEADER };
        while self.safe < end {
            if let Some(dictionary) = dictionary(&self.ahead[self.safe..]).filter(|size| *size > MAX_DICTIONARY) {
                return Err(io::Error::other(SnapshotError::Dictionary(dictionary)));
            }
            self.safe = (self.safe + 4).min(self.ahead.len());
        }
        Ok(())
    }
}

impl<R: Read> Read for BoundedXz<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.done >= self.safe && !self.ended {
            self.look_ahead()?;
        }
        let count = (self.safe - self.done).min(buffer.len());
        buffer[..count].copy_from_slice(&self.ahead[self.done..self.done + count]);
        self.done += count;
        Ok(count)
    }
}

/// The dictionary size that a block header asks for; `None` if `bytes` don't begin with such a header.
fn dictionary(bytes: &[u8]) -> Option<u64> {
    const LZMA2: u8 = 0x21;
    const RESERVED: u8 = 0x3c;
    let length = (usize::from(*bytes.first().filter(|size| **size > 0)?) + 1) * 4;
    let flags = *bytes.get(1).filter(|flags| **flags & RESERVED == 0)?;
    let (header, checksum) = bytes.get(..length)?.split_last_chunk()?;
    let mut rest = header.get(2..)?;
    // The sizes of the block, if given, come before the filters.
    for given in [0x40, 0x80] {
        if flags & given != 0 {
            variable_length(&mut rest)?;
        }
    }
    for _ in 0..=(flags & 3) {
        let filter = variable_length(&mut rest)?;
        let length = usize::try_from(variable_length(&mut rest)?).ok()?;
        let (properties, after) = rest.split_at_checked(length)?;
        if filter == u64::from(LZMA2) {
            let bits = u32::from(*properties.first()?);
            let is_header = crc32fast::hash(header) == u32::from_le_bytes(*checksum);
            return is_header.then(|| u64::from(2 | (bits & 1)).checked_shl(bits / 2 + 11).unwrap_or(u64::MAX));
        }
        rest = after;
    }
    None
}

/// xz's variable-length integers: seven bits a byte, lowest first.
fn variable_length(rest: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..63).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}
