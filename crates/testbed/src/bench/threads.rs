//! Speed of compressors with several threads, which share one large tensor, or the tensors of a group.
//!
//! The bound is what memory allows these threads: as for one thread, but each copies or reads its part of the elements, side by side.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

use gradwire::{
    DecodeJob, Decoder, EncodeJob, Encoder, Error, Floats, MemoryTraffic, Sent, Spec, Tensor,
    Threads,
};
use gradwire_bits::kernels::abs_max_bits;
use serde::{Deserialize, Serialize};

use super::{Bandwidth, Effort, GRADIENTS, WARM, WEIGHT, matrix, normal, seconds, touched};
use crate::format::significant;
use crate::table::Table;

/// The tensors of the groups that are measured, equally large.
pub const TENSORS: [usize; 2] = [1, 16];

/// One compressor with one number of threads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The spec.
    pub compressor: String,
    /// The number of tensors.
    pub tensors: usize,
    /// Elements of all tensors together.
    pub elements: usize,
    /// The number of threads.
    pub threads: usize,
    /// Compression speed, in GB/s of input, with the spec's error feedback.
    pub compress_gbps: f64,
    /// Decompression speed, in GB/s of output decoded and added.
    pub decompress_gbps: f64,
    /// The compression speed that the bandwidth allows as many threads, in GB/s of input.
    pub compress_bound_gbps: f64,
    /// The decompression speed that the bandwidth allows as many threads, in GB/s of output.
    pub decompress_bound_gbps: f64,
    /// The compression speed relative to one thread.
    pub compress_speedup: f64,
    /// The decompression speed relative to one thread.
    pub decompress_speedup: f64,
}

/// Measures a compressor on [groups](TENSORS) of normal variates with one thread and with each of `counts`, in turn, so that noise
/// affects all.
///
/// # Errors
/// If the compressor refuses the tensors.
pub fn measure(
    spec: &Spec,
    elements: usize,
    counts: &[usize],
    effort: Effort,
) -> Result<Vec<Measurement>, Error> {
    let mut counts: Vec<usize> = counts.iter().copied().filter(|count| *count > 1).collect();
    counts.insert(0, 1);
    let mut measured = Vec::new();
    for tensors in TENSORS {
        measured.extend(measure_group(spec, (elements, tensors), &counts, effort)?);
    }
    Ok(measured)
}

/// Measures a compressor on a group.
fn measure_group(
    spec: &Spec,
    (elements, tensors): (usize, usize),
    counts: &[usize],
    effort: Effort,
) -> Result<Vec<Measurement>, Error> {
    // Each tensor has an element.
    let elements = (elements / tensors).max(1) * tensors;
    let gradients: Vec<_> = (0..GRADIENTS).map(|stream| normal(elements, stream as u32)).collect();
    let mut groups: Vec<Group<'_>> =
        counts.iter().map(|count| Group::new(spec, &gradients, tensors, *count)).collect();
    for group in &mut groups {
        for _ in 0..WARM {
            group.encode()?;
            group.decode()?;
        }
    }
    let traffic = groups[0].traffic(spec)?;
    let mut times = vec![([f64::INFINITY; 2], Bandwidth::default()); counts.len()];
    let start = Instant::now();
    let mut repetitions = 0;
    while repetitions < effort.repetitions || start.elapsed() < effort.time {
        for ((group, count), (best, memory)) in groups.iter_mut().zip(counts).zip(&mut times) {
            let [compress, decompress] = best;
            *compress = compress.min(seconds(|| group.encode())?);
            *decompress = decompress.min(seconds(|| group.decode())?);
            memory.take(seconds(|| group.copy(*count))?, seconds(|| group.read(*count))?);
        }
        repetitions += 1;
    }
    let gigabytes = 4e-9 * elements as f64;
    let ([one_compress, one_decompress], _) = times[0];
    let measurement = |(&threads, (best, memory)): (&usize, ([f64; 2], Bandwidth))| Measurement {
        compressor: spec.to_string(),
        tensors,
        elements,
        threads,
        compress_gbps: gigabytes / best[0],
        decompress_gbps: gigabytes / best[1],
        compress_bound_gbps: gigabytes / memory.least_seconds(traffic.compress),
        decompress_bound_gbps: gigabytes / memory.least_seconds(traffic.decompress),
        compress_speedup: one_compress / best[0],
        decompress_speedup: one_decompress / best[1],
    };
    Ok(counts.iter().zip(times).map(measurement).collect())
}

/// Measurements as a table.
pub fn table(measurements: &[Measurement]) -> Table {
    let gbps = |x: f64| format!("{} GB/s", significant(x));
    let times = |x: f64| format!("{x:.2}×");
    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    Table::of(measurements)
        .column("compressor", |m| &m.compressor)
        .column("tensors", |m| m.tensors)
        .column("elements", |m| m.elements)
        .column("threads", |m| m.threads)
        .column("compress", |m| gbps(m.compress_gbps))
        .column("of one thread", |m| times(m.compress_speedup))
        .column("of bound", |m| percent(m.compress_gbps / m.compress_bound_gbps))
        .column("decompress", |m| gbps(m.decompress_gbps))
        .column("of one thread", |m| times(m.decompress_speedup))
        .column("of bound", |m| percent(m.decompress_gbps / m.decompress_bound_gbps))
        .table()
}

