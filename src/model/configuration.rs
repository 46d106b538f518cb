//! Every configuration that a run went through, with the figures of its steps.

use std::sync::{Arc, OnceLock};

use serde::Serialize;

use super::effect::{Measurement, StepSample, measure};
use super::{Profile, RunSettings};

/// The steps of a run under the same switches, consecutive or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Configuration {
    /// How the switches stood.
    pub settings: Arc<RunSettings>,
    /// Steps finished before the first of them.
    pub step: u64,
    /// Events before the first step.
    pub position: u64,
    /// How many steps ended.
    pub steps: u64,
    /// The figures of the last steps, and how many steps they cover. Steps right after a change are left out if there are others.
    pub measured: Option<(usize, Measurement)>,
    /// True if memory ran out.
    pub out_of_memory: bool,
    /// The curve of the last step that ended.
    #[serde(skip)]
    pub curve: Option<Arc<Profile>>,
}

impl Configuration {
    /// True if the history has no steps, so that the figures cover all of it.
    #[must_use]
    pub const fn knows_no_steps(&self) -> bool {
        self.steps == 0 && self.measured.is_some()
    }
}

/// All configurations so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Configurations {
    /// The configurations, in the order in which they were first in force.
    all: Vec<Arc<TriedConfiguration>>,
    /// The index of the configuration in force.
    in_force: usize,
}

/// A configuration and its last steps.
#[derive(Clone, Debug)]
struct TriedConfiguration {
    /// Without figures.
    configuration: Configuration,
    samples: Vec<StepSample>,
    /// With figures, once somebody looked: steps end far more often.
    measured: OnceLock<Arc<Configuration>>,
}

impl Configurations {
    /// How many steps the figures cover.
    const STEPS: usize = 10;
    /// The most configurations that are kept. The oldest are dropped.
    const KEPT: usize = 64;

    /// A step begins under these switches.
    pub fn begin_step(&mut self, settings: &Arc<RunSettings>, step: u64, position: u64) {
        if self.all.get(self.in_force).is_some_and(|tried| tried.is_under(settings)) {
            return;
        }
        if let Some(known) = self.all.iter().position(|tried| tried.is_under(settings)) {
            self.in_force = known;
            return;
        }
        if self.all.len() == Self::KEPT {
            self.all.remove(0);
        }
        let configuration = Configuration {
            settings: Arc::clone(settings),
            step,
            position,
            steps: 0,
            measured: None,
            out_of_memory: false,
            curve: None,
        };
        self.in_force = self.all.len();
        self.all.push(Arc::new(TriedConfiguration { configuration, samples: Vec::new(), measured: OnceLock::new() }));
    }

    /// Notes that the step ended.
    pub fn end_step(&mut self, sample: StepSample, curve: Option<&Arc<Profile>>) {
        let Some(tried) = self.all.get_mut(self.in_force).map(Arc::make_mut) else { return };
        let TriedConfiguration { configuration, samples, measured } = tried;
        // Warm-up steps are used only until others come.
        let warm = samples.iter().any(|sample| !sample.warm_up);
        if !sample.warm_up && !warm {
            samples.clear();
        }
        if !sample.warm_up || !warm {
            if samples.len() == Self::STEPS {
                samples.remove(0);
            }
            samples.push(sample);
        }
        configuration.steps += 1;
        configuration.curve = curve.cloned();
        *measured = OnceLock::new();
    }

    /// A request failed.
    pub fn out_of_memory(&mut self) {
        if let Some(tried) = self.all.get_mut(self.in_force) {
            let tried = Arc::make_mut(tried);
            tried.configuration.out_of_memory = true;
            tried.measured = OnceLock::new();
        }
    }

    /// Leaves out the curve of the configuration in force if it is this one. Returns whether it was.
    pub fn leave_out(&mut self, curve: Option<&Arc<Profile>>) -> bool {
        let Some(tried) = self.all.get_mut(self.in_force) else { return false };
        let own = tried.configuration.curve.as_ref();
        let same = own.zip(curve).is_some_and(|(own, curve)| Arc::ptr_eq(own, curve));
        if same {
            Arc::make_mut(tried).set_curve(None);
        }
        same
    }

    /// Gives the configuration in force the curve that was left out.
    pub fn put_back(&mut self, curve: Option<&Arc<Profile>>) {
        if let Some(tried) = self.all.get_mut(self.in_force) {
            Arc::make_mut(tried).set_curve(curve.cloned());
        }
    }

