//! Speed of compressors, relative to the bound that memory bandwidth sets.
//!
//! Two loops, measured in alternation with the compressors, give the bandwidth of memory or a
//! cache. A copy moves 12 bytes per element: 4 read, 4 written, and 4 of the target, which a store
//! reads first. A maximum only reads. A core reads fewer bytes a second than it moves in both
//! directions. So the bound of a compressor is the slower of two: all bytes of its
//! [`MemoryTraffic`] at the copy bandwidth, and its read bytes at the read bandwidth. A copy does
//! not quite reach the limit of memory, so a simple pass may exceed its bound.
//!
//! A gigabyte here is 10⁹ bytes of `f32` input. Buffers are warm and reused, residuals are some
//! steps old, and the best of several repetitions counts; the spread is how much longer the median
//! repetition took. Compressing, decoding, copying and
//! reading take turns, so noise affects all of them. Decoding, bits and entropy are measured on the
//! longer of the seventh and the eighth message. So they do not depend on the length of the
//! measurement, although the messages of some methods become shorter from step to step. And the
//! message is not empty if a method draws its length at random. Later messages are encoded but not
//! decoded.

pub mod codes;
pub mod deltas;
mod entropy;
mod input;
mod operations;
pub mod peers;
pub mod threads;
mod times;

use std::time::{Duration, Instant};

use gradwire::registry;
use gradwire::{Error, MemoryTraffic, Spec, Tensor};
use serde::{Deserialize, Serialize};

pub(crate) use self::operations::Bench;
use self::times::{Bandwidth, Times};
use crate::format::significant;
use crate::table::Table;

/// Default numbers of elements: a tensor that stays in cache, one that may, and one that does not.
pub const ELEMENTS: [usize; 3] = [64 << 10, 1 << 20, 20 << 20];

/// The shortest time of a measurement; faster operations are repeated.
const LEAST: Duration = Duration::from_millis(2);

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The fewest repetitions of each operation.
    pub repetitions: usize,
    /// Repeats further until this much time is spent.
    pub time: Duration,
}

impl Effort {
    /// A second and a half for each compressor and size.
    pub const USUAL: Self = Self { repetitions: 5, time: Duration::from_millis(1500) };
    /// Little time, for a first impression.
    pub const QUICK: Self = Self { repetitions: 2, time: Duration::from_millis(100) };
}

/// One compressor on one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The spec.
    pub compressor: String,
    /// Elements of the tensor.
    pub elements: usize,
    /// Compression speed, in GB/s of input, with the spec's error feedback.
    pub compress_gbps: f64,
    /// Decompression speed, in GB/s of output decoded and added.
    pub decompress_gbps: f64,
    /// How much longer the median repetition of compression took than the best one, as a fraction.
    #[serde(default)]
    pub compress_spread: f64,
    /// The same for decompression.
    #[serde(default)]
    pub decompress_spread: f64,
    /// Copy bandwidth, in GB/s of floats copied from one buffer to another.
    pub copy_gbps: f64,
    /// Bandwidth of reading alone, in GB/s of floats whose maximum is found.
    pub read_gbps: f64,
    /// The compression speed that the bandwidth allows, in GB/s of input.
    pub compress_bound_gbps: f64,
    /// The decompression speed that the bandwidth allows, in GB/s of output.
    pub decompress_bound_gbps: f64,
    /// Bits of message per element.
    pub bits_per_element: f64,
    /// The empirical entropy of order 0 of that message, in bits per element: the limit for an
    /// entropy coder that codes each symbol by its frequency alone. Symbols are the decoded
    /// elements or, if that gives less, the 32-bit words of the message. A symbol that occurs once
    /// counts 32 bits.
    pub entropy_bits: f64,
}

/// Every registered compressor with its defaults, and options that use other code paths.
pub fn default_specs() -> Vec<Spec> {
    let variants = [
        "8bit:code=huffman",
        "qsgd:code=huffman",
        "qsgd:code=elias",
        "lpc-svrg:code=huffman",
        "natural:code=huffman",
        "terngrad:clip=0",
        "terngrad:code=huffman",
        "inceptionn:code=huffman",
        "3lc:s=1.75",
        "topk:ratio=0.05,select=sampled,positions=bitmap",
        "variance:code=huffman",
        "sketchml:code=huffman",
    ];
    let mut specs: Vec<Spec> = Vec::new();
    for entry in registry::all() {
        specs.push(Spec::of(entry));
        let own = variants.iter().filter_map(|text| text.parse::<Spec>().ok());
        specs.extend(own.filter(|spec| spec.entry().id == entry.id));
    }
    specs
}

