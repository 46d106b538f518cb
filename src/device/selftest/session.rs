//! Runs cases on the device under test and on the processor, and compares.

use super::bound::ErrorBound;
use super::case::{Case, CaseOperands};
use super::compare::{Nearness, compare};
use super::memory::{Launcher, Memory, Trouble};
use super::options::{Extent, Options};
use super::report::{Failure, Report};
use super::values::{decode, encode, rounded, seed_of};
use crate::{DType, Device, DeviceError, Kernel};

/// A selftest in progress.
pub(crate) struct Session<'s> {
    tested: Memory<'s>,
    reference: Memory<'s>,
    options: &'s Options,
    progress: &'s mut dyn FnMut(&str),
    pub report: Report,
}

/// The type in which the reference stores `dtype`.
const fn widened(dtype: DType) -> DType {
    if dtype.is_float() { DType::F64 } else { dtype }
}

impl<'s> Session<'s> {
    pub fn new(
        tested: &'s mut dyn Device,
        reference: &'s mut dyn Device,
        options: &'s Options,
        progress: &'s mut dyn FnMut(&str),
    ) -> Self {
        Self {
            tested: Memory::new(tested),
            reference: Memory::new(reference),
            options,
            progress,
            report: Report::default(),
        }
    }

    /// True if the case was requested.
    pub fn wants(&self, case: &Case) -> bool {
        self.wants_kernel(case.kernel) && (self.options.extent == Extent::Full || case.is_small())
    }

    /// True if cases of this kernel were requested.
    pub fn wants_kernel(&self, kernel: &str) -> bool {
        let only = &self.options.only;
        self.report.lost.is_none() && (only.is_empty() || only.iter().any(|name| kernel.starts_with(name.as_str())))
    }

