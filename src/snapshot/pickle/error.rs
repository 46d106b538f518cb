//! What can be wrong with a pickle.

use std::io;

use thiserror::Error;

/// Why a pickle can't be read.
#[derive(Debug, Error)]
#[error("byte {offset}: {problem}")]
pub struct PickleError {
    /// The offset of the error, in bytes from the start of the (decompressed) pickle.
    pub offset: u64,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong with a pickle.
#[derive(Debug, Error)]
pub enum Problem {
    /// The input ended inside a value.
    #[error("the file ends in the middle of a value. It was probably cut off; copy or record it again.")]
    Truncated,
    /// The input can't be read.
    #[error("reading failed: {0}. Check the file, or copy it again.")]
    Io(#[from] io::Error),
    /// An opcode that imports or calls something.
    #[error(
        "the pickle wants to run code ({0}), which a memory snapshot never does. \
         Nothing was run; pass a file written by torch.cuda.memory._dump_snapshot()."
    )]
    Executes(&'static str),
    /// A byte that is not an opcode.
    #[error("0x{0:02x} is no pickle opcode. Pass a file written by torch.cuda.memory._dump_snapshot().")]
    UnknownOpcode(u8),
    /// A protocol beyond 5.
    #[error("pickle protocol {0} is not known (5 is the newest). Record the snapshot with a protocol up to 5.")]
    Protocol(u8),
    /// An opcode without its operands.
    #[error("{0}. The file is damaged; copy or record it again.")]
    Malformed(&'static str),
    /// A reference to a memo entry that does not exist.
    #[error("memo entry {0} is used but was never stored. The file is damaged; copy or record it again.")]
    NoMemo(u64),
    /// The pickle needs more memory than a file of its length can need.
    #[error("the pickle asks for far more memory than its length explains, so reading stopped. It is not a snapshot.")]
    TooBig,
    /// The pickle causes more work than a file of its length can need.
    #[error("the pickle asks for far more work than its length explains, so reading stopped. It is not a snapshot.")]
    TooMuchWork,
    /// Too many nested marks.
    #[error("values are nested more than {0} deep. It is not a snapshot.")]
    TooDeep(usize),
    /// A text longer than any useful one.
    #[error("a text of {0} bytes is longer than any that a snapshot holds. It is not a snapshot.")]
    LongText(u64),
    /// The listener does not want the rest of the file.
    #[error("nobody waited for the rest.")]
    Stopped,
}
