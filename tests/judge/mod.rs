//! Programs of requests that PyTorch's own allocator has run, and a comparison of ours with what it did.
//!
//! A program is a text: the conditions (`torch 2.13.0`, `conf …`, `limit …`, `device_bytes …`, `capacity …`, `delay …`,
//! one a line), the line `script`, requests, the line `facts`, and what PyTorch's allocator did. A request is
//!
//! ```text
//! alloc ID SIZE [STREAM]    one that fails is passed over
//! free ID [held]            held: side streams are done with it at `done ID`, else `delay` ticks later
//! done ID
//! use ID STREAM             record_stream
//! tick N                    every alloc and free is one tick
//! empty_cache [A B]         of everything, or of one private pool
//! reset_peak
//! set CONF                  settings change at run time
//! fraction F                the limit, as a share of the device
//! begin A B [STREAM]        requests (of one stream) go to this private pool …
//! capture A B [STREAM]      … as a graph is captured
//! end A B
//! release A B               one user fewer of the pool
//! ```
//!
//! A fact is one of `trace ACTION ADDRESS SIZE STREAM TIME A B …`, `segment …`, `block …`,
//! `stat NAME CURRENT PEAK ALLOCATED FREED`, `number NAME VALUE`. Others (settings, for example) are ignored. Times are
//! not compared; addresses of new segments are taken from the facts.

mod device;
mod facts;
mod script;

pub use script::judge;
