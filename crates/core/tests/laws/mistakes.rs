//! Compressors with mistakes that training would hardly show. A law finds each of them, and says
//! what is wrong.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use gradwire::parameters::Value;
use gradwire::{
    Compressor, Context, Coverage, DecodeArgs, DecodeError, EncodeArgs, Entry, Family, Guarantee,
    Rng, laws,
};
use libtest_mimic::Trial;

/// Rounds at random to 15 levels up to the largest element: a step as f32, and a byte for each
/// element.
#[derive(Debug)]
struct Rounding {
    /// The draws of a message; `None` to round up always.
    draws: Option<fn(&Context<'_>) -> Rng>,
    /// A factor of the step that is sent.
    scale: f32,
    fault: Option<Fault>,
}

/// A mistake in the code of the compressor.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The message depends on the number of messages before.
    Counts,
    /// What is sent stays in the residual.
    KeepsAll,
    /// The rounding errors are lost.
    ForgetsErrors,
    /// A step for huge gradients is infinite.
    Overflows,
    /// A message is longer than `max_len` says.
    LongerThanMaxLen,
    /// A message has more elements than `max_elements` says.
    MoreThanMaxElements,
    /// Decoding adds the values without their weight.
    IgnoresWeight,
    /// Decoding replaces what is in the output.
    Overwrites,
    /// Levels that are missing are zeros.
    AcceptsShort,
    /// Bytes after the levels are ignored.
    AcceptsLong,
    /// A level that is out of range is found after others were added.
    AddsInPart,
}

impl Compressor for Rounding {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, message, .. } = args;
        let fault = |one| self.fault == Some(one);
        let step = match fault(Fault::Overflows) {
            true => 2.0 * source.abs_max() / 14.0,
            false => source.abs_max() / 7.0,
        };
        message.extend_from_slice(&(step * self.scale).to_le_bytes());
        let count = if fault(Fault::Counts) { COUNT.fetch_add(1, Relaxed) } else { 0 };
        let rng = self.draws.map(|draws| draws(context));
        source.take_blocks(|first, block| {
            let mut words = vec![u32::MAX; block.len()];
            if let Some(rng) = &rng {
                rng.fill_from(first + count, &mut words);
            }
            for (x, word) in block.iter_mut().zip(words) {
                let up = f64::from(word) / f64::from(u32::MAX);
                let level = (f64::from(*x) / f64::from(step) + up).floor().clamp(-7.0, 7.0) as i8;
                message.push(level as u8);
                *x -= match self.fault {
                    Some(Fault::KeepsAll) => 0.0,
                    Some(Fault::ForgetsErrors) => *x,
                    _ => f32::from(level) * (step * self.scale),
                };
            }
        });
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, out, .. } = args;
        let (step, levels) = message.split_first_chunk().ok_or(DecodeError::Truncated)?;
        let step = f32::from_le_bytes(*step);
        if !step.is_finite() || !(0.0..=f32::MAX / 7.0).contains(&step) {
            return Err(DecodeError::Corrupt("the step is out of range"));
        }
        let fault = |one| self.fault == Some(one);
        match levels.len().checked_sub(out.len()) {
            None if !fault(Fault::AcceptsShort) => return Err(DecodeError::Truncated),
            Some(extra @ 1..) if !fault(Fault::AcceptsLong) => {
                return Err(DecodeError::Trailing { extra });
            }
            _ => {}
        }
        let wrong = |level: &u8| !(-7..=7).contains(&(*level as i8));
        if levels.iter().any(wrong) && !fault(Fault::AddsInPart) {
            return Err(DecodeError::Corrupt("a level is out of range"));
        }
        let weight = if fault(Fault::IgnoresWeight) { 1.0 } else { weight };
        for (out, level) in out.iter_mut().zip(levels) {
            if wrong(level) {
                return Err(DecodeError::Corrupt("a level is out of range"));
            }
            let before = if fault(Fault::Overwrites) { 0.0 } else { *out };
            *out = before + weight * (f32::from(*level as i8) * step);
        }
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        if self.fault == Some(Fault::LongerThanMaxLen) { elements } else { 4 + elements }
    }

    fn max_elements(&self, message_len: usize) -> usize {
        let elements = message_len.saturating_sub(4);
        if self.fault == Some(Fault::MoreThanMaxElements) { elements / 2 } else { elements }
    }
}

type Build = fn(&[Value]) -> Arc<dyn Compressor>;

