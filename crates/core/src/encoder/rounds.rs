//! The sending end of methods in rounds of all-reduce.

use gradwire_bits::DecodeError;

use super::{Encoder, check_length, kept_of, of_tensor};
use crate::rounds::{Job, Plan, Rounds};
use crate::{Context, Error, Floats, Memory, Sent, Source, Tensor};

impl Encoder {
    /// Whether the method has [rounds](crate::Rounds), which [`contribute`](Self::contribute) plays. One with
    /// [`Feedback`](crate::Feedback) of its own in force has not.
    pub fn has_rounds(&self) -> bool {
        self.compressor.rounds().is_some() && !self.has_feedback()
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
    pub fn contribute(
        &mut self,
        tensor: &Tensor,
        (step, round): (u64, usize),
        gradient: Floats<'_>,
        means: &[f32],
        addend: &mut Vec<f32>,
    ) -> Result<bool, Error> {
        assert!(self.has_rounds(), "the method has rounds");
        addend.clear();
        if round == 0 {
            self.check(tensor, gradient)?;
            self.correct(tensor, gradient)?;
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
        let memory = self.memory();
        let kept = if memory.is_on() { &mut self.residuals } else { &mut self.gradients };
        let fresh = !kept.contains_key(tensor.name());
        let corrected = of_tensor(kept, "residual", tensor)?;
        // Without error feedback the residual of the step before counts for nothing.
        let memory = match memory {
            Memory::None => Memory::Residual { beta: 0.0, gamma: 1.0 },
            on => on,
        };
        match Source::new(gradient, memory, Some(corrected), &mut self.scratch) {
            Ok(mut source) => source.take_blocks(|_, _| {}),
            Err(at) => {
                if fresh {
                    kept.remove(tensor.name());
                }
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
        let on = self.memory().is_on();
        let Self { compressor, residuals, gradients, kept, workspace, .. } = self;
        let kept = kept_of(&**compressor, kept, tensor)?;
        let corrected = of_tensor(if on { residuals } else { gradients }, "residual", tensor)?;
        let rounds = compressor.rounds().expect("the method has rounds");
        Ok((rounds, Job { corrected, kept, context, alone: false, workspace }))
    }
}
