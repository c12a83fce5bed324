//! Delay and sparsity chosen for a budget of bytes.

use super::{CompressionSchedule, RunDescription, Schedule, ScheduleError};

impl CompressionSchedule {
    /// The schedule of a budget: one compressor until the first drop of the learning rate, and one
    /// from there on.
    pub(super) fn within(
        &self,
        bytes: u64,
        run: RunDescription<'_>,
    ) -> Result<Schedule, ScheduleError> {
        let drop = run.drops.iter().copied().find(|&drop| 0 < drop && drop < run.steps);
        let spec = self.first();
        let Some(key) = ["p", "ratio"].into_iter().find(|key| spec.real(key).is_some()) else {
            return Err(
                self.unfit("only a compressor with a parameter p or ratio can have a budget")
            );
        };
        let value_bits = f64::from(spec.properties().value_bits.unwrap_or(32));
        let given = spec.real(key).unwrap_or(1.0);
        let least = LEAST.min(given);
        let cost = |p: f64| round_bits(run, p, value_bits) * run.sends;
        let nothing_fits = || self.unfit("not even one round fits the budget; give more bytes");
        let bits = bytes as f64 * 8.0;

        let until = drop.unwrap_or(run.steps);
        let share = bits * until as f64 / run.steps as f64;
        let (every, p) = match delay(until, share / cost(given)) {
            Some(every) => (every, given),
            None => {
                // One round. It may take more than its share, if one round after the drop still
                // fits.
                let spare = bits - if drop.is_some() { cost(least) } else { 0.0 };
                let within = |most: f64| largest(|p| cost(p) <= most, [least, given]);
                (until, within(share).or_else(|| within(spare)).ok_or_else(nothing_fits)?)
            }
        };
        let spec_of = |every, p| spec.clone().with_every(every).with_number(key, p);
        let mut schedule = Schedule::from(spec_of(every, p)?);
        if let Some(drop) = drop {
            let span = run.steps - drop;
            let left = bits - until.div_ceil(every) as f64 * cost(p);
            let every = delay(span, left / cost(least)).ok_or_else(nothing_fits)?;
            let rounds = span.div_ceil(every) as f64;
            let p = largest(|p| rounds * cost(p) <= left, [least, given]).unwrap_or(least);
            schedule.later.push((drop, spec_of(every, p)?));
        }
        Ok(schedule)
    }
}

/// The lowest ratio that a budget may choose.
const LEAST: f64 = 1e-4;
/// The most bits of a sparse message apart from its positions and values: a kind, a count, a mean,
/// and the length that packed messages begin with.
const MESSAGE_BITS: f64 = 104.0;

/// The shortest delay that makes at most `rounds` rounds of `span` steps; `None` for less than one
/// round.
fn delay(span: u64, rounds: f64) -> Option<u64> {
    (rounds >= 1.0).then(|| span.div_ceil((rounds as u64).min(span)))
}

/// The most bits that a round's messages to one receiver take at sparsity p.
fn round_bits(run: RunDescription<'_>, p: f64, value_bits: f64) -> f64 {
    let sparse = |&elements: &usize| {
        let kept = (p * elements as f64).round().clamp(elements.min(1) as f64, elements as f64);
        longest_positions(kept, elements as f64) + kept * value_bits + MESSAGE_BITS
    };
    let raw = |&elements: &usize| 32.0 * elements as f64 + MESSAGE_BITS;
    run.compressed.iter().map(sparse).sum::<f64>()
        + run.raw.iter().map(raw).sum::<f64>()
        + 8.0 * run.headers as f64
}

/// The most bits that a Golomb code takes for `kept` positions with the best parameter b: b + 1
/// bits for each position, plus the quotients. Their sum is at most elements / 2^b.
fn longest_positions(kept: f64, elements: f64) -> f64 {
    let with = |b: i32| kept * f64::from(b + 1) + (elements / 2f64.powi(b)).floor();
    (0..32).map(with).fold(f64::INFINITY, f64::min)
}

