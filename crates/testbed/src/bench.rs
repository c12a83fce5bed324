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
pub mod peers;
pub mod threads;
mod times;

use std::hint::black_box;
use std::time::{Duration, Instant};

use gradwire::registry;
use gradwire::{Coverage, Decoder, Encoder, Error, Floats, MemoryTraffic, Rng, Spec, Tensor};
use gradwire_bits::kernels::abs_max_bits;
use serde::{Deserialize, Serialize};

use self::times::{Bandwidth, Times};
use crate::format::significant;
use crate::table::Table;

/// Default numbers of elements: a tensor that stays in cache, one that may, and one that does not.
pub const ELEMENTS: [usize; 3] = [64 << 10, 1 << 20, 20 << 20];

/// Gradients that are compressed in turn, so no message repeats the last.
const GRADIENTS: usize = 2;

/// Warm-up steps.
const WARM: u64 = 8;

/// The longer message of this warm-up step and the next is decoded and evaluated.
const FIRST_SAMPLE: u64 = 7;

/// The shortest time of a measurement; faster operations are repeated.
const LEAST: Duration = Duration::from_millis(2);

/// The weight of decoded messages, as in a mean over four workers.
const WEIGHT: f32 = 0.25;

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
    let elements: usize = benches.iter().map(|bench| bench.out.len()).sum();
    let sample: usize = benches.iter().map(|bench| bench.sample.len()).sum();
    let bits_per_element = 8.0 * sample as f64 / elements.max(1) as f64;
    for bench in &mut benches {
        bench.out.fill(0.0);
        bench.decode()?;
    }
    let lines: f64 = benches.iter().map(|bench| touched(&bench.out) * bench.out.len() as f64).sum();
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

/// The state of one measurement.
pub(crate) struct Bench {
    encoder: Encoder,
    decoder: Decoder,
    tensor: Tensor,
    gradients: Vec<Vec<f32>>,
    message: Vec<u8>,
    step: u64,
    /// The message that is decoded.
    sample: Vec<u8>,
    /// Its step.
    sample_step: u64,
    /// The content of the message.
    sent: Coverage,
    out: Vec<f32>,
    /// Elements that share a scale; 0 for all.
    bucket: usize,
}

impl Bench {
    /// On a matrix of normal variates.
    pub(crate) fn new(spec: &Spec, elements: usize) -> Self {
        let gradients = (0..GRADIENTS).map(|stream| normal(elements, stream as u32)).collect();
        Self::of(spec, Tensor::new("bench", &matrix(elements)), gradients)
    }

    /// On a tensor with these gradients, in turn; at least one.
    fn of(spec: &Spec, tensor: Tensor, gradients: Vec<Vec<f32>>) -> Self {
        Self {
            bucket: spec.number("bucket").map_or(0, |bucket| bucket as usize),
            sent: Coverage::All,
            encoder: Encoder::new(spec, 0, 0),
            decoder: Decoder::new(spec, 0),
            out: vec![0.0; tensor.elements()],
            tensor,
            gradients,
            message: Vec::new(),
            step: 0,
            sample: Vec::new(),
            sample_step: FIRST_SAMPLE,
        }
    }

    /// Takes the warm-up steps, and decodes, copies and reads as often.
    pub(crate) fn warm(&mut self) -> Result<(), Error> {
        while self.step < WARM {
            let sent = self.encode()?;
            if self.step >= FIRST_SAMPLE && self.message.len() > self.sample.len() {
                self.sample.clone_from(&self.message);
                (self.sample_step, self.sent) = (self.step, sent);
            }
        }
        for _ in 0..WARM {
            self.decode()?;
            self.copy()?;
            self.read()?;
        }
        Ok(())
    }

    pub(crate) fn encode(&mut self) -> Result<Coverage, Error> {
        self.step += 1;
        self.message.clear();
        let gradient = &self.gradients[self.step as usize % self.gradients.len()];
        let gradient = Floats::F32(black_box(gradient));
        self.encoder.encode(&self.tensor, self.step, gradient, &mut self.message)
    }

    pub(crate) fn decode(&mut self) -> Result<(), Error> {
        let message = black_box(self.sample.as_slice());
        let step = self.sample_step;
        self.decoder.decode_add(&self.tensor, step, 0, message, WEIGHT, &mut self.out)
    }

    /// The entropy of the sample in bits, which is decoded in `out`; see
    /// [`Measurement::entropy_bits`].
    fn entropy(&mut self) -> f64 {
        if self.bucket > 0 && self.sent == Coverage::All {
            self.out.chunks_mut(self.bucket).for_each(in_steps);
        }
        let (words, rest) = self.sample.as_chunks();
        let words = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let whole = entropy(words) + 8.0 * rest.len() as f64;
        let elements = entropy(self.out.iter().map(|x| x.to_bits()).collect());
        whole.min(elements)
    }

