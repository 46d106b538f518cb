//! A device under test with one piece of memory, in which operands are placed.

use super::case::{Case, CaseOperands};
use crate::{DType, Device, DeviceError, Kernel, MatrixPrecision, Operand, Span};
use vramlab_allocator::SegmentSource;
use vramlab_allocator::units::{Address, Bytes, MIB, StreamId};

/// Operands start at multiples of this, unless they are skewed on purpose.
const ALIGNMENT: u64 = 256;
/// Guard bytes before and after every operand, which kernels must not write.
const GUARD: usize = 256;
const GUARD_BYTE: u8 = 0xA5;
/// The bytes in outputs beforehand: NaN in every float type.
const POISON: u8 = 0xFF;
/// Bytes of the workspace that is lent to kernels.
const WORKSPACE: usize = 256 * 1024;
/// The least memory that is requested from the device at once.
const LEAST: u64 = 16 * MIB;

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The device refused.
    Device(DeviceError),
    /// The bytes next to an operand have changed.
    Guard { operand: &'static str, behind: bool },
    /// There is not enough memory.
    Memory(Bytes),
}

impl From<DeviceError> for Trouble {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// A device and its memory.
pub(crate) struct Memory<'d> {
    pub device: &'d mut dyn Device,
    source: Box<dyn SegmentSource>,
    segment: Option<(Address, Bytes)>,
}

impl<'d> Memory<'d> {
    pub fn new(device: &'d mut dyn Device) -> Self {
        let source = device.segments();
        Self { device, source, segment: None }
    }

    /// Provides at least `bytes` of device memory; earlier contents are lost.
    pub fn take(&mut self, bytes: Bytes) -> Result<Address, Trouble> {
        if let Some((address, size)) = self.segment {
            if size >= bytes {
                return Ok(address);
            }
            self.source.free(address, size);
            self.segment = None;
        }
        let size = Bytes(bytes.get().next_power_of_two().max(LEAST));
        let address = self.source.malloc(size).map_err(|_| Trouble::Memory(size))?;
        self.segment = Some((address, size));
        Ok(address)
    }

    /// Forgets the memory of a lost device, because it was lost too.
    pub fn abandon(&mut self) {
        self.segment = None;
    }

    /// Places the operands of a case, each in the type that `stored` returns for its own.
    pub fn place(&mut self, case: &Case, stored: impl Fn(DType) -> DType) -> Result<CaseOperands, Trouble> {
        let mut end = 0;
        let mut offsets = Vec::with_capacity(case.operands.len());
        for (index, operand) in case.operands.iter().enumerate() {
            let dtype = stored(operand.dtype);
            let start = (end + GUARD as u64).next_multiple_of(ALIGNMENT) + case.skew.of(index, dtype).get();
            end = start + dtype.bytes(operand.len).get() + GUARD as u64;
            offsets.push((start, dtype, operand.len));
        }
        let workspace = (end + GUARD as u64).next_multiple_of(ALIGNMENT);
        let base = self.take(Bytes(workspace + (WORKSPACE + GUARD) as u64))?;
        let place = |(start, dtype, len)| Operand { address: base.offset(Bytes(start)), dtype, len };
        let workspace = place((workspace, DType::U8, WORKSPACE));
        Ok(CaseOperands { operands: offsets.into_iter().map(place).collect(), workspace })
    }

    /// Fills the operands that are only read.
    pub fn fill_inputs(&mut self, case: &Case, placed: &CaseOperands, contents: &[Vec<u8>]) -> Result<(), Trouble> {
        for ((declared, operand), bytes) in case.operands.iter().zip(&placed.operands).zip(contents) {
            if declared.bound.is_none() && !bytes.is_empty() {
                self.device.copy_pageable(bytes, operand.address, StreamId::DEFAULT)?;
            }
        }
        Ok(())
    }

