//! What methods with a memory of their own send and keep, beside plain loops over their formulas.
//!
//! A reference runs in double precision, element by element; which elements a message carried it is
//! told.

use crate::common::*;
use gradwire::{Coverage, Decoder, Encoder, Floats, Input, Spec, State, Tensor};

const RANKS: u32 = 4;
const STEPS: u64 = 5;

fn specs_with_own_memory() -> Vec<Spec> {
    let further = [
        "dgc:ratio=0.3,momentum=0.5",
        "demo:k=3,momentum=0.5",
        "sgc:ratio=0.2,epsilon=0.5,alpha=0.25",
        "signum:momentum=0.5,ef=on",
        "variance:alpha=2,zeta=0.5",
        "variance:alpha=0,ef=off",
    ];
    let all = specs().into_iter().chain(further.map(|text| text.parse().unwrap()));
    all.filter(|spec| spec.compressor().memory().is_some()).collect()
}

/// A sender with the references' view of it.
struct Run<'a> {
    spec: &'a Spec,
    tensor: &'a Tensor,
    gradients: Vec<Vec<f32>>,
    encoder: Encoder,
    /// Sums of the absolute values that came in, which rounding is proportional to.
    sizes: Vec<f64>,
    case: &'a str,
}

/// What a step sent, and what was kept after it.
struct Seen {
    sent: Vec<bool>,
    decoded: Vec<f32>,
    residual: Vec<f32>,
    velocity: Vec<f32>,
    kept: Vec<f32>,
}

impl Run<'_> {
    /// Encodes and decodes the gradient of a step; `None` where a sum overflowed, and nothing has
    /// changed.
    fn step(&mut self, step: u64, squares: Option<&[f32]>) -> Option<Seen> {
        let gradient = &self.gradients[step as usize];
        let before = self.memory();
        let mut message = Vec::new();
        let input = Input { gradient: Floats::F32(gradient), squares };
        let sent = self.encoder.encode(self.tensor, step, input, &mut message);
        let Ok(sent) = sent else {
            assert!(step > 0 && self.case.ends_with("huge"), "{}", self.case);
            assert_eq!(self.memory().map(|x| bits(&x)), before.map(|x| bits(&x)), "{}", self.case);
            return None;
        };
        let mut carried = vec![sent == Coverage::All; gradient.len()];
        if sent == Coverage::Positions {
            self.encoder.positions().iter().for_each(|&at| carried[at as usize] = true);
        }
        let mut decoded = vec![0.0; gradient.len()];
        Decoder::new(self.spec, SEED)
            .decode_add(self.tensor, step, RANK, &message, 1.0, &mut decoded)
            .unwrap();
        for (at, carried) in carried.iter().enumerate() {
            assert!(*carried || decoded[at] == 0.0, "{}, element {at}", self.case);
        }
        let [residual, velocity, kept] = self.memory();
        Some(Seen { sent: carried, decoded, residual, velocity, kept })
    }

    /// What a saved encoder has of the tensor: residual, velocity and what is kept beside them.
    fn memory(&self) -> [Vec<f32>; 3] {
        let mut state = State::new();
        self.encoder.save("", &mut state);
        ["residual/", "velocity/", "kept/"].map(|under| {
            state.floats_under(under).next().map_or(Vec::new(), |(_, values)| values.to_vec())
        })
    }

    /// The gradient of a step, of which so much comes in.
    fn gradient(&mut self, step: u64, factor: f64) -> Vec<f64> {
        let gradient = &self.gradients[step as usize];
        for (size, &g) in self.sizes.iter_mut().zip(gradient) {
            // Below 10⁻³⁸ a factor has fewer digits.
            *size += (factor + 1e-39) * f64::from(g).abs();
        }
        gradient.iter().map(|&g| f64::from(g)).collect()
    }

    /// How far from the reference an element may be.
    fn room(&self, at: usize) -> f64 {
        20.0 * f64::from(f32::EPSILON) * self.sizes[at] + 20.0 * f64::from(f32::from_bits(1))
    }

    fn near(&self, found: f32, expected: f64, at: usize, what: &str) {
        let error = (f64::from(found) - expected).abs();
        let case = self.case;
        assert!(error <= self.room(at), "{case}, {what} of {at}: {found} for {expected}");
    }

    /// Checks that what was sent is no smaller than what was not, and that something was, if there
    /// was anything.
    fn largest_are_sent(&self, values: &[f64], sent: &[bool]) {
        let of = |which: bool| {
            let pairs = values.iter().zip(sent).enumerate();
            pairs.filter(move |(_, (_, sent))| **sent == which).map(|(at, (v, _))| (at, v.abs()))
        };
        let left = of(false).map(|(at, v)| v - self.room(at)).fold(0.0, f64::max);
        let least = of(true).map(|(at, v)| v + self.room(at)).fold(f64::INFINITY, f64::min);
        // Of very many that are equal only the first are sent, whatever comes behind them.
        assert!(left <= least || self.case.ends_with("constant"), "{}", self.case);
        // Of more elements than a sample holds the few that are not zero may be missed.
        assert!(least.is_finite() || left == 0.0 || values.len() > 4096, "{}", self.case);
    }
}

