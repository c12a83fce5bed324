//! `thc`: the tensor rotated at random, rounded to integers that all ranks can add.
//!
//! A piece x of n elements becomes y = H·D·x / ℓ by a [rotation](crate::numeric::rotation) that all
//! ranks share; ℓ is the largest norm ‖x‖ of any rank. The elements of y are close to normally
//! distributed with a deviation of at most 1. They are clipped to [−T, T], which is divided into
//! g = 30 equal parts, and rounded at random to one of 2^b of the 31 borders, with the clipped
//! value as expectation. A table has these borders as integers from 0 to 30, and an element's
//! message is its index in the table. Sums of the integers suffice to decode the mean: if m is the
//! mean of the integers, an element of y is m·2T / g − T, and the piece is ℓ·D·H·y / n.
//!
//! - **Message**: two rounds of all-reduce. The first takes the largest norms of pieces, as f32.
//!   The second has indices of b bits and, on the way back, sums of integers of ⌈log2(30·ranks +
//!   1)⌉ bits, 8 with up to eight ranks. No rank decodes before the last step.
//! - **Aggregation**: rounds of all-reduce; ranks must have equal weights. Under other exchanges
//!   each rank's message has its own norms and indices, and is decoded alone.
//! - **Range**: 2 to 4 bits. T leaves out a share p of a normal distribution: 1/32 with 4 bits,
//!   1/16 with 3, 1/4 with 2.
//! - **Error**: for one rank 0.0203, 0.0592 and 0.181 of ‖x‖² with 4, 3 and 2 bits. Most of it is
//!   noise, which the mean over n ranks divides by n.
//! - **Error feedback**: on. It returns the clipped part in later steps.
//! - **Draws**: signs from the shared generator, stream 0; rounding from the rank's own generator,
//!   stream 1.
//! - **Limits**: a piece whose largest norm is below about 3·10⁻³⁹ or above 8·10³⁷ is not sent; it
//!   stays in the residual.
//! - **Deviations**: the paper rotates the whole tensor and shares one norm. It has 4 bits, g = 30
//!   and p = 1/32; for 2 and 3 bits, p minimises the error here. Tables minimise the error for
//!   normally distributed elements, as in the paper; of a table and its equally good mirror image,
//!   the one with more entries below 15 is used.
//! - **Cost**: 8 bytes per element for the sum, 8 for the norm and the rotation, 8 for the
//!   residual; two rotations to encode, one to decode.
//!
//! Reference: Li et al.: "THC: Accelerating Distributed Deep Learning Using Tensor Homomorphic
//! Compression", NSDI 2024, sections 4 and 5.

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Table};

use crate::compressors::single_rank::{SingleRank, sixteen};
use crate::multi_round::{MultiRound, RankState, ReduceOp, Round, RoundContext};
use crate::numeric::rotation::{RotationPiece, Signs, pieces, pieces_of};
use crate::parameters::whole;
use crate::wire::levels;
use crate::{
    BLOCK, Context, Coverage, Entry, Family, Guarantee, Helpers, Passes, Properties, Unit,
    Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "thc",
    summary: "a random rotation, then rounding to integers that are added without decoding",
    formula: "x̂ = ℓ·D·H·(m·2T/30 − T)/n, m the mean of the integers to which H·D·c/ℓ is rounded, \
        ℓ = max‖c‖ over ranks",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["bits=2", "bits=3", "ef=off"],
    reference: "Li et al., NSDI 2024",
    payload: "norms f32, d × b bits; back: sums of integers up to 30·ranks, 8 bits per element for up to 8 ranks",
    passes: Passes::TWO,
    properties: |_| Properties { needs_equal_weights: true, ..Properties::DEFAULT },
    ..Entry::of::<SingleRank<Thc>>(|_| {
        Guarantee::Neither(
            "elements are clipped after the rotation, and rounded at random to few levels",
        )
    })
};

crate::parameters! {
    /// Quantization to integers that can be added.
    pub struct Thc {
        /// bits per element
        bits: usize = whole(4, 2..=4),
    }
}

/// The number of equal parts of the range.
const PARTS: f32 = 30.0;

/// The largest norm of a piece that is sent. No element, decoded element or difference between them
/// overflows.
const LARGEST: f32 = f32::MAX / 4.0;

