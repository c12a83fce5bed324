//! A compressor's declarations for lists, spec strings and exchanges.

use std::fmt;
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

/// What a compressor with certain parameters promises about the decoded tensor, for every tensor x.
/// The method's documentation may exempt numbers at the ends of a format's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarantee {
    /// The decoded tensor is x in expectation, without error feedback. Errors of different steps,
    /// tensors and ranks are independent, unless ranks must draw the same so that messages add up.
    Unbiased,
    /// With error feedback, there is an a > 0 such that the expected squared error of the decoded
    /// tensor is at most (1 − a)·‖x‖². (Sending zeros has the error ‖x‖².) `ef=ef21` needs this: it
    /// brings the estimate closer to the gradient at every step.
    Contractive,
    /// Unbiased and contractive.
    Both,
    /// Neither, for this reason, which lists show: it completes the sentence "The decoded tensor is
    /// neither unbiased nor contractive, because …".
    Neither(&'static str),
}

impl Guarantee {
    /// Whether the decoded tensor is the encoded one in expectation.
    pub fn is_unbiased(self) -> bool {
        matches!(self, Self::Unbiased | Self::Both)
    }

    /// Whether messages bring receivers closer to every tensor.
    pub fn is_contractive(self) -> bool {
        matches!(self, Self::Contractive | Self::Both)
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unbiased => f.write_str("unbiased"),
            Self::Contractive => f.write_str("contractive"),
            Self::Both => f.write_str("unbiased, contractive"),
            Self::Neither(reason) => write!(f, "neither: {reason}"),
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
    /// Whether residuals stay bounded with error feedback. If not, users must give `ef=off`.
    pub allows_feedback: bool,
    /// Whether all ranks must have the same weight under all-reduce, because a round adds integers.
    pub needs_equal_weights: bool,
}

impl Properties {
    /// The number of bits varies, messages contain positions, and error feedback and different
    /// weights are allowed; for struct update syntax.
    pub const DEFAULT: Self = Self {
        value_bits: None,
        draws_positions: false,
        allows_feedback: true,
        needs_equal_weights: false,
    };
}

/// A compressor's declaration. The [registry](crate::registry) is a table of them.
///
/// An entry ends with `..Entry::of::<T>(…)` or `..Entry::new(…)` for the defaults. The guarantee
/// has no default.
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
    /// Whether decoding restores every bit of an `f32` input; false by default.
    pub lossless: bool,
    /// Passes over the tensor, which bound its speed; [`Passes::ONE`] by default.
    pub passes: Passes,
    /// What it promises about the decoded tensor, computed from values of
    /// [`parameters`](Self::parameters).
    pub guarantee: fn(&[Value]) -> Guarantee,
    /// Properties that may depend on parameters: computes them from values of
    /// [`parameters`](Self::parameters); [`Properties::DEFAULT`] by default.
    pub properties: fn(&[Value]) -> Properties,
    /// Makes the compressor from values of [`parameters`](Self::parameters), in their order and
    /// inside their ranges.
    pub build: fn(&[Value]) -> Arc<dyn Compressor>,
}

impl Entry {
    /// Defaults for a compressor type that declares its own [parameters](crate::parameters!), with
    /// its guarantee; for struct update syntax.
    pub const fn of<T: Compressor + Parameters + 'static>(
        guarantee: fn(&[Value]) -> Guarantee,
    ) -> Self {
        Self::new(T::PARAMETERS, guarantee, |values| Arc::new(T::new(values)))
    }

    /// Defaults for the entry of a compressor with these parameters and guarantee; for struct
    /// update syntax.
    pub const fn new(
        parameters: &'static [Param],
        guarantee: fn(&[Value]) -> Guarantee,
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
            lossless: false,
            passes: Passes::ONE,
            guarantee,
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

    /// The guarantee with the default parameters.
    pub fn default_guarantee(&self) -> Guarantee {
        (self.guarantee)(&self.defaults())
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
