//! Every configuration that a run went through, with what its steps came to.

use std::collections::VecDeque;
use std::sync::Arc;

use serde::Serialize;

use super::effect::{Measurement, Sample, measure};
use super::{Profile, Settings};
use crate::units::Bytes;

/// Some steps in a row under the same switches.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Configuration {
    /// How the switches stood.
    pub settings: Arc<Settings>,
    /// Steps finished before the first of them.
    pub step: u64,
    /// Events before that.
    pub position: u64,
    /// How many steps ended.
    pub steps: u64,
    /// Highest allocated and reserved within any of them.
    pub peak_allocated: Bytes,
    /// See `peak_allocated`.
    pub peak_reserved: Bytes,
    /// Figures of the last of them, and over how many; those that follow a change at once are left out where there are
    /// others.
    pub measured: Option<(usize, Measurement)>,
    /// Memory ran out.
    pub out_of_memory: bool,
    /// The curve of the last step that ended.
    #[serde(skip)]
    pub curve: Option<Arc<Profile>>,
}

/// All configurations so far, the last of them in force.
#[derive(Clone, Debug, Default)]
pub(super) struct Configurations {
    closed: VecDeque<Arc<Configuration>>,
    open: Option<Open>,
}

/// The configuration in force.
#[derive(Clone, Debug)]
struct Open {
    configuration: Configuration,
    /// Its last steps.
    samples: VecDeque<Sample>,
}

impl Configurations {
    /// Steps that figures are over.
    const STEPS: usize = 10;
    const KEPT: usize = 64;

    /// A step begins under these switches.
    pub fn begin_step(&mut self, settings: &Arc<Settings>, step: u64, position: u64) {
        if self.open.as_ref().is_some_and(|open| in_force(&open.configuration.settings).eq(in_force(settings))) {
            return;
        }
        self.close();
        let configuration = Configuration {
            settings: Arc::clone(settings),
            step,
            position,
            steps: 0,
            peak_allocated: Bytes::ZERO,
            peak_reserved: Bytes::ZERO,
            measured: None,
            out_of_memory: false,
            curve: None,
        };
        self.open = Some(Open { configuration, samples: VecDeque::with_capacity(Self::STEPS) });
    }

    /// It ended.
    pub fn end_step(&mut self, sample: Sample, curve: Option<&Arc<Profile>>) {
        let Some(Open { configuration, samples }) = &mut self.open else { return };
        configuration.steps += 1;
        configuration.peak_allocated = configuration.peak_allocated.max(sample.peak_allocated);
        configuration.peak_reserved = configuration.peak_reserved.max(sample.peak_reserved);
        configuration.curve = curve.cloned();
        // Steps that warm up stand in only until others come.
        if !sample.warm_up {
            samples.retain(|sample| !sample.warm_up);
        }
        if samples.len() == Self::STEPS {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// A request failed.
    pub fn out_of_memory(&mut self) {
        if let Some(open) = &mut self.open {
            open.configuration.out_of_memory = true;
        }
    }

    /// All of them that ended a step or failed to, the one in force last.
    pub fn view(&self) -> Vec<Arc<Configuration>> {
        let open = self.open.as_ref().map(Open::view).filter(|open| open.steps > 0 || open.out_of_memory);
        self.closed.iter().cloned().chain(open.map(Arc::new)).collect()
    }

    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let configuration = open.view();
        if configuration.steps == 0 && !configuration.out_of_memory {
            return;
        }
        if self.closed.len() == Self::KEPT {
            self.closed.pop_front();
        }
        self.closed.push_back(Arc::new(configuration));
    }
}

impl Open {
    fn view(&self) -> Configuration {
        let samples: Vec<Sample> = self.samples.iter().copied().collect();
        let measured = measure(&samples).map(|measured| (samples.len(), measured));
        Configuration { measured, ..self.configuration.clone() }
    }
}

/// Words and values in force.
fn in_force(settings: &Settings) -> impl Iterator<Item = (&str, &str)> {
    settings.0.iter().map(|setting| (&*setting.switch, &*setting.value))
}
