//! The configuration that all ranks of a run must agree on.

use std::collections::HashSet;

use gradwire::{Dtype, Spec, Tensor, registry};

use crate::error::refuse;
use crate::{Exchange, ExchangeError, Participation, Policy, Result, Rule, Synchronization};

/// The configuration that all ranks share, servers included.
#[derive(Debug, Clone, Copy)]
pub struct GroupConfig<'a> {
    /// How the ranks exchange.
    pub exchange: Exchange,
    /// Which compressor each tensor is sent with.
    pub policy: &'a Policy,
    /// The workers: which of them take part in each step, and the weight of each in the mean.
    pub participation: &'a Participation,
    /// The tensors of the model; names are unique.
    pub tensors: &'a [Tensor],
    /// The run's seed.
    pub seed: u64,
    /// The parameters every rank starts from, one flat tensor each.
    pub initial: &'a [Vec<f32>],
}

impl GroupConfig<'_> {
    /// The number of ranks that compute gradients; servers are additional ranks.
    pub fn workers(&self) -> usize {
        self.participation.workers()
    }

    /// Refuses a configuration that cannot work, before any rank starts.
    ///
    /// # Errors
    /// `Config`, with the reason and the remedy.
    pub fn validate(&self) -> Result<()> {
        if self.workers() == 0 {
            return refuse("there are no workers; give at least 1");
        }
        if self.exchange.facts().is_sharded {
            return refuse(format!(
                "'{}' is for ranks with shards of a model, but these ranks have replicas; use scatter-reduce",
                self.exchange
            ));
        }
        self.validate_initial()?;
        self.policy.check(self.tensors)?;
        self.validate_group()
    }

    /// As [`validate`](Self::validate), without the number of workers and the initial parameters.
    pub(crate) fn validate_group(&self) -> Result<()> {
        self.validate_names()?;
        self.validate_schedule()?;
        self.validate_changes()?;
        match self.exchange {
            Exchange::AllReduce => self.validate_linear(),
            Exchange::AllGather => Ok(()),
            Exchange::ScatterReduce | Exchange::ReduceScatter => self.validate_slices(),
            Exchange::GatherShards => {
                self.validate_whole()?;
                self.validate_slices()
            }
            Exchange::SparseAllReduce => self.validate_sparse(),
            Exchange::Hierarchical { node: 0 } => {
                refuse("a node has at least one rank; give node=1 or more")
            }
            Exchange::Hierarchical { .. } => Ok(()),
            Exchange::ParameterServer { servers, backups, synchronization } => {
                self.validate_servers(servers, backups)?;
                self.validate_synchronization(synchronization, backups)
            }
        }
    }

    fn validate_names(&self) -> Result<()> {
        let mut names = HashSet::new();
        if let Some(twice) = self.tensors.iter().find(|tensor| !names.insert(tensor.name())) {
            return refuse(format!(
                "two tensors have the name '{}'; state is kept by name, so give each tensor its own name",
                twice.name()
            ));
        }
        Ok(())
    }

    fn validate_initial(&self) -> Result<()> {
        if self.initial.len() != self.tensors.len() {
            return refuse(format!(
                "there are {} tensors, but initial parameters for {}; give one flat buffer per tensor",
                self.tensors.len(),
                self.initial.len()
            ));
        }
        check_lengths(self.tensors, self.initial)
    }

    /// Rules have no local steps. Each later compressor of the schedule is the previous one with
    /// other parameters, so it can use the residuals; or it follows a compressor without state.
    pub(crate) fn validate_schedule(&self) -> Result<()> {
        if let Some(rule) = self.policy.rules.iter().find(|rule| rule.spec.every() > 1) {
            return refuse(format!(
                "rule '{rule}': local steps apply to the whole model; remove every= from the rule"
            ));
        }
        let (mut before, mut begun) = (&self.policy.push.first, 0);
        for (from, spec) in &self.policy.push.later {
            if *from <= begun {
                return refuse(format!(
                    "'{spec}' begins at step {from}, but is listed after a stage that begins at \
                     step {begun}; list stages in the order of their steps"
                ));
            }
            if !spec.can_follow(before) {
                return refuse(format!(
                    "'{spec}' cannot follow '{before}': only the same compressor with the same \
                     memory can continue with its residuals; use the same compressor throughout"
                ));
            }
            (before, begun) = (spec, *from);
        }
        Ok(())
    }

    /// The sum of changes is the mean of the ranks' estimates only if every change of every rank is
    /// in it.
    fn validate_changes(&self) -> Result<()> {
        let Some(spec) = self.policy.pushes().find(|spec| spec.sends_changes()) else {
            return Ok(());
        };
        if self.exchange.facts().is_sharded {
            return refuse(format!(
                "'{spec}' has ef=ef21, which needs the whole model on every rank, but with '{}' \
                 ranks have shards; use ef=on",
                self.exchange
            ));
        }
        let alone = match self.exchange {
            Exchange::ParameterServer { backups, synchronization, .. } => {
                backups > 0 || synchronization != Synchronization::Synchronous
            }
            _ => false,
        };
        let narrow = |spec: &&Spec| spec.sends_changes() && is_narrow(spec);
        if let (Exchange::AllReduce, Some(spec)) =
            (self.exchange, self.policy.pushes().find(narrow))
        {
            return refuse(format!(
                "all-reduce rounds sums of 16-bit numbers, and with '{spec}' the rounding errors \
                 would add up; use all-gather, or ef=on"
            ));
        }
        if self.participation.plain() && !alone {
            return Ok(());
        }
        refuse(format!(
            "'{spec}' sends changes of an estimate, so the changes of all ranks must arrive at \
             every step, with equal weights; use ef=on, or shards of equal size, full \
             participation, no dropout, and no backup or asynchronous workers"
        ))
    }

    fn validate_linear(&self) -> Result<()> {
        if !self.participation.everyone() {
            return refuse(
                "all-reduce needs every rank in every round; if only some take part, use \
                 all-gather, scatter-reduce or server",
            );
        }
        let integers = |spec: &&Spec| spec.properties().needs_equal_weights;
        if let (false, Some(spec)) =
            (self.participation.plain(), self.policy.pushes().find(integers))
        {
            return refuse(format!(
                "with '{spec}' all-reduce adds integers, which needs equal weights, but the workers' shards have \
                 different sizes; give shards of equal size, or use all-gather"
            ));
        }
        let Some(spec) = self.policy.pushes().find(|spec| !adds(spec)) else {
            return Ok(());
        };
        if spec.compressor().adds() {
            return refuse(format!(
                "all-reduce adds messages on their way, but messages of '{spec}' do not add with this memory; leave \
                 out momentum and ef=ef21, or use all-gather or scatter-reduce"
            ));
        }
        let linear: Vec<_> = registry::all()
            .filter(|entry| entry.compressor().adds())
            .map(|entry| entry.id)
            .collect();
        refuse(format!(
            "all-reduce adds messages on their way, but messages of '{spec}' do not add; use {}, or a compressor whose \
             messages add: {}",
            self.working(&[Exchange::AllGather, Exchange::ScatterReduce]),
            linear.join(", ")
        ))
    }

    /// The exchanges among these that work with this configuration, in words.
    fn working(&self, exchanges: &[Exchange]) -> String {
        let works = |exchange: &Exchange| {
            GroupConfig { exchange: *exchange, ..*self }.validate_group().is_ok()
        };
        let names: Vec<_> =
            exchanges.iter().copied().filter(works).map(|one| one.to_string()).collect();
        match names.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => "another compressor".to_owned(),
        }
    }

    /// [`DistributedOptimizer::sent`](crate::DistributedOptimizer::sent) gives positions in the
    /// whole tensor as `u32`.
    fn validate_slices(&self) -> Result<()> {
        let most = u32::MAX as usize;
        let large = self.tensors.iter().find(|tensor| tensor.elements() > most);
        large.map_or(Ok(()), |tensor| {
            refuse(format!(
                "tensor '{}' has {} elements, but {} takes at most {most}; split the tensor, or use all-gather",
                tensor.name(),
                tensor.elements(),
                self.exchange,
            ))
        })
    }

    /// Parameters are sent whole each time.
    fn validate_whole(&self) -> Result<()> {
        let Some(spec) = self.policy.pushes().find(|spec| spec.feedback().is_some()) else {
            return Ok(());
        };
        refuse(format!(
            "'{spec}' adds the error of a message to the next message, but gather-shards sends \
             whole parameters each time; use ef=off"
        ))
    }

    /// Sums of sparse messages are sent with their positions.
    fn validate_sparse(&self) -> Result<()> {
        if let Some(spec) = self.policy.pushes().find(|s| s.compressor().accumulator().is_some()) {
            let others = [Exchange::AllGather, Exchange::ScatterReduce, Exchange::default()];
            return refuse(format!(
                "sparse-all-reduce adds elements, but an element of '{spec}' is the mean over the \
                 ranks that sent it; use {}",
                self.working(&others)
            ));
        }
        // A rule may leave some tensors uncompressed.
        let serves = |spec: &&Spec| spec.entry().sparse || spec.entry().is_identity();
        let main = std::iter::once(&self.policy.push.first).find(|spec| !spec.entry().sparse);
        let Some(spec) = main.or_else(|| self.policy.pushes().find(|spec| !serves(spec))) else {
            return Ok(());
        };
        let sparse: Vec<_> =
            registry::all().filter(|entry| entry.sparse).map(|entry| entry.id).collect();
        let others = [
            Exchange::AllReduce,
            Exchange::AllGather,
            Exchange::ScatterReduce,
            Exchange::default(),
        ];
        refuse(format!(
            "sparse-all-reduce needs messages with few elements, but messages of '{spec}' carry all; use {}, or a sparse \
             compressor: {}",
            self.working(&others),
            sparse.join(", ")
        ))
    }

    fn validate_servers(&self, servers: usize, backups: usize) -> Result<()> {
        if servers == 0 {
            return refuse("there are no servers; give servers=1 or more");
        }
        // If pulls have no compressor, they use the compressors of the pushes.
        let follow = self.policy.pushes().filter(|_| self.policy.pull.is_none());
        let mut pulls = std::iter::once(self.policy.pull()).chain(follow);
        if let Some(spec) = pulls.find(|spec| spec.compressor().votes()) {
            return refuse(format!(
                "servers send changes of the model, but the votes of '{spec}' have no size; give \
                 pulls another compressor, such as efsignsgd, or use all-gather or \
                 scatter-reduce"
            ));
        }
        if servers > self.tensors.len() {
            let tensors = self.tensors.len();
            return refuse(format!(
                "{servers} servers cannot share {tensors} tensors, because each server holds at \
                 least one; give at most servers={tensors}"
            ));
        }
        if backups >= self.workers() {
            return refuse(format!(
                "with {backups} backup workers of {} workers, no worker is left to wait for; give at most backup={}",
                self.workers(),
                self.workers() - 1
            ));
        }
        if backups > 0 && !self.participation.everyone() {
            return refuse(
                "backup workers need every worker in every round; if only some take part, give backup=0",
            );
        }
        Ok(())
    }

    /// An asynchronous server applies every push alone.
    fn validate_synchronization(
        &self,
        synchronization: Synchronization,
        backups: usize,
    ) -> Result<()> {
        if synchronization == Synchronization::Synchronous {
            return Ok(());
        }
        if backups > 0 || !self.participation.everyone() {
            return refuse(
                "an asynchronous server needs every worker in every round and no backup workers; give backup=0 and full \
                 participation, or leave out mode and stale",
            );
        }
        if let Some(spec) = self.policy.pushes().find(|s| s.compressor().accumulator().is_some()) {
            return refuse(format!(
                "an element of '{spec}' is the mean over the workers that sent it, but an \
                 asynchronous server applies each push separately; leave out mode and stale"
            ));
        }
        let vote = self.policy.pushes().find(|spec| spec.compressor().votes());
        vote.map_or(Ok(()), |spec| {
            refuse(format!(
                "the votes of '{spec}' are counted together, but an asynchronous server applies each push separately; \
                 leave out mode and stale, or use another compressor, such as efsignsgd"
            ))
        })
    }

    /// Everything that must be equal on all ranks, one fact per line.
    pub(crate) fn describe(&self) -> String {
        let policy = self.policy;
        let later = policy.push.later.iter().map(|(from, spec)| format!("{spec} from {from}"));
        let mut text = format!(
            "gradwire-exchange {}\nexchange {}\nworkers {}\nshares {:?}\nseed {}\ncompressor {}\nlater {:?}\npull \
             compressor {:?}\nrules {:?}\nraw vectors {}\nraw below {}\nraw names {:?}\n",
            env!("CARGO_PKG_VERSION"),
            self.exchange,
            self.workers(),
            self.participation,
            self.seed,
            policy.push.first,
            later.collect::<Vec<_>>(),
            policy.pull.as_ref().map(Spec::to_string),
            policy.rules.iter().map(Rule::to_string).collect::<Vec<_>>(),
            policy.raw_vectors,
            policy.raw_below,
            policy.raw_names,
        );
        for tensor in self.tensors {
            text += &format!("tensor '{}' {:?}\n", tensor.name(), tensor.shape());
        }
        text
    }
}

