//! Delay and sparsity within a budget of bytes.

use super::{Course, Phase, Plan, PlanError};

impl Plan {
    /// The phases of a plan that a budget decides, for a learning rate that first drops at `drop`.
    pub(super) fn within(
        &self,
        bytes: u64,
        drop: Option<u64>,
        course: Course<'_>,
    ) -> Result<Vec<Phase>, PlanError> {
        let spec = self.first();
        let Some(key) = ["p", "ratio"].into_iter().find(|key| spec.real(key).is_some()) else {
            return Err(self.unfit("only a compressor with a parameter p or ratio has a budget"));
        };
        let value_bits = f64::from(spec.compressor().value_bits().unwrap_or(32));
        let given = spec.real(key).unwrap_or(1.0);
        let least = LEAST.min(given);
        let cost = |p: f64| round_bits(course, p, value_bits) * course.sends;
        let nothing_fits = || self.unfit("not even one round fits the budget; give more bytes");
        let bits = bytes as f64 * 8.0;

        let until = drop.unwrap_or(course.steps);
        let share = bits * until as f64 / course.steps as f64;
        let (every, p) = match delay(until, share / cost(given)) {
            Some(every) => (every, given),
            None => {
                // One round, by more than its share if it must be, so long as one is left after the drop.
                let spare = bits - if drop.is_some() { cost(least) } else { 0.0 };
                let within = |most: f64| largest(|p| cost(p) <= most, [least, given]);
                (until, within(share).or_else(|| within(spare)).ok_or_else(nothing_fits)?)
            }
        };
        let mut phases = vec![(0, spec.clone().with_every(every).with_real(key, p)?)];
        if let Some(drop) = drop {
            let span = course.steps - drop;
            let left = bits - until.div_ceil(every) as f64 * cost(p);
            let every = delay(span, left / cost(least)).ok_or_else(nothing_fits)?;
            let rounds = span.div_ceil(every) as f64;
            let p = largest(|p| rounds * cost(p) <= left, [least, given]).unwrap_or(least);
            phases.push((drop, spec.clone().with_every(every).with_real(key, p)?));
        }
        Ok(phases)
    }
}

/// The sparsest that a budget goes to.
const LEAST: f64 = 1e-4;
/// The most that a sparse message takes beside its positions and values: a kind, a count, a mean, and
/// the length that messages are joined with.
const MESSAGE_BITS: f64 = 104.0;

/// The shortest delay with which there are at most so many rounds in `span` steps, if there can be any.
fn delay(span: u64, rounds: f64) -> Option<u64> {
    (rounds >= 1.0).then(|| span.div_ceil((rounds as u64).min(span)))
}

/// The most bits that a round's messages to one receiver take at sparsity p.
fn round_bits(course: Course<'_>, p: f64, value_bits: f64) -> f64 {
    let sparse = |&elements: &usize| {
        let kept = (p * elements as f64).round().clamp(elements.min(1) as f64, elements as f64);
        longest_positions(kept, elements as f64) + kept * value_bits + MESSAGE_BITS
    };
    let raw = |&elements: &usize| 32.0 * elements as f64 + MESSAGE_BITS;
    course.compressed.iter().map(sparse).sum::<f64>()
        + course.raw.iter().map(raw).sum::<f64>()
        + 8.0 * course.headers as f64
}

/// The most bits that a Golomb code takes for so many positions, with the parameter b that suits them
/// best: b + 1 each, and the quotients, which cannot add up to more than elements / 2^b.
fn longest_positions(kept: f64, elements: f64) -> f64 {
    let with = |b: i32| kept * f64::from(b + 1) + (elements / 2f64.powi(b)).floor();
    (0..32).map(with).fold(f64::INFINITY, f64::min)
}

/// Equation 5: the expected bits of a position at sparsity p, Golomb-coded with the best parameter:
/// b* + 1 / (1 − (1 − p)^(2^b*)). None are needed where nothing is sent, or all.
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

/// The largest p of a range that fits, if any does, by bisection, in three digits so that it prints
/// short.
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
