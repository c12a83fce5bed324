//! Elementwise sorting, which takes no branches.

use super::vectorised;

vectorised! {
    /// Puts the smaller of each two numbers into `smaller` and the larger into `larger`. Processes the shorter length.
    pub fn smaller_first / smaller_first_scalar(smaller: &mut [f32], larger: &mut [f32]) {
        for (a, b) in smaller.iter_mut().zip(larger) {
            (*a, *b) = if *a < *b { (*a, *b) } else { (*b, *a) };
        }
    }
}

vectorised! {
    /// Leaves the mean of each two numbers, as the sum of their halves, in `b`. Processes the shorter length.
    pub fn middle / middle_scalar(a: &[f32], b: &mut [f32]) {
        for (a, b) in a.iter().zip(b) {
            *b = a / 2.0 + *b / 2.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_by_hand() {
        let (mut a, mut b) = ([1.0, 5.0, -2.0], [3.0, 4.0, -3.0]);
        smaller_first(&mut a, &mut b);
        assert_eq!((a, b), ([1.0, 4.0, -3.0], [3.0, 5.0, -2.0]));
        middle(&a, &mut b);
        assert_eq!(b, [2.0, 4.5, -2.5]);
    }
}
