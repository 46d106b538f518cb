//! Trials beside a run: remedies for a failed request, and the savings of flips.

use std::sync::Arc;

use super::Gate;
use crate::{Feed, Shortage};
use vramlab_allocator::units::{Bytes, DeviceIndex};
use vramlab_device::HostAccount;
use vramlab_model::{EventKind, RemedyTrial};

/// The host memory that must be left for trials: for a thread, and for the model made once more without bytes.
const ROOM: Bytes = Bytes::mib(512);

impl Gate {
    /// Tries remedies for `device` on a thread of its own. `told` receives the result.
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
        // Without a thread nothing is tried, and nothing is reported.
        let _ = std::thread::Builder::new().name("remedies".to_owned()).spawn(move || {
            let remedied = EventKind::Remedied(told(shortage.try_remedies()).into());
            // The receiver may be gone.
            let _ = feeder.send(Feed::Aside(device, remedied));
        });
    }

    /// Tries, on another thread, what flips would do to the peak of `device`, as long as the configuration stays in
    /// force: the result would be useless under another one.
    pub(crate) fn weigh(&mut self, run: Shortage, device: DeviceIndex) {
        if HostAccount::default().left() < ROOM {
            return;
        }
        let (feeder, in_force) = (self.feeder.clone(), Arc::downgrade(&self.standing));
        // Without a thread nothing is advised.
        let _ = std::thread::Builder::new().name("weighing".to_owned()).spawn(move || {
            if let Some(weighed) = run.weigh_while(&move || in_force.strong_count() > 0) {
                // The receiver may be gone.
                let _ = feeder.send(Feed::Aside(device, EventKind::Weighed(Arc::new(weighed))));
            }
        });
    }
}
