//! The compressor of each tensor.

use std::collections::BTreeSet;

use gradwire::{Spec, Tensor};

use crate::error::refuse;
use crate::{Result, Rule, Schedule, rule};

/// The compressors of a run, and the tensors that are sent uncompressed.
///
/// Vectors (biases, the scales of normalization layers) and small tensors do not gain from
/// compression but suffer from it; they are sent with `none`.
///
/// A [part](Tensor::part) of a tensor is sent as the whole tensor would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Compresses gradients.
    pub push: Schedule,
    /// Compresses the model deltas of a parameter server; `None`: the compressors of gradients.
    /// Votes cannot carry model deltas.
    pub pull: Option<Spec>,
    /// Compressors of certain tensors. The first rule that matches a tensor decides how its
    /// gradients are sent; it precedes all other fields. If `pull` is set, it compresses the model
    /// deltas of all tensors whose gradients are compressed, also of those with a rule.
    pub rules: Vec<Rule>,
    /// Whether tensors of one dimension or none are sent uncompressed.
    pub raw_vectors: bool,
    /// Tensors with fewer elements are sent uncompressed.
    pub raw_below: usize,
    /// Tensors whose name contains one of these words are sent uncompressed.
    pub raw_names: Vec<String>,
}

impl Policy {
    /// Elements below which a tensor is sent uncompressed, unless a policy says otherwise.
    pub const RAW_BELOW: usize = 256;

    /// Compresses all matrices and kernels of [`RAW_BELOW`](Self::RAW_BELOW) elements or more. If
    /// `push` begins with a vote, pulls are compressed with `efsignsgd`: it also takes one bit per
    /// element, and it has error feedback.
    pub fn new(push: impl Into<Schedule>) -> Self {
        let push = push.into();
        let votes = push.first.compressor().votes();
        Self {
            push,
            pull: votes.then(Spec::scaled_signs),
            rules: Vec::new(),
            raw_vectors: true,
            raw_below: Self::RAW_BELOW,
            raw_names: Vec::new(),
        }
    }

    /// The same policy without error feedback, for values that are sent whole each time.
    pub fn without_memory(mut self) -> Self {
        let first = std::iter::once(&mut self.push.first);
        let later = self.push.later.iter_mut().map(|(_, spec)| spec);
        for spec in first.chain(later).chain(self.rules.iter_mut().map(|rule| &mut rule.spec)) {
            *spec = spec.clone().with_feedback(None);
        }
        self
    }

    /// Refuses rules and names that fit no tensor: they may be misspelt.
    ///
    /// # Errors
    /// `Config`, with the names nearest to them.
    pub(crate) fn check(&self, tensors: &[Tensor]) -> Result<()> {
        rule::check(&self.rules, tensors)?;
        for word in &self.raw_names {
            if word.is_empty() {
                return refuse("raw_names has an empty word, which every name contains; remove it");
            }
            let names = || tensors.iter().map(|tensor| tensor.whole().name());
            if names().any(|name| name.contains(word)) {
                continue;
            }
            let parts = names().flat_map(|name| name.split('.'));
            let near = gradwire::suggestion(word, parts.collect::<BTreeSet<_>>());
            let example = names().next().unwrap_or_default();
            return refuse(format!(
                "no tensor's name contains '{word}', a word of raw_names{near}; names look like '{example}'"
            ));
        }
        Ok(())
    }

    /// Whether a tensor is sent uncompressed.
    pub fn is_raw(&self, tensor: &Tensor) -> bool {
        match self.rule_of(tensor) {
            Some(rule) => rule.spec.entry().is_identity(),
            None => self.bypasses(tensor),
        }
    }

    /// The compressors of a tensor's gradients.
    pub fn push_of(&self, tensor: &Tensor) -> Schedule {
        match self.rule_of(tensor) {
            Some(rule) => rule.spec.clone().into(),
            None if self.bypasses(tensor) => Spec::none().into(),
            None => self.push.clone(),
        }
    }

    /// The compressors of a tensor's changes on their way back from a parameter server.
    pub fn pull_of(&self, tensor: &Tensor) -> Schedule {
        match &self.pull {
            // A tensor that is pushed uncompressed is pulled uncompressed.
            Some(_) if self.is_raw(tensor) => Spec::none().into(),
            Some(pull) => pull.clone().into(),
            None => self.push_of(tensor),
        }
    }

