//! When the host and each stream are done with what they were given, in nanoseconds of the card's own time.
//!
//! The host is ahead of its streams: it is done with a launch long before the kernel is. What a program does on the processor takes no
//! time here but for its launches, so that the same program sees the same on every machine.

use std::collections::BTreeMap;

/// What it takes to ask whether an event is reached.
const QUESTION: u64 = 500;
/// Questions with no launch between them take twice as long each, up to so many times: who only asks will see it come.
const DOUBLINGS: u32 = 24;

/// What a stream has to do.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// When it is done.
    end: u64,
    /// How long all of its work takes, without the times that it waits.
    work: u64,
}

/// The time of a process and its streams.
#[derive(Debug, Default)]
pub struct Clock {
    host: u64,
    /// Questions since the last launch.
    questions: u32,
    /// The default stream of each device.
    defaults: Vec<Queue>,
    /// The others, by device and handle.
    streams: BTreeMap<(usize, u64), Queue>,
}

impl Clock {
    /// The host has come so far.
    pub fn host(&self) -> u64 {
        self.host
    }

    /// The host works for so long.
    pub fn work(&mut self, time: u64) {
        self.host += time;
    }

    /// The host spends `enqueue` on a launch that takes `time` on a stream.
    pub fn launch(&mut self, device: usize, stream: u64, enqueue: u64, time: u64) {
        self.questions = 0;
        self.host += enqueue;
        let host = self.host;
        let queue = self.queue(device, stream);
        queue.end = queue.end.max(host) + time;
        queue.work += time;
    }

    /// When all that was put on a stream is done.
    pub fn end(&self, device: usize, stream: u64) -> u64 {
        self.known(device, stream).end
    }

    /// How long all work of a stream takes that was put on it.
    pub fn work_of(&self, device: usize, stream: u64) -> u64 {
        self.known(device, stream).work
    }

    fn known(&self, device: usize, stream: u64) -> Queue {
        let known = if stream == 0 { self.defaults.get(device) } else { self.streams.get(&(device, stream)) };
        known.copied().unwrap_or_default()
    }

    /// When all that was put on the streams of a device is done.
    pub fn end_of_device(&self, device: usize) -> u64 {
        let others = self.streams.iter().filter(|((of, _), _)| *of == device).map(|(_, queue)| queue.end);
        others.max().unwrap_or(0).max(self.end(device, 0))
    }

    /// A stream does nothing more before this.
    pub fn hold(&mut self, device: usize, stream: u64, until: u64) {
        let queue = self.queue(device, stream);
        queue.end = queue.end.max(until);
    }

    /// The host waits until this.
    pub fn wait(&mut self, until: u64) {
        self.host = self.host.max(until);
    }

    /// The host asks whether this has come.
    pub fn ask(&mut self, time: u64) -> bool {
        if self.host < time {
            self.host += QUESTION << self.questions.min(DOUBLINGS);
            self.questions += 1;
        }
        self.host >= time
    }

    /// A stream is no more.
    pub fn forget(&mut self, stream: u64) {
        self.streams.retain(|(_, handle), _| *handle != stream);
    }

    fn queue(&mut self, device: usize, stream: u64) -> &mut Queue {
        if stream != 0 {
            return self.streams.entry((device, stream)).or_default();
        }
        if self.defaults.len() <= device {
            self.defaults.resize(device + 1, Queue::default());
        }
        &mut self.defaults[device]
    }
}