/// `u ← m·u + g`, `v ← v + u`; v is sent, and both are 0 where it was. The norm of g is cut to clip
/// / √n.
fn momentum(run: &mut Run<'_>, momentum: f32, clip: f32) {
    let elements = run.sizes.len();
    let (mut u, mut v) = (vec![0.0; elements], vec![0.0; elements]);
    for step in 0..STEPS {
        let Some(seen) = run.step(step, None) else { return };
        let squares = run.gradients[step as usize].iter().map(|&g| f64::from(g) * f64::from(g));
        let (norm, limit) =
            (squares.sum::<f64>().sqrt(), f64::from(clip) / f64::from(RANKS).sqrt());
        let factor = if clip > 0.0 && norm > limit { limit / norm } else { 1.0 };
        for (at, g) in run.gradient(step, factor).into_iter().enumerate() {
            u[at] = f64::from(momentum) * u[at] + factor * g;
            v[at] += u[at];
        }
        run.largest_are_sent(&v, &seen.sent);
        for at in 0..elements {
            if seen.sent[at] {
                run.near(seen.decoded[at], v[at], at, "sent v");
                (u[at], v[at]) = (0.0, 0.0);
            }
            run.near(seen.residual[at], v[at], at, "v");
            run.near(seen.velocity[at], u[at], at, "u");
        }
    }
}

/// `v = α·u + (u + ε·g)`, `u ← u + ε·g`; v is sent, and u is 0 where it was.
fn long_term(run: &mut Run<'_>, epsilon: f32, alpha: f32) {
    let (epsilon, alpha) = (f64::from(epsilon), f64::from(alpha));
    let elements = run.sizes.len();
    let (mut u, mut v) = (vec![0.0; elements], vec![0.0; elements]);
    for step in 0..STEPS {
        let Some(seen) = run.step(step, None) else { return };
        for (at, g) in run.gradient(step, epsilon).into_iter().enumerate() {
            let before = u[at];
            u[at] = before + epsilon * g;
            v[at] = alpha * before + u[at];
        }
        run.largest_are_sent(&v, &seen.sent);
        for at in 0..elements {
            if seen.sent[at] {
                run.near(seen.decoded[at], v[at], at, "sent v");
                u[at] = 0.0;
            }
            run.near(seen.residual[at], u[at], at, "u");
        }
        assert!(seen.velocity.is_empty() && seen.kept.is_empty());
    }
}

