//! The sending end of multi-round methods.

use gradwire_bits::DecodeError;

use super::kept::Arrays;
use super::{Encoder, Entry, entry_of};
use crate::multi_round::DeviceRounds;
use crate::multi_round::{self, MultiRound, RankState, ReduceOp, Round, RoundContext};
use crate::specs::{check_length, check_size};
use crate::statistics::Statistics;
use crate::workspace::ThreadBuffers;
use crate::{Context, Coverage, Error, Input, Residual, Source, Tensor};

impl Encoder {
    /// Whether the tensor called `name` is encoded in [rounds](crate::MultiRound) of all-reduce, by
    /// [`contribute`](Self::contribute). A method that uses its own [memory](crate::memories) has
    /// no rounds.
    pub fn has_rounds(&self, name: &str) -> bool {
        let spec = self.spec_of(name);
        spec.compressor().rounds().is_some() && spec.own_memory(self.sender.plain).is_none()
    }

    /// Replaces `addend` by this rank's addend of a [round](crate::MultiRound), and returns how the
    /// ranks' addends are combined; `None` after the last round. Rounds of a step are numbered from
    /// 0; only round 0 reads the input. `means` are the means of the previous rounds.
    ///
    /// Other tensors may be encoded between rounds. If a step is not [concluded](Self::conclude),
    /// the residual keeps the part of the gradient that its addends left out, and the rest is lost.
    /// If another rank may fail during the step, make a [`checkpoint`](Self::checkpoint) before
    /// round 0 and [roll back](Self::rollback) to it.
    ///
    /// # Errors
    /// As for [`encode`](Self::encode).
    ///
    /// # Panics
    /// If the tensor's method has no rounds.
    pub fn contribute<'a>(
        &mut self,
        tensor: &Tensor,
        step: u64,
        round: usize,
        input: impl Into<Input<'a>>,
        means: &[f32],
        addend: &mut Vec<f32>,
    ) -> Result<Option<ReduceOp>, Error> {
        assert!(self.has_rounds(tensor.name()), "tensor '{}' has no rounds", tensor.name());
        addend.clear();
        if round == 0 {
            let input = input.into();
            self.check(tensor, input)?;
            self.correct(tensor, input)?;
        }
        let context = self.context(tensor, step);
        let (rounds, mut state) = self.rank_state(tensor, &context, means)?;
        let Some(Round { op, .. }) = rounds.round(&state.round_context(), round) else {
            return Ok(None);
        };
        rounds.contribute(round, &mut state, addend);
        Ok(Some(op))
    }

    /// Decodes the means of all rounds, adds the result to `out`, and keeps the part of the
    /// gradient that this rank's addends left out.
    ///
    /// # Errors
    /// [`Error::Message`] if the means are malformed, [`Error::WrongLength`] if the length of `out`
    /// is not the tensor's, [`Error::OutOfMemory`]. Nothing has changed then.
    ///
    /// # Panics
    /// If the tensor [has no rounds](Self::has_rounds).
    pub fn conclude(
        &mut self,
        tensor: &Tensor,
        step: u64,
        means: &[f32],
        out: &mut [f32],
    ) -> Result<Coverage, Error> {
        assert!(self.has_rounds(tensor.name()), "tensor '{}' has no rounds", tensor.name());
        check_length(tensor, out.len())?;
        let (context, rank) = (self.context(tensor, step), self.sender.rank);
        let (rounds, mut state) = self.rank_state(tensor, &context, means)?;
        let round_context =
            RoundContext { context: &context, kept: state.kept, single_rank: false };
        check_means(rounds, means, &round_context)
            .and_then(|()| rounds.decode_add(means, &round_context, 1.0, state.workspace, out))
            .map_err(|source| Error::decoding(tensor.name(), rank, source))?;
        Ok(rounds.settle(&mut state))
    }

    /// Appends the data from which a device computes this rank's addend of a
    /// [round](crate::MultiRound), and returns the kind of the round's addends; `None` after the
    /// last round. The device keeps the residual. `means` is as for
    /// [`contribute`](Self::contribute).
    ///
    /// # Errors
    /// [`Error::NoDeviceForm`] for a host-only method; [`Error::TooLarge`] for a tensor that the
    /// compressor does not accept; [`Error::State`] if a restored array has another size.
    pub fn device_round(
        &mut self,
        tensor: &Tensor,
        step: u64,
        round: usize,
        means: &[f32],
        form: &mut Vec<u8>,
    ) -> Result<Option<Round>, Error> {
        check_size(self.spec_of(tensor.name()), tensor)?;
        let context = self.context(tensor, step);
        let (rounds, device, mut state) = self.device_state(tensor, &context, means)?;
        let addends = rounds.round(&state.round_context(), round);
        if addends.is_some() {
            device.round(round, &mut state, form);
        }
        Ok(addends)
    }

    /// As [`conclude`](Self::conclude), if a device has the gradient: appends the data that the
    /// device adds to the mean.
    ///
    /// # Errors
    /// As for `conclude`, and [`Error::NoDeviceForm`]. The bytes that were added to `form` are
    /// unspecified then.
    pub fn device_conclude(
        &mut self,
        tensor: &Tensor,
        step: u64,
        means: &[f32],
        form: &mut Vec<u8>,
    ) -> Result<Coverage, Error> {
        let (context, rank) = (self.context(tensor, step), self.sender.rank);
        let (rounds, device, mut state) = self.device_state(tensor, &context, means)?;
        let round_context =
            RoundContext { context: &context, kept: state.kept, single_rank: false };
        check_means(rounds, means, &round_context)
            .and_then(|()| device.transcript(means, &round_context, state.workspace, form))
            .map_err(|source| Error::decoding(tensor.name(), rank, source))?;
        Ok(rounds.settle(&mut state))
    }

    /// Writes the corrected gradient to the array that [`rank_state`](Self::rank_state) reads.
    fn correct(&mut self, tensor: &Tensor, input: Input<'_>) -> Result<(), Error> {
        let Self { specs, tensors, sender, buffers } = self;
        let Entry { spec, kept, gradient, .. } = entry_of(tensors, tensor.name());
        let spec = &specs.0[*spec];
        let compressor = spec.compressor();
        let present = kept.present();
        let arrays = kept.arrays_of(tensor, sender.feedback(spec), false, compressor)?;
        let (weights, corrected) = arrays.feedback.unwrap_or_else(|| {
            gradient.resize(tensor.elements(), 0.0);
            // The gradient of the previous step has weight 0.
            (Residual { beta: 0.0, gamma: 1.0 }, gradient)
        });
        let ThreadBuffers { workspace, scratch } = buffers;
        let source = Source::unchecked(input.gradient, Some((weights, corrected)), scratch);
        match source.with_statistics(Statistics::Largest, &mut workspace.helpers) {
            Ok(mut source) => drop(source.take_all(&mut Vec::new(), workspace)),
            Err(at) => {
                kept.drop_new(present);
                return Err(Error::encoding(tensor.name(), input.gradient, at));
            }
        }
        Ok(())
    }

    /// The method's rounds, and this rank's state.
    fn rank_state<'a>(
        &'a mut self,
        tensor: &Tensor,
        context: &'a Context<'a>,
        means: &'a [f32],
    ) -> Result<(&'a dyn MultiRound, RankState<'a>), Error> {
        let Self { specs, tensors, sender, buffers: ThreadBuffers { workspace, .. } } = self;
        let Entry { spec, kept, gradient, .. } = entry_of(tensors, tensor.name());
        let spec = &specs.0[*spec];
        let compressor = spec.compressor();
        let Arrays { feedback, kept, .. } =
            kept.arrays_of(tensor, sender.feedback(spec), false, compressor)?;
        let corrected = feedback.map(|(_, residual)| residual).unwrap_or_else(|| {
            gradient.resize(tensor.elements(), 0.0);
            gradient
        });
        let rounds = compressor.rounds().expect("the method has rounds");
        let state = RankState { corrected, kept, means, context, single_rank: false, workspace };
        Ok((rounds, state))
    }

    /// The method's rounds, its device forms, and this rank's state without the gradient.
    fn device_state<'a>(
        &'a mut self,
        tensor: &Tensor,
        context: &'a Context<'a>,
        means: &'a [f32],
    ) -> Result<(&'a dyn MultiRound, &'a dyn DeviceRounds, RankState<'a>), Error> {
        let Self { specs, tensors, buffers: ThreadBuffers { workspace, .. }, .. } = self;
        let Entry { spec, kept, .. } = entry_of(tensors, tensor.name());
        let spec = &specs.0[*spec];
        let compressor = spec.compressor();
        let (rounds, device) = compressor
            .rounds()
            .and_then(|rounds| Some((rounds, rounds.device_rounds()?)))
            .ok_or_else(|| Error::no_device_form(spec))?;
        let Arrays { kept, .. } = kept.arrays_of(tensor, None, false, compressor)?;
        let corrected = &mut [];
        let state = RankState { corrected, kept, means, context, single_rank: false, workspace };
        Ok((rounds, device, state))
    }
}

/// Refuses an incomplete transcript, and one with NaN or infinity.
fn check_means(
    rounds: &dyn MultiRound,
    means: &[f32],
    context: &RoundContext<'_>,
) -> Result<(), DecodeError> {
    let expected: usize = multi_round::rounds(rounds, context).map(|round| round.len).sum();
    let complete = means.len() == expected && means.iter().all(|x| x.is_finite());
    complete.then_some(()).ok_or(DecodeError::Corrupt("a mean is not finite, or not all are there"))
}