/// Measures one compressor on a tensor of `elements` normal variates.
///
/// Memory: five times the tensor. Time: [`Effort`], and the generation of the tensor.
///
/// # Errors
/// If the compressor refuses the tensor (a compressor may have a largest size).
pub fn measure(spec: &Spec, elements: usize, effort: Effort) -> Result<Measurement, Error> {
    measure_benches(spec, vec![Bench::new(spec, elements)], effort)
}

/// Measures one compressor on tensors with these values, one after the other.
///
/// Memory: three times the tensors. Time: [`Effort`].
///
/// # Errors
/// If the compressor refuses a tensor, because of its size or of NaN for instance.
pub fn measure_on(
    spec: &Spec,
    tensors: &[(Tensor, Vec<f32>)],
    effort: Effort,
) -> Result<Measurement, Error> {
    let bench = |(tensor, values): &(Tensor, Vec<f32>)| {
        Bench::of(spec, tensor.clone(), vec![values.clone()])
    };
    measure_benches(spec, tensors.iter().map(bench).collect(), effort)
}

fn measure_benches(
    spec: &Spec,
    mut benches: Vec<Bench>,
    effort: Effort,
) -> Result<Measurement, Error> {
    benches.iter_mut().try_for_each(Bench::warm)?;
    let elements: usize = benches.iter().map(Bench::elements).sum();
    let sample: usize = benches.iter().map(Bench::message_bytes).sum();
    let bits_per_element = 8.0 * sample as f64 / elements.max(1) as f64;
    benches.iter_mut().try_for_each(Bench::decode_alone)?;
    let lines: f64 = benches.iter().map(|bench| bench.touched() * bench.elements() as f64).sum();
    let traffic = MemoryTraffic::of(spec, bits_per_element, lines / elements.max(1) as f64);
    let entropy: f64 = benches.iter_mut().map(Bench::entropy).sum();
    let (mut compress, mut decompress) = (Times::default(), Times::default());
    let mut memory = Bandwidth::default();
    let start = Instant::now();
    let mut repetitions = 0;
    while repetitions < effort.repetitions || start.elapsed() < effort.time {
        memory.take(
            seconds(|| benches.iter_mut().try_for_each(Bench::copy))?,
            seconds(|| benches.iter().try_for_each(Bench::read))?,
        );
        compress.0.push(seconds(|| benches.iter_mut().try_for_each(|b| b.encode().map(drop)))?);
        decompress.0.push(seconds(|| benches.iter_mut().try_for_each(Bench::decode))?);
        repetitions += 1;
    }
    let gigabytes = 4e-9 * elements as f64;
    Ok(Measurement {
        compressor: spec.to_string(),
        elements,
        compress_gbps: gigabytes / compress.best(),
        decompress_gbps: gigabytes / decompress.best(),
        compress_spread: compress.spread(),
        decompress_spread: decompress.spread(),
        copy_gbps: gigabytes / memory.copy,
        read_gbps: gigabytes / memory.read,
        compress_bound_gbps: gigabytes / memory.least_seconds(traffic.compress),
        decompress_bound_gbps: gigabytes / memory.least_seconds(traffic.decompress),
        bits_per_element,
        entropy_bits: entropy / elements.max(1) as f64,
    })
}

