//! A buffered byte source that knows its offset and never trusts a length.

use std::io::{self, ErrorKind, Read};

use super::error::Problem;

const BUFFER: usize = 256 << 10;
/// Longest line of the text opcodes (protocol 0), and step in which long texts are read.
const STEP: usize = 64 << 10;

/// Where the bytes of a pickle come from.
pub trait PickleSource: Read {
    /// How many bytes count as read for the pickle's budget.
    fn worth(&self) -> u64;
}

/// A source whose every byte counts for the budget.
#[derive(Debug)]
pub struct Plain<R>(pub R);

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> PickleSource for Plain<R> {
    fn worth(&self) -> u64 {
        u64::MAX
    }
}

/// The bytes of a pickle, read in order.
pub struct Input<'a> {
    reader: &'a mut dyn PickleSource,
    /// Bytes that count for the budget, as the source reported them at the last read.
    worth: u64,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// Bytes that have left the buffer.
    passed: u64,
    scratch: Vec<u8>,
}

impl<'a> Input<'a> {
    pub fn new(reader: &'a mut dyn PickleSource) -> Self {
        Self {
            worth: reader.worth(),
            reader,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            start: 0,
            end: 0,
            passed: 0,
            scratch: Vec::new(),
        }
    }

    /// Bytes consumed so far.
    pub const fn offset(&self) -> u64 {
        self.passed + self.start as u64
    }

    /// Bytes consumed so far that count for the budget.
    #[inline]
    pub fn paid(&self) -> u64 {
        self.paid_after(0)
    }

    /// Like [`Input::paid`], once `more` bytes have been consumed.
    #[inline]
    pub fn paid_after(&self, more: u64) -> u64 {
        self.offset().saturating_add(more).min(self.worth)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8, Problem> {
        if self.start == self.end {
            self.fill(1)?;
        }
        let byte = self.buffer[self.start];
        self.start += 1;
        Ok(byte)
    }

    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Problem> {
        if self.end - self.start < N {
            self.fill(N)?;
        }
        let mut array = [0; N];
        array.copy_from_slice(&self.buffer[self.start..self.start + N]);
        self.start += N;
        Ok(array)
    }

    /// The bytes that were read ahead.
    #[inline]
    pub fn ahead(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Skips `len` of the bytes that were read ahead.
    #[inline]
    pub fn pass(&mut self, len: usize) {
        self.start = (self.start + len).min(self.end);
    }

    /// Reads further ahead, as much as one read returns. Returns false if there is nothing more, or no room.
    pub fn read_ahead(&mut self) -> Result<bool, Problem> {
        let further = self.end - self.start + 1;
        match self.fill(further.min(BUFFER)) {
            Ok(()) => Ok(self.end >= further),
            Err(Problem::Truncated) => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// The next `len` bytes. Memory is taken only for bytes that the input really has.
    pub fn take(&mut self, len: usize) -> Result<&[u8], Problem> {
        if len <= BUFFER {
            if self.end - self.start < len {
                self.fill(len)?;
            }
            let start = self.start;
            self.start += len;
            return Ok(&self.buffer[start..start + len]);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        while scratch.len() < len {
            let part = self.take(STEP.min(len - scratch.len()))?;
            scratch.extend_from_slice(part);
        }
        self.scratch = scratch;
        Ok(&self.scratch)
    }

    /// Skips `len` bytes.
    pub fn skip(&mut self, mut len: u64) -> Result<(), Problem> {
        while len > 0 {
            let part = usize::try_from(len).unwrap_or(STEP).min(STEP);
            self.take(part)?;
            len -= part as u64;
        }
        Ok(())
    }

    /// A line of the text opcodes, without its newline.
    pub fn line(&mut self) -> Result<&[u8], Problem> {
        let mut len = 0;
        loop {
            if let Some(at) = self.buffer[self.start + len..self.end].iter().position(|byte| *byte == b'\n') {
                let line = self.start..self.start + len + at;
                self.start = line.end + 1;
                return Ok(&self.buffer[line]);
            }
            len = self.end - self.start;
            if len >= STEP {
                return Err(Problem::LongText(len as u64));
            }
            self.fill(len + 1)?;
        }
    }

    /// Makes at least `need` (≤ [`BUFFER`]) bytes available from `start` on.
    fn fill(&mut self, need: usize) -> Result<(), Problem> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.passed += self.start as u64;
        self.end -= self.start;
        self.start = 0;
        while self.end < need {
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(Problem::Truncated),
                Ok(n) => self.end += n,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(Problem::Truncated),
                Err(error) => return Err(Problem::Io(error)),
            }
        }
        self.worth = self.reader.worth();
        Ok(())
    }
}
