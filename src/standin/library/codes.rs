//! Result codes of NVIDIA's libraries. The runtime's and the driver's codes have the same numbers.

/// A result code of the CUDA runtime or the driver.
pub type Code = i32;

/// cudaSuccess, CUDA_SUCCESS, and the success code of every other library.
pub const SUCCESS: Code = 0;
/// An impossible pointer, size or handle.
pub const INVALID_VALUE: Code = 1;
/// The device has too little memory left.
pub const OUT_OF_MEMORY: Code = 2;
/// There is no device.
pub const NO_DEVICE: Code = 100;
/// No device has this number.
pub const INVALID_DEVICE: Code = 101;
/// No context is current.
pub const INVALID_CONTEXT: Code = 201;
/// A handle of nothing that exists.
pub const INVALID_HANDLE: Code = 400;
/// A name that does not exist.
pub const NOT_FOUND: Code = 500;
/// Host memory that is registered already.
pub const ALREADY_REGISTERED: Code = 712;
/// Host memory that is not registered.
pub const NOT_REGISTERED: Code = 713;
/// Something that the stand-in does not support.
pub const NOT_SUPPORTED: Code = 801;
/// The work is not complete yet.
pub const NOT_READY: Code = 600;
/// A launched kernel failed.
pub const LAUNCH_FAILED: Code = 719;
/// Not allowed while the stream is captured.
pub const CAPTURE_UNSUPPORTED: Code = 900;
/// The capture was begun on another stream.
pub const CAPTURE_UNMATCHED: Code = 903;
/// A stream that is not captured has no capture to end.
pub const ILLEGAL_STATE: Code = 401;

/// The code for a result.
pub fn of(done: Result<(), Code>) -> Code {
    done.err().unwrap_or(SUCCESS)
}

/// The name of a driver's code, as a C string.
pub fn name(code: Code) -> &'static std::ffi::CStr {
    match code {
        SUCCESS => c"CUDA_SUCCESS",
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_DEVICE => c"CUDA_ERROR_INVALID_DEVICE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        INVALID_HANDLE => c"CUDA_ERROR_INVALID_HANDLE",
        ILLEGAL_STATE => c"CUDA_ERROR_ILLEGAL_STATE",
        NOT_FOUND => c"CUDA_ERROR_NOT_FOUND",
        NOT_READY => c"CUDA_ERROR_NOT_READY",
        LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
        ALREADY_REGISTERED => c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        NOT_REGISTERED => c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        CAPTURE_UNSUPPORTED => c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        CAPTURE_UNMATCHED => c"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        _ => c"CUDA_ERROR_UNKNOWN",
    }
}

/// The description of a driver's code, in the driver's words.
pub fn sentence(code: Code) -> &'static std::ffi::CStr {
    match code {
        SUCCESS => c"no error",
        INVALID_VALUE => c"invalid argument",
        OUT_OF_MEMORY => c"out of memory",
        NO_DEVICE => c"no CUDA-capable device is detected",
        INVALID_DEVICE => c"invalid device ordinal",
        INVALID_CONTEXT => c"invalid device context",
        INVALID_HANDLE => c"invalid resource handle",
        ILLEGAL_STATE => c"the operation cannot be performed in the present state",
        NOT_FOUND => c"named symbol not found",
        NOT_READY => c"device not ready",
        LAUNCH_FAILED => c"unspecified launch failure",
        ALREADY_REGISTERED => c"part or all of the requested memory range is already mapped",
        NOT_REGISTERED => c"pointer does not correspond to a registered memory region",
        NOT_SUPPORTED => c"operation not supported",
        CAPTURE_UNSUPPORTED => c"operation not permitted when stream is capturing",
        CAPTURE_UNMATCHED => c"capture was not ended in the same stream as it began",
        _ => c"unknown error",
    }
}