/// Measurements as a table, each with its bound and the reached fraction of it.
pub fn table(measurements: &[Measurement]) -> Table {
    let gbps = |x: f64| format!("{} GB/s", significant(x));
    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    let spread = |part: f64| format!("+{:.0} %", 100.0 * part);
    Table::of(measurements)
        .column("compressor", |m| &m.compressor)
        .column("elements", |m| m.elements)
        .column("compress", |m| gbps(m.compress_gbps))
        .column("spread", |m| spread(m.compress_spread))
        .column("bound", |m| gbps(m.compress_bound_gbps))
        .column("of bound", |m| percent(m.compress_gbps / m.compress_bound_gbps))
        .column("decompress", |m| gbps(m.decompress_gbps))
        .column("spread", |m| spread(m.decompress_spread))
        .column("bound", |m| gbps(m.decompress_bound_gbps))
        .column("of bound", |m| percent(m.decompress_gbps / m.decompress_bound_gbps))
        .column("copy", |m| gbps(m.copy_gbps))
        .column("read", |m| gbps(m.read_gbps))
        .column("bits", |m| significant(m.bits_per_element))
        .column("entropy", |m| significant(m.entropy_bits))
        .table()
        .with_optional(&["read", "copy", "entropy", "bound", "of bound", "bits", "elements"])
}

/// Seconds of one operation: repeated often enough for the clock, and averaged.
fn seconds<E>(mut operation: impl FnMut() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    let mut times = 0;
    while times == 0 || start.elapsed() < LEAST {
        operation()?;
        times += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(times))
}

#[cfg(test)]
mod tests {
    use super::input::normal;
    use super::*;

    #[test]
    fn tensors_of_ones_own_are_measured_together() {
        let effort = Effort { repetitions: 1, time: Duration::ZERO };
        let tensor = |name: &str, elements| (Tensor::new(name, &[elements]), normal(elements, 1));
        let tensors = [tensor("a", 300), tensor("b", 1000)];
        let measured = |spec: &str| measure_on(&spec.parse().unwrap(), &tensors, effort).unwrap();
        let none = measured("none");
        assert_eq!((none.elements, none.bits_per_element), (1300, 32.0));
        // Each tensor has a scale of its own: two bits more than one sign for each element.
        let sign = measured("efsignsgd").bits_per_element;
        assert!(sign > 1.0 && sign < 1.2, "{sign}");
    }

    #[test]
    fn every_compressor_is_measured() {
        let effort = Effort { repetitions: 1, time: Duration::ZERO };
        let specs = default_specs();
        assert!(registry::all().all(|entry| specs.iter().any(|spec| spec.entry().id == entry.id)));
        for spec in specs {
            let m = measure(&spec, 1000, effort).unwrap();
            assert!(m.compress_gbps > 0.0 && m.decompress_gbps > 0.0 && m.copy_gbps > 0.0);
            let (bits, entropy) = (m.bits_per_element, m.entropy_bits);
            assert!(entropy >= 0.0 && entropy <= bits, "{spec}: {bits} bits, entropy {entropy}");
            if m.compressor == "none" {
                assert_eq!(m.bits_per_element, 32.0);
                // Decoding moves as many bytes as a copy and reads two values per element;
                // compression writes without reading first.
                let near =
                    |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-12);
                near(m.compress_bound_gbps, m.read_gbps.min(1.5 * m.copy_gbps));
                near(m.decompress_bound_gbps, m.copy_gbps.min(m.read_gbps / 2.0));
            }
        }
    }

    /// With many elements the entropy is the entropy of the method's symbols: a fair sign, or a
    /// position with probability 1/100.
    #[test]
    fn entropies_are_those_of_the_symbols() {
        let effort = Effort { repetitions: 1, time: Duration::ZERO };
        let entropy =
            |text: &str| measure(&text.parse().unwrap(), 100_000, effort).unwrap().entropy_bits;
        let near = |found: f64, expected: f64, within: f64| {
            assert!((found - expected).abs() < within, "{found} is not {expected}");
        };
        near(entropy("signsgd"), 1.0, 0.001);
        let positions = |p: f64| -p * p.log2() - (1.0 - p) * (1.0 - p).log2();
        near(entropy("topk"), positions(0.01) + 0.32, 0.001);
        near(entropy("sbc"), positions(0.01), 0.001);
        // Levels of a normal variate with a step of 1/127 of the norm of 512: 0.178 of its
        // deviation.
        let steps = (127f64 / 512f64.sqrt()).recip();
        near(
            entropy("qsgd"),
            (2.0 * std::f64::consts::PI * std::f64::consts::E).log2() / 2.0 - steps.log2(),
            0.05,
        );
    }
}
