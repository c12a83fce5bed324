//! `codebook8`: 256 equal buckets over twelve standard deviations, each decoded to the mean of its
//! elements.
//!
//! An element c is in bucket ⌊(c − μ) / (12·σ / 256)⌋ + 128, limited to 0…255, and decodes to the
//! mean of the elements in its bucket; μ and σ are the mean and the standard deviation of the
//! tensor.
//!
//! - **Message**: 32 bytes with a bit per bucket (1 if it has elements), the means of these buckets
//!   as f32, then d bytes with each element's bucket. With `code=huffman` a byte after the means
//!   says whether [Huffman code](gradwire_bits::huffman) follows, which it does if it is shorter:
//!   6.5 bits for a normal distribution. An empty tensor has an empty message.
//! - **Error**: at most the width of a bucket, 0.047·σ, for elements up to 6·σ from the mean;
//!   1.8·10⁻⁴ of the variance for a normal distribution.
//! - **Error feedback**: off, as in the paper, which compresses pseudo-gradients of a hundred local
//!   steps.
//! - **Limits**: a σ below 10⁻⁶ of the root mean square counts as 0, and buckets are then 12/256
//!   wide. If max|c| is above half of the largest f32, means are cut so no residual overflows.
//! - **Deviations**: means of empty buckets are not sent.
//! - **Cost**: 8 bytes per element for mean and deviation, 8 for the buckets and their means, and
//!   12 with error feedback.
//!
//! Reference: Jaghouar et al.: "INTELLECT-1 Technical Report", arXiv:2412.01152, 2024, section 2.

use std::iter::repeat_with;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Bins};

use crate::parameters::{Parameters, either};
use crate::parts::PART;
use crate::wire::fields;
use crate::wire::symbols::Alphabet;
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Helpers, Passes,
    Properties, Source, Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "codebook8",
    summary: "256 equal buckets over twelve standard deviations, decoded to their means",
    formula: "x̂ = the mean of the bucket of c, buckets ⌊(c − μ)/(12·σ/256)⌋ + 128",
    family: Family::Quantization,
    examples: &["ef=on", "code=huffman"],
    reference: "Jaghouar et al., arXiv:2412.01152",
    payload: "used buckets 256 bits, means f32, d × u8",
    passes: Passes { before: 2, ..Passes::ONE },
    properties: |values| {
        let value_bits = Codebook8::new(values).symbols().value_bits();
        Properties { value_bits, ..Properties::DEFAULT }
    },
    ..Entry::of::<Codebook8>(|_| Guarantee::Contractive)
};

/// Buckets.
const BUCKETS: usize = 256;
/// Tables of sums; elements go to them in turn.
const TABLES: usize = 4;
/// Bytes with a bit per bucket.
const USED: usize = BUCKETS / 8;

