//! Speed of compressors with several threads, which share one large tensor or a group of tensors.
//!
//! The comparison is as many threads that share nothing: each has its own part of the elements,
//! encoder and decoder. Their speed is the method's limit on this processor and its memory; a core
//! may be slower while others work.

use std::hint::black_box;
use std::ops::Range;
use std::thread;
use std::time::Instant;

use gradwire::{
    Coverage, DecodeJob, Decoder, EncodeJob, Encoder, Error, Floats, Spec, Tensor, Threads,
};
use serde::{Deserialize, Serialize};

use super::input::{GRADIENTS, matrix, normal};
use super::operations::{WARM, WEIGHT};
use super::{Effort, seconds};
use crate::format::significant;
use crate::table::Table;

/// The numbers of tensors in the measured groups; the tensors are equally large.
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
    /// The compression speed of as many threads that share nothing, in GB/s of input.
    pub compress_apart_gbps: f64,
    /// The decompression speed of as many threads that share nothing, in GB/s of output.
    pub decompress_apart_gbps: f64,
    /// The compression speed relative to one thread.
    pub compress_speedup: f64,
    /// The decompression speed relative to one thread.
    pub decompress_speedup: f64,
}

/// Measures a compressor on [groups](TENSORS) of normal variates with one thread and with each of
/// `counts`, in turn, so noise affects all.
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
        measured.extend(measure_group(spec, elements, tensors, &counts, effort)?);
    }
    Ok(measured)
}

/// Measures a compressor on a group.
fn measure_group(
    spec: &Spec,
    elements: usize,
    tensors: usize,
    counts: &[usize],
    effort: Effort,
) -> Result<Vec<Measurement>, Error> {
    // Each tensor has at least one element.
    let elements = (elements / tensors).max(1) * tensors;
    let gradients: Vec<_> = (0..GRADIENTS).map(|stream| normal(elements, stream as u32)).collect();
    let gradients: Vec<&[f32]> = gradients.iter().map(Vec::as_slice).collect();
    let mut teams: Vec<_> =
        counts.iter().map(|&count| Team::new(spec, &gradients, tensors, count)).collect();
    for team in &mut teams {
        for _ in 0..WARM {
            team.operations(|operation| operation())?;
        }
    }
    let mut times = vec![[f64::INFINITY; 4]; counts.len()];
    let start = Instant::now();
    let mut repetitions = 0;
    while repetitions < effort.repetitions || start.elapsed() < effort.time {
        for (team, best) in teams.iter_mut().zip(&mut times) {
            let mut best = best.iter_mut();
            team.operations(|operation| {
                let best = best.next().expect("there are four operations");
                *best = best.min(seconds(operation)?);
                Ok(())
            })?;
        }
        repetitions += 1;
    }
    let gigabytes = 4e-9 * elements as f64;
    let one = times[0];
    let measurement = |(&threads, best): (&usize, [f64; 4])| Measurement {
        compressor: spec.to_string(),
        tensors,
        elements,
        threads,
        compress_gbps: gigabytes / best[0],
        decompress_gbps: gigabytes / best[1],
        compress_apart_gbps: gigabytes / best[2],
        decompress_apart_gbps: gigabytes / best[3],
        compress_speedup: one[0] / best[0],
        decompress_speedup: one[1] / best[1],
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
        .column("speed-up", |m| times(m.compress_speedup))
        .column("of independent threads", |m| percent(m.compress_gbps / m.compress_apart_gbps))
        .column("decompress", |m| gbps(m.decompress_gbps))
        .column("speed-up", |m| times(m.decompress_speedup))
        .column("of independent threads", |m| percent(m.decompress_gbps / m.decompress_apart_gbps))
        .table()
}

/// The measured number of threads: together on one group of tensors, and apart, each on a group of
/// its own.
struct Team<'a> {
    together: Group<'a>,
    apart: Vec<Group<'a>>,
}

impl<'a> Team<'a> {
    /// Separate threads share out the tensors or, with fewer tensors than threads, the elements.
    fn new(spec: &Spec, gradients: &[&'a [f32]], tensors: usize, threads: usize) -> Self {
        let elements = gradients[0].len();
        let unit = if tensors < threads { 1 } else { elements / tensors };
        let border = |thread: usize| elements / unit * thread / threads * unit;
        let group = |part: Range<usize>| {
            let tensors = (part.len() * tensors / elements).max(1);
            let gradients: Vec<_> = gradients.iter().map(|all| &all[part.clone()]).collect();
            Group::new(spec, &gradients, tensors, 1)
        };
        Self {
            together: Group::new(spec, gradients, tensors, threads),
            apart: (0..threads)
                .map(|thread| border(thread)..border(thread + 1))
                .filter(|part| !part.is_empty())
                .map(group)
                .collect(),
        }
    }

    /// Passes each operation to the closure: compression and decompression together, then both
    /// apart.
    fn operations(
        &mut self,
        mut run: impl FnMut(&mut dyn FnMut() -> Result<(), Error>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Self { together, apart } = self;
        run(&mut || together.encode())?;
        run(&mut || together.decode())?;
        run(&mut || side_by_side(apart, Group::encode))?;
        run(&mut || side_by_side(apart, Group::decode))
    }
}

/// Does the work for each group in its own thread, and for the first group in this thread.
fn side_by_side<'a>(
    groups: &mut [Group<'a>],
    work: fn(&mut Group<'a>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (first, others) = groups.split_first_mut().expect("a group has elements");
    thread::scope(|scope| {
        let others: Vec<_> =
            others.iter_mut().map(|group| scope.spawn(move || work(group))).collect();
        let first = work(first);
        others
            .into_iter()
            .map(|other| other.join().expect("no thread panics"))
            .fold(first, Result::and)
    })
}

/// A group of tensors, and the threads that share it.
struct Group<'a> {
    encoder: Encoder,
    decoder: Decoder,
    threads: Threads,
    tensors: Vec<Tensor>,
    gradients: Vec<&'a [f32]>,
    /// Message and positions of each tensor.
    sent: Vec<(Vec<u8>, Vec<u32>)>,
    sums: Vec<Vec<f32>>,
    out: Vec<f32>,
    step: u64,
}

impl<'a> Group<'a> {
    fn new(spec: &Spec, gradients: &[&'a [f32]], tensors: usize, threads: usize) -> Self {
        let elements = gradients[0].len() / tensors;
        let tensor = |at| Tensor::new(format!("bench{at}"), &matrix(elements));
        Self {
            encoder: Encoder::new(spec, 0, 0),
            decoder: Decoder::new(spec, 0),
            threads: Threads::new(threads),
            tensors: (0..tensors).map(tensor).collect(),
            gradients: gradients.to_vec(),
            sent: vec![Default::default(); tensors],
            sums: vec![Vec::new(); tensors],
            out: vec![0.0; elements * tensors],
            step: 0,
        }
    }

    fn encode(&mut self) -> Result<(), Error> {
        self.step += 1;
        let gradient = black_box(self.gradients[self.step as usize % GRADIENTS]);
        let elements = self.out.len() / self.tensors.len();
        let mut jobs = Vec::with_capacity(self.tensors.len());
        for (at, (message, positions)) in self.sent.drain(..).enumerate() {
            let input = Floats::F32(&gradient[at * elements..(at + 1) * elements]).into();
            let tensor = &self.tensors[at];
            jobs.push(EncodeJob { tensor, input, message, sent: Coverage::All, positions });
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
                found.iter().all(|m| m.compress_apart_gbps > 0.0 && m.decompress_apart_gbps > 0.0)
            );
        }
    }
}
