//! The requests of a server between two steps: the global model, save and restore.

use std::time::Instant;

use gradwire::State;

use super::Server;
use super::gathering::Gathering;
use crate::{Header, Operation, Phase, Result, elements};

impl Server {
    /// Answers with the parameters of this server's tensors, in order, as little-endian `f32`.
    pub(super) fn send_model(&mut self, worker: usize, header: Header) -> Result<()> {
        self.message.clear();
        for slot in &self.slots {
            elements::narrow_onto(&slot.parameters, &mut self.message);
        }
        let operation = Operation::whole(Phase::Model, u64::from(header.step));
        self.transport.send_in_parts(worker, operation, &self.message)
    }

    pub(super) fn arrive(
        &mut self,
        worker: usize,
        header: Header,
        payload: &mut Vec<u8>,
    ) -> Result<()> {
        let workers = self.workers;
        let gathering = self.gathering.get_or_insert_with(|| Gathering {
            phase: header.phase,
            step: u64::from(header.step),
            since: Instant::now(),
            arrived: vec![false; workers],
            payload: Vec::new(),
        });
        let same = gathering.phase == header.phase && gathering.step == u64::from(header.step);
        if !same || gathering.arrived[worker] {
            return Err(self.refuse(worker, header));
        }
        gathering.arrived[worker] = true;
        if worker == 0 {
            let operation = Operation::whole(gathering.phase, gathering.step);
            self.transport.recv_rest(worker, operation, payload)?;
            std::mem::swap(&mut gathering.payload, payload);
        }
        if gathering.arrived.contains(&false) {
            return Ok(());
        }
        let Some(gathering) = self.gathering.take() else { return Ok(()) };
        let mut answer = Vec::new();
        if gathering.phase == Phase::Save {
            answer = self.save().to_bytes()?;
        } else {
            self.restore(&State::from_bytes(&gathering.payload)?)?;
        }
        let operation = Operation::whole(gathering.phase, gathering.step);
        self.transport.send_in_parts(0, operation, &answer)?;
        (1..workers).try_for_each(|to| self.transport.send(to, operation, &[]))
    }

    fn save(&self) -> State {
        let mut state = State::new();
        for slot in &self.slots {
            let key = format!("global/{}", slot.tensor.name());
            state.set_floats(&key, slot.parameters.clone());
        }
        match &self.staleness {
            Some(staleness) => staleness.save(&self.slots, &mut state),
            None => self.pulls.save("pull/", &mut state),
        }
        self.pushes.save_estimates("push/", &mut state);
        self.optimizer.save("optimizer/", &mut state);
        state
    }

    fn restore(&mut self, state: &State) -> Result<()> {
        for slot in &mut self.slots {
            let entry = format!("global/{}", slot.tensor.name());
            let saved = state.floats_of(&entry, slot.parameters.len())?;
            slot.parameters.copy_from_slice(saved);
            slot.rewind();
        }
        self.begun = None;
        match &mut self.staleness {
            Some(staleness) => staleness.restore(&self.slots, state)?,
            None => self.pulls.restore("pull/", state)?,
        }
        self.pushes.restore_estimates("push/", state)?;
        Ok(self.optimizer.restore("optimizer/", state)?)
    }
}
