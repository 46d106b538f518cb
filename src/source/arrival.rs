//! What arrives at a keeper, and where.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::reading::FileProgress;
use vramlab_allocator::DeviceMemory;
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::Sensors;
use vramlab_model::{Event, Micros};
use vramlab_recording::Frame;
use vramlab_session::Feed;

/// The time of an event that happens when it arrives: it becomes that of the last event before.
pub(super) const ON_ARRIVAL: Micros = Micros(u64::MAX);

/// What arrives from the engine, a file or a watched program.
#[derive(Debug)]
pub(super) enum Arrival {
    /// It happened just now.
    Events(Vec<Event>),
    /// It was recorded.
    Frame(Frame),
    /// Where readings of the device's sensors arrive, from here on.
    Sensors(Option<Sensors>),
    /// How memory stands at the end of a file whose history is still read: the picture until all of it is there.
    Standing(Vec<Event>),
    /// How far a file is whose history is still read, for each device.
    Reading(Vec<(DeviceIndex, FileProgress)>),
    /// What the device has, where that is known.
    Memory(Option<DeviceMemory>),
    /// The file is damaged: its history will not come.
    Broken(Arc<str>),
}

/// Where it arrives.
#[derive(Debug)]
pub(super) enum Inbox {
    /// From an engine.
    Feed(mpsc::Receiver<Feed>),
    /// From the thread that reads a file.
    Read(mpsc::Receiver<Arrival>),
}

impl Inbox {
    /// The next; `None` when nothing will come any more.
    pub async fn recv(&mut self) -> Option<Arrival> {
        match self {
            Self::Feed(feed) => feed.recv().await.map(|fed| match fed {
                Feed::Events(events) => Arrival::Events(events),
                Feed::Aside(device, kind) => Arrival::Events(vec![Event { device, ..Event::new(ON_ARRIVAL, kind) }]),
                Feed::Sensors(sensors) => Arrival::Sensors(sensors),
            }),
            Self::Read(arrivals) => arrivals.recv().await,
        }
    }
}