/// Whether all-reduce can average a compressor's messages: they can be added, or are made in rounds
/// of all-reduce.
pub(crate) fn adds(spec: &Spec) -> bool {
    let compressor = spec.compressor();
    // A compressor's own memory does not support rounds.
    let own = spec.own_memory(false);
    let adds_up = compressor.linear().is_some() && !(spec.sends_changes() && is_narrow(spec));
    adds_up || compressor.rounds().is_some() && own.is_none()
}

/// Whether messages are 16-bit numbers, whose sums are rounded.
fn is_narrow(spec: &Spec) -> bool {
    spec.compressor().linear().is_some_and(|dtype| dtype != Dtype::F32)
}

/// Refuses buffers whose number or lengths do not match the tensors.
pub(crate) fn check_lengths(tensors: &[Tensor], buffers: &[Vec<f32>]) -> Result<()> {
    if tensors.len() != buffers.len() {
        return refuse(format!(
            "there are {} buffers for {} tensors; give one buffer per tensor",
            buffers.len(),
            tensors.len()
        ));
    }
    for (tensor, buffer) in tensors.iter().zip(buffers) {
        if tensor.elements() != buffer.len() {
            return Err(ExchangeError::Codec(gradwire::Error::WrongLength {
                tensor: tensor.name().to_owned(),
                expected: tensor.elements(),
                found: buffer.len(),
            }));
        }
    }
    Ok(())
}
