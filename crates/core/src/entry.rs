//! What a compressor declares for lists, spec strings and exchanges.

use std::sync::Arc;

use crate::Compressor;
use crate::parameters::{Param, Parameters, Value};

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

/// A compressor's declaration. The [registry](crate::registry) is a table of them.
///
/// An entry ends with `..Entry::of::<T>()` or `..Entry::new(…)`, which fills in all that it does not state.
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
    /// Whether messages carry few of the elements and nothing of the others; no unless stated.
    pub sparse: bool,
    /// Whether error feedback is on unless the spec says otherwise; off unless stated.
    pub error_feedback: bool,
    /// Its parameters, in the order they are printed.
    pub parameters: &'static [Param],
    /// Configurations that use other code paths than the default, each as the part of a spec string after the colon.
    /// [Laws](crate::laws), golden files and fuzzing cover them. Inputs of the fuzzer choose one by its index, so new
    /// ones come last.
    pub examples: &'static [&'static str],
    /// The paper that defines it.
    pub reference: &'static str,
    /// The message in a line.
    pub payload: &'static str,
    /// Whether, with the default parameters, the expectation of the decoded tensor is the encoded one; no unless stated.
    pub unbiased: bool,
    /// Whether decoding gives back every bit of an `f32` input; no unless stated.
    pub lossless: bool,
    /// Whether both ends draw the positions of the elements sent, so that no message holds them; no unless stated.
    pub drawn_positions: bool,
    /// Makes the compressor from values of [`parameters`](Self::parameters), in their order and inside their ranges.
    pub build: fn(&[Value]) -> Arc<dyn Compressor>,
}

impl Entry {
    /// The entry of a compressor that is the struct of its own [parameters](crate::parameters!), still without a
    /// description: for a struct update.
    pub const fn of<T: Compressor + Parameters + 'static>() -> Self {
        Self::new(T::PARAMETERS, |values| Arc::new(T::new(values)))
    }

    /// The entry of a compressor with these parameters, still without a description: for a struct update.
    pub const fn new(
        parameters: &'static [Param],
        build: fn(&[Value]) -> Arc<dyn Compressor>,
    ) -> Self {
        Self {
            id: "",
            summary: "",
            formula: "",
            family: Family::Baseline,
            sparse: false,
            error_feedback: false,
            parameters,
            examples: &[],
            reference: "",
            payload: "",
            unbiased: false,
            lossless: false,
            drawn_positions: false,
            build,
        }
    }

    /// The values of all parameters where none is given.
    pub(crate) fn defaults(&self) -> Vec<Value> {
        self.parameters.iter().map(|parameter| parameter.kind.default()).collect()
    }

    /// The compressor with its default parameters.
    pub fn compressor(&self) -> Arc<dyn Compressor> {
        (self.build)(&self.defaults())
    }

    /// Whether messages are the elements themselves, 32 bits each, as those of `none` are.
    pub fn is_identity(&self) -> bool {
        self.lossless && self.compressor().linear().is_some()
    }
}
