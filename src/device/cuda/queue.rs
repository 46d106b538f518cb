//! What a kernel family needs for launches: functions by name, arguments, scratch memory.

use cudarc::driver::sys;

use super::driver;
use super::gpu::Gpu;
use crate::{DType, Operand};
use vramlab_allocator::units::Address;

pub(crate) use super::grid::Grid;
pub(crate) use super::refusal::Refusal;

/// `n` in units of `unit`, as a grid's dimension.
pub(crate) fn blocks_of(n: usize, unit: usize) -> u32 {
    u32::try_from(n.div_ceil(unit.max(1)).max(1)).unwrap_or(u32::MAX)
}

/// The arguments of a kernel, in the order of its parameters.
#[derive(Default)]
pub(crate) struct Arguments {
    /// The arguments: each starts at a new word, and a structure takes several.
    words: Vec<u64>,
    starts: Vec<u8>,
    /// The index of the structure in `words`. It does not fit into a byte, so the structure comes last.
    structure: Option<usize>,
}

impl Arguments {
    pub fn new() -> Self {
        Self { words: Vec::with_capacity(24), starts: Vec::with_capacity(24), structure: None }
    }

    fn word(mut self, word: u64) -> Self {
        debug_assert!(self.structure.is_none(), "a structure is the last argument");
        self.starts.push(self.words.len() as u8);
        self.words.push(word);
        self
    }

    /// Adds a pointer.
    pub fn at(self, address: Address) -> Self {
        self.word(address.0)
    }

    /// Adds the pointer to an operand's first element.
    pub fn operand(self, operand: &Operand) -> Self {
        self.at(operand.address)
    }

    /// Adds an operand that may be absent, as a null pointer then.
    pub fn optional(self, operand: Option<&Operand>) -> Self {
        self.word(operand.map_or(0, |operand| operand.address.0))
    }

    /// Adds a `u64`.
    pub fn count(self, n: usize) -> Self {
        self.word(n as u64)
    }

    /// Adds a `u64` of bits that are not a number.
    pub fn bits(self, bits: u64) -> Self {
        self.word(bits)
    }

    /// Adds an `i32` or `u32`.
    pub fn int(self, n: u32) -> Self {
        self.word(u64::from(n))
    }

    /// Adds an `f32`.
    pub fn float(self, x: f32) -> Self {
        self.word(u64::from(x.to_bits()))
    }

    /// Adds a `double`.
    pub fn double(self, x: f64) -> Self {
        self.word(x.to_bits())
    }

    /// Adds a structure of 8-byte fields by value, as the last argument. All arguments together take at most 4 KiB.
    pub fn structure(mut self, fields: &[u64]) -> Self {
        self.structure = Some(self.words.len());
        self.words.extend_from_slice(fields);
        self
    }
}

/// A stream of the device, with everything needed to launch on it.
pub(crate) struct Queue<'g> {
    pub gpu: &'g mut Gpu,
    pub stream: driver::Stream,
}

impl Queue<'_> {
    /// Launches the kernel `name_dtype…` from one of the units.
    pub fn launch(
        &mut self,
        name: &'static str,
        types: &[DType],
        grid: Grid,
        arguments: &mut Arguments,
    ) -> Result<(), Refusal> {
        let function = self.gpu.modules.function(name, types)?;
        self.gpu.modules.permit_shared(function, grid.shared)?;
        let mut pointers = [std::ptr::null_mut(); 32];
        let starts = arguments.starts.iter().map(|&start| usize::from(start)).chain(arguments.structure);
        let mut count = 0;
        for (pointer, start) in pointers.iter_mut().zip(starts) {
            *pointer = (&raw mut arguments.words[start]).cast();
            count += 1;
        }
        debug_assert_eq!(count, arguments.starts.len() + usize::from(arguments.structure.is_some()));
        Ok(driver::launch(function, grid, self.stream, &mut pointers[..count])?)
    }

    /// Device memory for a kernel's data between its passes: valid until the next call, with undefined contents,
    /// aligned to 256 bytes. It is the op's workspace if that is large enough, otherwise the device's own memory.
    pub fn scratch(&mut self, bytes: usize) -> Result<Address, Refusal> {
        Ok(self.gpu.scratch.take(bytes)?)
    }

    /// The number of streaming multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.gpu.properties.multiprocessors
    }

    /// Compute capability, major times ten plus minor.
    pub fn capability(&self) -> u32 {
        self.gpu.properties.capability
    }
}

/// The raw handle of a stream, for libraries.
impl From<driver::Stream> for sys::CUstream {
    fn from(stream: driver::Stream) -> Self {
        stream.raw()
    }
}
