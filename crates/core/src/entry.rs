//! What a compressor declares of itself for lists, spec strings and exchanges.

use std::sync::Arc;

use crate::Compressor;
use crate::parameters::{Param, Value};

/// How a method saves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Every element at full or half precision.
    Baseline,
    /// Every element, in fewer bits.
    Quantization,
    /// Few elements, at full precision.
    Sparsification,
    /// Few elements, in few bits.
    Hybrid,
    /// A product of thin matrices.
    LowRank,
}

/// How the messages of several ranks become one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregation {
    /// Messages add: the sum of messages decodes to the sum of tensors, so all-reduce serves.
    Linear,
    /// All ranks carry the method out together, in rounds of all-reduce; elsewhere messages are gathered.
    Rounds,
    /// Messages are gathered and decoded one by one, then averaged, or combined as the method says.
    Gather,
    /// Messages are votes; the majority decides.
    Vote,
}

/// What a compressor promises beyond the laws that hold for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantees {
    /// With the default parameters, the expectation of the decoded tensor is what was encoded.
    pub unbiased: bool,
    /// Decoding gives back every bit of an `f32` input.
    pub lossless: bool,
}

/// A compressor's declaration. The [registry](crate::registry) is a table of them.
#[derive(Debug)]
pub struct Entry {
    /// The name in spec strings.
    pub id: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// What an element decodes to, in a line: c is the corrected tensor of d elements, u a uniform number in
    /// \[0, 1), and \[…\] is 1 where true, else 0.
    pub formula: &'static str,
    /// How it saves bytes.
    pub family: Family,
    /// Whether messages carry few of the elements, and nothing of the others.
    pub sparse: bool,
    /// Whether error feedback is on unless the spec says otherwise.
    pub error_feedback: bool,
    /// Its parameters, in the order they are printed.
    pub parameters: &'static [Param],
    /// Configurations beside the default that take other paths through the code, each as a spec string has it behind
    /// the colon. [Laws](crate::laws), golden files and fuzzing cover them. Inputs of the fuzzer choose one by its
    /// place, so new ones come last.
    pub examples: &'static [&'static str],
    /// The paper that defines it.
    pub reference: &'static str,
    /// The message in a line.
    pub payload: &'static str,
    /// What it promises.
    pub guarantees: Guarantees,
    /// Makes the compressor from values of [`parameters`](Self::parameters), in their order and inside their ranges.
    pub build: fn(&[Value]) -> Arc<dyn Compressor>,
}

impl Entry {
    /// The values of all parameters where none is given.
    pub(crate) fn defaults(&self) -> Vec<Value> {
        self.parameters.iter().map(|parameter| parameter.kind.default()).collect()
    }

    /// How messages of the default configuration become one tensor: what the compressor itself answers. A method
    /// that makes something else of a mean than the mean itself holds a vote.
    pub fn aggregation(&self) -> Aggregation {
        let compressor = (self.build)(&self.defaults());
        let mut mean = [0.5, -0.25];
        compressor.aggregate(&mut mean);
        if mean != [0.5, -0.25] {
            Aggregation::Vote
        } else if compressor.linear().is_some() {
            Aggregation::Linear
        } else if compressor.rounds().is_some() {
            Aggregation::Rounds
        } else {
            Aggregation::Gather
        }
    }

    /// Whether messages are the elements themselves, 32 bits each, as those of `none` are.
    pub fn is_identity(&self) -> bool {
        self.guarantees.lossless && self.aggregation() == Aggregation::Linear
    }
}
