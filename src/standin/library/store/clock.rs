//! The time at which the host and each stream finish their work, in nanoseconds of the card's own clock.
//!
//! The host is ahead of its streams: it finishes a launch long before the kernel ends. A program's work on the
//! processor takes no time here, except for its launches. So the same program sees the same times on every machine.

use std::collections::BTreeMap;

/// The time of a query whether an event is reached.
const QUESTION: u64 = 500;
/// Each query without a launch since the previous one takes twice as long, up to this many doublings. So a program that
/// only queries will see the event reached.
const DOUBLINGS: u32 = 24;

/// The work of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct Queue {
    /// When its last work ends.
    end: u64,
    /// The time of all its work, without the times in which it waits.
    work: u64,
}

/// The clock of a process and its streams.
#[derive(Debug, Default)]
pub struct Clock {
    host: u64,
    /// Number of queries since the last launch.
    questions: u32,
    /// The default stream of each device.
    defaults: Vec<Queue>,
    /// The other streams, by device and handle.
    streams: BTreeMap<(usize, u64), Queue>,
}

impl Clock {
    /// The host's current time.
    pub fn host(&self) -> u64 {
        self.host
    }

    /// The host works for this time.
    pub fn work(&mut self, time: u64) {
        self.host += time;
    }

    /// The host spends `enqueue` on a launch, whose work takes `time` on a stream.
    pub fn launch(&mut self, device: usize, stream: u64, enqueue: u64, time: u64) {
        self.questions = 0;
        self.host += enqueue;
        let host = self.host;
        let queue = self.queue(device, stream);
        queue.end = queue.end.max(host) + time;
        queue.work += time;
    }

    /// When the last work of a stream ends.
    pub fn end(&self, device: usize, stream: u64) -> u64 {
        self.known(device, stream).end
    }

    /// The time of all work that a stream was given.
    pub fn work_of(&self, device: usize, stream: u64) -> u64 {
        self.known(device, stream).work
    }

    fn known(&self, device: usize, stream: u64) -> Queue {
        let known = if stream == 0 { self.defaults.get(device) } else { self.streams.get(&(device, stream)) };
        known.copied().unwrap_or_default()
    }

    /// When the last work of all streams of a device ends.
    pub fn end_of_device(&self, device: usize) -> u64 {
        let others = self.streams.iter().filter(|((of, _), _)| *of == device).map(|(_, queue)| queue.end);
        others.max().unwrap_or(0).max(self.end(device, 0))
    }

    /// A stream does no more work before this time.
    pub fn hold(&mut self, device: usize, stream: u64, until: u64) {
        let queue = self.queue(device, stream);
        queue.end = queue.end.max(until);
    }

    /// The host waits until this time.
    pub fn wait(&mut self, until: u64) {
        self.host = self.host.max(until);
    }

    /// The host asks whether this time has come.
    pub fn ask(&mut self, time: u64) -> bool {
        if self.host < time {
            self.host += QUESTION << self.questions.min(DOUBLINGS);
            self.questions += 1;
        }
        self.host >= time
    }

    /// Forgets a destroyed stream.
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
