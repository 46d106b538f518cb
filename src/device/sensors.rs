//! The place where the readings of a device's sensors arrive.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use vramlab_model::Reading;

/// The last reading of a device's sensors that was not yet taken. The monitor puts it here from its own thread; taking
/// it never waits for a sensor.
#[derive(Clone, Debug, Default)]
pub struct Sensors(Arc<Mutex<Option<Reading>>>);

impl Sensors {
    /// The reading that has arrived since the last call, if any.
    #[must_use]
    pub fn take(&self) -> Option<Reading> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Replaces the previous reading.
    pub fn put(&self, reading: Reading) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }

    /// A handle for the monitor.
    #[must_use]
    pub fn reader(&self) -> SensorReader {
        SensorReader(Arc::downgrade(&self.0))
    }
}

/// The monitor's handle. It keeps nothing alive, and tells when readings are no longer wanted.
#[derive(Clone, Debug)]
pub struct SensorReader(Weak<Mutex<Option<Reading>>>);

impl SensorReader {
    /// Replaces the previous reading; false if nobody will ever take it.
    pub fn put(&self, reading: Reading) -> bool {
        self.0.upgrade().is_some_and(|place| {
            Sensors(place).put(reading);
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reading_is_taken_once_and_the_reader_learns_that_nobody_asks() {
        let sensors = Sensors::default();
        let reader = sensors.reader();
        for busy in [10, 20] {
            assert!(reader.put(Reading { busy: Some(busy), ..Reading::default() }));
        }
        assert_eq!(sensors.take().and_then(|reading| reading.busy), Some(20));
        assert_eq!(sensors.take(), None);
        drop(sensors);
        assert!(!reader.put(Reading::default()));
    }
}