/// The integers of a number of bits, and the end T of the range.
#[derive(Debug)]
struct Scale {
    entries: &'static [u8],
    table: Table,
    most: f32,
}

impl Scale {
    const fn new(entries: &'static [u8], most: f32) -> Self {
        Self { entries, table: Table::new(entries), most }
    }

    /// The decoded value of an integer, or of a mean of integers.
    fn decode(&self, integer: f32) -> f32 {
        integer * (2.0 * self.most / PARTS) - self.most
    }
}

static SCALES: [Scale; 3] = [
    Scale::new(&[0, 10, 20, 30], 1.150_349_4),
    Scale::new(&[0, 5, 9, 13, 17, 21, 25, 30], 1.862_731_9),
    Scale::new(&[0, 3, 5, 7, 9, 11, 13, 14, 15, 17, 19, 21, 23, 25, 27, 30], 2.153_874_7),
];

/// Buffers for the work on a piece.
#[derive(Debug, Default)]
struct PieceBuffers {
    block: Vec<f32>,
    random: Vec<u32>,
    indices: Vec<u16>,
}

/// The rounds by their numbers.
const NORMS: usize = 0;
const INTEGERS: usize = 1;

impl Thc {
    fn scale(&self) -> &'static Scale {
        &SCALES[self.bits - 2]
    }

    /// Both rounds of a tensor.
    fn rounds(&self, elements: usize) -> [Round; 2] {
        let [count, sizes] = totals(elements);
        let integers = ReduceOp::TableMean(self.scale().entries);
        [Round { len: count, op: ReduceOp::Max }, Round { len: sizes, op: integers }]
    }

    /// Appends the norm of each piece. The helpers share the pieces.
    fn norms(corrected: &[f32], norms: &mut Vec<f32>, helpers: &mut Helpers) {
        let norm =
            |piece: &[f32]| kernels::sum_of_squares(piece).sqrt().min(f32::MAX.into()) as f32;
        let (whole, start) = (corrected.len() / BLOCK, norms.len());
        norms.resize(start + whole, 0.0);
        let parts = helpers.parts(whole * BLOCK, BLOCK);
        let norms_of_part = norms[start..].chunks_mut(parts.len().div_ceil(BLOCK));
        helpers.share(corrected.chunks(parts.len()).zip(norms_of_part), |(corrected, norms)| {
            corrected.chunks(BLOCK).zip(norms).for_each(|(piece, to)| *to = norm(piece));
        });
        let rest = pieces_of(whole * BLOCK..corrected.len());
        norms.extend(
            rest.map(|RotationPiece { start, len, .. }| norm(&corrected[start..start + len])),
        );
    }

    /// Adds the decoded pieces of a part that begins with element `start`, times a weight.
    fn add_part(
        &self,
        start: usize,
        mut integers: &[f32],
        norms: &[f32],
        (context, weight): (&Context<'_>, f32),
        out: &mut [f32],
    ) {
        let (scale, mut block) = (self.scale(), [0.0; BLOCK]);
        for (piece, &norm) in pieces_of(start..start + out.len()).zip(&norms[start / BLOCK..]) {
            let own;
            (own, integers) = integers.split_at(piece.size);
            let block = &mut block[..piece.size];
            block.iter_mut().zip(own).for_each(|(to, &integer)| *to = scale.decode(integer));
            let signs = Signs::draw(&context.shared_rng(0), piece);
            rotate_back(block, &signs, usable(norm).0);
            let out = &mut out[piece.start - start..][..piece.len];
            kernels::add_scaled(out, &block[..piece.len], weight);
        }
    }

    /// Writes the indices of the pieces of a part that begins with element `start`, and subtracts
    /// their decoded values.
    fn quantize_part(
        &self,
        start: usize,
        (corrected, mut addend): (&mut [f32], &mut [f32]),
        norms: &[f32],
        context: &Context<'_>,
        buffers: &mut PieceBuffers,
    ) {
        let end = start + corrected.len();
        for (piece, &norm) in pieces_of(start..end).zip(&norms[start / BLOCK..]) {
            let corrected = &mut corrected[piece.start - start..][..piece.len];
            let of_piece;
            (of_piece, addend) = addend.split_at_mut(piece.size);
            self.quantize(piece, norm, (corrected, of_piece), context, buffers);
        }
    }

    /// Writes the indices of a piece, and subtracts their decoded values.
    fn quantize(
        &self,
        piece: RotationPiece,
        norm: f32,
        (corrected, addend): (&mut [f32], &mut [f32]),
        context: &Context<'_>,
        PieceBuffers { block, random, indices }: &mut PieceBuffers,
    ) {
        let scale = self.scale();
        let (norm, inverse) = usable(norm);
        block.clear();
        block.extend(corrected.iter().map(|x| x * inverse));
        block.resize(piece.size, 0.0);
        let signs = Signs::draw(&context.shared_rng(0), piece);
        signs.rotate(block);

        random.resize(piece.size, 0);
        context.rng(1).fill_rounding(piece.start, random);
        indices.resize(piece.size, 0);
        let (factor, middle) = (PARTS / (2.0 * scale.most), PARTS / 2.0);
        kernels::stochastic_entries(block, factor, middle, &scale.table, random, indices);
        addend.iter_mut().zip(&*indices).for_each(|(to, &index)| *to = f32::from(index));

        let numbers = sixteen(scale.entries, |entry| scale.decode(f32::from(entry)));
        kernels::looked_up(indices, &numbers, block);
        rotate_back(block, &signs, norm);
        for (x, decoded) in corrected.iter_mut().zip(&*block) {
            *x -= decoded;
        }
    }
}

