//! A digest of parameters, to see whether ranks hold the same bits.

/// A 64-bit digest of every bit of some tensors, and of their lengths.
///
/// Multiply-and-rotate on words: it detects accidental differences, not forgeries. The same on all
/// machines. One pass over memory.
pub fn digest(parameters: &[Vec<f32>]) -> u64 {
    let mut hash = 0x243f_6a88_85a3_08d3;
    for tensor in parameters {
        hash = absorb(hash, tensor.len() as u64);
        for &value in tensor {
            hash = absorb(hash, u64::from(value.to_bits()));
        }
    }
    hash ^ (hash >> 32)
}

fn absorb(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_and_every_border_counts() {
        let base = digest(&[vec![1.0, 2.0], vec![3.0]]);
        assert_eq!(base, digest(&[vec![1.0, 2.0], vec![3.0]]));
        for other in [
            &[vec![1.0, 2.0, 3.0]][..],
            &[vec![1.0], vec![2.0, 3.0]],
            &[vec![1.0, 2.0], vec![3.0], vec![]],
            &[vec![2.0, 1.0], vec![3.0]],
        ] {
            assert_ne!(base, digest(other));
        }
        for bit in 0..32 {
            let flipped = f32::from_bits(2.0f32.to_bits() ^ (1 << bit));
            assert_ne!(base, digest(&[vec![1.0, flipped], vec![3.0]]));
        }
        assert_ne!(digest(&[vec![0.0]]), digest(&[vec![-0.0]]));
    }
}
