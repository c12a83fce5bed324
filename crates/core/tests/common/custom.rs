//! Compressors in no registry, with φ and ψ, or Agg, of their own.

use std::sync::Arc;

use gradwire::parameters::Value;
use gradwire::{
    Combine, Compressor, Context, DecodeError, Element, Encoded, Entry, Family, Feedback, Gathered,
    Guarantees, Rounds, Sent, Source, Spec, Workspace, tools,
};

/// A registered compressor with other parts.
#[derive(Debug)]
struct Custom {
    inner: Arc<dyn Compressor>,
    feedback: Option<Arc<dyn Feedback>>,
    combine: Option<Arc<dyn Combine>>,
}

impl Compressor for Custom {
    fn encode(
        &self,
        source: &mut Source<'_>,
        context: &Context<'_>,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
    ) -> Sent {
        self.inner.encode(source, context, workspace, message)
    }

    fn decode_add(
        &self,
        message: &[u8],
        context: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        self.inner.decode_add(message, context, weight, workspace, out)
    }

    fn max_len(&self, elements: usize) -> usize {
        self.inner.max_len(elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.inner.max_elements(message_len)
    }

    fn feedback(&self) -> Option<&dyn Feedback> {
        self.feedback.as_deref()
    }

    fn combine(&self) -> Option<&dyn Combine> {
        self.combine.as_deref()
    }

    fn kept_len(&self, shape: &[usize]) -> usize {
        self.inner.kept_len(shape)
    }

    fn keeps_squares(&self) -> bool {
        self.inner.keeps_squares()
    }

    fn rounds(&self) -> Option<&dyn Rounds> {
        self.inner.rounds()
    }

    fn linear(&self) -> Option<Element> {
        self.inner.linear()
    }
}

/// Equation 5, which the defaults are.
#[derive(Debug)]
struct Plain;

impl Feedback for Plain {}

/// φ = m + g/(k + 1) in step k; ψ = left + μ·g̃: what was sent comes back with the factor μ.
#[derive(Debug)]
struct Momentum(f32);

/// The factor of what was sent.
pub(crate) const MOMENTUM: f32 = 0.5;

impl Feedback for Momentum {
    fn compensate(
        &self,
        memory: &[f32],
        gradient: &[f32],
        context: &Context<'_>,
        compensated: &mut [f32],
    ) {
        let gamma = 1.0 / (context.step + 1) as f32;
        tools::memory_compensate(memory, gradient, [1.0, gamma], compensated);
    }

    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>, _: &Context<'_>) {
        for (at, m) in memory.iter_mut().enumerate() {
            *m = encoded.left[at] + self.0 * encoded.decoded(at);
        }
    }
}

/// Nothing is left where a message carried an element, and the gradient once more where it did not.
#[derive(Debug)]
struct Masked;

impl Feedback for Masked {
    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>, _: &Context<'_>) {
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

impl Feedback for Steep {
    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>, _: &Context<'_>) {
        memory.iter_mut().zip(encoded.gradient).for_each(|(m, g)| *m = g * f32::MAX);
    }
}

/// Of an odd number of ranks the one in the middle, element by element.
#[derive(Debug)]
struct Median;

impl Combine for Median {
    fn combine(&self, gathered: &Gathered<'_>, workspace: &mut Workspace, combined: &mut [f32]) {
        let column = &mut workspace.values;
        for (element, median) in combined.iter_mut().enumerate() {
            column.clear();
            column.extend(gathered.column(element));
            column.sort_unstable_by(f32::total_cmp);
            *median = column[column.len() / 2];
        }
    }
}

/// Who takes part, in which order and by how much: each rank's number and weight, those before it eightfold.
#[derive(Debug)]
struct Roll;

impl Combine for Roll {
    fn combine(&self, gathered: &Gathered<'_>, _: &mut Workspace, combined: &mut [f32]) {
        for (element, roll) in combined.iter_mut().enumerate() {
            for (x, weight) in gathered.column(element).zip(gathered.weights()) {
                *roll = 8.0 * *roll + (x + weight);
            }
        }
    }
}

const fn entry(id: &'static str, build: Build) -> Entry {
    Entry {
        id,
        summary: "a registered compressor with other parts",
        formula: "that of the other",
        family: Family::Hybrid,
        sparse: false,
        error_feedback: true,
        parameters: &[],
        examples: &[],
        reference: "this file",
        payload: "that of the other",
        guarantees: Guarantees { unbiased: false, lossless: false },
        build,
    }
}

type Build = fn(&[Value]) -> Arc<dyn Compressor>;

fn fed(inner: &str, feedback: impl Feedback + 'static) -> Arc<dyn Compressor> {
    Arc::new(Custom { inner: compressor(inner), feedback: Some(Arc::new(feedback)), combine: None })
}

fn combined(combine: impl Combine + 'static) -> Arc<dyn Compressor> {
    Arc::new(Custom { inner: compressor("none"), feedback: None, combine: Some(Arc::new(combine)) })
}

fn compressor(text: &str) -> Arc<dyn Compressor> {
    text.parse::<Spec>().unwrap().compressor()
}

/// Registered compressors, and the same with the defaults of [`Feedback`].
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
    static ENTRY: Entry = entry("variance-steep", |_| fed("variance", Steep));
    Spec::of(&ENTRY)
}

/// A [`Median`] of messages that would add.
pub(crate) fn median() -> Spec {
    static ENTRY: Entry = entry("median", |_| combined(Median));
    Spec::of(&ENTRY)
}

/// A [`Roll`] of uncompressed gradients.
pub(crate) fn roll() -> Spec {
    static ENTRY: Entry = entry("roll", |_| combined(Roll));
    Spec::of(&ENTRY)
}
