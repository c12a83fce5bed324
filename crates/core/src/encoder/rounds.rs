//! The sending end of methods in rounds of all-reduce.

use gradwire_bits::DecodeError;

use super::{Encoder, check_length, of_tensor, own_of};
use crate::rounds::{Job, Plan, Rounds};
use crate::{Context, Error, Floats, Input, Memory, Sent, Source, Tensor};

impl Encoder {
    /// Whether the tensor called `name` is encoded in [rounds](crate::Rounds) of all-reduce, by
    /// [`contribute`](Self::contribute). A method with [`Feedback`](crate::Feedback) of its own in force is not.
    pub fn has_rounds(&self, name: &str) -> bool {
        self.compressor_of(name).rounds().is_some() && !self.has_feedback(name)
    }

    /// This rank's addend of a round of a method in [rounds](crate::Rounds), little-endian `f32`, in place of
    /// what `addend` held; false after the last round. Rounds of a step start at 0, which alone looks at the
    /// gradient; `means` are those of the rounds before.
    ///
    /// Between rounds other tensors may be encoded. A step that is not
    /// [concluded](Self::conclude) leaves its gradient in the residual.
    ///
    /// # Errors
    /// Those of [`encode`](Self::encode).
    ///
    /// # Panics
    /// If the method has no rounds.
    pub fn contribute<'a>(
        &mut self,
        tensor: &Tensor,
        (step, round): (u64, usize),
        input: impl Into<Input<'a>>,
        means: &[f32],
        addend: &mut Vec<f32>,
    ) -> Result<bool, Error> {
        assert!(self.has_rounds(tensor.name()), "the method has rounds");
        addend.clear();
        if round == 0 {
            let input = input.into();
            self.check(tensor, input)?;
            self.correct(tensor, input.gradient)?;
        }
        let context = self.context(tensor, step);
        let (rounds, mut job) = self.job(tensor, &context)?;
        let more = rounds.addend_len(&job.plan(), round).is_some();
        if more {
            rounds.contribute(round, means, &mut job, addend);
        }
        Ok(more)
    }

    /// Adds what the means of all rounds decode to to `out`, and keeps what this rank's addends left out.
    ///
    /// # Errors
    /// [`Error::Message`] if the means make no sense; nothing has changed then.
    pub fn conclude(
        &mut self,
        tensor: &Tensor,
        step: u64,
        means: &[f32],
        out: &mut [f32],
    ) -> Result<Sent, Error> {
        check_length(tensor, out.len())?;
        let (context, rank) = (self.context(tensor, step), self.rank);
        let (rounds, mut job) = self.job(tensor, &context)?;
        let plan = Plan { context: &context, kept: job.kept, alone: false };
        let expected: usize = (0..).map_while(|round| rounds.addend_len(&plan, round)).sum();
        let decoded = match means.len() == expected && means.iter().all(|x| x.is_finite()) {
            true => rounds.decode_add(means, &plan, 1.0, job.workspace, out),
            false => Err(DecodeError::Corrupt("a mean is not finite, or not all are there")),
        };
        decoded.map_err(|source| Error::Message {
            tensor: tensor.name().to_owned(),
            rank,
            source,
        })?;
        Ok(rounds.settle(means, &mut job))
    }

    /// Leaves the corrected gradient where [`job`](Self::job) finds it.
    fn correct(&mut self, tensor: &Tensor, gradient: Floats<'_>) -> Result<(), Error> {
        let memory = self.memory(tensor.name());
        let present = self.entry(tensor.name()).kept.present();
        let Self { tensors, scratch, .. } = self;
        let entry = tensors.get_mut(tensor.name()).expect("every tensor in hand has an entry");
        let corrected = match memory.is_on() {
            true => of_tensor(&mut entry.kept.residual, "residual", tensor)?,
            false => {
                entry.gradient.resize(tensor.elements(), 0.0);
                &mut entry.gradient[..]
            }
        };
        // Without error feedback the residual of the step before counts for nothing.
        let memory = match memory {
            Memory::None => Memory::Residual { beta: 0.0, gamma: 1.0 },
            on => on,
        };
        match Source::new(gradient, memory, Some(corrected), scratch) {
            Ok(mut source) => source.take_blocks(|_, _| {}),
            Err(at) => {
                entry.kept.drop_new(present);
                return Err(Error::non_finite(tensor.name(), at));
            }
        }
        Ok(())
    }

    /// The method's rounds, and what this rank works on.
    fn job<'a>(
        &'a mut self,
        tensor: &Tensor,
        context: &'a Context<'a>,
    ) -> Result<(&'a dyn Rounds, Job<'a>), Error> {
        let on = self.memory(tensor.name()).is_on();
        let Self { codecs, tensors, workspace, .. } = self;
        let entry = tensors.get_mut(tensor.name()).expect("round 0 came first");
        let compressor = &codecs.get(entry.codec).compressor;
        let kept = own_of(&**compressor, &mut entry.kept.own, tensor)?;
        let corrected = match on {
            true => of_tensor(&mut entry.kept.residual, "residual", tensor)?,
            false => &mut entry.gradient[..],
        };
        let rounds = compressor.rounds().expect("the method has rounds");
        Ok((rounds, Job { corrected, kept, context, alone: false, workspace }))
    }
}
