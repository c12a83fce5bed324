//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and
//! decodes `n` messages a tensor, in the order of ranks and each as it comes: it holds its own messages and those
//! of one other rank, and adds up the means in place of its gradients. A rank that does not take part in a step
//! sends nothing. Uncompressed tensors are gathered like the others, as `none`.

use super::{Collective, Reduction};
use crate::report::{timed, worked};
use crate::{ExchangeError, Operation, Phase};

/// Averages by all-gather; see the [module](self).
#[derive(Default)]
pub(crate) struct AllGather {
    /// This rank's messages of one step.
    own: Vec<u8>,
    /// Another rank's.
    received: Vec<u8>,
    message: Vec<u8>,
}

impl Collective for AllGather {
    fn reduce(
        &mut self,
        step: &mut Reduction<'_>,
        values: &mut [f32],
    ) -> Result<(), ExchangeError> {
        let Self { own, received, message } = self;
        let operation = Operation::whole(Phase::Gather, step.step);
        let mut report = *step.report;
        let rank = step.transport.rank();
        own.clear();
        if step.weights[rank] != 0.0 {
            worked(&mut report.compress, || step.encode_all(values, own, message))?;
        }
        timed(&mut report.wire, || step.transport.send_to_others(operation, own))?;
        values.fill(0.0);
        for from in 0..step.transport.size() {
            if from != rank {
                timed(&mut report.wire, || step.transport.recv(from, operation, received))?;
            }
            let packed = if from == rank { &*own } else { &*received };
            let weight = step.weights[from];
            worked(&mut report.decompress, || step.decode_all((from, weight), packed, values))?;
        }
        worked(&mut report.decompress, || step.aggregate(values));
        *step.report = report;
        Ok(())
    }
}
