//! One string configures one compressor: `3lc:s=1.75`, `topk:ratio=0.01,ef=off`.

use std::fmt;
use std::sync::Arc;

use crate::compressors::{baseline, quantization, sparsification};
use crate::entry::{Entry, Guarantee, Properties};
use crate::memories::{Average, Ef21, Memory, Scope};
use crate::parameters::common::COMMON;
use crate::parameters::{Param, Value};
use crate::{Compressor, Dtype, Residual};

mod error;
mod parse;

pub use error::SpecError;
pub use parse::read_values;

/// A compressor with the values of its parameters, its memory, and its number of local steps.
///
/// Parses from `id[:key=value,…]`, and prints the values that differ from the defaults, in the
/// order of the entry; parsing the printed string gives an equal spec.
#[derive(Debug, Clone)]
pub struct Spec {
    entry: &'static Entry,
    /// The values of the entry's parameters, in their order and inside their ranges.
    values: Vec<Value>,
    /// Made from the values.
    compressor: Arc<dyn Compressor>,
    feedback: Option<Residual>,
    memory: Option<ConfiguredMemory>,
    every: u64,
}

/// A memory that a spec configures instead of the plain residual.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ConfiguredMemory {
    Average(Average),
    Ef21(Ef21),
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        self.entry.id == other.entry.id
            && self.values == other.values
            && self.feedback == other.feedback
            && self.memory == other.memory
            && self.every == other.every
    }
}

impl Spec {
    /// An entry with its defaults.
    pub fn of(entry: &'static Entry) -> Self {
        Self {
            entry,
            compressor: entry.compressor(),
            values: entry.defaults(),
            feedback: entry.error_feedback.then_some(Residual::PLAIN),
            memory: None,
            every: 1,
        }
    }

    /// `none`: tensors are sent uncompressed.
    pub fn none() -> Self {
        Self::of(&baseline::none::ENTRY)
    }

    /// `threshold` at 0: the non-zero elements are sent, uncompressed.
    pub fn nonzero() -> Self {
        Self::of(&sparsification::threshold::ENTRY)
    }

    /// `efsignsgd`: the signs and the mean absolute value. It can carry the result of a vote.
    pub fn scaled_signs() -> Self {
        Self::of(&quantization::efsignsgd::ENTRY)
    }

    /// Whether messages are the gradients themselves: `none` without momentum and error feedback.
    pub fn sends_gradients(&self) -> bool {
        let is_none = self.entry.id == baseline::none::ENTRY.id;
        is_none && self.feedback.is_none() && self.memory.is_none()
    }

    /// The spec of messages for gradients of this element type: `fp16` or `bf16` in place of a
    /// `none` that [sends the gradients](Self::sends_gradients), because these messages hold them
    /// exactly, in half the bytes. Otherwise this spec.
    pub fn for_elements(&self, dtype: Dtype) -> Spec {
        let narrow = match dtype {
            Dtype::F16 => &baseline::fp16::ENTRY,
            Dtype::Bf16 => &baseline::bf16::ENTRY,
            Dtype::F32 => return self.clone(),
        };
        if self.sends_gradients() { Self::of(narrow) } else { self.clone() }
    }

