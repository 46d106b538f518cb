//! What modules put out: noted in every forward pass, told only where it changes.

use vramlab_device::DType;
use vramlab_model::NameId;

use super::shape::Shape;

/// What one call of a module put out.
pub(super) type Output = (NameId, Shape, DType);

/// The outputs of the modules that a step calls, in the order in which they return.
///
/// A step that does as the one before costs a comparison for each call, and nothing is told.
#[derive(Default)]
pub(super) struct Outputs {
    /// A forward pass is under way that belongs to a step.
    pub listening: bool,
    /// Those of the step that was told last.
    told: Vec<Output>,
    /// So many of the step under way are the same.
    same: usize,
    /// Those that follow, from the first that is another.
    others: Vec<Output>,
}

impl Outputs {
    /// Calls of a step that are noted at most: one that writes a long text makes many.
    const MOST: usize = 1 << 16;

    /// A module returned.
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

    /// The step is over, `whole` or abandoned: all of its outputs, where they are other ones than those told last.
    pub fn end_step(&mut self, whole: bool) -> Option<&[Output]> {
        self.listening = false;
        let same = std::mem::take(&mut self.same);
        // One that was abandoned before it did anything new has nothing to tell.
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
