//! Which tensors travel compressed, and how.

use gradwire::{Aggregation, Spec, Tensor};

use crate::Rule;

/// The compressors of a run, and the tensors that bypass them.
///
/// Vectors (biases, the scales of normalisation layers) and small tensors gain nothing from compression
/// and suffer from it; they travel as `none`.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Compresses gradients.
    pub push: Spec,
    /// Compresses them from some step on: the same compressor with other parameters, ascending.
    pub later: Vec<(u64, Spec)>,
    /// Compresses the model deltas of a parameter server; `None`: like gradients. Votes carry no changes of a
    /// model.
    pub pull: Option<Spec>,
    /// Compressors of certain tensors in place of these; the first rule that is for a tensor counts, before what
    /// follows.
    pub rules: Vec<Rule>,
    /// Whether tensors of one dimension or none travel uncompressed.
    pub raw_vectors: bool,
    /// Tensors with fewer elements travel uncompressed.
    pub raw_below: usize,
    /// Tensors whose name contains one of these words travel uncompressed.
    pub raw_names: Vec<String>,
}

/// The compressor a tensor travels by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// None.
    Raw,
    /// That of gradients, and its like on the way back.
    Push,
    /// That of a rule.
    Rule(usize),
}

impl Policy {
    /// Elements below which a tensor travels uncompressed, unless a policy says otherwise.
    pub const RAW_BELOW: usize = 256;

    /// One compressor for all matrices and kernels of [`RAW_BELOW`](Self::RAW_BELOW) elements or more; for the pulls
    /// of a vote `efsignsgd`, which takes a bit an element too and keeps what signs leave out.
    pub fn new(spec: &Spec) -> Self {
        let votes = spec.entry().aggregation() == Aggregation::Vote;
        Self {
            push: spec.clone(),
            later: Vec::new(),
            pull: votes.then(Spec::scaled_signs),
            rules: Vec::new(),
            raw_vectors: true,
            raw_below: Self::RAW_BELOW,
            raw_names: Vec::new(),
        }
    }

    /// Whether a tensor bypasses compression.
    pub fn is_raw(&self, tensor: &Tensor) -> bool {
        match self.route(tensor) {
            Route::Raw => true,
            Route::Push => false,
            Route::Rule(at) => self.rules[at].spec.entry().is_identity(),
        }
    }

    /// Which compressor a tensor travels by.
    pub(crate) fn route(&self, tensor: &Tensor) -> Route {
        if let Some(at) = self.rules.iter().position(|rule| rule.is_for(tensor)) {
            return Route::Rule(at);
        }
        let named = |word: &String| tensor.name().contains(word.as_str());
        let raw = self.raw_vectors && tensor.shape().len() < 2
            || tensor.elements() < self.raw_below
            || self.raw_names.iter().any(named);
        if raw { Route::Raw } else { Route::Push }
    }

    /// Whether a tensor's compressor plays [rounds](gradwire::Rounds).
    pub(crate) fn plays_rounds(&self, tensor: &Tensor) -> bool {
        let plays = |spec: &Spec| spec.compressor().rounds().is_some();
        match self.route(tensor) {
            Route::Raw => false,
            Route::Push => plays(&self.push) || self.later.iter().any(|(_, spec)| plays(spec)),
            Route::Rule(at) => plays(&self.rules[at].spec),
        }
    }

    /// The compressor of gradients at a step.
    pub fn push_at(&self, step: u64) -> &Spec {
        let later = self.later.iter().rev().find(|(from, _)| *from <= step);
        later.map_or(&self.push, |(_, spec)| spec)
    }

    /// The compressor of model deltas.
    pub fn pull(&self) -> &Spec {
        self.pull.as_ref().unwrap_or(&self.push)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressors_take_over_at_their_steps() {
        let spec = |text: &str| text.parse::<Spec>().unwrap();
        let mut policy = Policy::new(&spec("topk"));
        policy.later = vec![(10, spec("topk:ratio=0.1")), (20, spec("topk:ratio=0.2"))];
        let at = |step| policy.push_at(step).to_string();
        assert_eq!([at(0), at(9)], ["topk", "topk"]);
        assert_eq!(
            [at(10), at(19), at(20)],
            ["topk:ratio=0.1", "topk:ratio=0.1", "topk:ratio=0.2"]
        );
    }

    #[test]
    fn vectors_small_tensors_and_named_ones_are_raw() {
        let mut policy = Policy::new(&"3lc".parse().unwrap());
        policy.raw_names = vec!["norm".to_owned()];
        let raw =
            |policy: &Policy, name: &str, shape: &[usize]| policy.is_raw(&Tensor::new(name, shape));
        assert!(raw(&policy, "fc.bias", &[4096]) && raw(&policy, "scale", &[]));
        assert!(raw(&policy, "fc.weight", &[15, 17]));
        assert!(!raw(&policy, "fc.weight", &[16, 16]));
        assert!(raw(&policy, "norm1.scale", &[32, 32]));
        assert!(raw(&policy, "empty", &[0, 5]));
        policy.raw_vectors = false;
        assert!(raw(&policy, "fc.bias", &[255]) && !raw(&policy, "fc.bias", &[256]));
        // A rule comes first.
        policy.raw_vectors = true;
        policy.rules = vec!["vectors -> fp16".parse().unwrap()];
        assert_eq!(policy.route(&Tensor::new("fc.bias", &[4096])), Route::Rule(0));
    }

    #[test]
    fn the_first_rule_that_fits_comes_before_all_else() {
        let mut policy = Policy::new(&"3lc".parse().unwrap());
        policy.rules = ["*.bias -> fp16", "fc.* -> none", "* -> topk"]
            .map(|rule| rule.parse().unwrap())
            .to_vec();
        let route = |name: &str| policy.route(&Tensor::new(name, &[10]));
        assert_eq!(route("fc.bias"), Route::Rule(0));
        assert_eq!(route("fc.weight"), Route::Rule(1));
        assert_eq!(route("conv"), Route::Rule(2));
        let raw = |name: &str| policy.is_raw(&Tensor::new(name, &[10]));
        assert_eq!([raw("fc.bias"), raw("fc.weight"), raw("conv")], [false, true, false]);
    }
}