    /// All configurations in which a step ended or failed.
    pub fn view(&self) -> Vec<Arc<Configuration>> {
        let all = self.all.iter();
        let shown = all.filter(|tried| tried.configuration.steps > 0 || tried.configuration.out_of_memory);
        shown.map(|tried| Arc::clone(tried.measured())).collect()
    }
}

impl TriedConfiguration {
    fn set_curve(&mut self, curve: Option<Arc<Profile>>) {
        self.configuration.curve = curve;
        self.measured = OnceLock::new();
    }

    fn measured(&self) -> &Arc<Configuration> {
        self.measured.get_or_init(|| {
            let measured = measure(&self.samples).map(|measured| (self.samples.len(), measured));
            Arc::new(Configuration { measured, ..self.configuration.clone() })
        })
    }

    fn is_under(&self, settings: &Arc<RunSettings>) -> bool {
        let own = &self.configuration.settings;
        Arc::ptr_eq(own, settings) || in_force(own).eq(in_force(settings))
    }
}

/// The switches' words with the values in force.
fn in_force(settings: &RunSettings) -> impl Iterator<Item = (&str, &str)> {
    settings.0.iter().map(|setting| (&*setting.switch, &*setting.value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Micros, Setting};
    use vramlab_allocator::units::Bytes;

    fn under(amp: &str, wanted: Option<&str>) -> Arc<RunSettings> {
        let setting = Setting { switch: "amp".into(), value: amp.into(), wanted: wanted.map(Into::into), idle: None };
        Arc::new(RunSettings(vec![setting]))
    }

    fn sample(mib: u64, warm_up: bool) -> StepSample {
        StepSample {
            peak_allocated: Bytes::mib(mib),
            peak_reserved: Bytes::mib(2 * mib),
            stranded: Bytes(0),
            step: Micros(1000 * mib),
            throughput: 1.0,
            loss: None,
            warm_up,
        }
    }

    fn peaks(all: &Configurations) -> Vec<Option<(usize, u64)>> {
        let peak = |tried: &Arc<Configuration>| {
            tried.measured.map(|(steps, measured)| (steps, measured.peak_allocated.bytes().get() >> 20))
        };
        all.view().iter().map(peak).collect()
    }

    #[test]
    fn steps_under_the_same_switches_are_one_configuration_also_when_they_come_back() {
        let mut all = Configurations::default();
        let mut steps = |amp: &str, samples: &[StepSample]| {
            for sample in samples {
                all.begin_step(&under(amp, None), 0, 7);
                all.end_step(*sample, None);
            }
            (peaks(&all), all.view().iter().map(|tried| tried.steps).collect::<Vec<_>>())
        };
        assert_eq!(steps("off", &[sample(90, true)]), (vec![Some((1, 90))], vec![1]), "better than nothing");
        assert_eq!(steps("off", &[sample(50, false), sample(70, true)]), (vec![Some((1, 50))], vec![3]));
        assert_eq!(steps("bf16", &[sample(30, false); 12]), (vec![Some((1, 50)), Some((10, 30))], vec![3, 12]));
        assert_eq!(steps("off", &[sample(52, false), sample(54, false)]).0, [Some((3, 52)), Some((10, 30))]);
    }

    #[test]
    fn a_switch_that_is_wanted_is_not_in_force() {
        let mut all = Configurations::default();
        all.begin_step(&under("off", None), 0, 1);
        all.end_step(sample(1, false), None);
        all.begin_step(&under("off", Some("bf16")), 1, 9);
        all.end_step(sample(1, false), None);
        assert_eq!(all.view().len(), 1);
        assert_eq!((all.view()[0].step, all.view()[0].position, all.view()[0].steps), (0, 1, 2));
    }

    #[test]
    fn what_ran_out_of_memory_is_told_and_what_ran_no_step_is_not() {
        let mut all = Configurations::default();
        all.out_of_memory();
        all.begin_step(&under("off", None), 0, 1);
        assert!(all.view().is_empty());
        all.out_of_memory();
        let view = all.view();
        assert_eq!((view.len(), view[0].out_of_memory, view[0].steps, view[0].measured), (1, true, 0, None));
    }

    #[test]
    fn a_copy_goes_on_by_itself() {
        let mut all = Configurations::default();
        all.begin_step(&under("off", None), 0, 1);
        all.end_step(sample(10, false), None);
        let (copy, before) = (all.clone(), peaks(&all));
        all.end_step(sample(20, false), None);
        assert_ne!(peaks(&all), before);
        assert_eq!(peaks(&copy), before);
    }
}