crate::parameters! {
    /// Quantization to means of buckets.
    pub struct Codebook8 {
        /// buckets of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

/// The buckets of a tensor. If all elements are equal, any width is right.
fn bins(source: &mut Source<'_>) -> Bins {
    let moments = source.moments();
    let (mean, deviation) = (moments.mean(), moments.standard_deviation());
    let deviation = if deviation > 0.0 { deviation } else { 1.0 };
    let (least, width) = (mean - 6.0 * deviation, 12.0 * deviation / BUCKETS as f64);
    Bins { least, width, top: (BUCKETS - 1) as u16 }
}

/// The sum and the number of the elements of each bucket. Consecutive elements often share a
/// bucket; with separate tables, their sums do not wait for each other.
#[derive(Debug)]
struct Sums {
    sums: [[f64; BUCKETS]; TABLES],
    counts: [[u64; BUCKETS]; TABLES],
}

impl Sums {
    const ZERO: Self = Self { sums: [[0.0; BUCKETS]; TABLES], counts: [[0; BUCKETS]; TABLES] };

    fn add(&mut self, block: &[f32], symbols: &[u16]) {
        for (block, symbols) in block.chunks(TABLES).zip(symbols.chunks(TABLES)) {
            for (table, (&x, &bucket)) in block.iter().zip(symbols).enumerate() {
                self.sums[table][usize::from(bucket)] += f64::from(x);
                self.counts[table][usize::from(bucket)] += 1;
            }
        }
    }
}

/// Writes the bucket of each element to `symbols`, and returns the means of the buckets; `None` for
/// an empty bucket. The helpers share the work.
fn buckets(
    source: &mut Source<'_>,
    symbols: &mut Vec<u16>,
    helpers: &mut Helpers,
) -> [Option<f32>; BUCKETS] {
    let bins = bins(source);
    let (mut sums, mut counts) = ([0.0; BUCKETS], [0u64; BUCKETS]);
    symbols.resize(source.len(), 0);
    let parts = repeat_with(|| Sums::ZERO).zip(symbols.chunks_mut(PART));
    let look = |(sums, symbols): &mut (Sums, &mut [u16]), start: usize, block: &[f32]| {
        let symbols = &mut symbols[start % PART..][..block.len()];
        kernels::bin_of(block, bins, symbols);
        sums.add(block, symbols);
    };
    source.peek_parts(helpers, parts, look, |(part, _)| {
        for bucket in 0..BUCKETS {
            sums[bucket] += part.sums.iter().map(|table| table[bucket]).sum::<f64>();
            counts[bucket] += part.counts.iter().map(|table| table[bucket]).sum::<u64>();
        }
    });
    // The residual of an element is finite, too.
    let (largest, half) = (source.abs_max(), f32::MAX / 2.0);
    let most = if largest <= half { half } else { f32::MAX - largest };
    std::array::from_fn(|bucket| {
        let (sum, count) = (sums[bucket], counts[bucket]);
        (count > 0).then(|| ((sum / count as f64) as f32).clamp(-most, most))
    })
}

impl Codebook8 {
    fn symbols(&self) -> Alphabet {
        Alphabet::new(BUCKETS, self.huffman)
    }
}

impl Compressor for Codebook8 {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        if source.is_empty() {
            return Coverage::All;
        }
        let Workspace { symbols, helpers, .. } = &mut *workspace;
        let means = buckets(source, symbols, helpers);
        let mut used = [0; USED];
        for (bucket, mean) in means.iter().enumerate() {
            used[bucket / 8] |= u8::from(mean.is_some()) << (bucket % 8);
        }
        message.extend_from_slice(&used);
        means.iter().flatten().for_each(|&mean| fields::put_f32(mean, message));
        if source.keeps_residual() {
            let symbols = std::mem::take(&mut workspace.symbols);
            let none = |_| ();
            source.in_parts(workspace, none, |source, (), _| {
                source.take_blocks(|start, block| {
                    for (x, &bucket) in block.iter_mut().zip(&symbols[start..]) {
                        *x -= means[usize::from(bucket)].unwrap_or(0.0);
                    }
                });
            });
            workspace.symbols = symbols;
        }
        self.symbols().write(workspace, message);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        if out.is_empty() {
            return fields::expect_len(message, 0);
        }
        let used = fields::take(&mut message, USED)?;
        let is_used = |bucket: usize| used[bucket / 8] >> (bucket % 8) & 1 == 1;
        let mut means = [0.0; BUCKETS];
        for (bucket, mean) in means.iter_mut().enumerate() {
            if is_used(bucket) {
                *mean = weight * fields::take_finite(&mut message)?;
            }
        }
        let check = |_, symbols: &[u16]| {
            if symbols.iter().any(|&bucket| !is_used(usize::from(bucket))) {
                return Err(DecodeError::Corrupt("an element is in a bucket without a mean"));
            }
            Ok(())
        };
        let (symbols, helpers) =
            self.symbols().view_checked(&mut message, out.len(), workspace, check)?;
        fields::expect_len(message, 0)?;
        symbols.add(out, helpers, |_, symbols, out| {
            kernels::numbers_add(symbols, &means, out);
        });
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::Moments
    }

    fn max_len(&self, elements: usize) -> usize {
        if elements == 0 {
            return 0;
        }
        let means = elements.min(BUCKETS) * 4;
        self.symbols().max_len(elements).saturating_add(USED + means)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.symbols().max_elements(message_len.saturating_sub(USED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn a_message_by_hand() {
        // Mean 0, deviation 1, buckets of 3/64: ±1 are 21.3 buckets from the middle, in 149 and in
        // 106.
        let gradient = [1.0, -1.0, -1.0, 1.0];
        let message = encode("codebook8", &gradient);
        let mut expected = vec![0; 32];
        (expected[106 / 8], expected[149 / 8]) = (1 << (106 % 8), 1 << (149 % 8));
        expected.extend([-1.0f32, 1.0].map(f32::to_le_bytes).concat());
        expected.extend([149, 106, 106, 149]);
        assert_eq!(message, expected);
        assert_eq!(round_trip("codebook8", &gradient), gradient);
        assert!(encode("codebook8", &[]).is_empty());
        assert_eq!(round_trip("codebook8", &[3.0; 5]), [3.0; 5]);
    }

    #[test]
    fn elements_decode_to_the_mean_of_their_bucket() {
        // Nearly all at 0; 2 and 2.5 are far beyond six deviations, in the last bucket.
        let mut gradient = vec![0.0; 1000];
        (gradient[3], gradient[800]) = (2.0, 2.5);
        let decoded = round_trip("codebook8", &gradient);
        assert_eq!((decoded[3], decoded[800], decoded[4]), (2.25, 2.25, 0.0));
        let left = residual("codebook8:ef=on", &gradient);
        assert_eq!((left[3], left[800], left[4]), (-0.25, 0.25, 0.0));
    }

    #[test]
    fn the_error_of_normal_values_is_that_of_small_buckets() {
        let mut rng = crate::Rng::new(1, 2, 3, 4, 5);
        let mut normal = || (0..12).map(|_| rng.uniform()).sum::<f32>() - 6.0;
        let gradient: Vec<f32> = (0..100_000).map(|_| normal()).collect();
        let decoded = round_trip("codebook8", &gradient);
        let error: f64 =
            gradient.iter().zip(decoded).map(|(x, y)| f64::from(x - y).powi(2)).sum::<f64>() / 1e5;
        // A twelfth of the squared width.
        let expected = (12.0f64 / 256.0).powi(2) / 12.0;
        assert!((error / expected - 1.0).abs() < 0.03, "{error}, not {expected}");
        let bits = 8.0 * encode("codebook8:code=huffman", &gradient).len() as f64 / 1e5;
        assert!((6.46..6.6).contains(&bits), "{bits}");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = encode("codebook8", &[1.0, -1.0, -1.0, 1.0]);
        assert_eq!(refused("codebook8", 4, &good[..43]), DecodeError::Truncated);
        assert_eq!(refused("codebook8", 3, &good), DecodeError::Trailing { extra: 1 });
        let mut bad = good.clone();
        bad[43] = 7;
        assert!(matches!(refused("codebook8", 4, &bad), DecodeError::Corrupt(_)));
        bad = good.clone();
        bad[32..36].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(matches!(refused("codebook8", 4, &bad), DecodeError::Corrupt(_)));
    }
}
