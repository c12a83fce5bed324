//! The empirical entropy of messages.

/// Replaces values by their levels: multiples of the smallest absolute value that is not 0.
pub(super) fn in_steps(values: &mut [f32]) {
    let step = values.iter().map(|x| x.abs()).filter(|x| *x > 0.0).fold(f32::INFINITY, f32::min);
    values.iter_mut().for_each(|x| *x = (*x / step).round());
}

/// The empirical entropy of order 0 of words, in bits: the entropy of the symbols, and 32 bits for
/// each symbol of the table. Words that occur once share one symbol, an escape, and take 32 bits
/// more each.
pub(super) fn entropy(mut words: Vec<u32>) -> f64 {
    words.sort_unstable();
    let count = words.len() as f64;
    let all = |part: f64| if part > 0.0 { -part * (part / count).log2() } else { 0.0 };
    let (mut single, mut bits) = (0.0, 0.0);
    for run in words.chunk_by(|a, b| a == b) {
        match run.len() {
            1 => single += 1.0,
            several => bits += 32.0 + all(several as f64),
        }
    }
    (bits + all(single) + 32.0 * single).min(32.0 * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropies_by_hand() {
        // A half, a quarter, and a quarter of single words: 1.5 bits a word, and four 32-bit words.
        assert_eq!(entropy(vec![0, 0, 1, 0, 9, 1, 0, 2]), 8.0 * 1.5 + 4.0 * 32.0);
        assert_eq!((entropy(vec![3; 5]), entropy(Vec::new())), (32.0, 0.0));
        // Words that all occur once stay as they are.
        assert_eq!(entropy((0..100).collect()), 3200.0);
        let mut levels = [0.5, 0.0, -1.5, 0.25];
        in_steps(&mut levels);
        assert_eq!(levels, [2.0, 0.0, -6.0, 1.0]);
        let mut zeros = [0.0; 2];
        in_steps(&mut zeros);
        assert_eq!(zeros, [0.0; 2]);
    }
}
