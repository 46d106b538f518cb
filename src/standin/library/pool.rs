//! The driver's own memory pools: PyTorch queries them, but does not use them unless it is told to.

use crate::codes::{Code, SUCCESS};
use crate::foreign::put;

const POOL: u64 = 0x5500_0000_0100;

entries! {
    fn cudaDeviceGetDefaultMemPool(pool: *mut u64, _device: i32) -> Code { give(pool) }
    fn cudaDeviceGetMemPool(pool: *mut u64, _device: i32) -> Code { give(pool) }
    fn cudaDeviceSetMemPool(_device: i32, _pool: u64) -> Code { SUCCESS }
    fn cudaMemPoolCreate(pool: *mut u64, _properties: u64) -> Code { give(pool) }
    fn cudaMemPoolDestroy(_pool: u64) -> Code { SUCCESS }
    fn cudaMemPoolTrimTo(_pool: u64, _keep: usize) -> Code { SUCCESS }
    fn cudaMemPoolSetAttribute(_pool: u64, _attribute: i32, _value: u64) -> Code { SUCCESS }
    fn cudaMemPoolSetAccess(_pool: u64, _access: u64, _count: usize) -> Code { SUCCESS }
    fn cudaMemPoolGetAttribute(_pool: u64, _attribute: i32, value: *mut u64) -> Code { zero(value) }

    fn cuDeviceGetDefaultMemPool(pool: *mut u64, _device: i32) -> Code { give(pool) }
    fn cuDeviceGetMemPool(pool: *mut u64, _device: i32) -> Code { give(pool) }
    fn cuMemPoolSetAttribute(_pool: u64, _attribute: i32, _value: u64) -> Code { SUCCESS }
    fn cuMemPoolSetAccess(_pool: u64, _access: u64, _count: usize) -> Code { SUCCESS }
    fn cuMemPoolGetAttribute(_pool: u64, _attribute: i32, value: *mut u64) -> Code { zero(value) }
}

fn give(pool: *mut u64) -> Code {
    put(pool, POOL);
    SUCCESS
}

fn zero(value: *mut u64) -> Code {
    put(value, 0);
    SUCCESS
}
