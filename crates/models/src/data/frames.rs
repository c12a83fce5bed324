//! Generated frames of features in thousands of classes, like the input of acoustic models of
//! speech.
//!
//! As in the BN50 corpus of AdaComp's paper (Chen et al. 2018), an example has 440 features and one
//! of 5999 classes. A class is a pair of parts, one of 77 and one of 78, like a state of a phone.
//! Each part has a pattern, and a frame is the sum of two patterns and noise. So a class can be
//! learned from few examples, through its parts: a model whose hidden layers represent parts does
//! better than one that compares frames.
//!
//! A frame is a pure function of seed, split and index, computed with integers.

use gradwire::Rng;

use super::{Dataset, Images};

/// The data set's name.
pub(super) const NAME: &str = "frames";

const FEATURES: usize = 440;
const CLASSES: usize = 5999;
/// Second parts.
const SECONDS: usize = 78;

/// Generates the set: 60 000 training and 6000 test frames as grey images of one row: ten training
/// frames and one test frame of each class, and a few more of the first classes. Takes a fraction
/// of a second.
///
/// ```
/// let data = gradwire_models::data::frames_sized(7, 20, 10);
/// let images = data.images().unwrap();
/// assert_eq!(images.train.shape(), [1, 1, 440]);
/// assert_eq!(images.test.labels[..3], [0, 1, 2]);
/// ```
pub fn frames(seed: u64) -> Dataset {
    frames_sized(seed, 60_000, 6_000)
}

/// As [`frames`], with other numbers of frames. A smaller set is the beginning of a larger one.
pub fn frames_sized(seed: u64, train: usize, test: usize) -> Dataset {
    Dataset::generated(NAME, split(seed, 0, train), split(seed, 1, test), u16::to_le_bytes)
}

fn split(seed: u64, split: u32, count: usize) -> Images {
    let labels: Vec<u16> = (0..count).map(|index| (index % CLASSES) as u16).collect();
    let firsts: Vec<_> = (0..CLASSES.div_ceil(SECONDS)).map(|at| pattern(seed, 0, at)).collect();
    let seconds: Vec<_> = (0..SECONDS).map(|at| pattern(seed, 1, at)).collect();
    let mut pixels = Vec::with_capacity(count * FEATURES);
    let mut words = [0; FEATURES];
    for (index, &label) in labels.iter().enumerate() {
        let label = usize::from(label);
        let (first, second) = (&firsts[label / SECONDS], &seconds[label % SECONDS]);
        Rng::new(seed, 2, split, index as u64, 0).fill(&mut words);
        let features = first.iter().zip(second).zip(&words);
        pixels.extend(features.map(|((first, second), &word)| {
            (128 + (first + second) / 6 + noise(word)).clamp(0, 255) as u8
        }));
    }
    Images { channels: 1, height: 1, width: FEATURES, classes: CLASSES, pixels, labels }
}

/// The pattern of a part: its addend to each feature before scaling, between −128 and 127.
fn pattern(seed: u64, part: u32, at: usize) -> Vec<i32> {
    let mut words = [0; FEATURES];
    Rng::new(seed, 1, part, at as u64, 0).fill(&mut words);
    words.iter().map(|&word| (word >> 24) as i32 - 128).collect()
}

/// Approximately normal noise with standard deviation 54: the sum of a word's four bytes, minus its
/// mean, times 4/11.
fn noise(word: u32) -> i32 {
    let sum: i32 = word.to_le_bytes().into_iter().map(i32::from).sum();
    (sum - 510) * 4 / 11
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_pure_functions_of_seed_split_and_index() {
        let [some, more, other] =
            [(3, 10), (3, 20), (4, 10)].map(|(seed, count)| frames_sized(seed, count, 5));
        let [a, b, c] = [&some, &more, &other].map(|data| &data.images().unwrap().train.pixels);
        assert_eq!(a[..], b[..10 * FEATURES]);
        assert_ne!(a, c);
        let set = some.images().unwrap();
        assert_ne!(set.train.pixels[..FEATURES], set.test.pixels[..FEATURES]);
        assert_ne!(some.checksum, more.checksum);
    }

    #[test]
    fn a_frame_is_nearer_to_its_parts_than_to_others() {
        let data = frames_sized(0, 300, 1);
        let set = &data.images().unwrap().train;
        let firsts: Vec<_> = (0..77).map(|at| pattern(0, 0, at)).collect();
        let mut right = 0;
        for (index, &label) in set.labels.iter().enumerate() {
            let image = set.image(index);
            let along = |pattern: &Vec<i32>| -> i64 {
                image
                    .iter()
                    .zip(pattern)
                    .map(|(&x, &p)| i64::from(i32::from(x) - 128) * i64::from(p))
                    .sum()
            };
            let best = (0..77).max_by_key(|&at| along(&firsts[at])).unwrap();
            right += usize::from(best == usize::from(label) / SECONDS);
        }
        assert!(right > 150, "{right} of 300");
    }
}
