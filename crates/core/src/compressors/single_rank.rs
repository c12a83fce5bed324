//! Multi-round methods as compressors, for exchanges without all-reduce.

use gradwire_bits::{DecodeError, kernels, try_resize};

use crate::multi_round::{self, MultiRound, RankState, ReduceOp, Round, RoundContext};
use crate::parameters::{Param, Parameters, Value};
use crate::wire::fields;
use crate::wire::symbols::Alphabet;
use crate::{Aggregation, BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Helpers};

/// Buffers of a single rank that runs all rounds.
#[derive(Debug, Default)]
struct Transcript {
    /// The corrected gradient, if there is no residual.
    corrected: Vec<f32>,
    means: Vec<f32>,
    addend: Vec<f32>,
    indices: Vec<u16>,
}

impl Transcript {
    /// Appends the addend of a round to the message, and its values to the means.
    fn put(&mut self, op: ReduceOp, message: &mut Vec<u8>) {
        let Self { means, addend, indices, .. } = self;
        match op {
            ReduceOp::Mean | ReduceOp::Max => {
                fields::put_f32s(addend, message);
                means.extend_from_slice(addend);
            }
            ReduceOp::TableMean(table) => {
                let alphabet = Alphabet::new(table.len(), false);
                // A block's indices end with a whole byte.
                for block in addend.chunks(BLOCK) {
                    indices.clear();
                    // The compiler does not vectorize a direct conversion from f32 to u16.
                    indices.extend(block.iter().map(|&index| index as i32 as u16));
                    alphabet.put_fixed(indices, message);
                    append_entries(table, indices, means);
                }
            }
        }
    }

    /// Reads the addend of a round off the front of a message, and appends its values to the means.
    fn take(&mut self, round: Round, message: &mut &[u8]) -> Result<(), DecodeError> {
        let Self { means, indices, .. } = self;
        let len = round.len;
        match round.op {
            ReduceOp::Mean | ReduceOp::Max => {
                let (before, bytes) = (means.len(), fields::take(message, round.bytes())?);
                try_resize(means, before + len, 0.0)?;
                fields::read_f32s(bytes, &mut means[before..]);
                if means[before..].iter().any(|x| !x.is_finite()) {
                    return Err(DecodeError::Corrupt("a number is not finite"));
                }
            }
            ReduceOp::TableMean(table) => {
                let alphabet = Alphabet::new(table.len(), false);
                means.try_reserve(len)?;
                for start in (0..len).step_by(BLOCK) {
                    let count = BLOCK.min(len - start);
                    try_resize(indices, count, 0)?;
                    alphabet.take_fixed(message, indices, &mut Helpers::default())?;
                    append_entries(table, indices, means);
                }
            }
        }
        Ok(())
    }
}

/// Appends the entries of a table at these indices.
fn append_entries(table: &[u8], indices: &[u16], to: &mut Vec<f32>) {
    let entry = |&index: &u16| f32::from(table[usize::from(index)]);
    if table.len() > 16 {
        return to.extend(indices.iter().map(entry));
    }
    let before = to.len();
    to.resize(before + indices.len(), 0.0);
    kernels::looked_up(indices, &sixteen(table, f32::from), &mut to[before..]);
}

/// The numbers of at most sixteen entries, then zeros.
pub(crate) fn sixteen(table: &[u8], number: impl Fn(u8) -> f32) -> [f32; 16] {
    std::array::from_fn(|at| table.get(at).map_or(0.0, |&entry| number(entry)))
}

/// A multi-round method as a compressor: its message is the transcript of a single rank:
/// little-endian `f32`, and packed indices for rounds that [add integers](ReduceOp::TableMean).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SingleRank<R>(pub R);

impl<R: Parameters> Parameters for SingleRank<R> {
    const PARAMETERS: &'static [Param] = R::PARAMETERS;

    fn new(values: &[Value]) -> Self {
        Self(R::new(values))
    }
}

impl<R: MultiRound> Compressor for SingleRank<R> {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let mut transcript = std::mem::take(workspace.own::<Transcript>());
        let mut own = std::mem::take(&mut transcript.corrected);
        let (corrected, kept) = source.take_all(&mut own, workspace);
        transcript.means.clear();
        let mut round = 0;
        let sent = loop {
            let (corrected, kept, workspace) = (&mut *corrected, &mut *kept, &mut *workspace);
            let means = &transcript.means;
            let mut state =
                RankState { corrected, kept, means, context, single_rank: true, workspace };
            let Some(Round { len, op }) = self.0.round(&state.round_context(), round) else {
                break self.0.settle(&mut state);
            };
            transcript.addend.clear();
            self.0.contribute(round, &mut state, &mut transcript.addend);
            debug_assert_eq!(transcript.addend.len(), len);
            transcript.put(op, message);
            round += 1;
        };
        transcript.corrected = own;
        *workspace.own() = transcript;
        sent
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, context, weight, workspace, out } = args;
        let context = RoundContext { context, kept: &[], single_rank: true };
        let rounds = || multi_round::rounds(&self.0, &context);
        fields::expect_len(message, rounds().map(Round::bytes).sum())?;
        let mut transcript = std::mem::take(workspace.own::<Transcript>());
        transcript.means.clear();
        let decoded = rounds()
            .try_for_each(|round| transcript.take(round, &mut message))
            .and_then(|()| self.0.decode_add(&transcript.means, &context, weight, workspace, out));
        *workspace.own() = transcript;
        decoded
    }

    fn max_len(&self, elements: usize) -> usize {
        self.0.max_len(elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.0.max_elements(message_len)
    }

    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::MultiRound(&self.0)
    }
}
