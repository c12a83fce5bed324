//! Sizes and speeds of coded parts on simulated training:
//! `cargo run --release -p gradwire-delta --example parts`, with a part of a case's name to run few
//! cases, and with `GRADWIRE_SIMD=avx2` or `sse2` for fewer instructions.
//!
//! Weights are normal, with f32 masters and bf16 exports. A step moves each master by the learning
//! rate times a normal number, at most 1. In the late case masters are anywhere in the interval
//! that rounds to their weight; in the early one they have made 25 steps from a bf16 value. Bounds
//! are entropies of the positions and differences in all parts, given the exponent of the old
//! weight or given nothing.

use std::collections::HashMap;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use gradwire_delta::ElementType;
use gradwire_delta::part::{Coder, Options, PART, apply};

/// Elements of a measured model: its two versions are larger than the second-level cache.
const ELEMENTS: usize = 12 << 20;
const ROUNDS: usize = 9;
const BYTES: usize = 2;

/// A pseudo-random generator: xorshift.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 40) as f32 / (1 << 24) as f32
    }

    /// Nearly normal: a sum of uniform numbers.
    fn normal(&mut self) -> f32 {
        (0..12).map(|_| self.uniform()).sum::<f32>() - 6.0
    }
}

/// The nearest bf16, as bits.
fn rounded(x: f32) -> u16 {
    ((x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16) as u16
}

/// Weights before and after a step.
fn versions(elements: usize, steps: usize, rate: f32) -> [Vec<u8>; 2] {
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut weights = [Vec::new(), Vec::new()];
    for _ in 0..elements {
        let mut master = 0.03 * random.normal();
        let moved = |random: &mut Random| rate * random.normal().clamp(-1.0, 1.0);
        if steps > 0 {
            master = f32::from_bits(u32::from(rounded(master)) << 16);
            (0..steps).for_each(|_| master -= moved(&mut random));
        }
        weights[0].extend(rounded(master).to_le_bytes());
        weights[1].extend(rounded(master - moved(&mut random)).to_le_bytes());
    }
    weights
}

/// Bits of the entropy of counted things.
fn entropy<'a>(counts: impl Iterator<Item = &'a u64> + Clone) -> f64 {
    let sum = counts.clone().sum::<u64>() as f64;
    counts.map(|&count| count as f64 * (sum / count as f64).log2()).sum()
}

/// The entropy of positions and differences, in bytes for each change. `context` is what is known
/// of an old weight.
fn bound([base, new]: &[Vec<u8>; 2], context: impl Fn(u16) -> u16) -> (f64, u64) {
    let mut counts: HashMap<u16, HashMap<u16, u64>> = HashMap::new();
    for (base, new) in base.as_chunks().0.iter().zip(new.as_chunks().0) {
        let [base, new] = [base, new].map(|bytes| u16::from_le_bytes(*bytes));
        let differences = counts.entry(context(base)).or_default();
        *differences.entry(new.wrapping_sub(base)).or_default() += 1;
    }
    let unchanged: u64 = counts.values().filter_map(|counts| counts.get(&0)).sum();
    let changed = (base.len() / BYTES) as u64 - unchanged;
    let bits: f64 = counts.values().map(|counts| entropy(counts.values())).sum();
    (bits / 8.0 / changed as f64, changed)
}

/// The speed of a call for each part, in GB/s, from each part's least time: another program on the
/// same core rarely disturbs the same part in each round.
fn speed(mut call: impl FnMut(usize, Range<usize>)) -> f64 {
    let parts = || (0..BYTES * ELEMENTS).step_by(PART * BYTES).enumerate();
    let mut least = vec![f64::INFINITY; parts().count()];
    for _ in 0..ROUNDS {
        for (part, start) in parts() {
            let before = Instant::now();
            call(part, start..(start + PART * BYTES).min(BYTES * ELEMENTS));
            least[part] = least[part].min(before.elapsed().as_secs_f64());
        }
    }
    (BYTES * ELEMENTS) as f64 / least.iter().sum::<f64>() / 1e9
}

/// The bytes of all parts of a length.
fn size([base, new]: &[Vec<u8>; 2], part: usize, options: Options) -> usize {
    let (mut coder, mut out) = (Coder::default(), Vec::new());
    for (base, new) in base.chunks(part * BYTES).zip(new.chunks(part * BYTES)) {
        coder.encode(ElementType::Bf16, Some(base), new, options, &mut out);
    }
    out.len()
}

fn sizes(name: &str, weights: &[Vec<u8>; 2]) {
    let (given_exponent, changed) = bound(weights, |weight| weight >> 7 & 0xff);
    let (given_nothing, _) = bound(weights, |_| 0);
    let percent = 100.0 * changed as f64 / (weights[0].len() / BYTES) as f64;
    print!("{name}, {percent:.3} % changed: bound {given_exponent:.3}, coded");
    for part in [1 << 17, 300_000, PART] {
        let bytes = size(weights, part, Options::default()) as f64 / changed as f64;
        print!(" {bytes:.3} ({:.3})", bytes / given_exponent);
    }
    let bytes = size(weights, PART, Options { portable: true }) as f64 / changed as f64;
    println!("; portable: bound {given_nothing:.3}, {bytes:.3} ({:.3})", bytes / given_nothing);
}

fn speeds([base, new]: &[Vec<u8>; 2], options: Options) {
    let mut coder = Coder::default();
    let mut codes = vec![Vec::new(); ELEMENTS.div_ceil(PART)];
    let encode = speed(|part, range| {
        codes[part].clear();
        let (base, new) = (Some(&base[range.clone()]), &new[range]);
        coder.encode(ElementType::Bf16, base, new, options, &mut codes[part]);
    });
    let decode = speed(|part, range| {
        let (base, len) = (Some(&base[range.clone()]), range.len() / BYTES);
        black_box(coder.decode(ElementType::Bf16, len, base, &codes[part]).expect("valid"));
    });
    // Applied to a copy, so that each round decodes with the old weights.
    let mut target = base.clone();
    let both = speed(|part, range| {
        let (target, len) = (&mut target[range.clone()], range.len() / BYTES);
        let content =
            coder.decode(ElementType::Bf16, len, Some(&base[range.clone()]), &codes[part]);
        apply(ElementType::Bf16, &content.expect("valid"), target);
    });
    assert!(target == *new, "the new weights arrive");
    let copy = speed(|_, range| target[range.clone()].copy_from_slice(black_box(&base[range])));
    let form = if options.portable { "portable" } else { "in classes" };
    print!("  {form}: encode {encode:.1} GB/s, decode {decode:.1}, decode and apply {both:.1}");
    println!(", copy {copy:.1}");
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    let cases = [
        ("early, rate 1e-6", 25, 1e-6),
        ("early, rate 3e-6", 25, 3e-6),
        ("late, rate 5e-8", 0, 5e-8),
        ("late, rate 3e-7", 0, 3e-7),
        ("late, rate 1e-6", 0, 1e-6),
        ("late, rate 3e-6", 0, 3e-6),
        ("late, rate 2e-5", 0, 2e-5),
        ("late, rate 1e-4", 0, 1e-4),
        ("late, rate 1e-3", 0, 1e-3),
    ];
    for (name, steps, rate) in cases.into_iter().filter(|(name, ..)| name.contains(&only)) {
        let weights = versions(ELEMENTS, steps, rate);
        sizes(name, &weights);
        speeds(&weights, Options::default());
        speeds(&weights, Options { portable: true });
    }
}
