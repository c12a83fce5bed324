//! `chunk-topk`: the largest elements of each chunk of 4096, in two bits each; the compressor of
//! SparseLoCo.
//!
//! - **Chunks**: a tensor of two or more dimensions is a matrix: its first dimension by the product
//!   of the others. If both are 64 or more, chunks are tiles of 64 × 64, smaller at the edges.
//!   Other tensors have chunks of 4096 consecutive elements.
//! - **Selection**: the k elements of a chunk with the largest absolute values, at the lowest
//!   positions among equals; no zeros. A chunk of s elements sends max(1, round(k·s / 4096)).
//! - **Values**: a value v is in bin ⌊(v − μ) / (1.5·σ)⌋ + 2, limited to 0…3, and decodes to the
//!   mean of its bin; μ and σ are the mean and the standard deviation of all selected values of the
//!   tensor.
//! - **Message**: a byte with the code of the positions (0 bitmap, 1 Rice, 2 raw), their number as
//!   varint and, unless that is 0, the four means as f32, the bins of the values, and the
//!   positions. The bins begin with a byte for their code: fixed width, or [Huffman
//!   code](gradwire_bits::huffman) if it is shorter than two bits. As few values are in the outer
//!   bins, it takes about 1.5 bits, and from 5500 values on about one, with
//!   [tANS](gradwire_bits::tans). With k = 64, a position takes 7.5 bits in Rice code; 64 of 4096
//!   have an entropy of 7.36 bits each, and SparseLoCo sends 12. A sent element takes 9.2 bits in
//!   total in a tensor of 65 536 elements, and 8.6 from 350 000 elements on.
//! - **Range**: k from 1 to 4096; up to 2³² − 1 elements.
//! - **Error feedback**: on; the residual of a sent element is its difference from the mean.
//!   SparseLoCo weighs the residual by 0.95: `beta=0.95`.
//! - **Limits**: if max|c| is above half of the largest f32, means are cut so no residual
//!   overflows.
//! - **Mean**: over all ranks, and an unsent element counts as 0; with `mean=senders`, over the
//!   ranks that sent the element, as in published code of SparseLoCo.
//! - **Deviations**: positions are coded by their gaps in the whole tensor. Published code rounds
//!   (v − μ) / (1.5·σ) to the nearest bin instead of down, and the sides of its tiles are the
//!   largest divisors of the dimensions up to 64.
//! - **Cost**: 8 bytes per element for the maximum, 12 to gather the tensor, 8 to select in the
//!   cache, and a sort of the positions of each row of tiles.
//!
//! Reference: Sarfi, Thérien, Lidin, Belilovsky: "Communication Efficient LLM Pre-training with
//! SparseLoCo", arXiv:2508.15706, 2025.

use gradwire_bits::{DecodeError, bitmap, varint};

use crate::accumulator::{Accumulator, add_sent};
use crate::numeric::chunks::{Largest, positions_in_parts};
use crate::numeric::matrix;
use crate::parameters::{either, whole};
use crate::wire::fields;
use crate::wire::positions::{self, PositionCode};
use crate::wire::symbols::Alphabet;
use crate::{
    Compressor, Context, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Unit,
    Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "chunk-topk",
    summary: "the largest elements of each chunk of 4096, in two bits each",
    formula: "x̂ = the mean of the element's bin at the k largest |c| of each chunk, 0 elsewhere; \
        bins ⌊(c − μ)/(1.5·σ)⌋, μ and σ of the sent elements",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &["k=1", "k=1000,beta=0.95", "k=4096", "k=100,mean=senders"],
    reference: "Sarfi et al., arXiv:2508.15706",
    payload: "code u8, count varint, four means f32, bins, positions",
    ..Entry::of::<ChunkTopK>(|_| Guarantee::Contractive)
};

crate::parameters! {
    /// Sparsification by chunks, with values of two bits.
    pub struct ChunkTopK {
        /// number of elements to send per chunk of 4096
        k: usize = whole(64, 1..=4096),
        /// an element's mean over all ranks, or over those that sent it
        senders("mean"): bool = either(&["ranks", "senders"]),
    }
}

/// Elements of a chunk.
const CHUNK: usize = SIDE * SIDE;
/// Rows and columns of a tile.
const SIDE: usize = 64;
/// Bins of values.
const BINS: usize = 4;
/// The code of the bins.
const VALUES: fn() -> Alphabet = || Alphabet::new(BINS, true);

/// The buffers that only this method uses.
#[derive(Debug, Default)]
struct ChunkBuffers {
    chunk: Vec<f32>,
    largest: Largest,
}

