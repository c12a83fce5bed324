//! Size and speed of deltas between two versions of a model's weights, relative to a copy of the
//! weights in the same run.
//!
//! All weights are in memory. Encoding, staging, committing and copying take turns, and the best of
//! several repetitions counts. Staging decodes an update and verifies its result; committing writes
//! it. An update in the other direction leads the receiver back before the next repetition.

use std::hint::black_box;
use std::time::Instant;

use gradwire_delta::{
    Absent, DiffOptions, Ends, Error, Mirror, Receiver, RunId, Source, State, Target, Update,
    Workers, write_delta,
};
use serde::{Deserialize, Serialize};

use super::{Effort, seconds};
use crate::format::significant;
use crate::table::Table;

/// How deltas are written and applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Whether positions are coded without the old weights.
    pub portable: bool,
    /// The number of threads.
    pub threads: usize,
}

/// One pair of versions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Whether positions are coded without the old weights.
    pub portable: bool,
    /// The number of threads.
    pub threads: usize,
    /// The number of weights.
    pub weights: usize,
    /// Bytes of all new weights.
    pub raw_bytes: usize,
    /// The number of weights that change.
    pub changes: u64,
    /// Bytes of the delta.
    pub delta_bytes: u64,
    /// Encoding speed, in 10⁹ bytes of weights per second.
    pub encode_gbps: f64,
    /// Speed of decoding and verifying, in 10⁹ bytes of weights per second.
    pub stage_gbps: f64,
    /// Speed of writing, in 10⁹ bytes of weights per second.
    pub commit_gbps: f64,
    /// Speed of copying all weights with one thread, in 10⁹ bytes per second.
    pub copy_gbps: f64,
}

/// Measures the delta from `old` to `new`. Takes as much memory as five versions of the weights.
///
/// # Errors
/// Tensors that are refused.
///
/// # Panics
/// If the receiver does not get the new weights.
pub fn measure(old: &Mirror, new: &Mirror, way: Way, effort: Effort) -> Result<Measurement, Error> {
    let mut workers = Workers::new(way.threads);
    let mut receiver = Receiver::new(old.clone(), way.threads)?;
    let before = receiver.state();
    let after = Receiver::new(new.clone(), way.threads)?.state();
    let mut copy = new.clone();
    let (mut there, mut back) = (Vec::new(), Vec::new());
    write(new, &after, old, way, &mut workers, &mut back)?;
    let (mut update, mut changes, mut repetitions) = (Update::default(), 0, 0);
    let mut best = [f64::INFINITY; 4];
    let start = Instant::now();
    while repetitions < effort.repetitions || start.elapsed() < effort.time {
        let encode = seconds(|| write(old, &before, new, way, &mut workers, &mut there))?;
        let stage = seconds(|| receiver.stage_into([&there[..]], &mut update))?;
        changes = update.changed_elements();
        let commit = once(|| receiver.commit(&mut update).map(drop))?;
        let copying = seconds(|| copied(new, &mut copy))?;
        if repetitions == 0 {
            let same = receiver.tensors().iter().zip(new.iter()).all(|(a, b)| a == b);
            assert!(same, "the receiver does not have the new weights");
        }
        receiver.stage_into([&back[..]], &mut update)?;
        receiver.commit(&mut update)?;
        for (best, time) in best.iter_mut().zip([encode, stage, commit, copying]) {
            *best = best.min(time);
        }
        repetitions += 1;
    }
    let raw_bytes = new.tensors().iter().map(|tensor| tensor.byte_len()).sum();
    let [encode_gbps, stage_gbps, commit_gbps, copy_gbps] =
        best.map(|seconds| 1e-9 * raw_bytes as f64 / seconds);
    Ok(Measurement {
        portable: way.portable,
        threads: way.threads,
        weights: new.tensors().iter().map(|tensor| tensor.elements()).sum(),
        raw_bytes,
        changes,
        delta_bytes: there.len() as u64,
        encode_gbps,
        stage_gbps,
        commit_gbps,
        copy_gbps,
    })
}

/// Writes a delta into `out`, whose content is replaced.
fn write(
    base: &Mirror,
    state: &State,
    new: &Mirror,
    way: Way,
    workers: &mut Workers,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    out.clear();
    let options =
        DiffOptions { portable: way.portable, absent: Absent::Remove, ..DiffOptions::default() };
    // In both directions one run, whose receiver goes to and fro.
    let target = Target { run: RunId([0; 16]), version: 1 - state.version.min(1) };
    let ends = Ends { base: *state, target };
    write_delta(base, new, &ends, &options, workers, &mut |frame| {
        out.extend_from_slice(frame);
        Ok(())
    })?;
    Ok(())
}

/// Copies all weights.
fn copied(from: &Mirror, to: &mut Mirror) -> Result<(), Error> {
    let slices = gradwire_delta::Tensors::slices_mut(to)?;
    for (slice, (_, bytes)) in slices.into_iter().zip(from.iter()) {
        slice.copy_from_slice(black_box(bytes));
    }
    black_box(to);
    Ok(())
}

/// Seconds of an operation that cannot be repeated.
fn once<E>(operation: impl FnOnce() -> Result<(), E>) -> Result<f64, E> {
    let start = Instant::now();
    operation()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Measurements as a table; speeds also as multiples of the copy.
pub fn table(measurements: &[Measurement]) -> Table {
    let speed = |m: &Measurement, gbps: f64| {
        format!("{} GB/s ({}×)", significant(gbps), significant(gbps / m.copy_gbps))
    };
    let both = |m: &Measurement| 1.0 / (1.0 / m.stage_gbps + 1.0 / m.commit_gbps);
    Table::of(measurements)
        .column("positions", |m| if m.portable { "portable" } else { "by class" })
        .column("threads", |m| m.threads)
        .column("weights", |m| m.weights)
        .column("changed", |m| format!("{:.3} %", 100.0 * m.changes as f64 / m.weights as f64))
        .column("bytes", |m| m.delta_bytes)
        .column("a change", |m| significant(m.delta_bytes as f64 / m.changes.max(1) as f64))
        .column("of raw", |m| format!("{:.3} %", 100.0 * m.delta_bytes as f64 / m.raw_bytes as f64))
        .column("encode", |m| speed(m, m.encode_gbps))
        .column("stage", |m| speed(m, m.stage_gbps))
        .column("commit", |m| speed(m, m.commit_gbps))
        .column("stage + commit", |m| speed(m, both(m)))
        .column("copy", |m| format!("{} GB/s", significant(m.copy_gbps)))
        .table()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire_delta::{Buffer, ElementType, Tensor};

    #[test]
    fn changes_are_counted() {
        let mirror = |add: u8| {
            let mut bytes: Vec<u8> =
                (0..80_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            bytes.iter_mut().step_by(100).for_each(|byte| *byte = byte.wrapping_add(add));
            let tensor = Tensor::new("w", ElementType::Bf16, [40_000]).unwrap();
            Mirror::new([(tensor, Buffer::from(&bytes[..]))]).unwrap()
        };
        let way = Way { portable: false, threads: 1 };
        let effort = Effort { repetitions: 2, time: std::time::Duration::ZERO };
        let row = measure(&mirror(0), &mirror(1), way, effort).unwrap();
        assert_eq!((row.weights, row.raw_bytes, row.changes), (40_000, 80_000, 800));
        assert!(row.delta_bytes < 2000, "{row:?}");
        assert_eq!(table(&[row]).rows.len(), 1);
    }
}