/// `z ← (1 − δ)·g + δ·z`; the sign of z is sent. With error feedback it is that of `c = z + r`, and
/// `r ← c − sign`.
fn average(run: &mut Run<'_>, decay: f32) {
    let feedback = run.spec.feedback().is_some();
    let elements = run.sizes.len();
    let (mut z, mut r) = (vec![0.0; elements], vec![0.0; elements]);
    for step in 0..STEPS {
        let Some(seen) = run.step(step, None) else { return };
        let gradient = run.gradient(step, 1.0);
        for (at, g) in gradient.into_iter().enumerate() {
            z[at] = f64::from(1.0 - decay) * g + f64::from(decay) * z[at];
            let (c, sign) = (z[at] + r[at], f64::from(seen.decoded[at]));
            assert!(sign.abs() == 1.0, "{}, element {at}: {sign}", run.case);
            assert!(c * sign >= -run.room(at), "{}, element {at}: {sign} of {c}", run.case);
            run.near(seen.velocity[at], z[at], at, "z");
            if feedback {
                run.sizes[at] += 1.0;
                r[at] = c - sign;
                run.near(seen.residual[at], r[at], at, "r");
            }
        }
        assert!(feedback || seen.residual.is_empty(), "{}", run.case);
        assert!(seen.sent.iter().all(|sent| *sent));
    }
}

/// `r ← r + g`, `v ← v + Σ of the squares of g's parts`; where `r² > α·v` the element is sent as a
/// power of two, and both are 0 afterwards; elsewhere r stays and `v ← ζ·v`. Without error feedback
/// r is g.
///
/// So the law `c = decoded + residual` does not hold: what rounding takes from a sent element is
/// not kept. An element whose square is below the range of `f32` waits, and so does one below 3/512
/// of the largest's power of two; one whose square is above the range is sent.
fn variance(run: &mut Run<'_>, alpha: f64, zeta: f64) {
    let elements = run.sizes.len();
    let (mut r, mut v) = (vec![0.0; elements], vec![0.0; elements]);
    for step in 0..STEPS {
        let squares = squares(&run.gradients[step as usize], step);
        let given = (step % 2 == 1).then_some(&squares[..]);
        let Some(seen) = run.step(step, given) else { return };
        for (at, g) in run.gradient(step, 1.0).into_iter().enumerate() {
            r[at] = if run.spec.feedback().is_some() { r[at] + g } else { g };
            v[at] = (v[at] + f64::from(squares[at])).min(f64::from(f32::MAX));
        }
        // The largest decodes to the power of two at or below it.
        let top = f64::from(seen.decoded.iter().fold(0f32, |top, x| top.max(x.abs())));
        for at in 0..elements {
            let (least, most) = ((r[at].abs() - run.room(at)).max(0.0), r[at].abs() + run.room(at));
            let level = (alpha * v[at]).min(f64::from(f32::MAX));
            let rounding = level * 1e-5 + 1e-37 * (1.0 + alpha);
            let case = format!("{}, step {step}, element {at}: r = {}", run.case, r[at]);
            if seen.sent[at] {
                assert!(most * most >= level - rounding, "{case}, {level}");
                power_of_two(seen.decoded[at], r[at], top, &case);
                (r[at], v[at]) = (0.0, 0.0);
            } else {
                let small = least <= top * 1.5 / 256.0;
                assert!(small || least * least <= level + rounding, "{case}, {level}");
                v[at] *= zeta;
            }
            let kept = f64::from(seen.kept[at]);
            assert!((kept - v[at]).abs() <= v[at] * 1e-5 + 1e-37, "{case}, {kept} for {}", v[at]);
            match seen.residual.get(at) {
                Some(&residual) => run.near(residual, r[at], at, "r"),
                None => assert!(run.spec.feedback().is_none()),
            }
        }
    }
}

/// The squares of a gradient's parts: of the gradient itself, or of two parts, ¼ and ¾ of it or −½
/// and 3/2.
fn squares(gradient: &[f32], step: u64) -> Vec<f32> {
    let share = |at: usize| match (step % 2, at % 2) {
        (0, _) => 1.0,
        (_, 0) => 0.625,
        _ => 2.5,
    };
    gradient.iter().enumerate().map(|(at, g)| (g * g * share(at)).min(f32::MAX)).collect()
}