impl ChunkTopK {
    /// The number of elements that a chunk of this size sends.
    fn kept(&self, size: usize) -> usize {
        ((2 * self.k * size + CHUNK) / (2 * CHUNK)).max(1)
    }

    /// A bound on the number of elements of a message. A matrix of 64 × 64 or more has at most four
    /// times as many tiles as it has room for whole ones.
    fn most(&self, elements: usize) -> usize {
        let chunks = elements.div_ceil(CHUNK).saturating_mul(4);
        (elements / CHUNK + 1).saturating_mul(self.k).saturating_add(chunks).min(elements)
    }

    /// Reads a message: the means of bins. Positions and bins are in the workspace.
    fn read(
        &self,
        mut message: &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<[f32; BINS], DecodeError> {
        let Workspace { positions, symbols, coder, helpers, .. } = workspace;
        let (code, count) = positions::take_header(&mut message, self.most(elements))?;
        positions.clear();
        symbols.clear();
        let mut means = [0.0; BINS];
        if count == 0 {
            fields::expect_len(message, 0)?;
            return Ok(means);
        }
        for mean in &mut means {
            *mean = fields::take_finite(&mut message)?;
        }
        VALUES().take(&mut message, count, symbols, coder, helpers)?;
        code.decode(message, count, elements, positions, helpers)?;
        Ok(means)
    }

    /// Collects the positions to send, in increasing order. The helpers share the chunks.
    fn select(&self, c: &[f32], shape: &[usize], workspace: &mut Workspace) {
        let Workspace { positions, own, helpers, .. } = workspace;
        positions.clear();
        positions.reserve(self.most(c.len()));
        // The number of columns, if the tensor is divided into tiles.
        let tiled = matrix::dimensions(shape)
            .filter(|[rows, columns]| *rows >= SIDE && *columns >= SIDE)
            .map(|[_, columns]| columns);
        let parts = helpers.parts(c.len(), tiled.map_or(CHUNK, |columns| SIDE * columns));
        if parts.is_one() {
            return self.select_of_part(c, 0, tiled, own.get(), positions);
        }
        positions_in_parts(parts, c.chunks(parts.len()), helpers, positions, |start, c, found| {
            self.select_of_part(c, start, tiled, &mut ChunkBuffers::default(), found);
        });
    }

    /// Collects the positions of a part that begins with the element at `base`: whole rows of
    /// tiles, or whole chunks.
    fn select_of_part(
        &self,
        c: &[f32],
        base: usize,
        tiled: Option<usize>,
        buffers: &mut ChunkBuffers,
        positions: &mut Vec<u32>,
    ) {
        let Some(columns) = tiled else {
            for (at, chunk) in c.chunks(CHUNK).enumerate() {
                let start = base + at * CHUNK;
                self.select_of_chunk(std::iter::once(chunk), buffers, |at| {
                    positions.push((start + at) as u32);
                });
            }
            return;
        };
        for (top, tiles) in c.chunks(SIDE * columns).enumerate() {
            let first = positions.len();
            for left in (0..columns).step_by(SIDE) {
                let wide = SIDE.min(columns - left);
                let start = base + top * SIDE * columns + left;
                let rows = tiles.chunks(columns).map(|row| &row[left..left + wide]);
                self.select_of_chunk(rows, buffers, |at| {
                    positions.push((start + at / wide * columns + at % wide) as u32);
                });
            }
            positions[first..].sort_unstable();
        }
    }

    /// Calls `take` with the indices of the largest elements of a chunk that consists of these
    /// rows.
    fn select_of_chunk<'a>(
        &self,
        rows: impl Iterator<Item = &'a [f32]>,
        ChunkBuffers { chunk, largest }: &mut ChunkBuffers,
        mut take: impl FnMut(usize),
    ) {
        chunk.clear();
        rows.for_each(|row| chunk.extend_from_slice(row));
        let kept = self.kept(chunk.len());
        largest.take(chunk, kept).for_each(|(at, _)| take(at));
    }
}

/// The bin of each value, and the means of the bins, at most `most` in absolute value.
fn bins(values: &[f32], most: f32, symbols: &mut Vec<u16>) -> [f32; BINS] {
    let count = values.len() as f64;
    let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / count;
    let square = |&x: &f32| (f64::from(x) - mean) * (f64::from(x) - mean);
    let deviation = (values.iter().map(square).sum::<f64>() / count).sqrt();
    let inverse = if deviation > 0.0 { 1.0 / (1.5 * deviation) } else { 0.0 };
    let bin = |&x: &f32| ((f64::from(x) - mean) * inverse).floor().clamp(-2.0, 1.0) + 2.0;
    symbols.clear();
    symbols.extend(values.iter().map(|x| bin(x) as u16));
    let (mut sums, mut counts) = ([0.0; BINS], [0.0; BINS]);
    for (&symbol, &x) in symbols.iter().zip(values) {
        sums[usize::from(symbol)] += f64::from(x);
        counts[usize::from(symbol)] += 1.0;
    }
    std::array::from_fn(|bin| {
        let mean = if counts[bin] > 0.0 { (sums[bin] / counts[bin]) as f32 } else { 0.0 };
        mean.clamp(-most, most)
    })
}

