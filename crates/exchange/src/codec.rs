//! One sender's encoders and one receiver's decoders, by policy: compressed, raw, or by a rule of their own.

use std::collections::HashMap;
use std::sync::Arc;

use gradwire::{
    Compressor, Decoder, Element, Encoder, Error, Floats, Input, Sent, Spec, State, StateError,
    Tensor,
};

use crate::policy::Route;
use crate::rows::Rows;
use crate::{GroupConfig, Policy};

/// The compressors of a run, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Phases {
    first: Spec,
    /// The others, with their first steps.
    later: Vec<(u64, Spec)>,
    /// How many of those have begun.
    at: usize,
    /// Of each rule, its compressor throughout.
    rules: Vec<Spec>,
}

impl Phases {
    /// Those of what workers push.
    pub(crate) fn of_pushes(policy: &Policy) -> Self {
        let rules = policy.rules.iter().map(|rule| rule.spec.clone()).collect();
        Self { first: policy.push.clone(), later: policy.later.clone(), at: 0, rules }
    }

    /// Those of what workers pull from servers.
    pub(crate) fn of_pulls(policy: &Policy) -> Self {
        match &policy.pull {
            Some(spec) => Self {
                first: spec.clone(),
                later: Vec::new(),
                at: 0,
                // What travels whole one way does so the other way.
                rules: policy.rules.iter().map(|rule| rule.pulled(spec)).collect(),
            },
            None => Self::of_pushes(policy),
        }
    }

    /// The compressor of a step, if it is another than before.
    fn at(&mut self, step: u64) -> Option<&Spec> {
        let at = self.later.iter().take_while(|(from, _)| *from <= step).count();
        let changed = at != self.at;
        self.at = at;
        changed.then(|| self.spec())
    }

    /// The compressor of the phase in progress.
    fn spec(&self) -> &Spec {
        self.at.checked_sub(1).map_or(&self.first, |at| &self.later[at].1)
    }
}

/// Compresses what one rank sends, with that rank's residuals.
pub(crate) struct Sender {
    compressed: Encoder,
    raw: Encoder,
    /// Of each rule.
    ruled: Vec<Encoder>,
    /// Which of them encoded last.
    last: Route,
    phases: Phases,
    /// That of the phase in progress.
    compressor: Arc<dyn Compressor>,
    /// Sums of squares of the parts of the next gradients, by tensor.
    squares: HashMap<String, Vec<f32>>,
    /// What the last message carried.
    sent: Sent,
}

impl Sender {
    /// A sender that the others know as `rank`.
    pub(crate) fn new(phases: Phases, setup: &GroupConfig<'_>, rank: usize) -> Self {
        let (seed, rank) = (setup.seed, rank as u32);
        let encoder = |spec: &Spec| Encoder::new(spec, seed, rank).with_ranks(setup.workers as u32);
        Self {
            compressed: encoder(&phases.first),
            raw: encoder(&Spec::none()),
            ruled: phases.rules.iter().map(encoder).collect(),
            last: Route::Push,
            compressor: phases.first.compressor(),
            squares: HashMap::new(),
            phases,
            sent: Sent::All,
        }
    }

    /// A sender of what others' messages made, which takes momentum for granted.
    pub(crate) fn again(phases: Phases, setup: &GroupConfig<'_>, rank: usize) -> Self {
        let sender = Self::new(phases, setup, rank);
        let ruled = sender.ruled.into_iter().map(Encoder::with_plain_memory).collect();
        Self { compressed: sender.compressed.with_plain_memory(), ruled, ..sender }
    }

    /// Goes on with the compressor of a step.
    pub(crate) fn enter(&mut self, step: u64) {
        if let Some(spec) = self.phases.at(step) {
            self.compressor = spec.compressor();
        }
    }

    /// Replaces `message` by the message for `values`.
    pub(crate) fn encode(
        &mut self,
        tensor: &Tensor,
        route: Route,
        step: u64,
        values: &[f32],
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        message.clear();
        self.enter(step);
        self.last = route;
        self.assign(tensor, route);
        let squares = self.squares.remove(tensor.name());
        let input = Input { gradient: Floats::F32(values), squares: squares.as_deref() };
        self.sent = self.encoder_mut(route).encode(tensor, step, input, message)?;
        Ok(())
    }

    fn assign(&mut self, tensor: &Tensor, route: Route) {
        if let Route::Push = route {
            self.compressed.assign(tensor.name(), self.phases.spec());
        }
    }

    fn encoder(&self, route: Route) -> &Encoder {
        match route {
            Route::Raw => &self.raw,
            Route::Push => &self.compressed,
            Route::Rule(at) => &self.ruled[at],
        }
    }

