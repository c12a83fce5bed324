//! Bounds on the norms of gradients and of updates.

use gradwire_exchange::{Control, ExchangeError, Traffic};

/// Bounds the ℓ2 norm of a gradient before it is added to a sum, over all tensors together
/// (Pascanu, Mikolov and Bengio 2013, algorithm 1).
#[derive(Debug)]
pub(crate) struct Clip {
    norm: Option<f32>,
    /// The gradient of this step alone, without the earlier content of `sum`.
    own: Vec<Vec<f32>>,
}

impl Clip {
    /// A bound for gradients of tensors of these sizes, or none.
    pub(crate) fn new(norm: Option<f32>, tensors: &[gradwire::Tensor]) -> Self {
        let zeros = |tensor: &gradwire::Tensor| vec![0.0; tensor.elements()];
        let own = if norm.is_some() { tensors.iter().map(zeros).collect() } else { Vec::new() };
        Self { norm, own }
    }

    /// Calls `add` to add a gradient to `sum`, scaled down if its norm is above the bound. Returns
    /// the result of `add`, and the factor.
    pub(crate) fn bounded<R>(
        &mut self,
        sum: &mut [Vec<f32>],
        add: impl FnOnce(&mut [Vec<f32>]) -> R,
    ) -> (R, f32) {
        let Some(bound) = self.norm else { return (add(sum), 1.0) };
        self.own.iter_mut().for_each(|values| values.fill(0.0));
        let result = add(&mut self.own);
        let norm = self.own.iter().map(|values| squares(values)).sum::<f64>().sqrt();
        // If the norm is not finite, the gradient stays as it is, and the check of gradients names
        // the tensor.
        let factor = if norm > f64::from(bound) && norm.is_finite() {
            (f64::from(bound) / norm) as f32
        } else {
            1.0
        };
        for (sum, own) in sum.iter_mut().flatten().zip(self.own.iter().flatten()) {
            *sum += factor * own;
        }
        (result, factor)
    }
}

/// Scales a worker's update down to the median of the norms of all workers if it is longer (Sarfi
/// et al. 2025, "SparseLoCo"). All workers call it at the same time; they exchange their norms.
pub(crate) fn to_median(
    update: &mut [Vec<f32>],
    rank: usize,
    workers: usize,
    step: u64,
    control: &mut Control<'_>,
) -> Result<Traffic, ExchangeError> {
    let norm = update.iter().map(|values| squares(values)).sum::<f64>().sqrt() as f32;
    let mut norms = vec![vec![0.0; workers]];
    norms[0][rank] = norm;
    // Each worker's vector holds only its norm; the mean has all norms, divided by the number of
    // workers.
    let traffic = control.exact_mean(step, &mut norms)?;
    let limit = median(&mut norms[0]) * workers as f32;
    if norm > limit {
        update.iter_mut().flatten().for_each(|value| *value *= limit / norm);
    }
    Ok(traffic)
}

/// The middle number, or the mean of the two in the middle.
fn median(numbers: &mut [f32]) -> f32 {
    numbers.sort_unstable_by(f32::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() % 2 {
        1 => numbers[middle],
        _ => f32::midpoint(numbers[middle - 1], numbers[middle]),
    }
}

/// Σ x², in eight sums so the additions run in parallel.
fn squares(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    let rest: f64 = rest.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    sums.iter().sum::<f64>() + rest
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::{Exchange, OnNonFinite, Policy, Reducer, ReducerConfig, in_process};

    use super::*;

    fn clip(norm: Option<f32>) -> Clip {
        Clip::new(norm, &[gradwire::Tensor::new("a", &[2]), gradwire::Tensor::new("b", &[1])])
    }

    fn add(gradients: &mut [Vec<f32>]) {
        for (sum, value) in gradients.iter_mut().flatten().zip([2.0, 3.0, 6.0]) {
            *sum += value;
        }
    }

    #[test]
    fn a_long_gradient_is_scaled_to_the_bound_and_a_short_one_kept() {
        // √(4 + 9 + 36) = 7.
        for (bound, expected) in [
            (Some(3.5), [1.0 + 1.0, 2.0 + 1.5, 3.0 + 3.0]),
            (Some(7.5), [3.0, 5.0, 9.0]),
            (None, [3.0, 5.0, 9.0]),
        ] {
            let mut clip = clip(bound);
            for _ in 0..2 {
                let mut sum = vec![vec![1.0, 2.0], vec![3.0]];
                clip.bounded(&mut sum, add);
                assert_eq!(sum.concat(), expected, "{bound:?}");
            }
        }
    }

    #[test]
    fn a_gradient_that_is_not_finite_is_left_as_it_is() {
        let mut sum = vec![vec![0.0; 2], vec![0.0]];
        clip(Some(1.0)).bounded(&mut sum, |own| own[0][1] = f32::INFINITY);
        assert_eq!(sum[0][1], f32::INFINITY);
    }

    /// Updates of these lengths, by worker, clipped to the median.
    fn clipped(lengths: &[f32]) -> Vec<Vec<f32>> {
        let transports = in_process::connect(lengths.len(), in_process::Options::default());
        let clip = |rank: usize, transport| {
            let config = ReducerConfig {
                exchange: Exchange::AllGather,
                policy: Policy::new(gradwire::Spec::none()),
                tensors: Vec::new(),
                seed: 0,
                on_non_finite: OnNonFinite::Refuse,
            };
            let mut reducer = Reducer::new(Box::new(transport), config).unwrap();
            let mut update = vec![vec![0.6 * lengths[rank]], vec![0.0, -0.8 * lengths[rank]]];
            let control = &mut reducer.control();
            let traffic = to_median(&mut update, rank, lengths.len(), 4, control).unwrap();
            assert!(traffic.bytes_up > 0);
            update.concat()
        };
        std::thread::scope(|scope| {
            let ranks = transports.into_iter().enumerate();
            let threads: Vec<_> =
                ranks.map(|(rank, transport)| scope.spawn(move || clip(rank, transport))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn updates_are_no_longer_than_the_median() {
        for (lengths, expected) in [
            (&[1.0, 20.0, 5.0][..], &[1.0, 5.0, 5.0][..]),
            (&[4.0, 0.0, 2.0, 9.0], &[3.0, 0.0, 2.0, 3.0]),
            (&[3.0, 3.0], &[3.0, 3.0]),
        ] {
            for (found, length) in clipped(lengths).iter().zip(expected) {
                let near = |a: f32, b: f32| (a - b).abs() <= 1e-5;
                assert!(near(found[0], 0.6 * length) && near(found[2], -0.8 * length), "{found:?}");
            }
        }
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut [3.0, 1.0, 7.0]), 3.0);
        assert_eq!(median(&mut [4.0, 1.0, 9.0, 2.0]), 3.0);
    }

    #[test]
    fn sums_of_squares_of_lengths_that_are_no_multiple_of_eight() {
        let values: Vec<f32> = (1..=19).map(|x| x as f32).collect();
        assert_eq!(squares(&values), (19 * 20 * 39 / 6) as f64);
    }
}
