//! Compares every kernel of a device, in every type, with the processor in f64.
//!
//! A case is one kernel with operands of known values, which are rounded to the type under test and given to both
//! devices. Outputs contain NaN beforehand, so that missing elements show. Bytes next to outputs must not change. A
//! second run, with a workspace lent, must produce the same bits. `bound.rs` defines the permitted errors.

pub(crate) mod bound;
pub(crate) mod case;
mod compare;
mod copies;
mod memory;
mod options;
mod report;
pub(crate) mod session;
pub(crate) mod values;

use super::cpu::{CpuDevice, CpuOptions};
use super::{Device, DeviceError, MatrixPrecision, kernels};
use session::Session;

pub use options::{Extent, Options};
pub use report::{Failure, Outcome, Report, Row};

/// Tests `device`, and calls `progress` for each case.
///
/// # Errors
/// [`DeviceError::Unavailable`] if the processor, with which it is compared, can't be used.
pub fn run(device: &mut dyn Device, options: &Options, progress: &mut dyn FnMut(&str)) -> Result<Report, DeviceError> {
    let mut processor = CpuDevice::open(CpuOptions::default())?;
    let report = {
        let mut session = Session::new(device, &mut processor, options, progress);
        copies::run(&mut session);
        kernels::selftest(&mut session);
        session.report
    };
    device.set_matrix_precision(MatrixPrecision::default());
    Ok(report)
}
