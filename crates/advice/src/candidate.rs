//! Candidates: a compressor, an exchange and rules.

use std::fmt;

use gradwire::Spec;
use gradwire_exchange::{Exchange, Policy, ReducerConfig, Rule};

/// A compressor with its exchange.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// The compressor. With `every` above 1 it sends the sum of that number of local steps.
    pub spec: Spec,
    /// The exchange; `None` chooses one for the compressor and the number of ranks.
    pub exchange: Option<Exchange>,
    /// Compressors of certain tensors.
    pub rules: Vec<Rule>,
}

/// Families of optimizers, which respond to compressed gradients differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OptimizerFamily {
    /// SGD, with or without momentum.
    Sgd,
    /// Adam and others that divide by a running mean of squares.
    #[default]
    Adaptive,
}

impl OptimizerFamily {
    /// The family of an optimizer by its name: SGD for names with `SGD`, `momentum` or `Nesterov`,
    /// otherwise adaptive.
    pub fn of_name(name: &str) -> Self {
        let name = name.to_lowercase();
        let plain = ["sgd", "momentum", "nesterov"].iter().any(|word| name.contains(word));
        if plain { Self::Sgd } else { Self::Adaptive }
    }
}

/// The error after feedback above which residuals are large.
const LARGE_ERROR: f64 = 0.1;

impl Candidate {
    /// A compressor with the exchange that suits it.
    pub fn new(spec: Spec) -> Self {
        Self { spec, exchange: None, rules: Vec::new() }
    }

    /// The default candidates: baselines, quantizers, sparse and low-rank methods, and local steps.
    pub fn defaults() -> Vec<Self> {
        const SPECS: [&str; 15] = [
            "none",
            "lossless",
            "fp16",
            "int8",
            "int4:hadamard=on,ef=off",
            "terngrad",
            "eden",
            "3lc",
            "topk:ratio=0.01",
            "sbc:p=0.01",
            "powersgd:rank=4",
            "none:every=10",
            "eden:every=10",
            "eden:every=25",
            "eden:every=50",
        ];
        SPECS.iter().map(|spec| Self::new(spec.parse().expect("it is in the registry"))).collect()
    }

    /// Whether it takes local steps, so training itself changes.
    pub fn is_local(&self) -> bool {
        self.spec.every() > 1
    }

    /// The compressors of all tensors, exchanged at every step.
    pub(crate) fn policy(&self) -> Policy {
        let mut policy = Policy::new(self.spec.clone().with_every(1));
        policy.rules.clone_from(&self.rules);
        policy
    }

    /// The exchange between this number of ranks.
    pub fn exchange(&self, ranks: usize) -> Exchange {
        self.exchange.unwrap_or_else(|| ReducerConfig::suitable(&self.policy(), ranks))
    }

    /// Why the trained model may suffer, from gradwire's measurements; `None` if they give no
    /// reason. `error` is the relative error that remained after error feedback in the trial.
    pub fn doubt(&self, optimizer: OptimizerFamily, error: f64) -> Option<&'static str> {
        let remembers = self.spec.feedback().is_some() || self.spec.own_memory(false).is_some();
        if self.is_local() {
            return Some(
                "local steps change training: with LocalSteps and an outer Nesterov step (0.7, momentum 0.5), the loss \
                 of a small GPT was higher by 0.01 (10 steps) to 0.04 (50 steps); tune the learning rate again",
            );
        }
        if self.spec.compressor().votes() {
            return Some("votes have no size: they need a learning rate of their own");
        }
        if optimizer == OptimizerFamily::Adaptive && remembers && error > LARGE_ERROR {
            return Some(
                "late residuals disturb Adam's second moments: the loss of a small GPT was higher \
                 by 0.14 with 3lc and by 0.17 with powersgd (of updates); warm up with 'none \
                 until 0.1 then …', or use a compressor without error feedback",
            );
        }
        (!remembers && error > 1.0).then_some(
            "its errors are larger than the gradients and nothing corrects them; compare with none first",
        )
    }
}

impl fmt::Display for Candidate {
    /// The spec, and the exchange and rules if they are given.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.spec)?;
        if let Some(exchange) = self.exchange {
            write!(out, " by {exchange}")?;
        }
        self.rules.iter().try_for_each(|rule| write!(out, ", {rule}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubts(spec: &str, optimizer: &str, error: f64) -> bool {
        let candidate = Candidate::new(spec.parse().unwrap());
        candidate.doubt(OptimizerFamily::of_name(optimizer), error).is_some()
    }

    #[test]
    fn residuals_ahead_of_adam_are_doubted_and_those_ahead_of_momentum_are_not() {
        assert!(doubts("3lc", "AdamW", 0.8) && !doubts("3lc", "SGD", 0.8));
        assert!(doubts("topk", "RMSprop", 0.9) && !doubts("eden", "Adam", 0.3));
        // int8 has error feedback, but little to correct.
        assert!(!doubts("int8", "Adam", 0.01));
        assert!(doubts("signsgd", "SGD", 0.5) && doubts("none:every=10", "SGD", 0.0));
        assert!(doubts("randomk:ef=off", "SGD", 9.0));
    }

    #[test]
    fn defaults_begin_with_the_baseline_and_have_an_exchange() {
        let defaults = Candidate::defaults();
        assert_eq!(defaults[0], Candidate::new(Spec::none()));
        assert_eq!(defaults[0].exchange(4), Exchange::AllReduce);
        assert_eq!(Candidate::new("3lc".parse().unwrap()).exchange(4), Exchange::AllGather);
        assert_eq!(Candidate::new("3lc".parse().unwrap()).exchange(9), Exchange::ScatterReduce);
    }
}
