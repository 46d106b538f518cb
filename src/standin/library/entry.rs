//! Defines entry points.

/// Defines functions with the names that NVIDIA's libraries use.
macro_rules! entries {
    ($( $(#[$meta:meta])* fn $name:ident ( $($argument:ident : $kind:ty),* $(,)? ) $(-> $result:ty)? $body:block )*) => {
        $(
            $(#[$meta])*
            // SAFETY: the name is exported on purpose: it takes the place of the same function of NVIDIA's library.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name($($argument: $kind),*) $(-> $result)? $body
        )*
    };
}
