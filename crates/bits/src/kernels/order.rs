//! Elementwise sorting without branches.

use super::{cases, kernel};

kernel! {
    /// Puts the smaller of each two numbers into `smaller` and the larger into `larger`. Processes
    /// the shorter length.
    pub fn smaller_first(smaller: &mut [f32], larger: &mut [f32]) {
        for (a, b) in smaller.iter_mut().zip(larger) {
            let (x, y) = (*a, *b);
            *a = if x < y { x } else { y };
            *b = if y > x { y } else { x };
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

cases![
    ("smaller_first", |input, output| {
        let (mut a, mut b) = (input.floats(), input.more());
        smaller_first(&mut a, &mut b);
        output.moved(&a);
        output.moved(&b);
    }),
    ("median_of_five", |input, output| {
        let of = |factor| input.elements(input.len, |at| f32::from_bits(input.word(factor * at)));
        let mut median = of(1);
        median_of_five(&of(3), &of(5), &mut median, &of(7), &of(9));
        output.computed(&median);
    }),
    ("middle", |input, output| {
        let mut b = input.more();
        middle(&input.floats(), &mut b);
        output.computed(&b);
    }),
];

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