    /// All compressors of gradients: of every stage, and of the rules.
    pub fn pushes(&self) -> impl Iterator<Item = &Spec> {
        self.push.specs().chain(self.rules.iter().map(|rule| &rule.spec))
    }

    /// The compressor of model deltas.
    pub fn pull(&self) -> &Spec {
        self.pull.as_ref().unwrap_or(&self.push.first)
    }

    /// The same policy with the compressors of the steps from `from` on and below `until`.
    pub(crate) fn between(&self, from: u64, until: u64) -> Self {
        Self { push: self.push.between(from, until), ..self.clone() }
    }

    fn rule_of(&self, tensor: &Tensor) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.is_for(tensor.whole()))
    }

    fn bypasses(&self, tensor: &Tensor) -> bool {
        let tensor = tensor.whole();
        let named = |word: &String| tensor.name().contains(word);
        self.raw_vectors && tensor.shape().len() < 2
            || tensor.elements() < self.raw_below
            || self.raw_names.iter().any(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy::new(text.parse::<Spec>().unwrap())
    }

    #[test]
    fn vectors_small_tensors_and_named_ones_are_raw() {
        let mut policy = policy("3lc");
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
        assert_eq!(policy.push_of(&Tensor::new("fc.bias", &[4096])).first.to_string(), "fp16");
    }

    #[test]
    fn parts_are_sent_as_their_tensor() {
        let mut policy = policy("3lc");
        policy.rules =
            ["fc.weight -> topk", ">=1000 -> sbc"].map(|rule| rule.parse().unwrap()).to_vec();
        policy.raw_names = vec!["norm".to_owned()];
        let cut = |name: &str, shape: &[usize]| Tensor::new(name, shape).part(0, &[1]);
        let sent = |tensor: &Tensor| policy.push_of(tensor).first.to_string();
        let few = cut("other", &[30, 10]);
        assert!(few.elements() < policy.raw_below && sent(&few) == "3lc");
        assert_eq!(sent(&cut("fc.weight", &[16, 16])), "topk");
        assert!(sent(&cut("large", &[1000, 10])).starts_with("sbc"));
        assert!(
            policy.is_raw(&cut("norm1.scale", &[30, 30])) && policy.is_raw(&cut("small", &[9, 9]))
        );
        policy.check(&[few, cut("fc.weight", &[16, 16]), cut("norm", &[4])]).unwrap();
    }

    #[test]
    fn words_that_no_name_contains_are_refused() {
        let tensors = ["fc.weight", "fc.bias"].map(|name| Tensor::new(name, &[2, 2]));
        let refusal = |word: &str| {
            let mut policy = policy("3lc");
            policy.raw_names = vec!["bias".to_owned(), word.to_owned()];
            policy.check(&tensors).err().map(|error| error.to_string())
        };
        assert_eq!(refusal("fc.w"), None);
        let error = refusal("bais").unwrap();
        assert!(error.contains("'bais'") && error.contains("did you mean 'bias'"), "{error}");
        assert!(refusal("").unwrap().contains("empty"));
    }

    #[test]
    fn the_first_rule_that_fits_comes_before_all_else() {
        let mut policy = policy("3lc");
        policy.rules = ["*.bias -> fp16", "fc.* -> none", "* -> topk"]
            .map(|rule| rule.parse().unwrap())
            .to_vec();
        let names = ["fc.bias", "fc.weight", "conv"];
        let pushes = names.map(|name| policy.push_of(&Tensor::new(name, &[10])).first.to_string());
        assert_eq!(pushes, ["fp16", "none", "topk"]);
        policy.pull = Some("sbc".parse().unwrap());
        let pulls = names.map(|name| policy.pull_of(&Tensor::new(name, &[10])).first.to_string());
        assert_eq!(pulls, ["sbc", "none", "sbc"]);
        let raw = |name: &str| policy.is_raw(&Tensor::new(name, &[10]));
        assert_eq!(names.map(raw), [false, true, false]);
    }
}
