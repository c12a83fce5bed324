//! What ranks tell each other beside averages, and what an exchange made of groups is asked for.

use gradwire::State;

use super::Reducer;
use crate::{ExchangeError, Participation, agreement, report, state_keys};

impl Reducer {
    /// The same with other parts of ranks in the mean. Before any group is formed.
    pub(crate) fn with_shares(self, shares: Participation) -> Self {
        Self { shares, ..self }
    }

    /// As [`DistributedOptimizer::collect`](crate::DistributedOptimizer::collect).
    pub(crate) fn collect(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        self.alive()?;
        let workers = self.transport.size();
        let collected = report::collect(&mut *self.transport, workers, own);
        self.settle(collected)
    }

    /// As [`DistributedOptimizer::announce`](crate::DistributedOptimizer::announce).
    pub(crate) fn announce(&mut self, message: &mut Vec<u8>) -> Result<(), ExchangeError> {
        self.alive()?;
        let workers = self.transport.size();
        let announced = report::announce(&mut *self.transport, workers, message);
        self.settle(announced)
    }

    /// As [`DistributedOptimizer::check`](crate::DistributedOptimizer::check), of parameters with this digest.
    pub(crate) fn check_parameters(&mut self, step: u64, digest: u64) -> Result<(), ExchangeError> {
        self.alive()?;
        let workers = self.transport.size();
        agreement::on_parameters(&mut *self.transport, workers, step, digest)
    }

    /// Shows, of each tensor of a group, what this rank's last message carried: positions, `None` for all elements; and
    /// the message's length.
    pub(crate) fn carried(&self, group: usize, mut show: impl FnMut(Option<&[u32]>, usize)) {
        let Some(Some(group)) = self.groups.get(group) else { return };
        for index in 0..group.tensors.len() {
            show(group.average.sent(index), group.average.message_bytes(index));
        }
    }

    /// What this rank's messages for a tensor have left out, in its pieces.
    pub(crate) fn residual(&self, name: &str) -> Vec<Vec<f32>> {
        let mut pieces = Vec::new();
        let Some(group) = self.groups.iter().flatten().find(|group| group.has(name)) else {
            return pieces;
        };
        for (index, tensor) in group.tensors.iter().enumerate() {
            if tensor.name() == name {
                let mut show = |piece: &[f32]| pieces.push(piece.to_vec());
                group.average.residual(tensor, index, &mut show);
            }
        }
        pieces
    }

    /// What averages keep, of all tensors.
    pub(crate) fn kept(&self) -> State {
        let mut state = self.loose.clone();
        self.groups.iter().flatten().for_each(|group| group.average.save(&mut state));
        state
    }

    /// Goes on from what a rank of as many [kept](Self::kept), with the same strategy.
    ///
    /// # Errors
    /// `State` if it is of another model or configuration; nothing has changed then.
    pub(crate) fn keep(&mut self, state: State) -> Result<(), ExchangeError> {
        let mut state = state_keys::of_tensors(state, |_| true);
        // What else the trainer has saved is its own, and must not come back in what is saved next.
        state.retain(|name| ["push/", "reduce/"].iter().any(|own| name.starts_with(own)));
        self.check(&state)?;
        self.loose = state;
        // Groups are formed anew, from what was kept.
        self.groups.iter_mut().for_each(|group| *group = None);
        Ok(())
    }
}
