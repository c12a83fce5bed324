//! A compressor's declarations for lists, spec strings and exchanges.

use std::sync::Arc;

use crate::parameters::common::COMMON;
use crate::parameters::{Param, Parameters, Value};
use crate::{Compressor, Passes};

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

impl Family {
    /// The name in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Quantization => "quantization",
            Self::Sparsification => "sparsification",
            Self::Hybrid => "hybrid",
            Self::LowRank => "low-rank",
        }
    }
}

/// Facts about a compressor with certain parameters, for specs, reports and laws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Properties {
    /// Bits per sent value, without its position; `None` if the number varies. Fields that occur
    /// once per message, such as a scale or a mean, do not count.
    pub value_bits: Option<u32>,
    /// Whether both ends draw the positions of the sent elements, so messages do not contain them.
    pub draws_positions: bool,
    /// Whether, with error feedback, there is an a > 0 such that for every tensor x the expected
    /// squared error of the decoded tensor is at most (1 − a)·‖x‖². (Sending zeros has the error
    /// ‖x‖².) `ef=ef21` needs this property: it brings the estimate closer to the gradient at every
    /// step. Methods that may drop all small elements lack it. The method's documentation may
    /// exempt numbers at the ends of a format's range.
    pub is_contractive: bool,
    /// Whether residuals stay bounded with error feedback. If not, users must give `ef=off`.
    pub allows_feedback: bool,
    /// Whether all ranks must have the same weight under all-reduce, because a round adds integers.
    pub needs_equal_weights: bool,
}

impl Properties {
    /// The number of bits varies, messages contain positions, error feedback and different weights
    /// are allowed, and the method need not be contractive; for struct update syntax.
    pub const DEFAULT: Self = Self {
        value_bits: None,
        draws_positions: false,
        is_contractive: false,
        allows_feedback: true,
        needs_equal_weights: false,
    };
}

/// A compressor's declaration. The [registry](crate::registry) is a table of them.
///
/// An entry ends with `..Entry::of::<T>()` or `..Entry::new(…)` for the defaults.
#[derive(Debug)]
pub struct Entry {
    /// The name in spec strings.
    pub id: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// The decoded value of an element, in a line: c is the corrected tensor of d elements, u a
    /// uniform number in \[0, 1), and \[…\] is 1 if true, else 0.
    pub formula: &'static str,
    /// How it saves bytes.
    pub family: Family,
    /// Whether messages carry only a few of the elements; false by default.
    pub sparse: bool,
    /// Whether error feedback is on unless the spec says otherwise; false by default.
    pub error_feedback: bool,
    /// Its parameters, in the order they are printed.
    pub parameters: &'static [Param],
    /// Configurations that use other code paths than the default. Each is the part of a spec string
    /// after the colon. `gradwire::laws`, golden files and fuzzing cover them. Fuzzer inputs select
    /// one by its index, so append new ones at the end.
    pub examples: &'static [&'static str],
    /// The paper that defines it.
    pub reference: &'static str,
    /// The fields of the message, in a line.
    pub payload: &'static str,
    /// Whether the decoded tensor equals the encoded one in expectation, with the default
    /// parameters; false by default.
    pub unbiased: bool,
    /// Whether decoding restores every bit of an `f32` input; false by default.
    pub lossless: bool,
    /// Passes over the tensor, which bound its speed; [`Passes::ONE`] by default.
    pub passes: Passes,
    /// Properties that may depend on parameters: computes them from values of
    /// [`parameters`](Self::parameters); [`Properties::DEFAULT`] by default.
    pub properties: fn(&[Value]) -> Properties,
    /// Makes the compressor from values of [`parameters`](Self::parameters), in their order and
    /// inside their ranges.
    pub build: fn(&[Value]) -> Arc<dyn Compressor>,
}

impl Entry {
    /// Defaults for a compressor type that declares its own [parameters](crate::parameters!); for
    /// struct update syntax.
    pub const fn of<T: Compressor + Parameters + 'static>() -> Self {
        Self::new(T::PARAMETERS, |values| Arc::new(T::new(values)))
    }

    /// Defaults for the entry of a compressor with these parameters; for struct update syntax.
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
            passes: Passes::ONE,
            properties: |_| Properties::DEFAULT,
            build,
        }
    }

    /// The default values of all parameters.
    pub(crate) fn defaults(&self) -> Vec<Value> {
        self.parameters.iter().map(|parameter| parameter.kind.default()).collect()
    }

    /// The compressor with its default parameters.
    pub fn compressor(&self) -> Arc<dyn Compressor> {
        (self.build)(&self.defaults())
    }

    /// Its own parameters, then the common ones that it does not redefine.
    pub fn all_parameters(&self) -> impl Iterator<Item = &'static Param> + Clone + use<> {
        let own = self.parameters;
        let is_own = move |key| own.iter().any(|parameter| parameter.key == key);
        own.iter().chain(COMMON.iter().filter(move |one| !is_own(one.key)))
    }

    /// Whether messages are the elements themselves, 32 bits each, as for `none`.
    pub fn is_identity(&self) -> bool {
        self.lossless && self.compressor().linear().is_some()
    }
}
