//! Compares the forms of a convolution by time.

use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::cuda::convolution::Form;
use crate::cuda::dnn::{ConvolutionCall, Engines, ExecutionPlan};
use crate::cuda::queue::{Queue, Refusal};
use crate::cuda::stopwatch::Stopwatch;

/// Milliseconds of a mere launch: no form can be much faster.
const NEGLIGIBLE: f32 = 0.015;
/// The time after which no further engines are tried for one shape.
const PATIENCE: Duration = Duration::from_millis(100);
/// The share of the first form's time that another form may take to replace it. Smaller gains are noise.
const MARGIN: f32 = 0.97;

/// A time as stored on disk.
#[derive(Clone, Copy)]
pub(super) struct Nanoseconds(pub u64);

impl Nanoseconds {
    /// Converts from milliseconds.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times are short and not negative")]
    pub fn of(milliseconds: f32) -> Self {
        Self((f64::from(milliseconds) * 1e6) as u64)
    }
}

impl fmt::Display for Nanoseconds {
    #[expect(clippy::cast_precision_loss, reason = "times are short")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} ms", self.0 as f64 / 1e6)
    }
}

/// A comparison of forms of one convolution.
pub(super) struct Trial {
    pub wanted: Option<String>,
    tf32: bool,
    /// Engines that are timed regardless of the time.
    least: usize,
    stopwatch: Stopwatch,
    pub begun: Instant,
    pub engines: usize,
    /// The fastest form, and its time.
    pub best: Option<(Form, f32)>,
    /// Time of the first form.
    pub first: f32,
    /// All forms that ran, with their times, and the refused forms, with the reasons.
    told: Vec<String>,
}

impl Trial {
    pub fn new(wanted: Option<String>, tf32: bool, least: usize) -> Result<Self, Refusal> {
        Ok(Self {
            wanted,
            tf32,
            least,
            stopwatch: Stopwatch::new()?,
            begun: Instant::now(),
            engines: 0,
            best: None,
            first: 0.0,
            told: Vec::new(),
        })
    }

    /// True if no form could be much faster.
    pub fn is_negligible(&self) -> bool {
        self.best.as_ref().is_some_and(|(_, best)| *best < NEGLIGIBLE)
    }

    /// True if forms of this name are of interest.
    fn wants(&self, name: &str) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| name.starts_with(wanted.as_str()))
    }

    /// Times the next `count` engines, converted by `form`, until the time limit.
    pub fn engines(
        &mut self,
        queue: &mut Queue<'_>,
        convolution: &ConvolutionCall<'_>,
        engines: Option<&mut Engines>,
        count: usize,
        form: fn(Rc<ExecutionPlan>) -> Form,
    ) -> Result<(), Refusal> {
        // Engines' names are known only after they have been set up.
        let unwanted = self.wanted.as_ref().is_some_and(|wanted| !["engine", "turned"].contains(&wanted.as_str()));
        let Some(engines) = engines.filter(|_| !unwanted) else { return Ok(()) };
        for _ in 0..count {
            if self.engines >= self.least && self.begun.elapsed() > PATIENCE {
                break;
            }
            let Some(plan) = queue.gpu.dnn.next(engines, None) else {
                if self.engines == 0 {
                    self.told.push(engines.refusal().to_string());
                }
                break;
            };
            self.engines += 1;
            self.time(queue, convolution, form(Rc::new(plan)))?;
        }
        Ok(())
    }

    pub fn time(
        &mut self,
        queue: &mut Queue<'_>,
        convolution: &ConvolutionCall<'_>,
        form: Form,
    ) -> Result<(), Refusal> {
        let name = form.to_string();
        if !self.wants(&name) {
            return Ok(());
        }
        // The first form is chosen unless another is clearly faster.
        let bar = self.best.as_ref().map_or(f32::INFINITY, |(_, best)| best.min(MARGIN * self.first));
        let (stream, tf32) = (queue.stream, self.tf32);
        match self.stopwatch.best(stream, bar, || form.run(queue, convolution, tf32).map(|_| ())) {
            Ok(time) => {
                self.told.push(format!("{name} {}", Nanoseconds::of(time)));
                if self.best.is_none() {
                    self.first = time;
                }
                if time < bar {
                    self.best = Some((form, time));
                }
            }
            Err(Refusal::Driver(failure)) if failure.lost() => return Err(failure.into()),
            Err(refusal) => self.told.push(format!("{name} not: {refusal}")),
        }
        Ok(())
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.best {
            Some((form, time)) => write!(f, "{form}, {}", Nanoseconds::of(*time))?,
            None => f.write_str("tiles")?,
        }
        write!(f, ", of: {}", self.told.join("; "))
    }
}
