//! The state of the codecs: checkpoint and rollback, save and restore.

use std::collections::HashSet;
use std::iter;

use gradwire::{Dtype, Encoder, Spec, State, StateError, Tensor};

use super::{Codecs, TensorState};
use crate::state::{PUSH, REDUCE, keep, slice_of, sum_key};
use crate::{ExchangeError, Result};

impl Codecs {
    /// Copies the state of the encoders and the estimates, for [`rollback`](Self::rollback).
    pub(crate) fn checkpoint(&mut self) {
        self.encoder.checkpoint();
        self.second.iter_mut().for_each(Encoder::checkpoint);
        self.tensors
            .iter_mut()
            .for_each(|codec| codec.estimate.checkpoint.clone_from(&codec.estimate.now));
    }

    /// Restores the state that [`checkpoint`](Self::checkpoint) copied.
    pub(crate) fn rollback(&mut self) {
        self.encoder.rollback();
        self.second.iter_mut().for_each(Encoder::rollback);
        self.tensors
            .iter_mut()
            .for_each(|codec| codec.estimate.now.clone_from(&codec.estimate.checkpoint));
    }

    /// Adds the state of the encoder and the estimates to `state`, under `prefix`; the state of the
    /// encoder of averages, under `reduce/`.
    pub(crate) fn save(&self, prefix: &str, state: &mut State) {
        let second = self.second.iter().map(|second| (second, REDUCE));
        for (encoder, prefix) in iter::once((&self.encoder, prefix)).chain(second) {
            encoder.save(prefix, state);
            self.name_specs(prefix, state);
        }
        self.save_estimates(prefix, state);
        self.leave_out_empty(state);
    }

    /// Removes what is saved of tensors without elements. A rank that has no part of a tensor may
    /// never have encoded it.
    fn leave_out_empty(&self, state: &mut State) {
        let empty = self.tensors.iter().filter(|codec| codec.tensor.elements() == 0);
        let names: HashSet<&str> =
            empty.flat_map(|codec| &codec.names).map(String::as_str).collect();
        if !names.is_empty() {
            keep(state, |name| !names.contains(name));
        }
    }

    /// Names the compressors of the schedules in a saved state, instead of the specs for 16-bit
    /// elements. So the state fits gradients of any type.
    fn name_specs(&self, prefix: &str, state: &mut State) {
        for TensorState { schedule, stage, dtype, names, .. } in &self.tensors {
            let Some(stage) = stage.filter(|_| *dtype != Dtype::F32) else { continue };
            for name in names {
                state.set_setting(
                    &Encoder::spec_key(prefix, name),
                    schedule.stage(stage).to_string(),
                );
            }
        }
    }

    /// Adds the estimates to `state`, under `prefix`.
    pub(crate) fn save_estimates(&self, prefix: &str, state: &mut State) {
        for TensorState { tensor, estimate, .. } in
            self.tensors.iter().filter(|codec| !codec.estimate.now.is_empty())
        {
            state.set_floats(&sum_key(prefix, tensor.name()), estimate.now.clone());
        }
    }

    /// Restores the estimates that [`save_estimates`](Self::save_estimates) wrote, and empties all
    /// others.
    ///
    /// # Errors
    /// `State` if an estimate's length differs from the tensor's; nothing has changed then.
    pub(crate) fn restore_estimates(&mut self, prefix: &str, state: &State) -> Result<()> {
        let sums = self.estimates_in(prefix, state)?;
        self.tensors.iter_mut().zip(sums).for_each(|(codec, sum)| codec.estimate.now = sum);
        Ok(())
    }

    fn estimates_in(&self, prefix: &str, state: &State) -> Result<Vec<Vec<f32>>> {
        let saved = |tensor: &Tensor| {
            let key = sum_key(prefix, tensor.name());
            match state.floats(&key) {
                Ok(_) => state.floats_of(&key, tensor.elements()).map(<[f32]>::to_vec),
                Err(_) => Ok(Vec::new()),
            }
        };
        let sums = self.tensors.iter().map(|codec| saved(&codec.tensor));
        Ok(sums.collect::<Result<_, _>>()?)
    }

    /// Restores the state that [`save`](Self::save) wrote, at any stage of the schedules.
    ///
    /// # Errors
    /// `State` if a tensor's state was saved with a compressor that the tensor has at no stage, and
    /// as for [`restore_estimates`](Self::restore_estimates); nothing has changed then.
    pub(crate) fn restore(&mut self, prefix: &str, state: &State) -> Result<()> {
        let before: Vec<_> = self.tensors.iter().map(|codec| codec.stage).collect();
        self.enter_saved(prefix, state);
        if let Err(error) = self.check_state(prefix, state) {
            for (index, stage) in before.into_iter().enumerate() {
                self.enter(index, stage.unwrap_or(0), Dtype::F32);
            }
            return Err(error);
        }
        let second = self.second.iter_mut().map(|second| (second, REDUCE));
        for (encoder, prefix) in iter::once((&mut self.encoder, prefix)).chain(second) {
            // The state of an exchange without this encoder has no entries for it.
            match Encoder::was_saved(prefix, state) {
                true => encoder.restore(prefix, state)?,
                false => encoder.forget(),
            }
        }
        self.restore_estimates(prefix, state)
    }

    /// Refuses a tensor's state, whole or in slices, that was saved with a compressor that the
    /// tensor has at no stage.
    pub(crate) fn check_specs(&self, state: &State) -> Result<()> {
        let prefix = Encoder::spec_key(PUSH, "");
        let saved: Vec<_> = state.settings_under(&prefix).collect();
        for TensorState { tensor, schedule, .. } in &self.tensors {
            let whole = tensor.whole().name();
            let is_of = |name: &str| name == tensor.name() || slice_of(name) == Some(whole);
            let Some((_, found)) = saved.iter().find(|(name, _)| is_of(name)) else { continue };
            let is_saved =
                |spec: &Spec| spec.to_string() == *found || found.parse().as_ref() == Ok(spec);
            if !schedule.specs().any(is_saved) {
                return Err(ExchangeError::from(StateError::Mismatch {
                    key: format!("the compressor of tensor '{}'", tensor.name()),
                    found: (*found).to_owned(),
                    expected: schedule.first.to_string(),
                }));
            }
        }
        Ok(())
    }

    fn check_state(&self, prefix: &str, state: &State) -> Result<()> {
        let second = self.second.iter().map(|second| (second, REDUCE));
        for (encoder, prefix) in iter::once((&self.encoder, prefix)).chain(second) {
            let has_specs =
                || state.settings_under(&Encoder::spec_key(prefix, "")).next().is_some();
            // Without this number, specs are those of a damaged state: an error names it.
            if Encoder::was_saved(prefix, state) || has_specs() {
                encoder.check_state(prefix, state)?;
            }
        }
        self.estimates_in(prefix, state).map(drop)
    }

    /// Selects for each tensor the stage at which its state was saved; the first if it has no such
    /// stage.
    fn enter_saved(&mut self, prefix: &str, state: &State) {
        for index in 0..self.tensors.len() {
            let TensorState { schedule, names, .. } = &self.tensors[index];
            let setting = |name: &String| state.setting(&Encoder::spec_key(prefix, name)).ok();
            let Some(saved) = names.iter().find_map(setting) else { continue };
            let stage = schedule.specs().position(|spec| spec.to_string() == saved).unwrap_or(0);
            self.enter(index, stage, Dtype::F32);
        }
    }
}