    /// The device under test.
    pub fn memory(&mut self) -> &mut Memory<'s> {
        &mut self.tested
    }

    /// Runs the kernel that `kernel` builds from the operands of `case`.
    pub fn check<K: Into<Kernel<'static>>>(&mut self, case: &Case, kernel: impl Fn(&CaseOperands) -> K) {
        self.check_launch(case, &|placed, launch| launch(&kernel(placed).into()));
    }

    /// The same for a kernel that borrows.
    pub fn check_launch(&mut self, case: &Case, launch: Launcher<'_>) {
        if !self.wants(case) {
            return;
        }
        (self.progress)(&format!("{} {} {}", case.kernel, case.types, case.shape));
        match self.compare(case, launch) {
            Ok(verdict) => {
                self.report.add(case.kernel, &case.types, &verdict.nearness);
                for sentence in verdict.wrong {
                    self.fail(case, sentence);
                }
            }
            Err(Trouble::Device(DeviceError::Unsupported { .. })) if case.optional => {
                self.report.refuse(case.kernel, &case.types);
            }
            Err(trouble) => {
                self.report.add(case.kernel, &case.types, &Nearness { error: f64::INFINITY, ..Nearness::default() });
                if let Trouble::Device(error @ DeviceError::Lost { .. }) = &trouble {
                    self.tested.abandon();
                    self.report.lost = Some(format!("{error}, in {} {} {}", case.kernel, case.types, case.shape));
                }
                self.fail(case, sentence_of(&trouble));
            }
        }
    }

    /// Records a check that is not a kernel's case.
    pub fn record(&mut self, kernel: &'static str, dtype: &str, shape: &str, result: Result<(), String>) {
        self.report.add(kernel, dtype, &Nearness::default());
        if let Err(sentence) = result {
            self.report.fail(kernel, dtype, Failure { shape: shape.to_owned(), sentence });
        }
    }

    fn fail(&mut self, case: &Case, sentence: String) {
        self.report.fail(case.kernel, &case.types, Failure { shape: case.shape.clone(), sentence });
    }

    fn compare(&mut self, case: &Case, launch: Launcher<'_>) -> Result<Verdict, Trouble> {
        let values = values_of(case);
        let contents = contents_of(case, &values, |dtype| dtype);
        let placed = self.tested.place(case, |dtype| dtype)?;
        self.tested.fill_inputs(case, &placed, &contents)?;
        let found = self.tested.run(case, &placed, &contents, launch, false)?;
        let again = self.tested.run(case, &placed, &contents, launch, true)?;
        drop(contents);
        let expected = self.expected(case, &values, launch)?;
        let mut verdict = Verdict::default();
        for (index, operand) in case.operands.iter().enumerate() {
            let (Some(bound), Some(bytes), Some(expected)) = (operand.bound, &found[index], &expected[index]) else {
                continue;
            };
            if bound != ErrorBound::Free && again[index].as_ref() != Some(bytes) {
                verdict.wrong.push(format!("{}: two runs differ in their bits", operand.name));
            }
            let nearness = compare(&decode(operand.dtype, bytes), expected, operand.dtype, bound, case.tf32);
            if let Some(wrong) = nearness.wrong {
                verdict.wrong.push(format!(
                    "{}[{}] is {}, should be {} (error {:.1e}, tolerance {:.1e}; {} elements)",
                    operand.name,
                    wrong.index,
                    wrong.found,
                    wrong.expected,
                    nearness.error,
                    nearness.tolerance,
                    operand.len
                ));
            }
            if nearness.used() >= verdict.nearness.used() {
                verdict.nearness = nearness;
            }
        }
        Ok(verdict)
    }

    /// The operands' contents after the processor has run a case in f64, as values for a following case.
    pub fn prepare<K: Into<Kernel<'static>>>(
        &mut self,
        case: &Case,
        kernel: impl Fn(&CaseOperands) -> K,
    ) -> Option<Vec<Vec<f64>>> {
        let launch: Launcher<'_> = &|placed, launch| launch(&kernel(placed).into());
        let values = values_of(case);
        match self.expected(case, &values, launch) {
            Ok(results) => {
                Some(results.into_iter().zip(values).map(|(result, value)| result.unwrap_or(value)).collect())
            }
            Err(trouble) => {
                self.fail(case, sentence_of(&trouble));
                None
            }
        }
    }

    fn expected(
        &mut self,
        case: &Case,
        values: &[Vec<f64>],
        launch: Launcher<'_>,
    ) -> Result<Vec<Option<Vec<f64>>>, Trouble> {
        let told = |trouble| match trouble {
            Trouble::Device(error) => Trouble::Device(DeviceError::Failed {
                operation: case.kernel,
                device: "the processor, the reference,".into(),
                reason: error.to_string(),
            }),
            other => other,
        };
        let contents = contents_of(case, values, widened);
        let placed = self.reference.place(case, widened).map_err(told)?;
        self.reference.fill_inputs(case, &placed, &contents).map_err(told)?;
        let results = self.reference.run(case, &placed, &contents, launch, false).map_err(told)?;
        let decoded = case.operands.iter().zip(results);
        Ok(decoded.map(|(operand, bytes)| bytes.map(|bytes| decode(widened(operand.dtype), &bytes))).collect())
    }
}

/// The outcome of a case.
#[derive(Default)]
struct Verdict {
    nearness: Nearness,
    wrong: Vec<String>,
}

/// The initial numbers of each operand, rounded to its type; empty if it is only written.
fn values_of(case: &Case) -> Vec<Vec<f64>> {
    let seed = seed_of(&format!("{} {}", case.kernel, case.shape));
    let operands = case.operands.iter().zip(1..);
    let values = operands.map(|(operand, number)| match &operand.values {
        Some(values) => rounded(operand.dtype, &values.generate(operand.len, seed.wrapping_mul(2 * number + 1))),
        None => Vec::new(),
    });
    values.collect()
}

fn contents_of(case: &Case, values: &[Vec<f64>], stored: impl Fn(DType) -> DType) -> Vec<Vec<u8>> {
    case.operands.iter().zip(values).map(|(operand, values)| encode(stored(operand.dtype), values)).collect()
}

fn sentence_of(trouble: &Trouble) -> String {
    match trouble {
        Trouble::Device(error) => error.to_string(),
        Trouble::Guard { operand, behind } => {
            format!("bytes {} {operand} were written", if *behind { "behind" } else { "before" })
        }
        Trouble::Memory(bytes) => format!("the device has no {bytes} of memory left; end other programs"),
    }
}
