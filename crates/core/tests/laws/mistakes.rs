//! Compressors with mistakes that training would hardly show. A law finds each of them, and says
//! what is wrong.

use std::panic::catch_unwind;
use std::sync::Arc;

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
}

impl Compressor for Rounding {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, message, .. } = args;
        let step = source.abs_max() / 7.0;
        message.extend_from_slice(&(step * self.scale).to_le_bytes());
        let rng = self.draws.map(|draws| draws(context));
        source.take_blocks(|first, block| {
            let mut words = vec![u32::MAX; block.len()];
            if let Some(rng) = &rng {
                rng.fill_from(first, &mut words);
            }
            for (x, word) in block.iter_mut().zip(words) {
                let up = f64::from(word) / f64::from(u32::MAX);
                let level = (f64::from(*x) / f64::from(step) + up).floor().clamp(-7.0, 7.0) as i8;
                message.push(level as u8);
                *x -= f32::from(level) * (step * self.scale);
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
        match levels.len().checked_sub(out.len()) {
            None => return Err(DecodeError::Truncated),
            Some(0) => {}
            Some(extra) => return Err(DecodeError::Trailing { extra }),
        }
        if levels.iter().any(|&level| !(-7..=7).contains(&(level as i8))) {
            return Err(DecodeError::Corrupt("a level is out of range"));
        }
        for (out, &level) in out.iter_mut().zip(levels) {
            *out += weight * (f32::from(level as i8) * step);
        }
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        4 + elements
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_sub(4)
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
    Arc::new(Rounding { draws, scale })
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
static MISTAKES: [(&str, Entry); 8] = [
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
            let found = found.downcast_ref::<String>().ok_or("the law says nothing")?;
            if found.contains(says) { Ok(()) } else { Err(found.clone().into()) }
        })
    });
    std::iter::once(right).chain(wrong)
}