/// Replaces decoded elements of y by the elements of x.
fn rotate_back(piece: &mut [f32], signs: &Signs, norm: f32) {
    signs.rotate_back(piece);
    // The length is a power of two, so this is exactly a division by it.
    let scale = 1.0 / piece.len() as f32;
    piece.iter_mut().for_each(|x| *x = *x * scale * norm);
}

/// A norm and its inverse; both 0 if the piece is not sent.
fn usable(norm: f32) -> (f32, f32) {
    levels::invertible(if (0.0..=LARGEST).contains(&norm) { norm } else { 0.0 })
}

/// The number of a tensor's elements.
fn elements(context: &Context<'_>) -> usize {
    context.shape.iter().product()
}

/// The number of pieces of a tensor, and the number of their elements with padding.
fn totals(elements: usize) -> [usize; 2] {
    let whole = elements / BLOCK;
    pieces(elements % BLOCK)
        .fold([whole, whole * BLOCK], |[count, sizes], piece| [count + 1, sizes + piece.size])
}

impl MultiRound for Thc {
    fn round(&self, context: &RoundContext<'_>, round: usize) -> Option<Round> {
        self.rounds(elements(context.context)).get(round).copied()
    }

    fn contribute(&self, round: usize, state: &mut RankState<'_>, addend: &mut Vec<f32>) {
        let RankState { corrected, means: norms, context, workspace, .. } = state;
        let Workspace { own, helpers, .. } = &mut **workspace;
        if round == NORMS {
            return Self::norms(corrected, addend, helpers);
        }
        debug_assert_eq!(round, INTEGERS);
        let [_, sizes] = totals(corrected.len());
        let first = addend.len();
        addend.resize(first + sizes, 0.0);
        let addend = &mut addend[first..];
        let parts = helpers.parts(corrected.len(), BLOCK);
        if parts.is_one() {
            return self.quantize_part(0, (corrected, addend), norms, context, own.get());
        }
        // A last part with padding is at most as long as the others.
        let lists = corrected.chunks_mut(parts.len()).zip(addend.chunks_mut(parts.len()));
        helpers.share(parts.places().zip(lists), |(places, lists)| {
            self.quantize_part(places.start, lists, norms, context, &mut PieceBuffers::default());
        });
    }

    fn settle(&self, _: &mut RankState<'_>) -> Coverage {
        Coverage::All
    }

    fn decode_add(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let [count, _] = totals(out.len());
        let (norms, integers) = means.split_at(count);
        if norms.iter().any(|&norm| norm < 0.0) {
            return Err(DecodeError::Corrupt("a norm is negative"));
        }
        // The pieces of a part are at most as long as the part, except a last one with padding.
        let unit = Unit { items: BLOCK, elements: BLOCK };
        workspace.helpers.add_in_parts(integers, unit, out, |start, integers, out| {
            self.add_part(start, integers, norms, (context.context, weight), out);
        });
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        let [norms, integers] = self.rounds(elements).map(Round::bytes);
        norms.saturating_add(integers)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        message_len.saturating_mul(8) / self.bits
    }
}

