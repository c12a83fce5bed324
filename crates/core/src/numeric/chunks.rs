//! The largest elements of each of many chunks.

use std::ops::Range;

use gradwire_bits::kernels::{self, Side};

use crate::Helpers;
use crate::parts::Parts;

/// Appends the output of `find` for each part, in the order of the parts. `find` gets the index of
/// the part's first element and the part's value, such as its elements. The helpers share the
/// parts.
pub(crate) fn positions_in_parts<T: Send>(
    parts: Parts,
    values: impl Iterator<Item = T> + Send,
    helpers: &mut Helpers,
    positions: &mut Vec<u32>,
    find: impl Fn(usize, T, &mut Vec<u32>) + Sync,
) {
    let find = |(places, value): (Range<usize>, T), found: &mut Vec<u32>| {
        found.clear();
        find(places.start, value, found);
    };
    helpers.each_in_order(parts.places().zip(values), find, |found| {
        positions.extend_from_slice(found);
    });
}

/// Finds the largest elements of one chunk after the other.
///
/// The chunks of a tensor resemble each other. So few elements of a chunk pass a limit somewhat
/// below the smallest element that the previous chunk sent, and the search is among these. If too
/// few pass, all elements are searched, so the result does not depend on the limit.
#[derive(Debug, Default)]
pub(crate) struct Largest {
    limit: f32,
    /// The positions of the elements that pass.
    positions: Vec<u32>,
    values: Vec<f32>,
    keys: Vec<u32>,
    /// The largest: their indices among those that pass, and their values.
    chosen: Vec<u32>,
    largest: Vec<f32>,
}

/// The limit for the next chunk, as a fraction of the smallest element that this chunk sent. For
/// normal values and the largest 64 of 4096, 7 % pass.
const MARGIN: f32 = 0.75;

impl Largest {
    /// The indices and values of the `kept` largest absolute values of a chunk, in increasing order
    /// of the indices; the first of equal values, and no zeros. Overwrites the chunk.
    ///
    /// # Panics
    /// If `kept` is 0.
    pub(crate) fn take(
        &mut self,
        chunk: &mut [f32],
        kept: usize,
    ) -> impl Iterator<Item = (usize, f32)> {
        self.gather(chunk);
        if self.values.len() < kept && self.limit > 0.0 {
            for (&at, &value) in self.positions.iter().zip(&self.values) {
                chunk[at as usize] = value;
            }
            self.limit = 0.0;
            self.gather(chunk);
        }
        self.choose(kept);
        let Self { positions, chosen, largest, .. } = self;
        chosen.iter().zip(largest).map(|(&at, &mut x)| (positions[at as usize] as usize, x))
    }

    /// Moves the elements above the limit out of the chunk.
    fn gather(&mut self, chunk: &mut [f32]) {
        let Self { limit, positions, values, .. } = self;
        positions.clear();
        values.clear();
        kernels::compact_beyond(chunk, Side::Both, *limit, 0, positions, values);
    }

    /// Chooses the largest of the gathered elements, all if there are fewer.
    fn choose(&mut self, kept: usize) {
        let Self { limit, values, keys, chosen, largest, .. } = self;
        let (mut least, mut ties) = (0.0f32, 0);
        if values.len() >= kept {
            keys.clear();
            keys.extend(values.iter().map(|x| x.abs().to_bits()));
            let (_, &mut bits, _) = keys.select_nth_unstable_by(kept - 1, |a, b| b.cmp(a));
            least = f32::from_bits(bits);
            ties = kept - kernels::count_above(values, least);
            *limit = MARGIN * least;
        }
        chosen.clear();
        largest.clear();
        // Elements above this reach the least; 0 is below all gathered ones.
        let below = least.next_down().max(0.0);
        kernels::compact_beyond(values, Side::Both, below, 0, chosen, largest);
        if largest.len() > kept {
            drop_ties(least, ties, chosen, largest);
        }
    }
}

/// Removes all but the first `ties` of the elements with this absolute value.
fn drop_ties(value: f32, ties: usize, chosen: &mut Vec<u32>, largest: &mut Vec<f32>) {
    let mut left = ties;
    let mut kept = 0;
    for at in 0..largest.len() {
        let tie = largest[at].abs() == value;
        if !tie || left > 0 {
            left -= usize::from(tie);
            (chosen[kept], largest[kept]) = (chosen[at], largest[at]);
            kept += 1;
        }
    }
    chosen.truncate(kept);
    largest.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// By sorting the whole chunk.
    fn sorted(chunk: &[f32], kept: usize) -> Vec<(usize, f32)> {
        let mut all: Vec<_> = chunk.iter().copied().enumerate().collect();
        // Stable, so the first of equal values stay in front.
        all.sort_by(|(_, a), (_, b)| b.abs().total_cmp(&a.abs()));
        all.truncate(kept);
        all.retain(|(_, x)| *x != 0.0);
        all.sort_by_key(|(at, _)| *at);
        all
    }

    #[test]
    fn two_chunks_by_hand() {
        let mut largest = Largest::default();
        let mut chunk = [1.0, -3.0, 2.0, 3.0, -2.0];
        assert_eq!(
            largest.take(&mut chunk, 3).collect::<Vec<_>>(),
            [(1, -3.0), (2, 2.0), (3, 3.0)]
        );
        // All but one are below the limit, three quarters of 2.
        let mut chunk = [0.5, 0.0, 1.75, -0.0];
        assert_eq!(largest.take(&mut chunk, 3).collect::<Vec<_>>(), [(0, 0.5), (2, 1.75)]);
    }

    #[test]
    fn any_sequence_of_chunks_gives_what_sorting_gives() {
        let (mut largest, mut rng) = (Largest::default(), Rng::new(1, 2, 3, 4, 5));
        // The scales of the chunks differ a lot. The values are coarse, so ties are common.
        for (at, scale) in [1.0, 1.0, 1e-3, 1e3, 0.0, 1.0, 1e-30, 1e30].into_iter().enumerate() {
            for levels in [4.0, 1e6] {
                let value = |_| ((rng.uniform() - 0.5) * levels).round() * scale;
                let chunk: Vec<f32> = (0..700 + at).map(value).collect();
                for kept in [1, 2, 50, 699, chunk.len()] {
                    let found: Vec<_> = largest.take(&mut chunk.clone(), kept).collect();
                    assert_eq!(found, sorted(&chunk, kept), "{scale}, {levels}, {kept}");
                }
            }
        }
    }
}
