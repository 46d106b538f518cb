//! Outputs of modules: noted in every forward pass, reported only when they change.

use vramlab_device::DType;
use vramlab_model::NameId;

use super::shape::Shape;

/// The output of one call of a module.
pub(super) type Output = (NameId, Shape, DType);

/// The outputs of the modules that a step calls, in the order in which they return.
///
/// A step that repeats the one before costs a comparison for each call, and nothing is reported.
#[derive(Default)]
pub(super) struct Outputs {
    /// A forward pass is under way that belongs to a step.
    pub listening: bool,
    /// The outputs of the step that was reported last.
    told: Vec<Output>,
    /// How many of the current step's outputs equal those, from the first on.
    same: usize,
    /// The outputs from the first that differs.
    others: Vec<Output>,
}

impl Outputs {
    /// The most calls of a step that are noted: a step that writes a long text makes many.
    const MOST: usize = 1 << 16;

    /// Notes the output of a module that returned.
    pub fn note(&mut self, output: Output) {
        if !self.listening {
            return;
        }
        if self.others.is_empty() && self.told.get(self.same) == Some(&output) {
            self.same += 1;
        } else if self.same + self.others.len() < Self::MOST {
            self.others.push(output);
        }
    }

    /// Ends the step, `whole` or abandoned: returns all of its outputs if they differ from those last reported.
    pub fn end_step(&mut self, whole: bool) -> Option<&[Output]> {
        self.listening = false;
        let same = std::mem::take(&mut self.same);
        // A step that was abandoned before its outputs differed has nothing to report.
        if self.others.is_empty() && (same == self.told.len() || !whole) {
            return None;
        }
        self.told.truncate(same);
        self.told.append(&mut self.others);
        Some(&self.told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(outputs: &mut Outputs, calls: &[Output], whole: bool) -> Option<Vec<Output>> {
        outputs.listening = true;
        calls.iter().for_each(|call| outputs.note(*call));
        outputs.end_step(whole).map(<[Output]>::to_vec)
    }

    #[test]
    fn only_a_step_that_differs_is_told_and_then_whole() {
        let output = |module, rows| (NameId(module), Shape::new(&[rows, 4]), DType::F32);
        let (first, second) = ([output(1, 8), output(2, 8)], [output(1, 8), output(2, 16)]);
        let mut outputs = Outputs::default();
        assert_eq!(step(&mut outputs, &first, true).as_deref(), Some(&first[..]));
        assert_eq!(step(&mut outputs, &first, true), None);
        assert_eq!(step(&mut outputs, &second, true).as_deref(), Some(&second[..]));
        assert_eq!(step(&mut outputs, &second[..1], false), None, "abandoned on the same way");
        assert_eq!(step(&mut outputs, &second, true), None);
        assert_eq!(step(&mut outputs, &second[..1], true).as_deref(), Some(&second[..1]), "it ends sooner now");
        outputs.note(first[0]);
        assert_eq!(outputs.end_step(true), Some(&[][..]), "nobody listened, and nothing was put out");
    }
}