    fn encoder_mut(&mut self, route: Route) -> &mut Encoder {
        match route {
            Route::Raw => &mut self.raw,
            Route::Push => &mut self.compressed,
            Route::Rule(at) => &mut self.ruled[at],
        }
    }

    /// Whether some compressor goes by how the parts of a gradient differ.
    pub(crate) fn keeps_squares(&self) -> bool {
        self.compressed.keeps_squares() || self.ruled.iter().any(Encoder::keeps_squares)
    }

    /// Tells a tensor's compressor of the parts of its next gradient.
    pub(crate) fn observe(
        &mut self,
        tensor: &Tensor,
        route: Route,
        squares: &[f32],
    ) -> Result<(), Error> {
        if self.encoder(route).compressor_of(tensor.name()).keeps_squares() {
            let sums = self.squares.entry(tensor.name().to_owned()).or_default();
            sums.resize(squares.len(), 0.0);
            sums.iter_mut().zip(squares).for_each(|(sum, x)| *sum = (*sum + x).min(f32::MAX));
        }
        Ok(())
    }

    /// Tells the compressors of the parts of all gradients.
    pub(crate) fn observe_all(
        &mut self,
        tensors: &[Tensor],
        routes: &[Route],
        squares: &[Vec<f32>],
    ) -> Result<(), Error> {
        let mut all = tensors.iter().zip(routes).zip(squares);
        all.try_for_each(|((tensor, route), squares)| self.observe(tensor, *route, squares))
    }

    /// What messages consist of, for linear compressors.
    pub(crate) fn linear(&self, route: Route) -> Option<Element> {
        match route {
            Route::Push => self.compressor.linear(),
            _ => self.encoder(route).compressor_of("").linear(),
        }
    }

    /// Whether tensors of a route travel in rounds.
    pub(crate) fn has_rounds(&self, route: Route) -> bool {
        self.encoder(route).has_rounds("")
    }

    /// Replaces `addend` by this rank's of a round of a tensor, as [`Encoder::contribute`] has it; false
    /// after the last round.
    pub(crate) fn contribute(
        &mut self,
        (tensor, route): (&Tensor, Route),
        (step, round): (u64, usize),
        values: &[f32],
        means: &[f32],
        addend: &mut Vec<f32>,
    ) -> Result<bool, Error> {
        self.enter(step);
        self.assign(tensor, route);
        self.encoder_mut(route).contribute(
            tensor,
            (step, round),
            Floats::F32(values),
            means,
            addend,
        )
    }

    /// Adds what the means of all rounds decode to to `out`.
    pub(crate) fn conclude(
        &mut self,
        (tensor, route): (&Tensor, Route),
        step: u64,
        means: &[f32],
        out: &mut [f32],
    ) -> Result<(), Error> {
        self.last = route;
        self.sent = self.encoder_mut(route).conclude(tensor, step, means, out)?;
        Ok(())
    }

    /// The positions that the last message carried; `None` where it carried all.
    pub(crate) fn positions(&self) -> Option<&[u32]> {
        (self.sent == Sent::Positions).then(|| self.encoder(self.last).positions())
    }

    /// What the messages for a tensor have left out so far.
    pub(crate) fn residual(&self, tensor: &Tensor) -> Option<&[f32]> {
        let encoders = std::iter::once(&self.compressed).chain(&self.ruled);
        encoders.filter_map(|encoder| encoder.residual(tensor.name())).next()
    }

    /// Keeps a copy of the residuals, for [`rollback`](Self::rollback).
    pub(crate) fn checkpoint(&mut self) {
        self.compressed.checkpoint();
        self.ruled.iter_mut().for_each(Encoder::checkpoint);
    }

    /// Takes back everything encoded since [`remember`](Self::checkpoint).
    pub(crate) fn rollback(&mut self) {
        self.compressed.rollback();
        self.ruled.iter_mut().for_each(Encoder::rollback);
    }

    /// Adds the residuals to `state`; raw tensors have none.
    pub(crate) fn save(&self, prefix: &str, state: &mut State) {
        self.compressed.save(prefix, state);
        for (at, encoder) in self.ruled.iter().enumerate() {
            encoder.save(&format!("{prefix}rule{at}/"), state);
        }
        if !self.phases.later.is_empty() {
            state.set_number(&format!("{prefix}phase"), self.phases.at as u64);
        }
    }

    pub(crate) fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        if !self.phases.later.is_empty() {
            let entry = format!("{prefix}phase");
            let at = state.number(&entry)? as usize;
            if at > self.phases.later.len() {
                let expected = self.phases.later.len();
                return Err(StateError::WrongSize { entry, found: at, expected });
            }
            self.phases.at = at;
            self.compressor = self.phases.spec().compressor();
        }
        for (name, _) in state.settings_under(&format!("{prefix}spec/")) {
            self.compressed.assign(name, self.phases.spec());
        }
        for (at, encoder) in self.ruled.iter_mut().enumerate() {
            encoder.restore(&format!("{prefix}rule{at}/"), state)?;
        }
        self.compressed.restore(prefix, state)
    }
}