#[cfg(test)]
mod tests {
    use super::super::eden::tests::{skewed, square};
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};
    use crate::{Encoder, Floats, Spec, Tensor};

    /// The density of the normal distribution.
    fn density(x: f64) -> f64 {
        (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
    }

    /// The integral of `f` by Simpson's rule.
    fn integral(from: f64, to: f64, f: impl Fn(f64) -> f64) -> f64 {
        let (parts, width) = (200, (to - from) / 200.0);
        let weight = |at| match at {
            _ if at == 0 || at == parts => 1.0,
            _ if at % 2 == 1 => 4.0,
            _ => 2.0,
        };
        (0..=parts).map(|at| weight(at) * f(from + width * f64::from(at))).sum::<f64>() * width
            / 3.0
    }

    /// The expected squared error of rounding a normally distributed value between two integers at
    /// random.
    fn between(most: f64, lower: usize, upper: usize) -> f64 {
        let place = |integer: usize| most * (integer as f64 / 15.0 - 1.0);
        let (lower, upper) = (place(lower), place(upper));
        integral(lower, upper, |x| (upper - x) * (x - lower) * density(x))
    }

    #[test]
    fn tables_and_ranges_are_those_of_the_definition() {
        for (bits, p) in [(2, 1.0 / 4.0), (3, 1.0 / 16.0), (4, 1.0 / 32.0)] {
            let Scale { entries, most, .. } = &SCALES[bits - 2];
            let most = f64::from(*most);
            assert_eq!(entries.len(), 1 << bits);
            assert!((integral(-most, most, density) - (1.0 - p)).abs() < 1e-6, "{bits} bits");
            // The least error of `count` entries that end with an integer, over the choices for the
            // entry before.
            let mut least = [f64::INFINITY; 31];
            least[0] = 0.0;
            for _ in 1..entries.len() {
                least = std::array::from_fn(|end| {
                    let ways = (0..end).map(|before| least[before] + between(most, before, end));
                    ways.fold(f64::INFINITY, f64::min)
                });
            }
            let here: f64 =
                entries.windows(2).map(|pair| between(most, pair[0].into(), pair[1].into())).sum();
            assert!((here / least[30] - 1.0).abs() < 1e-9, "{bits} bits: {here}, {}", least[30]);
        }
    }

    fn normal(elements: usize) -> Vec<f32> {
        let mut rng = crate::Rng::new(1, 2, 3, 4, 5);
        (0..elements).map(|_| rng.normal()).collect()
    }

    #[test]
    fn errors_are_those_of_a_normal_distribution() {
        let gradient = normal(40 * BLOCK);
        let whole = square(gradient.iter().copied());
        for (bits, expected) in [(2, 0.1812), (3, 0.0592), (4, 0.0203)] {
            let decoded = round_trip(&format!("thc:bits={bits}"), &gradient);
            let found = square(gradient.iter().zip(decoded).map(|(x, y)| x - y)) / whole;
            assert!((found / expected - 1.0).abs() < 0.03, "{bits} bits: {found}, not {expected}");
        }
    }

    /// Runs both rounds of these gradients' ranks, and returns the decoded mean and all residuals.
    fn all_reduce(spec: &str, gradients: &[Vec<f32>]) -> (Vec<f32>, Vec<Vec<f32>>) {
        let (spec, elements): (Spec, _) = (spec.parse().unwrap(), gradients[0].len());
        let tensor = Tensor::new("t", &[elements]);
        let ranks = gradients.len() as f32;
        let mut encoders: Vec<_> =
            (0..gradients.len()).map(|rank| Encoder::new(&spec, 1, rank as u32)).collect();
        let mut means = Vec::new();
        for round in 0.. {
            let mut addends = Vec::new();
            let mut op = None;
            for (encoder, gradient) in encoders.iter_mut().zip(gradients) {
                let (input, mut addend) = (Floats::F32(gradient), Vec::new());
                op = encoder.contribute(&tensor, 7, round, input, &means, &mut addend).unwrap();
                addends.push(addend);
            }
            let Some(op) = op else { break };
            let column = |at: usize| addends.iter().map(move |addend| addend[at]);
            for at in 0..addends[0].len() {
                means.push(match op {
                    ReduceOp::Mean => unreachable!("no round of this method has means"),
                    ReduceOp::Max => column(at).fold(0.0, f32::max),
                    ReduceOp::TableMean(table) => {
                        let sum: u32 = column(at).map(|x| u32::from(table[x as usize])).sum();
                        sum as f32 / ranks
                    }
                });
            }
        }
        let mut decoded = Vec::new();
        let conclude = |encoder: &mut Encoder| {
            decoded = vec![0.0; elements];
            encoder.conclude(&tensor, 7, &means, &mut decoded).unwrap();
            encoder.residual("t").unwrap().to_vec()
        };
        let residuals = encoders.iter_mut().map(conclude).collect();
        (decoded, residuals)
    }

    #[test]
    fn the_mean_and_the_residuals_are_the_gradients() {
        for elements in [0, 1, 33, 1000, BLOCK, 2 * BLOCK + 800] {
            let gradients: Vec<Vec<f32>> = [1.0, -0.5, 0.01]
                .map(|factor| skewed(elements).into_iter().map(|x| factor * x).collect())
                .to_vec();
            let (decoded, residuals) = all_reduce("thc", &gradients);
            for at in 0..elements {
                let given: f32 = gradients.iter().map(|gradient| gradient[at]).sum();
                let left: f32 = residuals.iter().map(|residual| residual[at]).sum();
                let sent = 3.0 * decoded[at];
                let size = gradients[0][at].abs() + left.abs() + sent.abs() + 100.0;
                assert!((given - left - sent).abs() < 1e-5 * size, "{elements}, {at}");
            }
        }
    }

    #[test]
    fn the_noise_of_the_mean_falls_with_the_ranks() {
        let gradient = normal(40 * BLOCK);
        let error = |ranks: usize| {
            let (decoded, _) = all_reduce("thc", &vec![gradient.clone(); ranks]);
            square(gradient.iter().zip(decoded).map(|(x, y)| x - y))
                / square(gradient.iter().copied())
        };
        // Clipping, 0.0073, stays; rounding at random, 0.0131, is divided by the ranks.
        for (ranks, expected) in [(1, 0.0203), (4, 0.0105), (16, 0.0081)] {
            let found = error(ranks);
            assert!((found / expected - 1.0).abs() < 0.05, "{ranks}: {found}, not {expected}");
        }
    }

    #[test]
    fn messages_by_hand() {
        // One element is its own norm: y is 1 or −1, and the integers nearest to 15 ± 15 /
        // 2.1538747 have 21 and 23, or 7 and 9.
        let message = encode("thc", &[3.0]);
        assert_eq!((message.len(), &message[..4]), (5, &3f32.to_le_bytes()[..]));
        let decoded = round_trip("thc", &[3.0])[0];
        let near =
            |integer: f32| (3.0 * (integer / 15.0 - 1.0) * 2.153_874_7 - decoded).abs() < 1e-5;
        assert!(near(21.0) || near(23.0), "{decoded}");
        assert_eq!(residual("thc", &[3.0]), [3.0 - decoded]);
        assert!(encode("thc", &[]).is_empty());
        assert_eq!(encode("thc", &skewed(BLOCK)).len(), 4 + BLOCK / 2);
        assert_eq!(encode("thc:bits=2", &skewed(100)).len(), 8 + 128 / 4);
        assert_eq!(round_trip("thc", &[0.0; 70]), [0.0; 70]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = encode("thc", &[1.0, -2.0, 3.0]);
        assert_eq!(good.len(), 6);
        assert_eq!(refused("thc", 3, &good[..5]), DecodeError::Truncated);
        let long = [&good[..], &[0]].concat();
        assert_eq!(refused("thc", 3, &long), DecodeError::Trailing { extra: 1 });
        for norm in [-1.0, f32::NAN, f32::INFINITY] {
            let bad = [&f32::to_le_bytes(norm)[..], &good[4..]].concat();
            assert!(matches!(refused("thc", 3, &bad), DecodeError::Corrupt(_)));
        }
    }
}
