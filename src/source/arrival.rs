//! What arrives at a keeper, and from where.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::reading::FileProgress;
use vramlab_allocator::DeviceMemory;
use vramlab_allocator::units::DeviceIndex;
use vramlab_device::Sensors;
use vramlab_model::{Event, Micros};
use vramlab_recording::Frame;
use vramlab_session::Feed;

/// The time of an event that counts from its arrival: it is replaced by the time of the last event before.
pub(super) const ON_ARRIVAL: Micros = Micros(u64::MAX);

/// A message from the engine, a file or a watched program.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Events that happened just now.
    Events(Vec<Event>),
    /// Events that were recorded.
    Frame(Frame),
    /// The sensors whose readings count from here on.
    Sensors(Option<Sensors>),
    /// The memory at the end of a file whose history is still being read. It is shown until the history is complete.
    Standing(Vec<Event>),
    /// The progress of a file whose history is still being read, for each device.
    Reading(Vec<(DeviceIndex, FileProgress)>),
    /// The device's memory, if known.
    Memory(Option<DeviceMemory>),
    /// The file is damaged: its history will not come.
    Broken(Arc<str>),
}

/// Where messages come from.
#[derive(Debug)]
pub(super) enum Inbox {
    /// From an engine.
    Feed(mpsc::Receiver<Feed>),
    /// From the thread that reads a file.
    Read(mpsc::Receiver<Arrival>),
}

impl Inbox {
    /// The next message; `None` once nothing will come any more.
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
