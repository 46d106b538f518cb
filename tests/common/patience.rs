//! How tests wait for other threads and processes: as long as a busy machine needs. And how long something took,
//! without the time that the machine gave to others.
#![allow(clippy::panic, reason = "what never comes fails a test")]
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::BTreeMap;
use std::fs;
use std::future::Future;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longer than anything that a test waits for can take, on any machine; nothing waits longer than necessary.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Between two looks.
pub const BEAT: Duration = Duration::from_millis(5);
/// Between two looks at what a process's threads waited. The kernel spends long on the end of processes whose entries in
/// /proc others read all the time.
const LOOK: Duration = Duration::from_millis(100);

/// Looks until `found` finds something; fails with what `told` says of it after [`PATIENCE`].
pub fn find<T>(mut found: impl FnMut() -> Option<T>, told: impl FnOnce() -> String) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        if begun.elapsed() > PATIENCE {
            panic!("waited in vain for {}", told());
        }
        sleep(BEAT);
    }
}

/// Looks until `holds` is true. After [`PATIENCE`] it fails with the message of `told`.
pub fn wait(mut holds: impl FnMut() -> bool, told: impl FnOnce() -> String) {
    find(|| holds().then_some(()), told);
}

/// The result of `happens`; `None` after [`PATIENCE`].
pub fn in_time<T>(happens: impl Future<Output = T>) -> Option<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().ok()?;
    runtime.block_on(async { tokio::time::timeout(PATIENCE, happens).await }).ok()
}

/// Looks until a signal has stopped the process, with all its threads.
pub fn wait_until_stopped(process: u32) {
    let state = || {
        let told = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        // The state follows the name, which can contain anything.
        told.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    wait(|| state().is_none_or(|state| state == 'T'), || format!("process {process} to stop: {:?}", state()));
}

/// Measures how long a process takes for something. The time in which its threads were ready but had no processor is
/// not counted, as far as the system reports it. So other programs beside the tests make nothing late.
pub struct Stopwatch {
    process: u32,
    begun: Instant,
    looked: Instant,
    /// By thread, nanoseconds that it had waited at the start and when it was last seen.
    waited: BTreeMap<String, [u64; 2]>,
}

impl Stopwatch {
    pub fn start(process: u32) -> Self {
        let begun = Instant::now();
        let mut watch = Self { process, begun, looked: begun, waited: BTreeMap::new() };
        watch.look();
        watch.waited.values_mut().for_each(|[first, last]| *first = *last);
        watch
    }

    /// The time since the start. A thread's last wait is known only if somebody looked before it ended.
    pub fn took(&mut self) -> Duration {
        self.look();
        let waited: u64 = self.waited.values().map(|[first, last]| last - first).sum();
        self.begun.elapsed().saturating_sub(Duration::from_nanos(waited))
    }

    /// Whether it took longer than `limit`.
    pub fn exceeds(&mut self, limit: Duration) -> bool {
        let must_look = self.begun.elapsed() >= limit || self.looked.elapsed() >= LOOK;
        must_look && self.took() >= limit
    }

    fn look(&mut self) {
        self.looked = Instant::now();
        for thread in fs::read_dir(format!("/proc/{}/task", self.process)).into_iter().flatten().flatten() {
            let account = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
            // What it ran, what it waited, how often it was given a processor.
            let Some(waited) = account.split(' ').nth(1).and_then(|waited| waited.parse().ok()) else { continue };
            let name = thread.file_name().to_string_lossy().into_owned();
            self.waited.entry(name).or_default()[1] = waited;
        }
    }
}
