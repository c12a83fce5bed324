//! Compressors in no registry, with memories of their own: φ and ψ of the GRACE survey's Algorithm
//! 1.

use std::sync::Arc;

use gradwire::memories::{Encoding, Step};
use gradwire::parameters::Value;
use gradwire::{
    Aggregation, Compressor, Coverage, DecodeArgs, DecodeError, EncodeArgs, Entry, Floats,
    Guarantee, Memory, NonFinite, Residual, Source, Spec,
};

/// A registered compressor with another memory.
#[derive(Debug)]
struct Custom {
    inner: Spec,
    memory: Arc<dyn Memory>,
}

impl Compressor for Custom {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        self.inner.compressor().encode(args)
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        self.inner.compressor().decode_add(args)
    }

    fn max_len(&self, elements: usize) -> usize {
        self.inner.compressor().max_len(elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.inner.compressor().max_elements(message_len)
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(&*self.memory)
    }

    fn aggregation(&self) -> Aggregation<'_> {
        self.inner.compressor().aggregation()
    }
}

/// What became of a tensor, for ψ: all three slices have the tensor's length.
struct Encoded<'a> {
    gradient: &'a [f32],
    /// What was compressed, φ(m, g).
    compensated: &'a [f32],
    /// What the message fails to carry of it.
    left: &'a [f32],
    /// The elements that the message carried; `None` where it carried all.
    positions: Option<&'a [u32]>,
}

/// φ and ψ, by default those of equation 5: the plain residual.
trait Functions: std::fmt::Debug + Send + Sync {
    fn compensate(&self, memory: &[f32], gradient: &[f32], _step: u64, compensated: &mut [f32]) {
        add(memory, 1.0, gradient, compensated);
    }

    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>) {
        memory.copy_from_slice(encoded.left);
    }
}

/// `compensated ← m + γ·g`.
fn add(memory: &[f32], gamma: f32, gradient: &[f32], compensated: &mut [f32]) {
    for ((c, m), g) in compensated.iter_mut().zip(memory).zip(gradient) {
        *c = m + gamma * g;
    }
}

/// `g̃ = Q(φ(m, g))`, then `m ← ψ(m, g, g̃)`.
#[derive(Debug)]
struct Grace<F>(F);

#[derive(Debug, Default)]
struct GraceBuffers {
    gradient: Vec<f32>,
    compensated: Vec<f32>,
    left: Vec<f32>,
    next: Vec<f32>,
    kept: Vec<f32>,
}

impl<F: Functions> Memory for Grace<F> {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let mut buffers = std::mem::take(encoding.buffers::<GraceBuffers>());
        let encoded = self.encode_with(&mut buffers, step, encoding);
        *encoding.buffers() = buffers;
        encoded
    }
}

impl<F: Functions> Grace<F> {
    fn encode_with(
        &self,
        buffers: &mut GraceBuffers,
        step: Step<'_>,
        encoding: &mut Encoding<'_>,
    ) -> Result<Coverage, NonFinite> {
        let Step { input, feedback, kept, scratch, .. } = step;
        let (_, memory) = feedback.expect("it is error feedback");
        let GraceBuffers { gradient, compensated, left, next, kept: kept_before } = buffers;
        gradient.clear();
        Source::new(input.gradient, None, scratch)?
            .peek_blocks(|_, block| gradient.extend_from_slice(block));
        compensated.resize(memory.len(), 0.0);
        self.0.compensate(memory, gradient, encoding.context().step, compensated);
        left.clear();
        left.resize(memory.len(), 0.0);
        kept_before.clear();
        kept_before.extend_from_slice(kept);
        let feedback = Some((Residual::PLAIN, &mut left[..]));
        let source = encoding.source(Floats::F32(compensated), feedback, scratch)?;
        let sent = encoding.encode(&mut source.with_kept(&mut *kept))?;

        let positions = (sent == Coverage::Positions).then(|| encoding.positions());
        next.clear();
        next.extend_from_slice(memory);
        self.0.update(next, &Encoded { gradient, compensated, left, positions });
        if let Err(error) = finite(next, scratch) {
            kept.copy_from_slice(kept_before);
            return Err(error);
        }
        memory.copy_from_slice(next);
        Ok(sent)
    }
}

