//! Means of values that travel as they are. The means replace the values, and no message takes
//! memory: ranks send values from their place, and add what arrives. Sums that cannot be in place
//! of the values take the memory of a part: of values of 16 bits, with more than two ranks, and on
//! the third rank and those after it.
//!
//! What travels and the means are those of a [`MeanBuffer`](super::MeanBuffer) with messages of
//! `none`, or of `fp16` or `bf16` for values of 16 bits.

mod own_part;

use std::ops::Range;
use std::time::{Duration, Instant};

use gradwire::Dtype;

use self::own_part::{OwnPart, Sum, read};
use crate::report::worked;
use crate::{Arrival, Incoming, Operation, Outgoing, Phase, Result, StepReport, Transport};

/// Whether values have in memory the bytes of their message.
pub(crate) const ARE_MESSAGES: bool = cfg!(target_endian = "little");

/// Averages values in place.
#[derive(Default)]
pub(crate) struct InPlace {
    /// The first byte of each rank's part, and the number of bytes.
    cuts: Vec<usize>,
    sum: Sum,
    /// Working memory for a message.
    message: Vec<u8>,
}

/// What a rank averages.
pub(crate) struct Terms<'a> {
    /// Little-endian elements.
    pub(crate) values: &'a mut [u8],
    pub(crate) dtype: Dtype,
    /// The number of ranks for means, 1 for sums.
    pub(crate) divisor: u32,
}

/// A step of all ranks.
struct Step<'a> {
    transport: &'a mut dyn Transport,
    step: u64,
    dtype: Dtype,
    divisor: u32,
    /// The processor time that was spent adding.
    adding: Duration,
}

impl InPlace {
    /// Replaces values by their sums over all ranks, divided by the divisor.
    pub(crate) fn average(
        &mut self,
        transport: &mut dyn Transport,
        step: u64,
        Terms { values, dtype, divisor }: Terms<'_>,
        report: &mut StepReport,
    ) -> Result<()> {
        let (start, ranks, size) = (Instant::now(), transport.size(), dtype.size());
        let len = values.len() / size;
        let cut = |part: usize| (len as u128 * part as u128 / ranks as u128) as usize * size;
        self.cuts.clear();
        self.cuts.extend((0..=ranks).map(cut));
        let mut step = Step { transport, step, dtype, divisor, adding: Duration::ZERO };
        self.scatter(&mut step, values)?;
        self.gather(&mut step, values)?;
        report.decompress += step.adding;
        report.wire += start.elapsed().saturating_sub(step.adding);
        Ok(())
    }

    /// Sends every part to its owner, and replaces this rank's own part by its mean.
    fn scatter(&mut self, step: &mut Step<'_>, values: &mut [u8]) -> Result<()> {
        let Self { cuts, sum, message } = self;
        let Step { transport, step, dtype, divisor, adding } = step;
        let (rank, ranks) = (transport.rank(), transport.size());
        let own = cuts[rank]..cuts[rank + 1];
        let [below, mine, above] = split(values, own.clone());
        let (below, above) = (&*below, &*above);
        let part = |to: usize| match cuts[to]..cuts[to + 1] {
            part if to < rank => &below[part],
            part => &above[part.start - own.end..part.end - own.end],
        };
        let mut mean = OwnPart::new(rank, ranks, *dtype, mine, sum).divided_by(*divisor);
        let incoming = Incoming {
            lengths: &|_| own.len(),
            take: &mut |arrival| worked(adding, || mean.add(arrival)),
            memory: message,
        };
        let operation = Operation::whole(Phase::Scatter, *step);
        transport.all_to_all(operation, Outgoing::Each(&part), incoming)
    }

    /// Sends the means of this rank's part to all ranks, and takes the means of the other parts.
    fn gather(&mut self, step: &mut Step<'_>, values: &mut [u8]) -> Result<()> {
        let Self { cuts, message, .. } = self;
        let Step { transport, step, dtype, adding, .. } = step;
        let rank = transport.rank();
        let own = cuts[rank]..cuts[rank + 1];
        let [below, mine, above] = split(values, own.clone());
        let mut take = |Arrival { from, at, bytes }: Arrival<'_>| {
            let start = cuts[from] + at;
            let end = start + bytes.len();
            match from < rank {
                true => read(bytes, *dtype, &mut below[start..end]),
                false => read(bytes, *dtype, &mut above[start - own.end..end - own.end]),
            }
        };
        let incoming = Incoming {
            lengths: &|from| cuts[from + 1] - cuts[from],
            take: &mut |arrival| worked(adding, || take(arrival)),
            memory: message,
        };
        let operation = Operation::whole(Phase::Gather, *step);
        transport.all_to_all(operation, Outgoing::Same(mine), incoming)
    }
}

/// The bytes before a part, the part, and the bytes after it.
fn split(values: &mut [u8], part: Range<usize>) -> [&mut [u8]; 3] {
    let (below, rest) = values.split_at_mut(part.start);
    let (own, above) = rest.split_at_mut(part.len());
    [below, own, above]
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::in_process;

    #[test]
    fn sums_are_in_rank_order_and_means_are_sums_over_the_number_of_ranks() {
        // Sums of the last three depend on the order, and a mean of -0 becomes 0.
        let values = |rank: usize| -> Vec<f32> {
            let other = [1e8, 1.0, -1e8, 3.5, 1e-8][rank];
            (0..23)
                .map(|at| at as f32 - 7.0 * rank as f32)
                .chain([-0.0, other, -other, other / 3.0])
                .collect()
        };
        for (ranks, divisor) in (1..=5).flat_map(|ranks| [(ranks, ranks as u32), (ranks, 1)]) {
            let naive = |at: usize| {
                let sum = (1..ranks).fold(values(0)[at], |sum, rank| sum + values(rank)[at]);
                (sum / divisor as f32 + 0.0).to_bits()
            };
            let expected: Vec<_> = (0..values(0).len()).map(naive).collect();
            thread::scope(|scope| {
                for mut transport in in_process::connect(ranks, in_process::Options::default()) {
                    let (expected, mut own) = (&expected, values(transport.rank()));
                    scope.spawn(move || {
                        let (mut means, mut report) = (InPlace::default(), StepReport::default());
                        let values = bytemuck::cast_slice_mut(&mut own);
                        let terms = Terms { values, dtype: Dtype::F32, divisor };
                        means.average(&mut transport, 3, terms, &mut report).unwrap();
                        assert!(own.iter().map(|mean| mean.to_bits()).eq(expected.iter().copied()));
                    });
                }
            });
        }
    }

    #[test]
    fn a_part_of_another_length_is_refused() {
        let mut ranks = in_process::connect(2, in_process::Options::default());
        let operation = Operation::whole(Phase::Scatter, 0);
        ranks[1].send(0, operation, &[0; 8]).unwrap();
        let average = |transport: &mut in_process::InProcess| {
            let terms = Terms { values: &mut [0; 24], dtype: Dtype::F32, divisor: 2 };
            InPlace::default().average(transport, 0, terms, &mut StepReport::default())
        };
        let error = average(&mut ranks[0]).unwrap_err().to_string();
        assert!(error.contains("a message of 8 bytes instead of 12"), "{error}");
    }
}
