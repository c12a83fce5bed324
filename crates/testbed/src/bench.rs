//! Speed of compressors beside the copy bandwidth of the same moment.
//!
//! A gigabyte here is 10⁹ bytes of `f32` input. Buffers are warm and reused, residuals are in their
//! steady state, and the best of several repetitions counts: compressing, decoding and copying take
//! turns, so that a noisy moment hits all three.

use std::hint::black_box;
use std::time::{Duration, Instant};

use gradwire::registry::REGISTRY;
use gradwire::{Decoder, Encoder, Error, Floats, Rng, Spec, Tensor};
use serde::{Deserialize, Serialize};

use crate::format::significant;
use crate::table::Grid;

/// Elements of the tensors measured unless told otherwise: one that stays in cache, one that may,
/// and one that does not.
pub const ELEMENTS: [usize; 3] = [64 << 10, 1 << 20, 20 << 20];

/// Gradients that take turns, so that no message repeats the last.
const GRADIENTS: usize = 2;

/// The least time a measurement lasts; quicker operations are repeated until they do.
const LEAST: Duration = Duration::from_millis(2);

/// The weight of a decoded message, as in a mean over four workers.
const WEIGHT: f32 = 0.25;

/// How long to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The fewest repetitions of each operation.
    pub repetitions: usize,
    /// Further repetitions are made until so much time is spent.
    pub time: Duration,
}

impl Effort {
    /// A second and a half for each compressor and size.
    pub const USUAL: Self = Self { repetitions: 5, time: Duration::from_millis(1500) };
    /// For a glance.
    pub const QUICK: Self = Self { repetitions: 2, time: Duration::from_millis(100) };
}

/// One compressor on one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The spec.
    pub compressor: String,
    /// Elements of the tensor.
    pub elements: usize,
    /// Input compressed, in GB/s, with the spec's error feedback.
    pub compress_gbps: f64,
    /// Output decoded and added, in GB/s.
    pub decompress_gbps: f64,
    /// Floats copied from one buffer to another, in GB/s.
    pub copy_gbps: f64,
    /// Bits of message per element.
    pub bits_per_element: f64,
    /// The empirical entropy, of order 0, of the elements it decodes to: what a code without a model of
    /// neighbours could reach.
    pub entropy_bits: f64,
}

/// Every registered compressor with its defaults, and options that take another path.
pub fn default_specs() -> Vec<Spec> {
    let variants =
        ["terngrad:clip=0", "3lc:s=1.75", "topk:ratio=0.05,select=sampled,positions=bitmap"];
    let mut specs: Vec<Spec> = Vec::new();
    for entry in REGISTRY {
        specs.push(Spec::of(entry));
        let own = variants.iter().filter_map(|text| text.parse::<Spec>().ok());
        specs.extend(own.filter(|spec| spec.entry().id == entry.id));
    }
    specs
}

/// Measures one compressor on a tensor of `elements` normal variates.
///
/// Memory: five times the tensor. Time: [`Effort`], and the making of the tensor.
///
/// # Errors
/// If the compressor refuses the tensor (a compressor may have a largest size).
pub fn measure(spec: &Spec, elements: usize, effort: Effort) -> Result<Measurement, Error> {
    let mut bench = Bench::new(spec, elements);
    for _ in 0..2 * GRADIENTS {
        bench.encode()?;
        bench.decode()?;
        bench.copy()?;
    }
    let (mut compress, mut decompress, mut copy) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    let start = Instant::now();
    let mut repetitions = 0;
    while repetitions < effort.repetitions || start.elapsed() < effort.time {
        copy = copy.min(seconds(|| bench.copy())?);
        compress = compress.min(seconds(|| bench.encode())?);
        decompress = decompress.min(seconds(|| bench.decode())?);
        repetitions += 1;
    }
    let gigabytes = 4e-9 * elements as f64;
    Ok(Measurement {
        compressor: spec.to_string(),
        elements,
        compress_gbps: gigabytes / compress,
        decompress_gbps: gigabytes / decompress,
        copy_gbps: gigabytes / copy,
        bits_per_element: 8.0 * bench.message.len() as f64 / elements as f64,
        entropy_bits: bench.entropy()?,
    })
}

/// Measurements as a table, each beside the fraction of copy bandwidth it reaches.
pub fn grid(measurements: &[Measurement]) -> Grid {
    let head = [
        "compressor",
        "elements",
        "compress",
        "of copy",
        "decompress",
        "of copy",
        "copy",
        "bits",
        "entropy",
    ];
    let mut grid = Grid::new(head);
    for m in measurements {
        let gbps = |x: f64| format!("{} GB/s", significant(x));
        let part = |x: f64| format!("{:.0} %", 100.0 * x / m.copy_gbps);
        grid.push(vec![
            m.compressor.clone(),
            m.elements.to_string(),
            gbps(m.compress_gbps),
            part(m.compress_gbps),
            gbps(m.decompress_gbps),
            part(m.decompress_gbps),
            gbps(m.copy_gbps),
            significant(m.bits_per_element),
            significant(m.entropy_bits),
        ]);
    }
    grid
}

