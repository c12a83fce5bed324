//! All-gather: every rank gets every message, and decodes and averages by itself.
//!
//! One phase. With messages of `b` bytes in all, a rank sends and receives `(n − 1)·b` bytes, and
//! decodes `n` messages a tensor, in the order of ranks and each as it comes: it holds its own messages and those
//! of one other rank, and adds up the means in place of its gradients. A rank that does not take part in a round
//! sends nothing. Raw tensors are gathered like the others, as `none`.

use crate::distributed_optimizer::{timed, worked};
use crate::{
    Average, Ends, ExchangeError, GroupConfig, Operation, Phase, Round, StepReport, Transport,
};

/// Averages by all-gather; see the [module](self).
pub struct AllGather {
    ends: Ends,
    /// This rank's messages of one step.
    own: Vec<u8>,
    /// Another rank's.
    received: Vec<u8>,
}

impl Average for AllGather {
    fn new(setup: &GroupConfig<'_>, rank: usize) -> Self {
        Self { ends: Ends::new(setup, rank), own: Vec::new(), received: Vec::new() }
    }

    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let Self { ends, own, received } = self;
        let operation = Operation::whole(Phase::Gather, round.step);
        ends.begin(round.step);
        let rank = transport.rank();
        own.clear();
        if ends.parts[rank] != 0.0 {
            worked(&mut report.compress, || ends.encode(round, values, own))?;
        }
        timed(&mut report.wire, || transport.send_to_others(operation, own))?;
        values.fill(0.0);
        for from in 0..transport.size() {
            if from != rank {
                timed(&mut report.wire, || transport.recv(from, operation, received))?;
            }
            let (fused, weight) = (if from == rank { &*own } else { &*received }, ends.parts[from]);
            worked(&mut report.decompress, || ends.add((from, weight), fused, round, values))?;
        }
        worked(&mut report.decompress, || ends.aggregate(round, values));
        Ok(())
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn ends_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }
}
