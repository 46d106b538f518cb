//! The figures by which configurations are compared.

use std::sync::Arc;

use crate::drawing::figures::{self, ByteUnit};
use crate::model::{Configuration, Figure, Measurement};
use crate::tui::stage::Stage;

/// A figure of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    Allocated,
    Reserved,
    Step,
    Throughput,
    Loss,
    Stranded,
}

impl Metric {
    /// In the order of the table; the last ones are dropped if there is no room.
    pub const ALL: [Self; 6] =
        [Self::Allocated, Self::Reserved, Self::Step, Self::Throughput, Self::Loss, Self::Stranded];

    pub fn of(self, measured: &Measurement) -> Option<Figure> {
        match self {
            Self::Allocated => Some(measured.peak_allocated),
            Self::Reserved => Some(measured.peak_reserved),
            Self::Step => measured.step,
            Self::Throughput => Some(measured.throughput).filter(|throughput| throughput.median > 0.0),
            Self::Loss => measured.loss,
            Self::Stranded => measured.stranded,
        }
    }

    /// Whether less is better; `None` if the figure does not tell which configuration is better: a loss falls by itself.
    pub const fn less_is_good(self) -> Option<bool> {
        match self {
            Self::Allocated | Self::Reserved | Self::Step | Self::Stranded => Some(true),
            Self::Throughput => Some(false),
            Self::Loss => None,
        }
    }

    /// True if the change from the baseline is shown beside it.
    pub const fn has_change(self) -> bool {
        !matches!(self, Self::Loss | Self::Stranded)
    }

    pub fn head(self, stage: &Stage<'_>, unit: ByteUnit) -> String {
        match self {
            Self::Allocated => format!("allocated {}", unit.name()),
            Self::Reserved => format!("reserved {}", unit.name()),
            Self::Step => stage.clock().of("step ms", "step ms sim").to_owned(),
            Self::Throughput => stage.view().about.items.per_second().to_owned(),
            Self::Loss => "loss".to_owned(),
            Self::Stranded => "stranded after".to_owned(),
        }
    }

    pub fn show(self, figure: &Figure, unit: ByteUnit) -> String {
        match self {
            Self::Allocated | Self::Reserved | Self::Stranded => unit.figure(figure.bytes()),
            Self::Step => figures::milliseconds(figure.micros()),
            Self::Throughput => figures::short_count(figure.median),
            Self::Loss => format!("{:.3}", figure.median),
        }
    }

    /// The figure of a configuration; `None` if it has none.
    pub fn of_configuration(self, configuration: &Configuration) -> Option<Figure> {
        self.of(&configuration.measured.as_ref()?.1)
    }

    /// The indices of the best configurations by this figure; see [`Figure::best_of`].
    pub fn best(self, all: &[Arc<Configuration>]) -> Vec<usize> {
        let figures: Vec<Option<Figure>> =
            all.iter().map(|configuration| self.of_configuration(configuration)).collect();
        self.less_is_good().map_or_else(Vec::new, |less| Figure::best_of(&figures, less))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(value: f64) -> Figure {
        Figure { median: value, low: value, high: value }
    }

    fn with(allocated: f64, step: Figure, throughput: f64) -> Arc<Configuration> {
        let measured = Measurement {
            peak_allocated: exact(allocated),
            peak_reserved: exact(7.0),
            stranded: Some(exact(0.0)),
            step: Some(step),
            throughput: exact(throughput),
            loss: Some(exact(allocated)),
        };
        Arc::new(Configuration {
            settings: Arc::default(),
            step: 0,
            position: 0,
            steps: 10,
            measured: Some((10, measured)),
            out_of_memory: false,
            curve: None,
        })
    }

    #[test]
    fn best_is_what_differs_by_more_than_noise_and_what_is_as_good() {
        let noisy = |median: f64| Figure { median, low: median - 5.0, high: median + 5.0 };
        let all = [with(30.0, noisy(100.0), 5.0), with(20.0, noisy(104.0), 9.0), with(20.01, noisy(150.0), 7.0)];
        assert_eq!(Metric::Allocated.best(&all), [1, 2], "they tie");
        assert_eq!(Metric::Step.best(&all), [0, 1], "4 ms are noise");
        assert_eq!(Metric::Throughput.best(&all), [1], "more is better");
        assert!(Metric::Reserved.best(&all).is_empty(), "all are the same");
        assert!(Metric::Loss.best(&all).is_empty(), "it falls by itself");
        assert!(Metric::Allocated.best(&all[..1]).is_empty(), "nothing to compare it with");
        let failed = Arc::new(Configuration { measured: None, out_of_memory: true, ..(*all[0]).clone() });
        assert_eq!(Metric::Allocated.best(&[failed, Arc::clone(&all[0]), Arc::clone(&all[1])]), [2]);
    }
}