    /// Fills the operands that will be written, with their guards; runs `launch`, with a workspace if `lends`; returns
    /// the bytes of the written operands.
    pub fn run(
        &mut self,
        case: &Case,
        placed: &CaseOperands,
        contents: &[Vec<u8>],
        launch: Launcher<'_>,
        lends: bool,
    ) -> Result<Vec<Option<Vec<u8>>>, Trouble> {
        let written = || case.operands.iter().enumerate().filter(|(_, declared)| declared.bound.is_some());
        for (index, declared) in written() {
            let content = declared.values.as_ref().and_then(|_| contents.get(index));
            self.fill(&placed.operands[index], content.map(Vec::as_slice))?;
        }
        if lends {
            self.fill(&placed.workspace, None)?;
            self.device.lend_workspace(placed.workspace);
        }
        let precision = MatrixPrecision { products_in_tf32: case.tf32, convolutions_in_tf32: case.tf32 };
        self.device.set_matrix_precision(precision);
        let device = &mut *self.device;
        launch(placed, &mut |kernel| {
            within(placed, kernel)?;
            device.launch(kernel, StreamId::DEFAULT)
        })?;
        let mut results: Vec<Option<Vec<u8>>> = vec![None; case.operands.len()];
        for (index, declared) in written() {
            results[index] = Some(self.fetch(&placed.operands[index], declared.name)?);
        }
        if lends {
            self.fetch(&placed.workspace, "the workspace")?;
        }
        Ok(results)
    }

    /// Fills an operand with `content`, or with NaN, and the bytes next to it with guards.
    fn fill(&mut self, operand: &Operand, content: Option<&[u8]>) -> Result<(), Trouble> {
        let size = size_of(operand);
        let mut region = vec![GUARD_BYTE; size + 2 * GUARD];
        let inside = &mut region[GUARD..GUARD + size];
        match content.filter(|bytes| bytes.len() == size) {
            Some(bytes) => inside.copy_from_slice(bytes),
            None => inside.fill(POISON),
        }
        Ok(self.device.copy_pageable(&region, before(operand), StreamId::DEFAULT)?)
    }

    /// The bytes of an operand, after checking that its guards are unchanged.
    fn fetch(&mut self, operand: &Operand, name: &'static str) -> Result<Vec<u8>, Trouble> {
        let size = size_of(operand);
        let mut region = vec![0; size + 2 * GUARD];
        self.device.read(before(operand), &mut region, StreamId::DEFAULT)?;
        let spoilt = |part: &[u8]| part.iter().any(|&byte| byte != GUARD_BYTE);
        for (part, behind) in [(&region[..GUARD], false), (&region[GUARD + size..], true)] {
            if spoilt(part) {
                return Err(Trouble::Guard { operand: name, behind });
            }
        }
        region.truncate(GUARD + size);
        region.drain(..GUARD);
        Ok(region)
    }
}

/// Launches the kernel of a case.
pub(crate) type Launcher<'l> =
    &'l dyn Fn(&CaseOperands, &mut dyn FnMut(&Kernel<'_>) -> Result<(), DeviceError>) -> Result<(), DeviceError>;

/// Checks that a kernel accesses only the operands of its case, as far as [`Kernel::reach`] tells.
fn within(placed: &CaseOperands, kernel: &Kernel<'_>) -> Result<(), DeviceError> {
    let operands: Vec<Span> = placed.operands.iter().map(Span::from).collect();
    let end = |span: &Span| span.start.0.saturating_add(span.bytes.get());
    let mut wild = None;
    kernel.reach(|span| {
        if !operands.iter().any(|operand| operand.start <= span.start && end(&span) <= end(operand)) {
            wild = Some(span);
        }
    });
    wild.map_or(Ok(()), |span| {
        let reason = format!("{} at {} are in none of its operands", span.bytes, span.start);
        Err(DeviceError::Failed { operation: kernel.name(), device: "the case".to_owned(), reason })
    })
}

fn before(operand: &Operand) -> Address {
    Address(operand.address.0 - GUARD as u64)
}

fn size_of(operand: &Operand) -> usize {
    usize::try_from(operand.dtype.bytes(operand.len).get()).unwrap_or(usize::MAX)
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        if let Some((address, size)) = self.segment.take() {
            self.source.free(address, size);
        }
    }
}