/// Checks that a number was sent as the nearest power of two, but for the largest, where that may
/// be above `top`.
fn power_of_two(sent: f32, r: f64, top: f64, case: &str) {
    let sent = f64::from(sent);
    assert_eq!(sent.abs().log2().fract(), 0.0, "{case}, {sent}");
    let (below, above) = (0.75 - 1e-5, if sent.abs() == top { 2.0 } else { 1.5 } + 1e-5);
    assert!((below..=above).contains(&(r / sent)), "{case}, {sent}");
    assert!(sent.abs() >= top / 128.0 && sent.abs() <= top, "{case}, {sent}");
}

/// `δ ← m·δ + g`; what is decoded is subtracted. Signs decode to something else than what they
/// subtract.
fn decoupled(run: &mut Run<'_>, momentum: f32) {
    let momentum = f64::from(momentum);
    let mut delta = vec![0.0; run.sizes.len()];
    for step in 0..STEPS {
        let Some(seen) = run.step(step, None) else { return };
        for (at, g) in run.gradient(step, 1.0).into_iter().enumerate() {
            // A decoded element has parts of its neighbours.
            run.sizes[at] += f64::from(seen.decoded[at]).abs();
            delta[at] = momentum * delta[at] + g - f64::from(seen.decoded[at]);
            run.near(seen.residual[at], delta[at], at, "δ");
        }
        assert!(seen.velocity.is_empty() && seen.kept.is_empty());
    }
}

/// Another gradient of the same kind at every step.
fn gradients(values: &[f32]) -> Vec<Vec<f32>> {
    let at = |step: usize| {
        let mut gradient = values.to_vec();
        gradient.rotate_left(7 * step % values.len().max(1));
        let weight = [1.0, -0.5, 0.25, 1.0, -1.0][step % 5];
        gradient.iter_mut().for_each(|x| *x *= weight);
        gradient
    };
    (0..STEPS as usize).map(at).collect()
}

fn check(spec: &Spec, run: &mut Run<'_>) {
    let on = spec.feedback().is_some();
    let value = |key: &str| spec.real(key).unwrap();
    let narrow = |key: &str| value(key) as f32;
    match spec.entry().id {
        "signum" => average(run, narrow("momentum")),
        "variance" => variance(run, value("alpha"), value("zeta")),
        // Without error feedback these have no memory.
        "dgc" if on => momentum(run, narrow("momentum"), narrow("clip")),
        "sgc" if on => long_term(run, narrow("epsilon"), narrow("alpha")),
        "demo" if on && !spec.to_string().contains("sign") => decoupled(run, narrow("momentum")),
        "dgc" | "sgc" | "demo" => {}
        other => panic!("{other} has no law"),
    }
}

#[test]
fn memories_follow_their_formulas() {
    for spec in specs_with_own_memory() {
        for elements in [0, 1, 2, 7, 1023, 9000] {
            for (kind, values) in tensors(elements) {
                for shape in shapes(elements) {
                    let case = format!("{spec}, {shape:?}, {kind}");
                    let mut run = Run {
                        spec: &spec,
                        tensor: &Tensor::new("layer.weight", &shape),
                        gradients: gradients(&values),
                        encoder: encoder(&spec).with_ranks(RANKS),
                        sizes: vec![0.0; elements],
                        case: &case,
                    };
                    check(&spec, &mut run);
                }
            }
        }
    }
}

#[test]
fn methods_with_a_memory_of_their_own_are_known() {
    // Whoever registers another adds its law above.
    let mut ids: Vec<_> = specs_with_own_memory().iter().map(|spec| spec.entry().id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids, ["demo", "dgc", "sgc", "signum", "variance"]);
}

#[test]
fn memories_with_momentum_say_so() {
    for (text, applies) in [
        ("signum", true),
        ("signum:momentum=0", false),
        ("dgc", true),
        ("sgc", true),
        ("sgc:alpha=0", false),
        ("demo", true),
        ("demo:momentum=0", false),
        ("topk:momentum=0.9", true),
        ("topk", false),
    ] {
        assert_eq!(text.parse::<Spec>().unwrap().applies_momentum(), applies, "{text}");
    }
}
