//! A stand-in GPU under a whole PyTorch program.
//!
//! `library/` is a library of its own, which `build.rs` builds and embeds. It is loaded before a program's own
//! libraries and answers CUDA calls as a card would, with addresses for memory and kernels that do nothing. This module
//! writes it to a folder together with a description of the card ([`install()`]), and reads its counts back
//! ([`Counts`], [`Reads`]). [`EntryTable`] is the table of its entry points.

mod card;
mod counts;
mod error;
mod install;
mod reads;
mod table;

pub use card::{Cards, described};
pub use counts::Counts;
pub use error::StandInError;
pub use install::{Variable, install};
pub use reads::{Read, Reads};
pub use table::{EntryTable, Implementation, TableError};

/// The tables of entry points by library, from which the build script made the stubs.
pub const TABLES: [(&str, &str); 13] = [
    ("cublas", include_str!("library/entries/cublas.txt")),
    ("cublaslt", include_str!("library/entries/cublaslt.txt")),
    ("cudart", include_str!("library/entries/cudart.txt")),
    ("cudnn", include_str!("library/entries/cudnn.txt")),
    ("cufft", include_str!("library/entries/cufft.txt")),
    ("curand", include_str!("library/entries/curand.txt")),
    ("cusolver", include_str!("library/entries/cusolver.txt")),
    ("cusparse", include_str!("library/entries/cusparse.txt")),
    ("driver", include_str!("library/entries/driver.txt")),
    ("nccl", include_str!("library/entries/nccl.txt")),
    ("nvml", include_str!("library/entries/nvml.txt")),
    ("nvshmem", include_str!("library/entries/nvshmem.txt")),
    ("vramlab", include_str!("library/entries/vramlab.txt")),
];
