//! The memo: values that a pickle may refer to again by number.

use super::budget::Budget;
use super::error::Problem;
use super::packed::PackedValue;

/// Values by the number under which the pickle stored them.
#[derive(Debug, Default)]
pub struct Memo {
    values: Vec<PackedValue>,
    /// True if a number was used twice, which Python's writer never does.
    overwritten: bool,
}

impl Memo {
    /// The number that the next [`Memo::push`] stores under.
    pub const fn next(&self) -> u64 {
        self.values.len() as u64
    }

    /// The value stored under `index`; [`PackedValue::UNSET`] or `None` if there is none.
    #[inline]
    pub fn get(&self, index: u64) -> Option<PackedValue> {
        self.values.get(usize::try_from(index).ok()?).copied()
    }

    /// Stores values under the next numbers.
    ///
    /// # Errors
    /// [`Problem::TooBig`] when the budget is used up.
    #[inline]
    pub fn push(&mut self, values: &[PackedValue], budget: &mut Budget) -> Result<(), Problem> {
        budget.charge(size_of_val(values))?;
        self.values.extend_from_slice(values);
        Ok(())
    }

    /// Stores a value under any number.
    ///
    /// # Errors
    /// As [`Memo::push`].
    pub fn set(&mut self, index: u64, value: PackedValue, budget: &mut Budget) -> Result<(), Problem> {
        let index = usize::try_from(index).map_err(|_| Problem::TooBig)?;
        if let Some(before) = self.values.get_mut(index) {
            self.overwritten |= *before != PackedValue::UNSET;
            *before = value;
            return Ok(());
        }
        let missing = index - self.values.len();
        budget.charge(missing.saturating_add(1).saturating_mul(size_of::<PackedValue>()))?;
        self.values.resize(index, PackedValue::UNSET);
        self.values.push(value);
        Ok(())
    }

    /// True as long as no number has changed its meaning.
    pub const fn is_lasting(&self) -> bool {
        !self.overwritten
    }
}
