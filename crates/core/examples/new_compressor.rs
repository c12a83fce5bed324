//! A new compressor in one file, from the building blocks of `gradwire::tools`: the largest
//! elements, each in a few bits. It has a memory of its own: elements that were sent return as
//! momentum.
//!
//! ```text
//! cargo run --release -p gradwire --example new_compressor
//! ```
//!
//! prints what it sends step by step, after checking that nothing is lost: what has been decoded
//! and what is left add up to what was given, as long as there is no momentum.

use std::error::Error;
use std::ops::Bound::{Excluded, Included};

use gradwire::memories::{Encoding, Step};
use gradwire::parameters::{real, whole};
use gradwire::tools::{
    Grid, Rounding, Selection, dequantize, desparsify, give_back, pack, pack_positions, packed_len,
    packed_positions_len, quantize, sparsify, unpack, unpack_positions,
};
use gradwire::{
    Compressor, Coverage, DecodeArgs, DecodeError, Decoder, EncodeArgs, Encoder, Entry, Family,
    Floats, Guarantee, Memory, NonFinite, Rng, Spec, Tensor, Workspace,
};

/// Its entry. `Spec::of` takes any; spec strings know those that are registered.
static ENTRY: Entry = Entry {
    id: "few-levels",
    summary: "the largest elements, each in a few levels",
    formula: "x̂ = step·round(c/step) at the largest |c|, 0 elsewhere, step = max|c|/s",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &["one-in=3,s=1", "momentum=0.5"],
    reference: "this example",
    payload: "positions, step f32, levels",
    ..Entry::of::<FewLevels>(|_| Guarantee::Contractive)
};

gradwire::parameters! {
    /// The largest elements, in levels.
    struct FewLevels {
        /// elements of which one is sent
        one_in("one-in"): usize = whole(20, 1..=1000),
        /// levels on either side of zero
        s: u16 = whole(7, 1..=127),
        /// weight of the elements sent, which return as momentum
        momentum: f32 = real(0.0, Included(0.0), Excluded(1.0)),
    }
}

impl FewLevels {
    /// The number of levels.
    fn alphabet(&self) -> usize {
        2 * usize::from(self.s) + 1
    }

    /// How many elements of a tensor are sent.
    fn sent(&self, elements: usize) -> usize {
        elements.div_ceil(self.one_in)
    }
}

impl Compressor for FewLevels {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let elements = source.len();
        // What is not selected stays in the tensor, and so in the residual…
        sparsify(source, Selection::Largest(self.sent(elements)), workspace);
        let Workspace { positions, values, symbols, helpers, .. } = workspace;
        pack_positions(positions, elements, message);
        let grid = Grid::up_to(source.abs_max(), self.s);
        grid.write(message);
        symbols.clear();
        quantize(values, grid, Rounding::Nearest, symbols);
        pack(symbols, self.alphabet(), message);
        // …and so does what the levels are off by.
        give_back(source, positions, values, helpers);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let Workspace { positions, values, symbols, .. } = workspace;
        unpack_positions(&mut message, out.len(), positions)?;
        if positions.len() != self.sent(out.len()) {
            return Err(DecodeError::Corrupt("another number of elements is sent"));
        }
        let grid = Grid::read(&mut message, self.s)?;
        unpack(&mut message, self.alphabet(), positions.len(), symbols)?;
        if !message.is_empty() {
            return Err(DecodeError::Trailing { extra: message.len() });
        }
        // All is checked; only now is `out` touched.
        values.clear();
        values.resize(symbols.len(), 0.0);
        dequantize(symbols, grid, weight, values);
        desparsify(positions, values, 1.0, out);
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        let sent = self.sent(elements);
        packed_positions_len(sent, elements) + 4 + packed_len(sent, self.alphabet())
    }

    fn max_elements(&self, message_len: usize) -> usize {
        // No position takes less than a bit.
        message_len.saturating_mul(8).saturating_mul(self.one_in).min(u32::MAX as usize)
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(self)
    }
}

/// The corrected tensor c, from before to after its encoding.
#[derive(Debug, Default)]
struct Corrected(Vec<f32>);

/// The memory: φ = m + g, and ψ = c − g̃ + μ·g̃, so that an element that is sent every time has a
/// momentum of μ.
impl Memory for FewLevels {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let (weights, memory) = step.feedback.expect("this memory is error feedback");
        let feedback = Some((weights, &mut *memory));
        let mut source = encoding.source(step.input.gradient, feedback, step.scratch)?;
        let Corrected(corrected) = encoding.buffers();
        corrected.clear();
        source.peek_blocks(|_, block| corrected.extend_from_slice(block));
        // What the message fails to carry is in the memory afterwards.
        let sent = encoding.encode(&mut source)?;
        let Corrected(corrected) = encoding.buffers();
        for (m, c) in memory.iter_mut().zip(corrected) {
            *m += self.momentum * (*c - *m);
        }
        Ok(sent)
    }
}