/// The state of one measurement.
pub(crate) struct Bench {
    encoder: Encoder,
    decoder: Decoder,
    tensor: Tensor,
    gradients: Vec<Vec<f32>>,
    message: Vec<u8>,
    out: Vec<f32>,
    step: u64,
}

impl Bench {
    pub(crate) fn new(spec: &Spec, elements: usize) -> Self {
        Self {
            encoder: Encoder::new(spec, 0, 0),
            decoder: Decoder::new(spec, 0),
            tensor: Tensor::new("bench", &matrix(elements)),
            gradients: (0..GRADIENTS).map(|stream| normal(elements, stream as u32)).collect(),
            message: Vec::new(),
            out: vec![0.0; elements],
            step: 0,
        }
    }

    pub(crate) fn encode(&mut self) -> Result<(), Error> {
        self.step += 1;
        self.message.clear();
        let gradient = &self.gradients[self.step as usize % GRADIENTS];
        let gradient = Floats::F32(black_box(gradient));
        self.encoder.encode(&self.tensor, self.step, gradient, &mut self.message)?;
        Ok(())
    }

    pub(crate) fn decode(&mut self) -> Result<(), Error> {
        let message = black_box(self.message.as_slice());
        self.decoder.decode_add(&self.tensor, self.step, 0, message, WEIGHT, &mut self.out)
    }

    /// Bits an element takes, by how often each value occurs among the decoded elements of the last message.
    fn entropy(&mut self) -> Result<f64, Error> {
        self.out.fill(0.0);
        self.decode()?;
        Ok(entropy(&self.out))
    }

    fn copy(&mut self) -> Result<(), Error> {
        self.out.copy_from_slice(black_box(&self.gradients[0]));
        black_box(&mut self.out);
        Ok(())
    }
}

/// Seconds of one operation: repeated often enough for the clock, and averaged.
fn seconds(mut operation: impl FnMut() -> Result<(), Error>) -> Result<f64, Error> {
    let start = Instant::now();
    let mut times = 0;
    while times == 0 || start.elapsed() < LEAST {
        operation()?;
        times += 1;
    }
    Ok(start.elapsed().as_secs_f64() / f64::from(times))
}

/// Rows and columns of a matrix as near to square as its elements allow, for methods that tell it from a vector.
fn matrix(elements: usize) -> [usize; 2] {
    let rows = (1..=elements.isqrt()).rev().find(|&rows| elements.is_multiple_of(rows));
    rows.map_or([1, elements], |rows| [rows, elements / rows])
}

/// The empirical entropy of values, of order 0, in bits; 0 for none.
fn entropy(values: &[f32]) -> f64 {
    let mut patterns: Vec<u32> = values.iter().map(|x| x.to_bits()).collect();
    patterns.sort_unstable();
    let parts = patterns.chunk_by(|a, b| a == b).map(|run| run.len() as f64 / values.len() as f64);
    // A sum of negative zeros is negative.
    parts.map(|part| -part * part.log2()).sum::<f64>().abs()
}

/// Approximately normal variates, standard deviation 0.01: sums of four uniform bytes.
fn normal(elements: usize, stream: u32) -> Vec<f32> {
    let mut words = vec![0; elements];
    Rng::new(0, 0, 0, 0, stream).fill(&mut words);
    // Four bytes have the mean 510 and the variance 4 · (256² − 1) / 12.
    let scale = 0.01 / (4.0 * 65535.0 / 12.0f32).sqrt();
    let sum = |word: u32| word.to_le_bytes().iter().map(|&byte| f32::from(byte)).sum::<f32>();
    words.into_iter().map(|word| (sum(word) - 510.0) * scale).collect()
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
    fn entropies_by_hand() {
        // Half, a quarter and two eighths: 1.75 bits.
        assert_eq!(entropy(&[0.0, 0.0, 1.0, 0.0, -1.0, 1.0, 0.0, 2.0]), 1.75);
        assert_eq!((entropy(&[3.0; 5]), entropy(&[])), (0.0, 0.0));
        assert_eq!((matrix(1000), matrix(7), matrix(0)), ([25, 40], [1, 7], [1, 0]));
    }

    #[test]
    fn every_compressor_is_measured() {
        let effort = Effort { repetitions: 1, time: Duration::ZERO };
        let specs = default_specs();
        assert!(REGISTRY.iter().all(|entry| specs.iter().any(|spec| spec.entry().id == entry.id)));
        for spec in specs {
            let m = measure(&spec, 1000, effort).unwrap();
            assert!(m.compress_gbps > 0.0 && m.decompress_gbps > 0.0 && m.copy_gbps > 0.0);
            assert!(m.entropy_bits >= 0.0 && m.entropy_bits <= 10.0);
            if m.compressor == "none" {
                assert_eq!(m.bits_per_element, 32.0);
            }
        }
    }
}