impl Accumulator for ChunkTopK {
    fn sums(&self, shape: &[usize]) -> usize {
        2 * shape.iter().product::<usize>()
    }

    fn accumulate(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let means = self.read(message, out.len() / 2, workspace)?;
        let Workspace { positions, symbols, helpers, .. } = workspace;
        let value = |symbol| means[usize::from(symbol)];
        add_sent(out, weight, (positions, symbols), value, helpers);
        Ok(())
    }

    fn finish(
        &self,
        sums: &[f32],
        _: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let (values, weights) = sums.split_at(out.len());
        workspace.helpers.add_in_parts(values, Unit::ONE, out, |first, values, out| {
            for ((out, value), &sent) in out.iter_mut().zip(values).zip(&weights[first..]) {
                if sent > 0.0 {
                    *out += weight * (value / sent);
                }
            }
        });
        Ok(())
    }
}

impl Compressor for ChunkTopK {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let largest = source.abs_max();
        let mut spare = std::mem::take(&mut workspace.block);
        let (c, _) = source.take_all(&mut spare, workspace);
        self.select(c, context.shape, workspace);
        let Workspace { positions, values, symbols, coder, helpers, .. } = workspace;
        let code = PositionCode::shortest(positions, c.len());
        positions::put_header(code, positions.len(), message);
        if !positions.is_empty() {
            values.clear();
            values.extend(positions.iter().map(|&at| c[at as usize]));
            let half = f32::MAX / 2.0;
            let most = if largest <= half { half } else { f32::MAX - largest };
            let means = bins(values, most, symbols);
            fields::put_f32s(&means, message);
            VALUES().put(symbols, coder, helpers, message);
            code.encode(positions, c.len(), helpers, message);
            for (&at, &symbol) in positions.iter().zip(&*symbols) {
                c[at as usize] -= means[usize::from(symbol)];
            }
        }
        workspace.block = spare;
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let means = self.read(message, out.len(), workspace)?.map(|mean| weight * mean);
        let Workspace { positions, symbols, helpers, .. } = workspace;
        helpers.add_at(positions, symbols, out, |symbol| means[usize::from(symbol)]);
        Ok(())
    }

    fn accumulator(&self) -> Option<&dyn Accumulator> {
        self.senders.then_some(self)
    }

    fn max_len(&self, elements: usize) -> usize {
        let most = self.most(elements);
        // The shortest code of positions is at most a bitmap's length.
        1 + varint::len(most as u64) + 4 * BINS + VALUES().max_len(most) + bitmap::len(elements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{Sender, encode, refused, residual, round_trip};
    use crate::{Decoder, Spec, Tensor};

    #[test]
    fn a_message_by_hand() {
        // Four of six, as k = 2731 of 4096 is two thirds: 4, −4, 2, 3. Mean 1.25, deviation 3.11,
        // bins of 4.67: −4 is 1.12 below, in bin 0; 2, 3 and 4 are in bin 2.
        let gradient = [4.0, -1.0, -4.0, 2.0, 3.0, 0.5];
        let message = encode("chunk-topk:k=2731", &gradient);
        let means = [-4.0f32, 0.0, 3.0, 0.0].map(f32::to_le_bytes).concat();
        assert_eq!(message, [&[0, 4], &means[..], &[0, 0b10_10_00_10, 0b01_1101]].concat());
        assert_eq!(round_trip("chunk-topk:k=2731", &gradient), [3.0, 0.0, -4.0, 3.0, 3.0, 0.0]);
        assert_eq!(residual("chunk-topk:k=2731", &gradient), [1.0, -1.0, 0.0, -1.0, 0.0, 0.5]);
        assert_eq!(encode("chunk-topk", &[0.0; 5]), [2, 0]);
        assert_eq!(encode("chunk-topk", &[]), [0, 0]);
    }

    /// The sent positions of a tensor of this shape with distinct elements.
    fn sent(spec: &str, shape: &[usize]) -> (Vec<f32>, Vec<u32>, usize) {
        let mut rng = crate::Rng::new(1, 2, 3, 4, 5);
        let gradient: Vec<f32> = (0..shape.iter().product()).map(|_| rng.uniform() - 0.5).collect();
        let mut sender = Sender::new(spec, shape);
        let len = sender.encode(2, &gradient).len();
        (gradient, sender.encoder.positions().to_vec(), len)
    }

    #[test]
    fn tiles_of_a_matrix_are_selected_apart() {
        // Tiles of 64 × 64, 64 × 6, 36 × 64 and 36 × 6: 64, 6, 36 and 3 elements.
        let (gradient, positions, _) = sent("chunk-topk", &[100, 7, 10]);
        assert!(positions.is_sorted());
        let mut expected = Vec::new();
        for (rows, columns, kept) in
            [(0..64, 0..64, 64), (0..64, 64..70, 6), (64..100, 0..64, 36), (64..100, 64..70, 3)]
        {
            let tile = rows.flat_map(|row| columns.clone().map(move |column| row * 70 + column));
            let mut tile: Vec<usize> = tile.collect();
            tile.sort_by(|&a, &b| gradient[b].abs().total_cmp(&gradient[a].abs()));
            expected.extend(tile[..kept].iter().map(|&at| at as u32));
        }
        expected.sort_unstable();
        assert_eq!(positions, expected);
        // Narrow ones are rows of 4096: 64 and 1.
        let (_, positions, _) = sent("chunk-topk", &[4160, 1]);
        assert_eq!(positions.iter().filter(|&&at| at >= 4096).count(), 1);
        assert_eq!(positions.len(), 65);
    }

    #[test]
    fn positions_take_little_more_than_their_entropy() {
        let (_, positions, len) = sent("chunk-topk", &[1024, 1024]);
        assert_eq!(positions.len(), 256 * 64);
        // log2 of 4096 over 64 is 470.8 bits. The largest of uniform values are all near ½ or −½: a
        // bit each.
        let bits = 8.0 * len as f64 / positions.len() as f64 - 1.0;
        assert!(bits < 1.03 * 470.8 / 64.0, "{bits}");
    }

    #[test]
    fn of_equal_values_the_first_are_sent() {
        let decoded = round_trip("chunk-topk:k=2", &[-1.0; 5000]);
        let sent: Vec<usize> = (0..5000).filter(|&at| decoded[at] != 0.0).collect();
        assert_eq!(sent, [0, 1, 4096]);
        assert_eq!(decoded[0], -1.0);
    }

    #[test]
    fn means_over_senders_leave_the_others_out() {
        let mean = |spec: &str| {
            let (parsed, tensor) = (spec.parse::<Spec>().unwrap(), Tensor::new("t", &[3]));
            let mut decoder = Decoder::new(&parsed, 0);
            let [mut sums, mut out] = [Vec::new(), vec![0.0; 3]];
            for (rank, gradient) in [[6.0, 0.0, 0.0], [3.0, 0.0, 1.0]].iter().enumerate() {
                let (message, at) = (encode(spec, gradient), (2, rank as u32));
                decoder.accumulate(&tensor, at, &message, 0.5, &mut sums, &mut out).unwrap();
            }
            decoder.finish(&tensor, 2, &mut sums, &mut out).unwrap();
            out
        };
        // With three elements, k = 1366 sends one.
        assert_eq!(mean("chunk-topk:k=1366"), [4.5, 0.0, 0.0]);
        assert_eq!(mean("chunk-topk:k=4096"), [4.5, 0.0, 0.5]);
        assert_eq!(mean("chunk-topk:k=4096,mean=senders"), [4.5, 0.0, 1.0]);
    }

    #[test]
    fn residuals_stay_finite() {
        let gradient = [f32::MAX, -f32::MAX, 0.9 * f32::MAX, -0.1 * f32::MAX, 1.0];
        let left = residual("chunk-topk:k=4096", &gradient);
        assert!(left.iter().all(|x| x.is_finite()), "{left:?}");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = encode("chunk-topk:k=2731", &[4.0, -1.0, -4.0, 2.0, 3.0, 0.5]);
        let truncated = refused("chunk-topk:k=2731", 6, &good[..good.len() - 1]);
        assert_eq!(truncated, DecodeError::Truncated);
        for (at, byte) in [(0, 4), (1, 7), (5, 0x7f), (20, 0xff)] {
            let mut bad = good.clone();
            bad[at] = byte;
            if at == 5 {
                // Infinity.
                bad[2..6].copy_from_slice(&f32::INFINITY.to_le_bytes());
            }
            assert!(matches!(refused("chunk-topk:k=2731", 6, &bad), DecodeError::Corrupt(_)));
        }
        refused("chunk-topk", 6, &[&good[..], &[0]].concat());
    }
}
