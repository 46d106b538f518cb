//! NVIDIA's own cuDNN, which the program has loaded.

use crate::real::RealLibrary;

pub static REAL: RealLibrary = RealLibrary::new(&[c"libcudnn.so.9"]);

/// A function of the real library, with this signature.
macro_rules! real {
    ($name:expr, fn($($kind:ty),* $(,)?) -> $result:ty) => {
        $crate::real_dnn::REAL.function($name).map(|found| {
            // SAFETY: NVIDIA documents the function with these arguments.
            unsafe { std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn($($kind),*) -> $result>(found) }
        })
    };
}
