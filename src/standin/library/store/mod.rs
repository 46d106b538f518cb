//! The state of a process and its devices, behind one lock.

mod capture;
mod clock;
mod device;
mod events;
mod graphs;
mod host_mapping;
mod lock;
mod physical;
pub mod ranks;
mod shadow;
mod space;
mod state;
mod streams;

pub use capture::Capture;
pub use device::{Device, checked, count, current, place, use_device, uuid, uuid_text, visible};
pub use events::Event;
pub use host_mapping::MappingOrigin;
pub use lock::{StateGuard, lock};
pub use physical::PhysicalBlock;
pub use shadow::is_touched;
pub use state::State;
pub use streams::{COMMON, Stream};
