//! What is tried beside a run: what would have helped a request that failed, and what flips would save.

use std::sync::Arc;

use super::Gate;
use crate::{Feed, Shortage};
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_device::HostAccount;
use vramlab_model::{EventKind, RemedyTrial};

/// What the host must have left for remedies to be tried: a thread of its own, and the model made once more without bytes.
const ROOM: Bytes = Bytes::mib(512);

impl Gate {
    /// Tries what would have helped `device`, on a thread of its own; `told` is what is said of what came of it.
    pub(crate) fn try_remedies(
        &mut self,
        shortage: Shortage,
        device: DeviceIndex,
        told: impl FnOnce(Vec<RemedyTrial>) -> Vec<RemedyTrial> + Send + 'static,
    ) {
        if HostAccount::default().left() < ROOM {
            self.tell_of(device, EventKind::Remedied(Arc::default()));
            return;
        }
        let feeder = self.feeder.clone();
        // Without a thread nothing is tried, and nothing is said to have been.
        let _ = std::thread::Builder::new().name("remedies".to_owned()).spawn(move || {
            let remedied = EventKind::Remedied(told(shortage.try_remedies()).into());
            // The receiver may be gone.
            let _ = feeder.send(Feed::Aside(device, remedied));
        });
    }

    /// Has somebody try what flips would do to the peak of `device`, beside whatever happens next, for as long as the configuration is in
    /// force: under another one nothing of it holds.
    pub(crate) fn weigh(&mut self, run: Shortage, device: DeviceIndex) {
        if HostAccount::default().left() < ROOM {
            return;
        }
        let (feeder, in_force) = (self.feeder.clone(), Arc::downgrade(&self.standing));
        // Where there is no thread, nothing is advised.
        let _ = std::thread::Builder::new().name("weighing".to_owned()).spawn(move || {
            if let Some(weighed) = run.weigh_while(&move || in_force.strong_count() > 0) {
                // Nobody may be left to look.
                let _ = feeder.send(Feed::Aside(device, EventKind::Weighed(Arc::new(weighed))));
            }
        });
    }
}