fn finite(values: &[f32], scratch: &mut [f32]) -> Result<(), NonFinite> {
    Source::new(Floats::F32(values), None, scratch).map(|_| ())
}

/// Equation 5, which the defaults are.
#[derive(Debug)]
struct Plain;

impl Functions for Plain {}

/// φ = m + g/(k + 1) in step k; ψ = left + μ·g̃: what was sent comes back with the factor μ.
#[derive(Debug)]
struct Momentum(f32);

/// The factor of what was sent.
pub(crate) const MOMENTUM: f32 = 0.5;

impl Functions for Momentum {
    fn compensate(&self, memory: &[f32], gradient: &[f32], step: u64, compensated: &mut [f32]) {
        let gamma = 1.0 / (step + 1) as f32;
        add(memory, gamma, gradient, compensated);
    }

    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>) {
        for ((m, left), c) in memory.iter_mut().zip(encoded.left).zip(encoded.compensated) {
            *m = left + self.0 * (c - left);
        }
    }
}

/// Nothing is left where a message carried an element, and the gradient once more where it did not.
#[derive(Debug)]
struct Masked;

impl Functions for Masked {
    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>) {
        for ((m, c), g) in memory.iter_mut().zip(encoded.compensated).zip(encoded.gradient) {
            *m = c + g;
        }
        match encoded.positions {
            Some(positions) => positions.iter().for_each(|&at| memory[at as usize] = 0.0),
            None => memory.fill(0.0),
        }
    }
}

/// Overflows where the gradient is above 1.
#[derive(Debug)]
struct Steep;

impl Functions for Steep {
    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>) {
        memory.iter_mut().zip(encoded.gradient).for_each(|(m, g)| *m = g * f32::MAX);
    }
}

const fn entry(id: &'static str, build: Build) -> Entry {
    Entry {
        id,
        summary: "a registered compressor with other parts",
        formula: "that of the other",
        error_feedback: true,
        reference: "this file",
        payload: "that of the other",
        ..Entry::new(&[], |_| Guarantee::Neither("it is that of the other"), build)
    }
}

type Build = fn(&[Value]) -> Arc<dyn Compressor>;

fn fed(inner: &str, functions: impl Functions + 'static) -> Arc<dyn Compressor> {
    Arc::new(Custom { inner: inner.parse().unwrap(), memory: Arc::new(Grace(functions)) })
}

/// Registered compressors, and the same with the defaults of [`Functions`].
pub(crate) fn plain() -> Vec<(&'static str, Spec)> {
    static ENTRIES: [Entry; 6] = [
        entry("3lc:s=1.75", |_| fed("3lc:s=1.75", Plain)),
        entry("topk:ratio=0.1", |_| fed("topk:ratio=0.1", Plain)),
        entry("onebit", |_| fed("onebit", Plain)),
        entry("sbc:p=0.1", |_| fed("sbc:p=0.1", Plain)),
        entry("qsgd:ef=on", |_| fed("qsgd", Plain)),
        entry("powersgd", |_| fed("powersgd", Plain)),
    ];
    ENTRIES.iter().map(|entry| (entry.id, Spec::of(entry))).collect()
}

/// [`Momentum`] around messages whose elements are exact, and around others.
pub(crate) fn momenta() -> [Spec; 2] {
    static ENTRIES: [Entry; 2] = [
        entry("topk-momentum", |_| fed("topk:ratio=0.1", Momentum(MOMENTUM))),
        entry("onebit-momentum", |_| fed("onebit", Momentum(MOMENTUM))),
    ];
    ENTRIES.each_ref().map(Spec::of)
}

/// [`Masked`] around messages whose elements are not exact.
pub(crate) fn masked() -> Spec {
    static ENTRY: Entry = entry("sbc-masked", |_| fed("sbc:p=0.1", Masked));
    Spec::of(&ENTRY)
}

/// [`Steep`], around a method that keeps more than a memory.
pub(crate) fn steep() -> Spec {
    static ENTRY: Entry = entry("powersgd-steep", |_| fed("powersgd", Steep));
    Spec::of(&ENTRY)
}