const fn entry(id: &'static str, guarantee: fn(&[Value]) -> Guarantee, build: Build) -> Entry {
    Entry {
        id,
        summary: "random rounding to 15 levels",
        formula: "x̂ = step·⌊c/step + u⌋, step = max|c|/7",
        family: Family::Quantization,
        reference: "this file",
        payload: "step f32, d levels u8",
        ..Entry::new(&[], guarantee, build)
    }
}

fn rounding(draws: Option<fn(&Context<'_>) -> Rng>, scale: f32) -> Arc<dyn Compressor> {
    Arc::new(Rounding { draws, scale, fault: None })
}

/// The messages so far, for [`Fault::Counts`].
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Right but for a fault.
macro_rules! faulty {
    ($id:literal, $fault:ident) => {
        entry($id, UNBIASED, |_| {
            let (draws, fault): (fn(&Context<'_>) -> Rng, _) = (|c| c.rng(0), Some(Fault::$fault));
            Arc::new(Rounding { draws: Some(draws), scale: 1.0, fault })
        })
    };
}

const UNBIASED: fn(&[Value]) -> Guarantee = |_| Guarantee::Unbiased;
const CONTRACTIVE: fn(&[Value]) -> Guarantee = |_| Guarantee::Contractive;

/// The draws of the same rank and tensor at step 0.
fn of_step_0(context: &Context<'_>) -> Rng {
    Rng::new(context.seed, context.tensor, context.rank, 0, 0)
}

/// The draws of the same rank and step of a tensor with the id 0.
fn of_tensor_0(context: &Context<'_>) -> Rng {
    Rng::new(context.seed, 0, context.rank, context.step, 0)
}

static RIGHT: Entry = entry("right", UNBIASED, |_| rounding(Some(|c| c.rng(0)), 1.0));
/// Each with a part of the message that names it.
static MISTAKES: [(&str, Entry); 19] = [
    ("mean of", entry("up", UNBIASED, |_| rounding(None, 1.0))),
    ("mean of", entry("half", UNBIASED, |_| rounding(Some(|c| c.rng(0)), 0.5))),
    ("multiplied by 2", entry("kept-half", CONTRACTIVE, |_| rounding(Some(|c| c.rng(0)), 0.5))),
    ("between ranks", entry("ranks", UNBIASED, |_| rounding(Some(|c| c.shared_rng(0)), 1.0))),
    (
        "between ranks",
        entry("kept-ranks", CONTRACTIVE, |_| rounding(Some(|c| c.shared_rng(0)), 1.0)),
    ),
    ("between steps", entry("steps", UNBIASED, |_| rounding(Some(of_step_0), 1.0))),
    ("between steps", entry("kept-steps", CONTRACTIVE, |_| rounding(Some(of_step_0), 1.0))),
    ("between tensors", entry("tensors", UNBIASED, |_| rounding(Some(of_tensor_0), 1.0))),
    ("two encodings differ", faulty!("counts", Counts)),
    (" = ", faulty!("keeps-all", KeepsAll)),
    (" = ", faulty!("forgets-errors", ForgetsErrors)),
    ("the step is out of range", faulty!("overflows", Overflows)),
    ("max_len is", faulty!("longer", LongerThanMaxLen)),
    ("max_elements is", faulty!("more", MoreThanMaxElements)),
    ("a quarter of the weight", faulty!("ignores-weight", IgnoresWeight)),
    ("do not add 0", faulty!("overwrites", Overwrites)),
    ("cut at", faulty!("accepts-short", AcceptsShort)),
    ("a byte too long", faulty!("accepts-long", AcceptsLong)),
    ("was added in part", faulty!("adds-in-part", AddsInPart)),
];

/// A test for each mistake, and one that the compressor without a mistake passes.
pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    let right = Trial::test("mistakes::none", || {
        laws::check(&RIGHT);
        Ok(())
    });
    let wrong = MISTAKES.iter().map(|(says, entry)| {
        Trial::test(format!("mistakes::{}", entry.id), move || {
            let found = catch_unwind(|| laws::check(entry)).err().ok_or("no law found it")?;
            let text = found.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let found = text.or_else(|| found.downcast_ref::<String>().cloned());
            let found = found.ok_or("the law says nothing")?;
            if found.contains(says) { Ok(()) } else { Err(found.into()) }
        })
    });
    std::iter::once(right).chain(wrong)
}