/// A group of tensors, and the threads that share it.
struct Group<'a> {
    encoder: Encoder,
    decoder: Decoder,
    threads: Threads,
    tensors: Vec<Tensor>,
    gradients: &'a [Vec<f32>],
    /// Message and positions of each tensor.
    sent: Vec<(Vec<u8>, Vec<u32>)>,
    sums: Vec<Vec<f32>>,
    out: Vec<f32>,
    step: u64,
}

impl<'a> Group<'a> {
    fn new(spec: &Spec, gradients: &'a [Vec<f32>], tensors: usize, threads: usize) -> Self {
        let elements = gradients[0].len() / tensors;
        let tensor = |at| Tensor::new(format!("bench{at}"), &matrix(elements));
        Self {
            encoder: Encoder::new(spec, 0, 0),
            decoder: Decoder::new(spec, 0),
            threads: Threads::new(threads),
            tensors: (0..tensors).map(tensor).collect(),
            gradients,
            sent: vec![Default::default(); tensors],
            sums: vec![Vec::new(); tensors],
            out: vec![0.0; elements * tensors],
            step: 0,
        }
    }

    fn encode(&mut self) -> Result<(), Error> {
        self.step += 1;
        let gradient = black_box(self.gradients[self.step as usize % GRADIENTS].as_slice());
        let elements = self.out.len() / self.tensors.len();
        let mut jobs = Vec::with_capacity(self.tensors.len());
        for (at, (message, positions)) in self.sent.drain(..).enumerate() {
            let input = Floats::F32(&gradient[at * elements..(at + 1) * elements]).into();
            let tensor = &self.tensors[at];
            jobs.push(EncodeJob { tensor, input, message, sent: Sent::All, positions });
        }
        self.encoder.encode_all(self.step, &mut jobs, &mut self.threads)?;
        self.sent = jobs.into_iter().map(|job| (job.message, job.positions)).collect();
        Ok(())
    }

    fn decode(&mut self) -> Result<(), Error> {
        let elements = self.out.len() / self.tensors.len();
        let mut jobs = Vec::with_capacity(self.tensors.len());
        let each = self.tensors.iter().zip(&self.sent).zip(&mut self.sums);
        for (((tensor, (message, _)), sums), out) in each.zip(self.out.chunks_mut(elements)) {
            jobs.push(DecodeJob { tensor, message: black_box(message), sums: Some(sums), out });
        }
        self.decoder.accumulate_all((self.step, 0), WEIGHT, jobs, &mut self.threads)
    }

    /// What the last messages move, for which `out` is overwritten.
    fn traffic(&mut self, spec: &Spec) -> Result<MemoryTraffic, Error> {
        let bytes: usize = self.sent.iter().map(|(message, _)| message.len()).sum();
        self.out.fill(0.0);
        self.decode()?;
        let bits = 8.0 * bytes as f64 / self.out.len() as f64;
        Ok(MemoryTraffic::of(spec, bits, touched(&self.out)))
    }

    /// Copies a gradient, each thread its part.
    fn copy(&mut self, threads: usize) -> Result<(), Error> {
        let part = self.out.len().div_ceil(threads);
        let parts = self.out.chunks_mut(part).zip(black_box(&self.gradients[0]).chunks(part));
        side_by_side(parts, |(out, gradient)| out.copy_from_slice(gradient));
        black_box(&mut self.out);
        Ok(())
    }

    /// Reads a gradient, each thread its part.
    fn read(&self, threads: usize) -> Result<(), Error> {
        let parts = black_box(&self.gradients[0]).chunks(self.out.len().div_ceil(threads));
        side_by_side(parts, |part| {
            black_box(abs_max_bits(part));
        });
        Ok(())
    }
}

/// Does work for each part in a thread of its own; the first in this one.
fn side_by_side<T: Send>(mut parts: impl Iterator<Item = T>, work: impl Fn(T) + Sync) {
    let first = parts.next();
    thread::scope(|scope| {
        for part in parts {
            scope.spawn(|| work(part));
        }
        first.into_iter().for_each(&work);
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_number_of_threads_is_measured_beside_one() {
        let effort = Effort { repetitions: 1, time: Duration::ZERO };
        for spec in ["3lc", "topk", "thc"] {
            let spec = spec.parse().unwrap();
            let found = measure(&spec, 20_000, &[2, 1, 3], effort).unwrap();
            let counts: Vec<usize> = found.iter().map(|m| m.threads).collect();
            assert_eq!(counts, [1, 2, 3, 1, 2, 3]);
            let tensors: Vec<usize> = found.iter().map(|m| m.tensors).collect();
            assert_eq!(tensors, [1, 1, 1, 16, 16, 16]);
            for one in [&found[0], &found[3]] {
                assert_eq!((one.compress_speedup, one.decompress_speedup), (1.0, 1.0));
            }
            assert!(found.iter().all(|m| m.compress_gbps > 0.0 && m.decompress_gbps > 0.0));
            assert!(found.iter().all(|m| m.elements == 20_000));
            assert!(
                found.iter().all(|m| m.compress_bound_gbps > 0.0 && m.decompress_bound_gbps > 0.0)
            );
        }
    }
}
