//! Averages a model group by group, as its gradients become known.
//!
//! A trainer that computes gradients back to front need not wait for the last of them: it forms groups of
//! tensors and averages one while it computes the next. What messages leave out belongs to tensors, not to
//! groups: when tensors are grouped anew, residuals follow them by name, bit for bit, and the averages stay
//! what they would have been in the old groups.

mod beside;
mod states;

use std::collections::HashMap;
use std::ops::Range;

use gradwire::{State, Tensor};

use crate::collective::ranges;
use crate::group_config::adds;
use crate::state_keys::{self, Entry};
use crate::transport::or_abort;
use crate::{
    AllGather, AllReduce, Average, Exchange, ExchangeError, GroupConfig, Operation, Participation,
    Phase, Policy, Round, ScatterReduce, StepReport, Transport, agreement,
};

/// What all ranks agree on.
#[derive(Debug, Clone)]
pub struct Model {
    /// How ranks average: all-reduce, all-gather or scatter-reduce.
    pub exchange: Exchange,
    /// What travels compressed.
    pub policy: Policy,
    /// The tensors; names are unique.
    pub tensors: Vec<Tensor>,
    /// The run's seed.
    pub seed: u64,
    /// What becomes of gradients that are not finite.
    pub on_non_finite: OnNonFinite,
}

/// What becomes of a step in which some rank's gradients are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNonFinite {
    /// It is an error that names the tensor.
    Refuse,
    /// All ranks take the step back and get NaN, for a trainer that scales its losses down then. Costs a message of
    /// one byte between any two ranks for each group, and a second copy of the residuals.
    Skip,
}

/// What an average came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The values are the mean.
    Averaged,
    /// The step is skipped on all ranks: the values are NaN, and all residuals are as they were before it.
    Skipped,
}

/// One rank's end.
pub struct Reducer {
    transport: Box<dyn Transport>,
    model: Model,
    shares: Participation,
    by_name: HashMap<String, usize>,
    groups: Vec<Option<Group>>,
    /// What is kept for tensors that are in no group.
    loose: State,
    step: Option<u64>,
    skipping: bool,
    /// Groups averaged in this step.
    touched: Vec<usize>,
    report: StepReport,
    message_bytes: usize,
    /// Why nothing works any more.
    broken: Option<String>,
}

struct Group {
    tensors: Vec<Tensor>,
    ranges: Vec<Range<usize>>,
    average: Box<dyn Average>,
}

impl Group {
    fn has(&self, name: &str) -> bool {
        self.tensors.iter().any(|tensor| tensor.name() == name)
    }
}

impl Model {
    /// The strategy that suits a policy: all-reduce where all messages add; else all-gather among few ranks, whose
    /// `n − 1` messages each rank receives, and scatter-reduce among many, which takes two whatever their number.
    pub fn suitable(policy: &Policy, ranks: usize) -> Exchange {
        let later = policy.later.iter().map(|(_, spec)| spec);
        let rules = policy.rules.iter().map(|rule| &rule.spec);
        let mut all = std::iter::once(&policy.push).chain(later).chain(rules);
        match all.all(adds) {
            true => Exchange::AllReduce,
            false if ranks <= 8 => Exchange::AllGather,
            false => Exchange::ScatterReduce,
        }
    }
}

impl Reducer {
    /// An end without groups yet. Nothing is sent before the first is formed.
    ///
    /// # Errors
    /// `Config` if the configuration cannot work, with the reason and the remedy.
    pub fn new(transport: Box<dyn Transport>, model: Model) -> Result<Self, ExchangeError> {
        let by_groups = [Exchange::AllReduce, Exchange::AllGather, Exchange::ScatterReduce];
        if !by_groups.contains(&model.exchange) {
            return Err(ExchangeError::Config(format!(
                "groups of tensors are averaged by all-reduce, all-gather or scatter-reduce, not by '{}'",
                model.exchange
            )));
        }
        let names = model.tensors.iter().map(|tensor| tensor.name().to_owned());
        let buckets = Self {
            by_name: names.zip(0..).collect(),
            shares: Participation::equal(transport.size()),
            transport,
            model,
            groups: Vec::new(),
            loose: State::new(),
            step: None,
            skipping: false,
            touched: Vec::new(),
            report: StepReport::default(),
            message_bytes: 0,
            broken: None,
        };
        buckets.setup(&buckets.model.tensors).validate_group()?;
        Ok(buckets)
    }

