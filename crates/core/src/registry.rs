//! The one table of compressors. Everything that lists, tests or documents compressors iterates it.

use std::sync::Arc;

use crate::Compressor;
use crate::compressors::{baseline, hybrid, low_rank, quantization, sparsification};

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

/// One parameter of a compressor.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    /// The key in a spec string.
    pub key: &'static str,
    /// Its values and their default.
    pub kind: Kind,
    /// What it does, in a phrase.
    pub help: &'static str,
}

/// The values a parameter takes.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A real number in an interval.
    Real {
        /// The lower end.
        min: f64,
        /// The upper end.
        max: f64,
        /// Which ends belong to the interval.
        ends: Ends,
        /// The value where none is given.
        default: f64,
    },
    /// A whole number, both ends included.
    Whole {
        /// The least value.
        min: u64,
        /// The greatest value.
        max: u64,
        /// The value where none is given.
        default: u64,
    },
    /// One of a few words.
    Choice {
        /// The words.
        options: &'static [&'static str],
        /// The index of the default among them.
        default: usize,
    },
}

/// Which ends of an interval belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// \[min, max\]
    Both,
    /// \[min, max)
    Lower,
    /// (min, max\]
    Upper,
    /// (min, max)
    Neither,
}

/// The value of one parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Of a [`Kind::Real`].
    Real(f64),
    /// Of a [`Kind::Whole`].
    Whole(u64),
    /// Of a [`Kind::Choice`]: the index of the word.
    Choice(usize),
}

/// What a compressor promises beyond the laws that hold for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guarantees {
    /// With the default parameters, the expectation of the decoded tensor is what was encoded.
    pub unbiased: bool,
    /// Decoding gives back every bit of an `f32` input.
    pub lossless: bool,
}

/// A registered compressor.
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
    /// How its messages become one tensor.
    pub aggregation: Aggregation,
    /// Whether error feedback is on unless the spec says otherwise.
    pub error_feedback: bool,
    /// Its parameters, in the order they are printed.
    pub parameters: &'static [Param],
    /// The paper that defines it.
    pub reference: &'static str,
    /// The message in a line.
    pub payload: &'static str,
    /// What it promises.
    pub guarantees: Guarantees,
    /// Makes the compressor from values that have been checked against the ranges.
    pub build: fn(&Values<'_>) -> Arc<dyn Compressor>,
}

/// Checked parameter values, looked up by key.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    pub(crate) parameters: &'static [Param],
    pub(crate) values: &'a [Value],
}

impl Values<'_> {
    /// The value of a [`Kind::Real`] parameter.
    ///
    /// # Panics
    /// If the entry declares no such parameter of that kind: a mistake in the registry.
    pub fn real(&self, key: &str) -> f64 {
        match self.get(key) {
            Value::Real(value) => value,
            other => panic!("parameter '{key}' is {other:?}"),
        }
    }

    /// The value of a [`Kind::Whole`] parameter. Panics like [`real`](Self::real).
    pub fn whole(&self, key: &str) -> u64 {
        match self.get(key) {
            Value::Whole(value) => value,
            other => panic!("parameter '{key}' is {other:?}"),
        }
    }

    /// The word of a [`Kind::Choice`] parameter. Panics like [`real`](Self::real).
    pub fn choice(&self, key: &str) -> &'static str {
        let index = self.index(key);
        match (self.parameters[index].kind, self.values[index]) {
            (Kind::Choice { options, .. }, Value::Choice(at)) => options[at],
            (_, other) => panic!("parameter '{key}' is {other:?}"),
        }
    }

    fn get(&self, key: &str) -> Value {
        self.values[self.index(key)]
    }

    fn index(&self, key: &str) -> usize {
        self.parameters
            .iter()
            .position(|parameter| parameter.key == key)
            .unwrap_or_else(|| panic!("no parameter '{key}' is declared"))
    }
}

/// A name for a compressor with certain parameters.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// The name in spec strings; parameters behind it replace the preset's.
    pub name: &'static str,
    /// The compressor.
    pub id: &'static str,
    /// Its parameters, as a spec string has them behind the colon.
    pub items: &'static str,
}

/// The presets: the three points of the SBC paper's experiments.
pub static PRESETS: &[Preset] = &[
    Preset { name: "sbc1", id: "sbc", items: "p=0.001" },
    Preset { name: "sbc2", id: "sbc", items: "p=0.01,every=10" },
    Preset { name: "sbc3", id: "sbc", items: "p=0.01,every=100" },
];

/// Every name that a spec string may begin with.
pub fn names() -> impl Iterator<Item = &'static str> {
    REGISTRY.iter().map(|entry| entry.id).chain(PRESETS.iter().map(|preset| preset.name))
}

/// Every compressor, in the order in which lists show them.
pub static REGISTRY: &[&Entry] = &[
    &baseline::none::ENTRY,
    &baseline::fp16::ENTRY,
    &baseline::bf16::ENTRY,
    &quantization::int8::ENTRY,
    &quantization::dynamic_tree::ENTRY,
    &quantization::qsgd::ENTRY,
    &quantization::lpc_svrg::ENTRY,
    &quantization::terngrad::ENTRY,
    &quantization::onebit::ENTRY,
    &quantization::signsgd::ENTRY,
    &quantization::signum::ENTRY,
    &quantization::efsignsgd::ENTRY,
    &quantization::natural::ENTRY,
    &quantization::inceptionn::ENTRY,
    &quantization::three_lc::ENTRY,
    &quantization::entropy_bits::ENTRY,
    &sparsification::topk::ENTRY,
    &sparsification::randomk::ENTRY,
    &sparsification::threshold::ENTRY,
    &sparsification::gradient_dropping::ENTRY,
    &sparsification::dgc::ENTRY,
    &sparsification::sgc::ENTRY,
    &sparsification::adaptive::ENTRY,
    &sparsification::variance::ENTRY,
    &sparsification::sketched_sgd::ENTRY,
    &hybrid::strom::ENTRY,
    &hybrid::sbc::ENTRY,
    &hybrid::dryden::ENTRY,
    &hybrid::adacomp::ENTRY,
    &hybrid::local_selection::ENTRY,
    &hybrid::sketchml::ENTRY,
    &hybrid::qsparse_local::ENTRY,
    &low_rank::powersgd::ENTRY,
    &low_rank::gradzip::ENTRY,
    &low_rank::atomo::ENTRY,
    &low_rank::gradiveq::ENTRY,
];

/// The entry called `id`.
pub fn find(id: &str) -> Option<&'static Entry> {
    REGISTRY.iter().copied().find(|entry| entry.id == id)
}