    fn read(&self) -> Result<(), Error> {
        black_box(abs_max_bits(black_box(&self.gradients[0])));
        Ok(())
    }

    fn copy(&mut self) -> Result<(), Error> {
        self.out.copy_from_slice(black_box(&self.gradients[0]));
        black_box(&mut self.out);
        Ok(())
    }
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

/// The fraction of 64-byte cache lines that adding a message touches: lines with an element that is
/// not 0.
fn touched(decoded: &[f32]) -> f64 {
    let lines = decoded.chunks(16).filter(|line| line.iter().any(|x| *x != 0.0)).count();
    lines as f64 / decoded.len().div_ceil(16).max(1) as f64
}

/// Rows and columns of a matrix as near to square as its number of elements allows, for methods
/// that treat matrices and vectors differently.
fn matrix(elements: usize) -> [usize; 2] {
    let rows = (1..=elements.isqrt()).rev().find(|&rows| elements.is_multiple_of(rows));
    rows.map_or([1, elements], |rows| [rows, elements / rows])
}

/// Replaces values by their levels: multiples of the smallest absolute value that is not 0.
fn in_steps(values: &mut [f32]) {
    let step = values.iter().map(|x| x.abs()).filter(|x| *x > 0.0).fold(f32::INFINITY, f32::min);
    values.iter_mut().for_each(|x| *x = (*x / step).round());
}

/// The empirical entropy of order 0 of words, in bits: the entropy of the symbols, and 32 bits for
/// each symbol of the table. Words that occur once share one symbol, an escape, and take 32 bits
/// more each.
fn entropy(mut words: Vec<u32>) -> f64 {
    words.sort_unstable();
    let count = words.len() as f64;
    let all = |part: f64| if part > 0.0 { -part * (part / count).log2() } else { 0.0 };
    let (mut single, mut bits) = (0.0, 0.0);
    for run in words.chunk_by(|a, b| a == b) {
        match run.len() {
            1 => single += 1.0,
            several => bits += 32.0 + all(several as f64),
        }
    }
    (bits + all(single) + 32.0 * single).min(32.0 * count)
}

/// Approximately normal variates, standard deviation 0.01: sums of four uniform bytes and a uniform
/// fraction.
fn normal(elements: usize, stream: u32) -> Vec<f32> {
    let draw = |stream| {
        let mut words = vec![0; elements];
        Rng::new(0, 0, 0, 0, stream).fill(&mut words);
        words
    };
    // Four bytes have the mean 510 and the variance 4 · (256² − 1) / 12; the fraction has the
    // variance 1 / 12.
    let scale = 0.01 / ((4.0 * 65535.0 + 1.0) / 12.0f32).sqrt();
    let sum = |word: u32| word.to_le_bytes().iter().map(|&byte| f32::from(byte)).sum::<f32>();
    let fraction = |word: u32| (word >> 8) as f32 / (1 << 24) as f32 - 0.5;
    let words = draw(stream).into_iter().zip(draw(stream + GRADIENTS as u32));
    words.map(|(whole, part)| (sum(whole) + fraction(part) - 510.0) * scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_looks_normal() {
        let values = normal(100_000, 0);
        let mean = values.iter().sum::<f32>() / 1e5;
        let variance = values.iter().map(|x| x * x).sum::<f32>() / 1e5;
        assert!(mean.abs() < 2e-4, "{mean}");
        assert!((variance.sqrt() / 0.01 - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn lines_are_touched_by_elements_that_are_not_zero() {
        let mut decoded = [0.0; 80];
        assert_eq!((touched(&decoded), touched(&[])), (0.0, 0.0));
        // The first and the last element of the second line, and one of the last.
        (decoded[16], decoded[31], decoded[70]) = (1.0, -1.0, 1e-40);
        assert_eq!(touched(&decoded), 0.4);
    }

    #[test]
    fn entropies_by_hand() {
        // A half, a quarter, and a quarter of single words: 1.5 bits a word, and four 32-bit words.
        assert_eq!(entropy(vec![0, 0, 1, 0, 9, 1, 0, 2]), 8.0 * 1.5 + 4.0 * 32.0);
        assert_eq!((entropy(vec![3; 5]), entropy(Vec::new())), (32.0, 0.0));
        // Words that all occur once stay as they are.
        assert_eq!(entropy((0..100).collect()), 3200.0);
        let mut levels = [0.5, 0.0, -1.5, 0.25];
        in_steps(&mut levels);
        assert_eq!(levels, [2.0, 0.0, -6.0, 1.0]);
        let mut zeros = [0.0; 2];
        in_steps(&mut zeros);
        assert_eq!(zeros, [0.0; 2]);
        assert_eq!((matrix(1000), matrix(7), matrix(0)), ([25, 40], [1, 7], [1, 0]));
    }

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
