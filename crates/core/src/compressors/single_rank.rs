//! Multi-round methods as compressors, for exchanges without all-reduce.

use gradwire_bits::{DecodeError, try_resize};

use crate::multi_round::{MultiRound, RankState, RoundContext};
use crate::parameters::{Param, Parameters, Value};
use crate::wire::fields;
use crate::{Aggregation, Compressor, DecodeArgs, EncodeArgs, Sent};

/// Buffers of a single rank that runs all rounds.
#[derive(Debug, Default)]
struct Transcript {
    /// The corrected gradient, if there is no residual.
    corrected: Vec<f32>,
    means: Vec<f32>,
    addend: Vec<f32>,
}

/// A multi-round method as a compressor: its message is the transcript of a single rank,
/// little-endian `f32`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SingleRank<R>(pub R);

impl<R: Parameters> Parameters for SingleRank<R> {
    const PARAMETERS: &'static [Param] = R::PARAMETERS;

    fn new(values: &[Value]) -> Self {
        Self(R::new(values))
    }
}

impl<R: MultiRound> Compressor for SingleRank<R> {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Sent {
        let EncodeArgs { source, context, workspace, message } = args;
        let mut transcript = std::mem::take(workspace.own::<Transcript>());
        let Transcript { corrected, means, addend } = &mut transcript;
        let (corrected, kept) = source.take_all(corrected);
        means.clear();
        let mut round = 0;
        let sent = loop {
            let (corrected, kept, workspace) = (&mut *corrected, &mut *kept, &mut *workspace);
            let mut state =
                RankState { corrected, kept, means, context, single_rank: true, workspace };
            let Some(len) = self.0.addend_len(&state.round_context(), round) else {
                break self.0.settle(&mut state);
            };
            addend.clear();
            self.0.contribute(round, &mut state, addend);
            debug_assert_eq!(addend.len(), len);
            means.extend_from_slice(addend);
            round += 1;
        };
        fields::put_f32s(means, message);
        *workspace.own() = transcript;
        sent
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, context, weight, workspace, out } = args;
        let context = RoundContext { context, kept: &[], single_rank: true };
        let lens = (0..).map_while(|round| self.0.addend_len(&context, round));
        let len: usize = lens.sum();
        fields::expect_len(message, 4 * len)?;
        let mut means = std::mem::take(&mut workspace.own::<Transcript>().means);
        try_resize(&mut means, len, 0.0)?;
        fields::read_f32s(message, &mut means);
        let decoded = match means.iter().all(|x| x.is_finite()) {
            true => self.0.decode_add(&means, &context, weight, workspace, out),
            false => Err(DecodeError::Corrupt("a number is not finite")),
        };
        workspace.own::<Transcript>().means = means;
        decoded
    }

    fn is_contractive(&self) -> bool {
        self.0.is_contractive()
    }

    fn max_len(&self, elements: usize) -> usize {
        // A tensor that a method would not shrink is sent uncompressed.
        elements.saturating_mul(4)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.0.max_elements(message_len)
    }

    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::MultiRound(&self.0)
    }
}