    fn setup<'a>(&'a self, tensors: &'a [Tensor]) -> GroupConfig<'a> {
        GroupConfig {
            exchange: self.model.exchange,
            workers: self.transport.size(),
            policy: &self.model.policy,
            shares: &self.shares,
            tensors,
            seed: self.model.seed,
            initial: &[],
        }
    }

    /// The transport, for its rank and size.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// The tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.model.tensors
    }

    /// Makes a group of tensors, in the order in which their values will come, and says its number. Groups that had
    /// one of them are no more. All ranks form the same groups in the same order; they compare
    /// their configurations here.
    ///
    /// # Errors
    /// `Config` for a tensor that the model does not have, or where another rank was started with another
    /// configuration, naming both.
    pub fn form(&mut self, names: &[impl AsRef<str>]) -> Result<usize, ExchangeError> {
        self.alive()?;
        let formed = self.try_form(names);
        self.settle(formed)
    }

    fn try_form(&mut self, names: &[impl AsRef<str>]) -> Result<usize, ExchangeError> {
        let find = |name: &str| {
            let at = self.by_name.get(name).ok_or_else(|| {
                ExchangeError::Config(format!("there is no tensor '{name}' in this model"))
            })?;
            Ok(self.model.tensors[*at].clone())
        };
        let tensors = names.iter().map(|name| find(name.as_ref()));
        let tensors = tensors.collect::<Result<Vec<_>, ExchangeError>>()?;
        let setup = self.setup(&tensors);
        setup.validate_group()?;
        let description = format!("{}on NaN {:?}\n", setup.describe(), self.model.on_non_finite);
        let rank = self.transport.rank();
        let mut average: Box<dyn Average> = match setup.exchange {
            Exchange::AllReduce => Box::new(AllReduce::new(&setup, rank)),
            Exchange::AllGather => Box::new(AllGather::new(&setup, rank)),
            _ => Box::new(ScatterReduce::by_tensor(&setup, rank)),
        };
        agreement::on_configuration(&mut *self.transport, &description)?;
        self.dissolve(|group| tensors.iter().any(|tensor| group.has(tensor.name())));
        let named = |name: &str| tensors.iter().any(|tensor| tensor.name() == name);
        if self.loose.settings_under("push/spec/").next().is_some() {
            average.restore(&state_keys::of_tensors(self.loose.clone(), named))?;
            self.loose
                .retain_floats(|text| !Entry::read(text).is_some_and(|entry| named(entry.name)));
        }
        let ranges = ranges(&tensors);
        self.groups.push(Some(Group { tensors, ranges, average }));
        Ok(self.groups.len() - 1)
    }

    /// The number of the group of these tensors in this order, [formed](Self::form) if there is none yet.
    ///
    /// # Errors
    /// As for [`form`](Self::form).
    pub fn group_of(&mut self, names: &[impl AsRef<str>]) -> Result<usize, ExchangeError> {
        let is = |group: &Group| {
            group.tensors.len() == names.len()
                && group
                    .tensors
                    .iter()
                    .zip(names)
                    .all(|(tensor, name)| tensor.name() == name.as_ref())
        };
        match self.groups.iter().position(|group| group.as_ref().is_some_and(is)) {
            Some(at) => Ok(at),
            None => self.form(names),
        }
    }

    /// Takes groups apart and keeps what is kept for their tensors.
    fn dissolve(&mut self, which: impl Fn(&Group) -> bool) {
        for group in &mut self.groups {
            if let Some(old) = group.take_if(|group| which(group)) {
                let mut state = State::new();
                old.average.save(&mut state);
                self.loose.merge("", state);
            }
        }
    }

    /// Replaces a group's values, its tensors one behind the other, by their mean over all ranks: the same bits on
    /// every rank. All ranks average the same groups in the same order, with steps that increase.
    ///
    /// # Errors
    /// Any; the exchange has then ended, here and on the other ranks.
    pub fn average(
        &mut self,
        group: usize,
        step: u64,
        values: &mut [f32],
    ) -> Result<Outcome, ExchangeError> {
        self.alive()?;
        self.enter(step);
        let before = self.transport.traffic();
        let averaged = self.try_average(group, values);
        self.report.traffic += self.transport.traffic() - before;
        self.settle(averaged)
    }

    fn enter(&mut self, step: u64) {
        if self.step != Some(step) {
            self.step = Some(step);
            self.skipping = false;
            self.touched.clear();
            self.report = StepReport::default();
            self.message_bytes = 0;
        }
    }

    fn try_average(&mut self, at: usize, values: &mut [f32]) -> Result<Outcome, ExchangeError> {
        let step = self.step.unwrap_or_default();
        let Self { transport, groups, model, skipping, touched, report, .. } = self;
        let group = groups.get_mut(at).and_then(Option::as_mut).ok_or_else(|| {
            ExchangeError::Config(format!("there is no group {at}; its tensors were grouped anew"))
        })?;
        let elements = group.ranges.last().map_or(0, |range| range.end);
        if values.len() != elements {
            return Err(ExchangeError::Config(format!(
                "the tensors of group {at} have {elements} elements, and {} values came",
                values.len()
            )));
        }
        if model.on_non_finite == OnNonFinite::Skip {
            *skipping = *skipping || some_non_finite(&mut **transport, step, values)?;
            if *skipping {
                values.fill(f32::NAN);
                for at in touched.drain(..) {
                    if let Some(group) = &mut groups[at] {
                        group.average.rollback();
                    }
                }
                return Ok(Outcome::Skipped);
            }
            group.average.checkpoint();
            touched.push(at);
        }
        let round = Round { step, tensors: &group.tensors, ranges: &group.ranges };
        group.average.average(&mut **transport, round, values, report)?;
        let sent = (0..group.tensors.len()).map(|index| group.average.message_bytes(index));
        self.message_bytes += sent.sum::<usize>();
        Ok(Outcome::Averaged)
    }

    /// What the step in progress has cost so far. Nothing is written to `update`.
    pub fn report(&self) -> StepReport {
        self.report
    }

    /// The length of this rank's messages of the step in progress, counted once whoever they went to.
    pub fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// Which elements of a tensor this rank's last message carried, as [`DistributedOptimizer::sent`](crate::DistributedOptimizer::sent) has
    /// it.
    pub fn sent(&self, name: &str) -> Option<&[u32]> {
        let group = self.groups.iter().flatten().find(|group| group.has(name))?;
        let index = group.tensors.iter().position(|tensor| tensor.name() == name)?;
        group.average.sent(index)
    }

    /// Gives every rank the bytes of all, in rank order. All ranks call it at the same time.
    ///
    /// # Errors
    /// As for [`average`](Self::average).
    pub fn gather(&mut self, step: u64, own: Vec<u8>) -> Result<Vec<Vec<u8>>, ExchangeError> {
        self.alive()?;
        let before = self.transport.traffic();
        let mut all = vec![Vec::new(); self.transport.size()];
        all[self.transport.rank()] = own;
        let operation = Operation::whole(Phase::Broadcast, step);
        let gathered = self.transport.all_gather_v(operation, &mut all);
        self.report.traffic += self.transport.traffic() - before;
        self.settle(gathered.map(|()| all))
    }

    /// Waits until all that was sent has left, at the end of a step after which this rank may end.
    ///
    /// # Errors
    /// As for [`average`](Self::average).
    pub fn flush(&mut self) -> Result<(), ExchangeError> {
        self.alive()?;
        let flushed = self.transport.flush();
        self.settle(flushed)
    }

    /// Tells the other ranks that this one goes on no further.
    pub fn abort(&mut self) {
        let rank = self.transport.rank();
        self.transport.abort(rank);
        self.broken.get_or_insert_with(|| "it was told to stop".to_owned());
    }

    fn alive(&self) -> Result<(), ExchangeError> {
        let ended =
            |why: &String| Err(ExchangeError::Config(format!("the exchange has ended: {why}")));
        self.broken.as_ref().map_or(Ok(()), ended)
    }

    /// Passes a result on; after an error the exchange has ended on all ranks.
    fn settle<R>(&mut self, result: Result<R, ExchangeError>) -> Result<R, ExchangeError> {
        if let Err(error) = &result {
            self.broken = Some(error.to_string());
        }
        or_abort(&mut *self.transport, result)
    }
}

/// Whether some rank has a value that is not finite.
fn some_non_finite(
    transport: &mut dyn Transport,
    step: u64,
    values: &[f32],
) -> Result<bool, ExchangeError> {
    let finite = values.iter().fold(true, |finite, value| finite & value.is_finite());
    let mut flags = vec![Vec::new(); transport.size()];
    flags[transport.rank()].push(u8::from(!finite));
    transport.all_gather_v(Operation::whole(Phase::Check, step), &mut flags)?;
    Ok(flags.iter().any(|flag| flag.as_slice() != [0]))
}
