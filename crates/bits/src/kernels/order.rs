//! Elementwise sorting without branches.

use super::kernel;

/// Puts the smaller of each two numbers into `smaller` and the larger into `larger`. Processes the
/// shorter length.
pub fn smaller_first(smaller: &mut [f32], larger: &mut [f32]) {
    let len = smaller.len().min(larger.len());
    let (smaller, larger) = (&mut smaller[..len], &mut larger[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let (whole, last) = (smaller.as_chunks_mut(), larger.as_chunks_mut());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx2::smaller_first(whole.0, last.0) };
        return smaller_first_scalar(whole.1, last.1);
    }
    smaller_first_scalar(smaller, larger);
}

fn smaller_first_scalar(smaller: &mut [f32], larger: &mut [f32]) {
    for (a, b) in smaller.iter_mut().zip(larger) {
        (*a, *b) = if *a < *b { (*a, *b) } else { (*b, *a) };
    }
}

/// LLVM compiles the loop to masked stores, which take many cycles each on AMD's processors before
/// Zen 4.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn smaller_first(smaller: &mut [[f32; 8]], larger: &mut [[f32; 8]]) {
        for (a, b) in smaller.iter_mut().zip(larger) {
            // SAFETY: the arrays hold the eight floats that are read, and then written.
            unsafe {
                let (x, y) = (_mm256_loadu_ps(a.as_ptr()), _mm256_loadu_ps(b.as_ptr()));
                // For equal numbers, and for a NaN, both return their second argument.
                _mm256_storeu_ps(a.as_mut_ptr(), _mm256_min_ps(x, y));
                _mm256_storeu_ps(b.as_mut_ptr(), _mm256_max_ps(y, x));
            }
        }
    }
}

kernel! {
    /// Leaves the mean of each two numbers, as the sum of their halves, in `b`. Processes the
    /// shorter length.
    pub fn middle(a: &[f32], b: &mut [f32]) {
        for (a, b) in a.iter().zip(b) {
            *b = a / 2.0 + *b / 2.0;
        }
    }
}

kernel! {
    /// Leaves the median of each five numbers in `c`. Processes the shortest length. With a NaN the
    /// result may be any of them.
    pub fn median_of_five(
        a: &[f32],
        b: &[f32],
        c: &mut [f32],
        d: &[f32],
        e: &[f32],
    ) {
        let least = |x: f32, y: f32| if x < y { x } else { y };
        let greatest = |x: f32, y: f32| if x > y { x } else { y };
        let four = a.iter().zip(b).zip(d).zip(e);
        for ((((&a, &b), &d), &e), c) in four.zip(c) {
            // Neither the least nor the greatest of four is the median; it is the median of the two
            // others and the fifth.
            let low = greatest(least(a, b), least(d, e));
            let high = least(greatest(a, b), greatest(d, e));
            *c = greatest(least(low, high), least(greatest(low, high), *c));
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

    #[test]
    fn the_median_of_five_is_the_third_of_any_order() {
        let numbers = [-1.0, 2.0, 2.0, 5.0, f32::MAX];
        for order in 0..5usize.pow(5) {
            let digits: [usize; 5] = core::array::from_fn(|at| order / 5usize.pow(at as u32) % 5);
            let mut sorted = digits.map(|digit| numbers[digit]);
            let [a, b, mut c, d, e] = sorted.map(|x| [x]);
            median_of_five(&a, &b, &mut c, &d, &e);
            sorted.sort_by(f32::total_cmp);
            assert_eq!(c, [sorted[2]], "{digits:?}");
        }
    }
}
