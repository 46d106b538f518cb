//! The values of codes, and the search for the nearest one.

use crate::cpu::operand::View;
use crate::cpu::real::Real;

/// Ascending values, indexed by code.
pub(super) struct Codes<R, const N: usize> {
    pub values: [R; N],
    /// For each value, the middle between it and the previous one. The first element is unused.
    middles: [R; N],
}

impl<R: Real, const N: usize> Codes<R, N> {
    pub fn new(values: [R; N]) -> Self {
        let two = R::ONE + R::ONE;
        let mut middles = values;
        for (middle, pair) in middles[1..].iter_mut().zip(values.windows(2)) {
            *middle = (pair[0] + pair[1]) / two;
        }
        Self { values, middles }
    }

    /// The values in a tensor of `N`.
    pub fn load(codes: &View<'_>) -> Self {
        let mut values = [R::ZERO; N];
        R::load(codes, 0, &mut values);
        Self::new(values)
    }

    /// The value of a code.
    #[inline(always)]
    pub fn value(&self, code: u8) -> R {
        self.values[usize::from(code)]
    }

    /// The code of the value nearest to `x`; ties go to the lower code.
    ///
    /// Halving a power of two needs no branch, which could not be predicted.
    #[inline(always)]
    pub fn nearest(&self, x: R) -> u8 {
        const { assert!(N.is_power_of_two() && N <= 256) };
        let (mut low, mut half) = (0, N / 2);
        while half > 0 {
            // An addition, because a choice between two indices would be compiled to a branch.
            low += half * usize::from(x > self.middles[low + half]);
            half /= 2;
        }
        u8::try_from(low).unwrap_or(u8::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NF4;

    /// Every f32 value between two neighbours goes to the nearer one, as measured in f64.
    #[test]
    fn the_nearest_of_the_table_is_taken() {
        let codes = Codes::new(NF4);
        for step in -100_000..=100_000_i32 {
            let x = (f64::from(step) / 100_000.0) as f32;
            let distance = |place: usize| (f64::from(x) - f64::from(NF4[place])).abs();
            let best = (0..16).map(distance).fold(f64::INFINITY, f64::min);
            assert!(distance(usize::from(codes.nearest(x))) <= best + 1e-8, "{x}");
        }
        for (place, &value) in NF4.iter().enumerate() {
            assert_eq!(usize::from(codes.nearest(value)), place);
        }
    }

    #[test]
    fn of_two_as_near_the_lower_one_is_taken() {
        let codes = Codes::new([0.0f32, 1.0, 2.0, 4.0]);
        let nearest = [-9.0, 0.5, 0.51, 1.5, 3.0, 3.1, 99.0].map(|x| codes.nearest(x));
        assert_eq!(nearest, [0, 0, 1, 1, 2, 3, 3]);
    }
}
