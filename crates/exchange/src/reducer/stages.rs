//! The exchange of each step: one for the whole run, or another one from some step on.
//!
//! Another exchange may name its pieces differently, so it begins with new codecs. Where
//! [`ReducerConfig::suitable_stages`] changes the exchange, compressors keep no state. A state that
//! was restored from another configuration is converted as [`reshard`](crate::reshard) does.

use gradwire::{Spec, State, Tensor};

use super::{Reducer, ReducerConfig, check_by_groups};
use crate::codecs::Codecs;
use crate::collectives::{self, Collective, Cut};
use crate::error::refuse;
use crate::state::{PUSH, join, split};
use crate::{Exchange, GroupConfig, Participation, Policy, Result, Transport};

/// The parts of a reducer that depend on the exchange.
pub(super) struct Exchanging {
    exchange: Exchange,
    codecs: Codecs,
    collective: Box<dyn Collective>,
}

impl ReducerConfig {
    /// The exchange that [suits](Self::suitable) each stage of a policy's schedule, with its first
    /// step; stages with the same exchange are joined. Stages that hand state on, such as
    /// residuals, have one exchange, which suits the last of them. So have all stages if a rule
    /// keeps state.
    pub fn suitable_stages(policy: &Policy, ranks: usize) -> Vec<(u64, Exchange)> {
        let rules_keep = policy.rules.iter().any(|rule| rule.spec.keeps_state());
        let stages: Vec<(u64, &Spec)> = policy.push.stages().collect();
        let mut found: Vec<(u64, Exchange)> = Vec::new();
        let mut from = 0;
        for (at, (_, spec)) in stages.iter().enumerate() {
            let next = stages.get(at + 1).map(|(step, _)| *step);
            if next.is_some() && (rules_keep || spec.keeps_state()) {
                continue;
            }
            let until = next.unwrap_or(u64::MAX);
            let exchange = Self::suitable(&policy.between(from, until), ranks);
            if found.last().is_none_or(|(_, before)| *before != exchange) {
                found.push((from, exchange));
            }
            from = until;
        }
        found
    }
}

impl Reducer {
    /// A reducer whose exchange changes: `later` has the other exchanges, each with its first step,
    /// ascending and above 0.
    ///
    /// # Errors
    /// As for [`new`](Self::new); also `Config` if the steps are out of order.
    pub fn staged(
        transport: Box<dyn Transport>,
        config: ReducerConfig,
        later: Vec<(u64, Exchange)>,
    ) -> Result<Self> {
        let steps = std::iter::once(0).chain(later.iter().map(|(step, _)| *step));
        if !steps.is_sorted_by(|before, after| before < after) {
            return refuse("the exchanges are not in the order of their first steps; sort them");
        }
        check_by_groups(config.exchange)?;
        later.iter().try_for_each(|(_, exchange)| check_by_groups(*exchange))?;
        config.policy.check(&config.tensors)?;
        let participation = Participation::equal(transport.size());
        let whole = config.of_group(&config.tensors, &participation);
        validate(&whole, &later)?;
        let reducer = Self::of(transport, &whole, Cut::EachTensor, config.on_non_finite)?;
        Ok(Self { later, ..reducer })
    }

    /// The exchange of a step.
    pub fn exchange_at(&self, step: u64) -> Exchange {
        let last = self.later.iter().take_while(|(from, _)| *from <= step).last();
        last.map_or(self.config.exchange, |(_, exchange)| *exchange)
    }

    /// The exchanges of all steps.
    pub(super) fn exchanges(&self) -> impl Iterator<Item = Exchange> {
        let later = self.later.iter().map(|(_, exchange)| *exchange);
        std::iter::once(self.config.exchange).chain(later)
    }

    /// Refuses tensors that the exchange of some step does not take, and describes the exchanges of
    /// later steps.
    pub(super) fn check_group(&self, tensors: &[Tensor]) -> Result<String> {
        let group = self.config.of_group(tensors, &self.participation);
        validate(&group, &self.later)?;
        Ok(group.describe() + &format!("later exchanges {:?}\n", self.later))
    }

    /// Changes to the exchange of a step.
    pub(super) fn enter_exchange(&mut self, step: u64) -> Result<()> {
        let exchange = self.exchange_at(step);
        if exchange == self.exchange {
            return Ok(());
        }
        let mut state = State::new();
        self.codecs.save(PUSH, &mut state);
        let before = self.change(exchange)?;
        if state.floats_under("").next().is_none() {
            return Ok(());
        }
        let whole = join(&state, self.transport.size());
        let restored = self.codecs.restore(PUSH, &split(&whole, self.codecs.names()));
        if restored.is_err() {
            self.put_back(before);
        }
        restored
    }

    /// Changes to an exchange, with codecs that keep nothing; returns the parts that it replaces.
    pub(super) fn change(&mut self, exchange: Exchange) -> Result<Exchanging> {
        let Self { config, participation, transport, cut, .. } = self;
        let config = GroupConfig { exchange, ..config.of_group(&config.tensors, participation) };
        let rank = transport.rank();
        let mut codecs = Codecs::of_pushes(&config, rank);
        codecs.use_threads(self.codecs.threads());
        let collective = collectives::of(&config, *cut, &mut codecs, rank)?;
        Ok(self.exchanging(Exchanging { exchange, codecs, collective }))
    }

    /// Undoes a [`change`](Self::change).
    pub(super) fn put_back(&mut self, before: Exchanging) {
        self.exchanging(before);
    }

    fn exchanging(&mut self, new: Exchanging) -> Exchanging {
        let Exchanging { exchange, codecs, collective } = new;
        Exchanging {
            exchange: std::mem::replace(&mut self.exchange, exchange),
            codecs: std::mem::replace(&mut self.codecs, codecs),
            collective: std::mem::replace(&mut self.collective, collective),
        }
    }
}

/// Refuses a configuration that cannot work, each exchange with the compressors of its steps.
fn validate(config: &GroupConfig<'_>, later: &[(u64, Exchange)]) -> Result<()> {
    if later.is_empty() {
        return config.validate_group();
    }
    config.validate_schedule()?;
    let begins = std::iter::once((0, config.exchange)).chain(later.iter().copied());
    let ends = later.iter().map(|(step, _)| *step).chain(std::iter::once(u64::MAX));
    begins.zip(ends).try_for_each(|((from, exchange), until)| {
        let policy = &config.policy.between(from, until);
        GroupConfig { exchange, policy, ..*config }.validate_group()
    })
}