/// Decodes the messages of [`Sender`]s with the same spec.
pub(crate) struct Receiver {
    compressed: Decoder,
    raw: Decoder,
    /// Of each rule.
    ruled: Vec<Decoder>,
    phases: Phases,
}

impl Receiver {
    pub(crate) fn new(phases: Phases, seed: u64) -> Self {
        Self {
            compressed: Decoder::new(&phases.first, seed),
            raw: Decoder::new(&Spec::none(), seed),
            ruled: phases.rules.iter().map(|spec| Decoder::new(spec, seed)).collect(),
            phases,
        }
    }

    fn of(&mut self, route: Route) -> &mut Decoder {
        match route {
            Route::Raw => &mut self.raw,
            Route::Push => &mut self.compressed,
            Route::Rule(at) => &mut self.ruled[at],
        }
    }

    /// Adds `weight` times the decoded message of the sender known as `rank` to `out`.
    pub(crate) fn decode_add(
        &mut self,
        tensor: &Tensor,
        route: Route,
        from: (u64, usize),
        message: &[u8],
        weight: f32,
        out: &mut [f32],
    ) -> Result<(), Error> {
        let (step, rank) = from;
        self.phases.at(step);
        if let Route::Push = route {
            self.compressed.assign(tensor.name(), self.phases.spec());
        }
        self.of(route).decode_add(tensor, step, rank as u32, message, weight, out)
    }

    /// The same for one of the messages that are averaged: `weight` times what it decodes to is added to the mean, or,
    /// where the compressor combines ranks, what it decodes to becomes one of `rows`.
    pub(crate) fn gather(
        &mut self,
        (tensor, route): (&Tensor, Route),
        from: (u64, usize),
        message: &[u8],
        weight: f32,
        (rows, mean): (&mut Rows, &mut [f32]),
    ) -> Result<(), Error> {
        match self.of(route).compressor_of("").combine() {
            None => self.decode_add(tensor, route, from, message, weight, mean),
            Some(_) => {
                let row = rows.add(weight, tensor.elements());
                self.decode_add(tensor, route, from, message, 1.0, row)
            }
        }
    }

    /// Makes what a step goes by of all that was [gathered](Self::gather) for a tensor, in place of its mean. No rows
    /// are left.
    pub(crate) fn aggregate(&mut self, route: Route, rows: &mut Rows, mean: &mut [f32]) {
        let decoder = self.of(route);
        match rows.is_empty() {
            true => decoder.compressor_of("").aggregate(mean),
            false => decoder.aggregate("", &rows.gathered(mean.len()), mean),
        }
        rows.clear();
    }
}

/// Which elements of each tensor this rank's messages of one step carried.
pub(crate) struct Carried(Vec<Elements>);

#[derive(Default, Clone)]
struct Elements {
    all: bool,
    positions: Vec<u32>,
    /// Length of the messages.
    bytes: usize,
}

impl Carried {
    pub(crate) fn new(tensors: usize) -> Self {
        Self(vec![Elements::default(); tensors])
    }

    /// Forgets the step before: nothing has been carried yet.
    pub(crate) fn clear(&mut self) {
        for elements in &mut self.0 {
            elements.all = false;
            elements.positions.clear();
            elements.bytes = 0;
        }
    }

    /// Notes the last message of a sender, for the elements of a tensor from `offset` on.
    pub(crate) fn note(&mut self, index: usize, offset: usize, sender: &Sender, message: &[u8]) {
        self.note_len(index, offset, sender, message.len());
    }

    /// Notes what a sender sent last and how many bytes it was.
    pub(crate) fn note_len(&mut self, index: usize, offset: usize, sender: &Sender, len: usize) {
        let elements = &mut self.0[index];
        elements.bytes += len;
        match sender.positions() {
            None => elements.all = true,
            Some(positions) => {
                elements.positions.extend(positions.iter().map(|at| at + offset as u32));
            }
        }
    }

    /// The length of the messages noted.
    pub(crate) fn bytes(&self, index: usize) -> usize {
        self.0[index].bytes
    }

    /// The positions carried, increasing; `None` where all were.
    pub(crate) fn of(&self, index: usize) -> Option<&[u32]> {
        let elements = &self.0[index];
        (!elements.all).then_some(elements.positions.as_slice())
    }
}

/// Which compressor each of `tensors` travels by.
pub(crate) fn routes(policy: &Policy, tensors: &[Tensor]) -> Vec<Route> {
    tensors.iter().map(|tensor| policy.route(tensor)).collect()
}
