use super::*;
use crate::numeric::selection::kth_largest;
use crate::statistics::Threshold;

const WEIGHTED: Residual = Residual { beta: 0.5, gamma: 2.0 };

const GRADIENT: [f32; 3] = [1.0, -2.0, 3.0];

/// The residual after a use of a source whose elements β·m + γ·g are 2 + 2, 4 - 4 and -6 + 6.
fn residual_after(using: impl FnOnce(&mut Source<'_>)) -> [f32; 3] {
    let (mut residual, mut scratch) = ([4.0, 8.0, -12.0], [0.0; SCRATCH]);
    let feedback = Some((WEIGHTED, &mut residual[..]));
    using(&mut Source::new(Floats::F32(&GRADIENT), feedback, &mut scratch).unwrap());
    residual
}

#[test]
fn peeking_shows_the_sum_and_changes_nothing() {
    let residual = residual_after(|source| {
        source.peek(0, 3, |sum| assert_eq!(sum, [4.0, 0.0, 0.0]));
        source.peek(1, 1, |sum| assert_eq!(sum, [0.0]));
        assert_eq!(source.abs_max(), 4.0);
    });
    assert_eq!(residual, [4.0, 8.0, -12.0]);
}

#[test]
fn statistics_are_those_of_the_sum_with_a_pass_of_their_own_or_without() {
    // The sum is 4, 0 and -6, in several blocks.
    let gradient = [1.0, -2.0, 0.0].repeat(BLOCK);
    let blocks = BLOCK as f64;
    let kinds = [Statistics::Largest, Statistics::Signs, Statistics::Moments, Statistics::Extremes];
    for kind in kinds {
        let (mut residual, mut scratch) = ([4.0, 8.0, -12.0].repeat(BLOCK), [0.0; SCRATCH]);
        let feedback = Some((WEIGHTED, &mut residual[..]));
        let floats = Floats::F32(&gradient);
        let mut source = Source::unchecked(floats, feedback, &mut scratch)
            .with_statistics(kind, &mut Helpers::default())
            .unwrap();
        assert_eq!(source.abs_max(), 6.0);
        let SignSums { negative_sum, positive_sum, negative_count } = source.sums_by_sign();
        assert_eq!((negative_sum, positive_sum), (-6.0 * blocks, 4.0 * blocks));
        assert_eq!(negative_count, BLOCK as u64);
        assert_eq!(source.extremes(), (-6.0, 4.0));
        assert!((source.moments().mean() + 2.0 / 3.0).abs() < 1e-12);
        let variance = 52.0 / 3.0 - 4.0 / 9.0;
        assert!((source.moments().standard_deviation() - f64::sqrt(variance)).abs() < 1e-12);
    }
}

#[test]
fn statistics_refuse_what_is_not_finite() {
    let gradient = [1.0, f32::NAN, -f32::INFINITY];
    for kind in [Statistics::Signs, Statistics::Moments, Statistics::Extremes] {
        let mut scratch = [0.0; SCRATCH];
        let floats = Floats::F32(&gradient);
        let bad = Source::unchecked(floats, None, &mut scratch)
            .with_statistics(kind, &mut Helpers::default())
            .map(|_| ());
        assert_eq!(bad.unwrap_err().index, 1);
    }
}

#[test]
fn what_taking_leaves_is_the_residual() {
    let residual = residual_after(|source| {
        source.take(0, 2, |sum| {
            assert_eq!(sum, [4.0, 0.0]);
            sum[0] -= 3.0;
        });
        source.take(2, 1, |_| {});
    });
    assert_eq!(residual, [1.0, 0.0, 0.0]);
}

#[test]
fn sum_and_gradient_come_together() {
    let residual = residual_after(|source| {
        assert_eq!(source.gradient_weight(), 2.0);
        source.take_with_gradient(0, 3, |sum, latest| {
            assert_eq!((&*sum, latest), (&[4.0, 0.0, 0.0][..], &GRADIENT[..]));
            sum[1] = 7.0;
        });
    });
    assert_eq!(residual, [4.0, 7.0, 0.0]);
    let mut scratch = [0.0; SCRATCH];
    let mut source = Source::new(Floats::F32(&GRADIENT), None, &mut scratch).unwrap();
    source.take_with_gradient(1, 2, |sum, latest| assert_eq!(&*sum, latest));
}

#[test]
fn bfloat16_is_widened_on_the_way() {
    let (gradient, mut residual) = ([0x3f80, 0xc000], [0.5, 0.5]);
    let mut scratch = [0.0; SCRATCH];
    let floats = Floats::Bf16(&gradient);
    let mut source =
        Source::new(floats, Some((Residual::PLAIN, &mut residual)), &mut scratch).unwrap();
    source.peek(0, 2, |sum| assert_eq!(sum, [1.5, -1.5]));
    source.take(0, 2, |sum| assert_eq!(sum, [1.5, -1.5]));
    assert_eq!(residual, [1.5, -1.5]);
}

#[test]
fn the_first_bad_element_is_found_in_any_block() {
    let mut gradient = vec![0.0; 3 * BLOCK];
    gradient[BLOCK + 7] = f32::NEG_INFINITY;
    gradient[2 * BLOCK] = f32::NAN;
    let mut scratch = [0.0; SCRATCH];
    let floats = Floats::F32(&gradient);
    let bad = Source::new(floats, None, &mut scratch).map(|_| ()).unwrap_err();
    assert_eq!(bad, NonFinite { index: BLOCK + 7, value: f32::NEG_INFINITY });
}

#[test]
fn elements_are_checked_as_they_are_shown() {
    let gradient = [1.0, f32::INFINITY, 2.0, f32::NAN];
    let mut scratch = [0.0; SCRATCH];
    let mut source = Source::unchecked(Floats::F32(&gradient), None, &mut scratch);
    source.take(0, 1, |block| assert_eq!(block, [1.0]));
    source.peek(2, 1, |block| assert_eq!(block, [2.0]));
    assert_eq!(source.finish(), Ok(()));
    source.take_with_gradient(3, 1, |block, _| assert!(block[0].is_nan()));
    // The error names the first, in whatever order they were shown.
    assert_eq!(source.finish(), Err(NonFinite { index: 1, value: f32::INFINITY }));
}

#[test]
fn a_sum_that_overflows_is_refused_with_the_residual_untouched() {
    let (gradient, mut residual) = ([1.0, f32::MAX], [1.0, f32::MAX]);
    let mut scratch = [0.0; SCRATCH];
    let floats = Floats::F32(&gradient);
    let bad = Source::new(floats, Some((Residual::PLAIN, &mut residual)), &mut scratch);
    assert_eq!(bad.map(|_| ()).unwrap_err(), NonFinite { index: 1, value: f32::INFINITY });
    assert_eq!(residual, [1.0, f32::MAX]);
}

#[test]
fn what_the_check_has_found_is_not_searched_again() {
    let mut scratch = [0.0; SCRATCH];
    let mut source = Source::unchecked(Floats::F32(&GRADIENT), None, &mut scratch);
    source.peek_blocks(|_, _| {});
    // A search would find something else.
    let found = Threshold { value: 7.0, equal: 1, ties: 1 };
    let kind = Statistics::KthLargest(2);
    let mut source = source.searched(kind, Some(Found::Threshold(found))).unwrap();
    assert_eq!(source.abs_max(), 3.0);
    let mut workspace = crate::Workspace::default();
    assert_eq!(kth_largest(&mut source, 2, &mut workspace), found);
    assert_eq!(kth_largest(&mut source, 3, &mut workspace).value, 1.0);
}

#[test]
fn a_search_refuses_what_is_not_finite() {
    let (gradient, mut residual) = ([1.0, f32::MAX, f32::NAN], [0.0, f32::MAX, 0.0]);
    let mut scratch = [0.0; SCRATCH];
    let feedback = Some((Residual::PLAIN, &mut residual[..]));
    let mut source = Source::unchecked(Floats::F32(&gradient), feedback, &mut scratch);
    source.peek_blocks(|_, _| {});
    let bad = source.searched(Statistics::Tails(1), None).map(|_| ()).unwrap_err();
    assert_eq!(bad, NonFinite { index: 1, value: f32::INFINITY });
    assert_eq!(residual, [0.0, f32::MAX, 0.0]);
}