/// Equation 5: the expected bits of a position at sparsity p, Golomb-coded with the best parameter:
/// b* + 1 / (1 − (1 − p)^(2^b*)). 0 if nothing is sent, 1 if everything is.
pub fn position_bits(p: f64) -> f64 {
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    if p <= 0.0 {
        return 0.0;
    }
    // The logarithm of (1 − p)^(2^b): exact for the smallest p, too.
    let (mut logarithm, mut parameter) = ((-p).ln_1p(), 0);
    while logarithm >= GOLDEN.ln() {
        logarithm *= 2.0;
        parameter += 1;
    }
    f64::from(parameter) - 1.0 / logarithm.exp_m1()
}

/// The largest p of a range that fits, found by bisection; `None` if none fits. It is rounded down
/// to three digits, to print short.
fn largest(fits: impl Fn(f64) -> bool, [least, most]: [f64; 2]) -> Option<f64> {
    if fits(most) {
        return Some(most);
    }
    let (mut low, mut high) = (least, most);
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        if fits(middle) { low = middle } else { high = middle }
    }
    let digits = 10f64.powi(2 - low.log10().floor() as i32);
    Some(((low * digits).floor() / digits).max(least)).filter(|&p| fits(p))
}

#[cfg(test)]
mod tests {
    use gradwire::Spec;

    use super::super::tests::{named, resolved, run, schedule};
    use super::*;

    #[test]
    fn positions_cost_what_equation_5_says() {
        for (p, bits) in [(0.01, 8.108), (0.001, 11.494), (0.1, 4.757)] {
            assert!((position_bits(p) - bits).abs() < 2e-3, "{p}: {}", position_bits(p));
        }
        // The code approaches log2(e / p) + 0.03 for small p, and ends at one bit for all.
        for p in [1e-9, 1e-17, 1e-300] {
            let limit = (std::f64::consts::E / p).log2();
            assert!((limit..limit + 0.08).contains(&position_bits(p)), "{p}: {}", position_bits(p));
        }
        assert_eq!((position_bits(1.0), position_bits(0.0)), (1.0, 0.0));
    }

    #[test]
    fn a_budget_delays_before_the_drop_and_thins_out_after_it() {
        // A round at ratio 0.01: 1000 elements of 32 bits and 7 of position with b = 6, whose
        // quotients take 100 000 / 64 bits at most; 100 raw floats; 2 · 104 bits and 20 bytes of
        // framing: 44 130 bits. Half of 1 MB allows 90 rounds in the first 500 steps: every 6
        // steps, 84 rounds.
        let found = resolved("topk within 1MB", &[500]);
        assert_eq!(found[0], (0, "topk:every=6".to_owned()));
        assert_eq!(found[1].0, 500);
        let later: Spec = found[1].1.parse().unwrap();
        assert_eq!(later.every(), 1);
        // 8 000 000 − 84 · 44 130 bits are left for 500 rounds: 8586 each. 115 elements of 32 + 10
        // bits, quotients of at most 195 bits, 3568 for the rest: 8593 with b = 9 are too many, 114
        // fit.
        assert_eq!(later.real("ratio"), Some(0.00114));
        // 1 MB is 181 rounds: every 6 steps.
        assert_eq!(resolved("topk within 1MB", &[]), named(&[(0, "topk:every=6")]));
        // Three receivers: 60 rounds, every 17 steps.
        let thrice = schedule("topk within 1MB").resolve(RunDescription { sends: 3.0, ..run(&[]) });
        assert_eq!(thrice.unwrap().first.to_string(), "topk:every=17");
    }

    #[test]
    fn a_budget_below_one_round_thins_that_round_out() {
        // One round of 5000 bits: 3568 are framing and raw, 1432 are left for 32 elements of 32 +
        // 12 bits, with quotients of at most 100 000 / 2048; 33 take too many.
        let found = resolved("topk within 625B", &[]);
        let spec: Spec = found[0].1.parse().unwrap();
        assert_eq!((found.len(), spec.every()), (1, 1000));
        let kept = (spec.real("ratio").unwrap() * 1e5).round();
        assert!((30.0..=32.0).contains(&kept), "{kept}");
    }
}