    /// The registry entry.
    pub fn entry(&self) -> &'static Entry {
        self.entry
    }

    /// The compressor's properties with these parameters.
    pub fn properties(&self) -> Properties {
        (self.entry.properties)(&self.values)
    }

    /// What the compressor promises with these parameters.
    pub fn guarantee(&self) -> Guarantee {
        (self.entry.guarantee)(&self.values)
    }

    /// The residual of error feedback; `None` without error feedback. Another memory may
    /// [replace](Self::own_memory) it.
    pub fn feedback(&self) -> Option<Residual> {
        self.feedback
    }

    /// The same compressor with another plain residual, or without error feedback; without
    /// `momentum` and `ef=ef21`.
    pub fn with_feedback(mut self, feedback: Option<Residual>) -> Self {
        (self.feedback, self.memory) = (feedback, None);
        self
    }

    /// The same compressor for a message without predecessors, such as a message in a file: without
    /// `momentum` and `ef=ef21`, which refer to earlier gradients.
    pub fn without_history(mut self) -> Self {
        self.memory = None;
        self
    }

    /// The [memory](crate::memories) that replaces the plain residual: the compressor's own, or the
    /// memory for `ef=ef21` or `momentum`; otherwise `None`. `plain` is true for values that are
    /// not gradients ([`Encoder::with_plain_memory`](crate::Encoder::with_plain_memory)).
    pub fn own_memory(&self, plain: bool) -> Option<&dyn Memory> {
        let configured = self.memory.as_ref().map(|memory| -> &dyn Memory {
            match memory {
                ConfiguredMemory::Average(average) => average,
                ConfiguredMemory::Ef21(ef21) => ef21,
            }
        });
        self.compressor.memory().or(configured).filter(|memory| match memory.scope() {
            Scope::ErrorFeedback => self.feedback.is_some() && !plain,
            Scope::Gradients => !plain,
            Scope::Always => true,
        })
    }

    /// Whether messages carry changes (with `ef=ef21`): receivers add the mean of the changes to a
    /// sum that they keep.
    pub fn sends_changes(&self) -> bool {
        self.own_memory(false).is_some_and(|memory| memory.sends_changes())
    }

    /// Local steps: the number of training steps per exchange.
    pub fn every(&self) -> u64 {
        self.every
    }

    /// The same compressor with this number of local steps per exchange, at least one.
    pub fn with_every(mut self, every: u64) -> Self {
        self.every = every.max(1);
        self
    }

    /// The value of the compressor's own real parameter with this name, if there is one.
    pub fn real(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::Real(value) => Some(value),
            Value::Whole(_) | Value::Choice(_) => None,
        }
    }

    /// The value of the compressor's own numeric parameter with this name, if there is one.
    pub fn number(&self, key: &str) -> Option<f64> {
        match self.value(key)? {
            Value::Real(value) => Some(value),
            Value::Whole(value) => Some(value as f64),
            Value::Choice(_) => None,
        }
    }

    fn value(&self, key: &str) -> Option<Value> {
        let at = self.entry.parameters.iter().position(|parameter| parameter.key == key)?;
        Some(self.values[at])
    }

    /// Whether an encoder may change from `earlier` to this spec: there is no state, or its meaning
    /// is the same for both.
    pub fn can_follow(&self, earlier: &Spec) -> bool {
        let compressor = earlier.compressor();
        // The length of the kept numbers for a large matrix depends on parameters such as the rank.
        let kept = |compressor: &dyn Compressor| {
            let kept = compressor.rounds()?.kept()?;
            Some((kept.len(&[1 << 14, 1 << 14]), kept.layout()))
        };
        let same = || {
            self.entry.id == earlier.entry.id
                && self.feedback == earlier.feedback
                && self.memory == earlier.memory
                // An estimate is of the sum over the local steps of a round.
                && (self.every == earlier.every || !self.sends_changes())
                && kept(self.compressor()) == kept(compressor)
        };
        !earlier.keeps_state() || same()
    }

    /// Whether an encoder keeps state of a tensor from message to message, such as a residual.
    pub fn keeps_state(&self) -> bool {
        self.feedback.is_some()
            || self.memory.is_some()
            || self.compressor.memory().is_some()
            || self.compressor.rounds().is_some()
    }

    /// The compressor itself.
    pub fn compressor(&self) -> &dyn Compressor {
        &*self.compressor
    }

    /// Whether its memory applies momentum to gradients, so the optimizer should not apply it
    /// again.
    pub fn applies_momentum(&self) -> bool {
        if self.configured_momentum() > 0.0 {
            return true;
        }
        self.own_memory(false).is_some_and(|memory| memory.replaces_momentum())
    }

    /// The common parameter `momentum`.
    pub(crate) fn configured_momentum(&self) -> f32 {
        match self.memory {
            Some(ConfiguredMemory::Average(Average { decay })) => decay,
            Some(ConfiguredMemory::Ef21(Ef21 { momentum })) => momentum,
            None => 0.0,
        }
    }

    /// The parameters that every compressor has in addition to its own.
    pub fn common_parameters() -> &'static [Param] {
        COMMON
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry.id)?;
        let mut separator = ':';
        let mut item = |key: &str, value: &dyn fmt::Display| {
            let written = write!(f, "{separator}{key}={value}");
            separator = ',';
            written
        };
        for (parameter, &value) in self.entry.parameters.iter().zip(&self.values) {
            if value != parameter.kind.default() {
                item(parameter.key, &value)?;
            }
        }
        match (self.memory, self.feedback) {
            (Some(ConfiguredMemory::Ef21(_)), _) => item("ef", &"ef21")?,
            (_, Some(_)) if !self.entry.error_feedback => item("ef", &"on")?,
            (_, None) if self.entry.error_feedback => item("ef", &"off")?,
            _ => {}
        }
        if let Some(Residual { beta, gamma }) = self.feedback {
            for (key, weight) in [("beta", beta), ("gamma", gamma)] {
                if weight != 1.0 {
                    item(key, &weight)?;
                }
            }
        }
        match self.configured_momentum() {
            0.0 => {}
            momentum => item("momentum", &momentum)?,
        }
        if self.every != 1 {
            item("every", &self.every)?;
        }
        Ok(())
    }
}