const ELEMENTS: usize = 100_000;
const STEPS: u64 = 10;
const SEED: u64 = 7;

fn main() -> Result<(), Box<dyn Error>> {
    let spec = Spec::of(&ENTRY);
    let tensor = Tensor::new("layer.weight", &[100, 1000]);
    let (mut encoder, mut decoder) = (Encoder::new(&spec, SEED, 0), Decoder::new(&spec, SEED));
    let mut given = vec![0f64; ELEMENTS];
    let mut received = vec![0f32; ELEMENTS];
    let mut message = Vec::new();
    for step in 0..STEPS {
        let gradient = gradient(step);
        given.iter_mut().zip(&gradient).for_each(|(sum, &g)| *sum += f64::from(g));
        message.clear();
        encoder.encode(&tensor, step, Floats::F32(&gradient), &mut message)?;
        decoder.decode_add(&tensor, step, 0, &message, 1.0, &mut received)?;

        let residual = encoder.residual(tensor.name()).ok_or("error feedback is on")?;
        for (i, given) in given.iter().enumerate() {
            let found = f64::from(received[i]) + f64::from(residual[i]);
            assert!((given - found).abs() < 1e-5, "element {i}: {given} given, {found} found");
        }
        let bits = 8.0 * message.len() as f64 / ELEMENTS as f64;
        println!("step {step}: {bits:.3} bits an element, residual {:.2}", norm(residual));
    }
    Ok(())
}

/// Cubes of uniform numbers: few large ones among many small, as gradients are.
fn gradient(step: u64) -> Vec<f32> {
    let mut words = vec![0; ELEMENTS];
    Rng::new(SEED, 1, 0, step, 0).fill(&mut words);
    words.iter().map(|&word| (word as i32 as f32 / i32::MAX as f32).powi(3)).collect()
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two of 21 are sent: 7 and −3.25, as the levels 7 and −3 of step 1.
    fn gradient_by_hand() -> [f32; 21] {
        let mut gradient = [0.5; 21];
        (gradient[0], gradient[20]) = (7.0, -3.25);
        gradient
    }

    /// A bitmap of two; the step; 7 + 7 and −3 + 7 in four bits each.
    const MESSAGE: [u8; 10] = [0, 2, 1, 0, 0b1_0000, 0, 0, 0x80, 0x3f, 0x4e];

    #[test]
    fn a_message_worked_by_hand() {
        let (spec, tensor) = (Spec::of(&ENTRY), Tensor::new("t", &[21]));
        let (mut encoder, mut message) = (Encoder::new(&spec, 0, 0), Vec::new());
        encoder.encode(&tensor, 0, Floats::F32(&gradient_by_hand()), &mut message).unwrap();
        assert_eq!(message, MESSAGE);
        let mut residual = [0.5; 21];
        (residual[0], residual[20]) = (0.0, -0.25);
        assert_eq!(encoder.residual("t"), Some(&residual[..]));
        let mut out = [1.0; 21];
        Decoder::new(&spec, 0).decode_add(&tensor, 0, 0, &message, 0.5, &mut out).unwrap();
        assert_eq!((out[0], out[1], out[20]), (4.5, 1.0, -0.5));
    }

    #[test]
    fn other_bytes_change_nothing() {
        let (spec, tensor) = (Spec::of(&ENTRY), Tensor::new("t", &[21]));
        let mut decoder = Decoder::new(&spec, 0);
        let longer = [&MESSAGE[..], &[0]].concat();
        let mut fifteen = MESSAGE;
        fifteen[9] = 0x4f;
        let mut one = MESSAGE;
        (one[1], one[4]) = (1, 0);
        let cut = (0..MESSAGE.len()).map(|len| &MESSAGE[..len]);
        for message in cut.chain([&longer[..], &fifteen, &one]) {
            let mut out = [1.0; 21];
            assert!(decoder.decode_add(&tensor, 0, 0, message, 1.0, &mut out).is_err());
            assert_eq!(out, [1.0; 21], "{message:?}");
        }
    }

    #[test]
    fn what_was_sent_comes_back() {
        let spec = Spec::of(&ENTRY).with_number("momentum", 0.5).unwrap();
        let (mut encoder, tensor) = (Encoder::new(&spec, 0, 0), Tensor::new("t", &[21]));
        let mut message = Vec::new();
        encoder.encode(&tensor, 0, Floats::F32(&gradient_by_hand()), &mut message).unwrap();
        assert_eq!(message, MESSAGE);
        let mut memory = [0.5; 21];
        // Half of 7 with nothing left, half of −3 with −0.25 left.
        (memory[0], memory[20]) = (3.5, -1.75);
        assert_eq!(encoder.residual("t"), Some(&memory[..]));
    }

    #[test]
    fn it_obeys_the_laws() {
        gradwire::laws::check(&ENTRY);
    }

    #[test]
    fn nothing_is_lost() {
        main().unwrap();
    }
}
