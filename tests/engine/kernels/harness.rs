//! A device with one segment, transfer of values to and from it as f64, and comparisons.

use half::{bf16, f16};
use vramlab::allocator::SegmentSource;
use vramlab::device::cpu::{CpuDevice, CpuOptions};
use vramlab::device::{
    DType, Device, DeviceError, HeadView, Kernel, MatrixView, Operand, from_e4m3, from_e5m2, to_e4m3, to_e5m2,
};
use vramlab::units::{Address, Bytes, StreamId};

/// All floating-point types for storage.
pub const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::Bf16, DType::F64];

pub struct Bench {
    pub device: CpuDevice,
    pub source: Box<dyn SegmentSource>,
    pub segment: Address,
    pub size: Bytes,
    used: u64,
}

impl Bench {
    pub fn new() -> Self {
        Self::with_threads(2)
    }

    pub fn with_threads(threads: usize) -> Self {
        let size = Bytes::mib(64);
        let mut device = CpuDevice::open(CpuOptions { memory: Some(size), threads: Some(threads) }).unwrap();
        let mut source = device.segments();
        let segment = source.malloc(size).unwrap();
        Self { device, source, segment, size, used: 0 }
    }

    pub fn empty(&mut self, dtype: DType, len: usize) -> Operand {
        let address = self.segment.offset(Bytes(self.used));
        self.used += dtype.bytes(len).get().next_multiple_of(64) + 64;
        assert!(self.used <= self.size.get(), "the test needs a larger segment");
        Operand { address, dtype, len }
    }

    /// Stores `values` rounded to `dtype`.
    pub fn put(&mut self, dtype: DType, values: &[f64]) -> Operand {
        let operand = self.empty(dtype, values.len());
        self.device.copy_pageable(&encode(dtype, values), operand.address, StreamId::DEFAULT).unwrap();
        operand
    }

    /// Random values between -1 and 1, rounded to `dtype`, and the operand that holds them.
    pub fn random(&mut self, dtype: DType, len: usize, seed: u32) -> (Operand, Vec<f64>) {
        let operand = self.put(dtype, &random(len, seed));
        (operand, self.get(operand))
    }

    pub fn get(&mut self, operand: Operand) -> Vec<f64> {
        decode(operand.dtype, &self.bytes(operand))
    }

    pub fn bytes(&mut self, operand: Operand) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(operand.dtype.bytes(operand.len).get()).unwrap()];
        self.device.read(operand.address, &mut bytes, StreamId::DEFAULT).unwrap();
        bytes
    }

    pub fn run<'k>(&mut self, kernel: impl Into<Kernel<'k>>) {
        self.try_run(kernel).unwrap();
    }

    pub fn try_run<'k>(&mut self, kernel: impl Into<Kernel<'k>>) -> Result<(), DeviceError> {
        self.device.launch(&kernel.into(), StreamId::DEFAULT)
    }
}

pub fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * dtype.size() as usize);
    for &x in values {
        match dtype {
            DType::F32 => bytes.extend_from_slice(&(x as f32).to_le_bytes()),
            DType::F16 => bytes.extend_from_slice(&f16::from_f64(x).to_le_bytes()),
            DType::Bf16 => bytes.extend_from_slice(&bf16::from_f64(x).to_le_bytes()),
            DType::F64 => bytes.extend_from_slice(&x.to_le_bytes()),
            DType::I64 => bytes.extend_from_slice(&(x as i64).to_le_bytes()),
            DType::I32 => bytes.extend_from_slice(&(x as i32).to_le_bytes()),
            DType::U8 => bytes.push(x as u8),
            DType::E4M3 => bytes.push(to_e4m3(x as f32)),
            DType::E5M2 => bytes.push(to_e5m2(x as f32)),
        }
    }
    bytes
}

pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    bytes
        .chunks_exact(dtype.size() as usize)
        .map(|b| match dtype {
            DType::F32 => f64::from(f32::from_le_bytes(b.try_into().unwrap())),
            DType::F16 => f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            DType::Bf16 => bf16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            DType::F64 => f64::from_le_bytes(b.try_into().unwrap()),
            DType::I64 => i64::from_le_bytes(b.try_into().unwrap()) as f64,
            DType::I32 => f64::from(i32::from_le_bytes(b.try_into().unwrap())),
            DType::U8 => f64::from(b[0]),
            DType::E4M3 => f64::from(from_e4m3(b[0])),
            DType::E5M2 => f64::from(from_e5m2(b[0])),
        })
        .collect()
}

pub fn random(len: usize, seed: u32) -> Vec<f64> {
    let hash = |i: u32| {
        let mut x = i.wrapping_add(seed.wrapping_mul(0x9E37_79B9));
        x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
        x = (x ^ (x >> 15)).wrapping_mul(0x846C_A68B);
        x ^ (x >> 16)
    };
    (0..len as u32).map(|i| f64::from(hash(i)) / 2.0_f64.powi(31) - 1.0).collect()
}

/// Half a unit in the last place of `dtype`, and a margin for the arithmetic in f32.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-13,
        DType::F16 => 2.0_f64.powi(-11) * 1.02,
        DType::Bf16 => 2.0_f64.powi(-8) * 1.02,
        _ => 2e-6,
    }
}

/// Every element is within `relative` of the truth, or of `scale`: the size of the terms that cancelled.
#[track_caller]
pub fn assert_close(got: &[f64], truth: &[f64], relative: f64, scale: f64, what: &str) {
    assert_eq!(got.len(), truth.len(), "{what}");
    for (i, (&x, &y)) in got.iter().zip(truth).enumerate() {
        let allowed = relative * y.abs() + relative.min(1e-6) * scale;
        assert!((x - y).abs() <= allowed, "{what}: element {i} is {x}, should be {y} within {allowed}");
    }
}

pub fn matrix(operand: Operand, cols: usize) -> MatrixView {
    MatrixView {
        address: operand.address,
        dtype: operand.dtype,
        row_stride: cols,
        col_stride: 1,
        batch_stride: operand.len,
    }
}

pub fn transposed(view: MatrixView) -> MatrixView {
    MatrixView { row_stride: view.col_stride, col_stride: view.row_stride, ..view }
}

/// (batch, heads, rows, size), contiguous.
pub fn heads(operand: Operand, heads: usize, rows: usize, size: usize) -> HeadView {
    HeadView {
        address: operand.address,
        dtype: operand.dtype,
        batch_stride: heads * rows * size,
        head_stride: rows * size,
        row_stride: size,
    }
}
