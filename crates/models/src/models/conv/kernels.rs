//! Vector kernels of the convolution: blocks of sums stay in registers, and pixels are read
//! directly from the padded planes.

use pulp::{Arch, Simd, WithSimd};

use super::used::{Used, check};
use crate::lanes::{LANES, total};

/// Kernels in the reading order of [`correlate`]: for each group of [`GROUP`](Self::GROUP) output
/// planes, term after term, the weight of each plane.
pub(super) struct Weights {
    values: Vec<f32>,
    terms: usize,
    planes: usize,
}

impl Weights {
    /// Output planes computed together.
    const GROUP: usize = 8;

    /// The weight of each term of each of `planes` output planes. Missing planes of the last group
    /// are zero.
    pub(super) fn new(planes: usize, terms: usize, weight: impl Fn(usize, usize) -> f32) -> Self {
        let groups = planes.div_ceil(Self::GROUP);
        let mut values = vec![0.0; groups * terms * Self::GROUP];
        for plane in 0..planes {
            let (group, within) = (plane / Self::GROUP, plane % Self::GROUP);
            for term in 0..terms {
                values[(group * terms + term) * Self::GROUP + within] = weight(plane, term);
            }
        }
        Self { values, terms, planes }
    }

    /// Output planes, including the padding of the last group.
    pub(super) fn padded_planes(&self) -> usize {
        self.values.len() / self.terms
    }
}

/// Writes the sum of terms `weight · planes[offset + position]` for each output plane and each
/// `used` position. Planes of `out` have `positions` values. Unused positions may be written, too.
///
/// # Panics
/// If after the last used position there are fewer than [`LANES`], in `out` or
/// under any offset.
pub(super) fn correlate(
    used: &Used,
    planes: &[f32],
    offsets: &[usize],
    weights: &Weights,
    positions: usize,
    out: &mut [f32],
) {
    Arch::new().dispatch(Correlate { used, planes, offsets, weights, positions, out });
}

struct Correlate<'a> {
    used: &'a Used,
    planes: &'a [f32],
    offsets: &'a [usize],
    weights: &'a Weights,
    positions: usize,
    out: &'a mut [f32],
}

impl WithSimd for Correlate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        // Sums, a vector of each term and a weight fit the registers.
        if S::REGISTER_COUNT >= 32 { self.run::<S, 8, 3>(simd) } else { self.run::<S, 4, 2>(simd) }
    }
}

impl Correlate<'_> {
    #[inline(always)]
    #[allow(unsafe_code, reason = "vectors are checked at once, before the loops")]
    fn run<S: Simd, const PLANES: usize, const VECTORS: usize>(&mut self, simd: S) {
        let terms = self.weights.terms;
        let starts = self.used.vectors(S::F32_LANES, VECTORS);
        check(&starts, S::F32_LANES, self.offsets, self.planes.len());
        for starts in starts.as_chunks::<VECTORS>().0 {
            let groups = self.weights.values.chunks_exact(terms * Weights::GROUP);
            for (group, weights) in groups.enumerate() {
                let first_plane = group * Weights::GROUP;
                let missing = (first_plane + Weights::GROUP).saturating_sub(self.weights.planes);
                for first in (0..Weights::GROUP - missing).step_by(PLANES) {
                    let weights = &weights[first..];
                    // SAFETY: checked above for all vectors and offsets.
                    let sums = unsafe { self.sums::<S, PLANES, VECTORS>(simd, weights, starts) };
                    for (plane, sums) in sums.iter().enumerate() {
                        let out = (first_plane + first + plane) * self.positions;
                        for (&start, &sum) in starts.iter().zip(sums) {
                            let out = &mut self.out[out + start..][..S::F32_LANES];
                            S::as_mut_simd_f32s(out).0[0] = sum;
                        }
                    }
                }
            }
        }
    }

    /// The sums of `PLANES` output planes at the positions of `VECTORS` vectors.
    ///
    /// # Safety
    /// The planes must have these vectors from each of the offsets on.
    #[inline(always)]
    #[allow(unsafe_code, reason = "callers check all vectors at once")]
    unsafe fn sums<S: Simd, const PLANES: usize, const VECTORS: usize>(
        &self,
        simd: S,
        weights: &[f32],
        starts: &[usize; VECTORS],
    ) -> [[S::f32s; VECTORS]; PLANES] {
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; PLANES];
        for (&offset, weights) in self.offsets.iter().zip(weights.chunks(Weights::GROUP)) {
            // SAFETY: the caller answers for it.
            let pixels = starts.map(|start| unsafe { vector::<S>(self.planes, offset + start) });
            for (sums, &weight) in sums.iter_mut().zip(&weights[..PLANES]) {
                let weight = simd.splat_f32s(weight);
                for (sum, pixels) in sums.iter_mut().zip(pixels) {
                    *sum = simd.mul_add_e_f32s(weight, pixels, *sum);
                }
            }
        }
        sums
    }
}

/// The values of a plane at the positions of a vector. Bounds checks in the inner loops would make
/// the kernels take half as much time again.
///
/// # Safety
/// The plane must have a vector of values from `start` on.
#[inline(always)]
#[allow(unsafe_code, reason = "callers check all vectors at once")]
unsafe fn vector<S: Simd>(plane: &[f32], start: usize) -> S::f32s {
    // SAFETY: the caller answers for a vector's number of values. All bit patterns are valid, and
    // the read need not be aligned.
    unsafe { plane.as_ptr().add(start).cast::<S::f32s>().read_unaligned() }
}

/// Adds to the gradient of the weight of each output plane and term the sum over the `used`
/// positions of `maps · planes[offset + position]`. `maps` has a multiple of [`ROWS`] planes of
/// `positions` values; the unused values are zero.
///
/// # Panics
/// If after the last used position there are fewer than [`LANES`], in a map or
/// under any offset.
pub(super) fn add_products(
    used: &Used,
    maps: &[f32],
    positions: usize,
    planes: &[f32],
    offsets: &[usize],
    gradient: &mut [f32],
) {
    Arch::new().dispatch(WeightGradient { used, maps, positions, planes, offsets, gradient });
}

/// Output planes are taken in groups of three or four, which divide this number.
pub(super) const ROWS: usize = 12;

struct WeightGradient<'a> {
    used: &'a Used,
    maps: &'a [f32],
    positions: usize,
    planes: &'a [f32],
    offsets: &'a [usize],
    gradient: &'a mut [f32],
}

impl WithSimd for WeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, 4, 6>(simd) } else { self.run::<S, 3, 4>(simd) }
    }
}

impl WeightGradient<'_> {
    /// The positions of a block, whose maps and pixels stay in the first-level cache.
    const BLOCK: usize = 1152;

    #[inline(always)]
    #[allow(unsafe_code, reason = "vectors are checked at once, before the loops")]
    fn run<S: Simd, const PLANES: usize, const TERMS: usize>(&mut self, simd: S) {
        let terms = self.offsets.len();
        let starts = self.used.vectors(LANES, 1);
        check(&starts, LANES, self.offsets, self.planes.len());
        check(&starts, LANES, &[], self.positions);
        for starts in starts.chunks(Self::BLOCK / LANES) {
            for (tile, gradient) in self.gradient.chunks_mut(PLANES * terms).enumerate() {
                let maps: [&[f32]; PLANES] = std::array::from_fn(|plane| {
                    &self.maps[(tile * PLANES + plane) * self.positions..][..self.positions]
                });
                for (at, offsets) in self.offsets.chunks(TERMS).enumerate() {
                    // The last terms may be fewer: the first stands for the missing ones.
                    let pixels: [&[f32]; TERMS] = std::array::from_fn(|term| {
                        &self.planes[*offsets.get(term).unwrap_or(&offsets[0])..]
                    });
                    // SAFETY: checked above for all starts, in a map and from each offset on.
                    let sums = unsafe { sums(simd, starts, maps, pixels) };
                    for (gradient, sums) in gradient.chunks_exact_mut(terms).zip(sums) {
                        let gradient = &mut gradient[at * TERMS..];
                        for (value, lanes) in gradient.iter_mut().zip(sums) {
                            *value += total(lanes);
                        }
                    }
                }
            }
        }
    }
}

/// The products of each plane with each term, summed in [`LANES`] lanes on every processor,
/// whatever the width of its vectors.
///
/// # Safety
/// Each of the maps and of the pixels must have [`LANES`] values from each of the `starts` on.
#[inline(always)]
#[allow(unsafe_code, reason = "callers check all vectors at once")]
unsafe fn sums<S: Simd, const PLANES: usize, const TERMS: usize>(
    simd: S,
    starts: &[usize],
    maps: [&[f32]; PLANES],
    pixels: [&[f32]; TERMS],
) -> [[[f32; LANES]; TERMS]; PLANES] {
    let mut lanes = [[[0.0; LANES]; TERMS]; PLANES];
    for first in (0..LANES).step_by(S::F32_LANES) {
        let mut sums = [[simd.splat_f32s(0.0); TERMS]; PLANES];
        for &start in starts {
            let start = start + first;
            // SAFETY: the caller answers for all of them.
            let maps = maps.map(|map| unsafe { vector::<S>(map, start) });
            for term in 0..TERMS {
                // SAFETY: as above.
                let pixels = unsafe { vector::<S>(pixels[term], start) };
                for plane in 0..PLANES {
                    sums[plane][term] = simd.mul_add_e_f32s(maps[plane], pixels, sums[plane][term]);
                }
            }
        }
        for (lanes, sum) in lanes.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
            S::as_mut_simd_f32s(&mut lanes[first..][..S::F32_LANES]).0[0] = *sum;
        }
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::{is_fused, waves};

    /// Small whole numbers, whose sums are exact in any order.
    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|at| (at * step % 11) as f32 - 5.0).collect()
    }

    const POSITIONS: usize = 96;
    const PLANES: usize = 11;

    /// Rows of 9 positions of 13, a longer gap, and rows next to each other.
    fn used() -> Used {
        Used { rows: vec![0, 13, 26, 52, 61, 70], columns: 9 }
    }

    fn is_used(position: usize) -> bool {
        used().rows.iter().any(|&row| (row..row + 9).contains(&position))
    }

    #[test]
    fn every_instruction_set_sums_the_terms() {
        let (offsets, used) = ([0, 1, 7, 130, 131, 137, 260], used());
        let planes = numbers(260 + POSITIONS, 7);
        let weight = |plane: usize, term: usize| ((plane * 5 + term * 3) % 7) as f32 - 3.0;
        let weights = Weights::new(PLANES, offsets.len(), weight);
        let run = |simd: &dyn Fn(Correlate<'_>)| {
            let mut out = vec![f32::NAN; weights.padded_planes() * POSITIONS];
            simd(Correlate {
                used: &used,
                planes: &planes,
                offsets: &offsets,
                weights: &weights,
                positions: POSITIONS,
                out: &mut out,
            });
            for (at, found) in out[..PLANES * POSITIONS].iter().enumerate() {
                let (plane, position) = (at / POSITIONS, at % POSITIONS);
                let term = |(term, offset): (usize, &usize)| {
                    weight(plane, term) * planes[offset + position]
                };
                let expected = offsets.iter().enumerate().map(term).sum::<f32>();
                assert!(*found == expected || !is_used(position), "{plane}, {position}");
            }
        };
        run(&|kernel| kernel.with_simd(pulp::Scalar::new()));
        run(&|kernel| Arch::new().dispatch(kernel));
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            run(&|kernel| simd.vectorize(|| kernel.with_simd(simd)));
        }
    }

    #[test]
    #[should_panic(expected = "planes reach beyond each vector")]
    fn terms_beyond_the_planes_are_refused() {
        let weights = Weights::new(1, 2, |_, _| 1.0);
        // Under the second offset a value is missing for the last position, 78.
        let (planes, mut out) =
            (numbers(20 + 78, 7), vec![0.0; weights.padded_planes() * POSITIONS]);
        correlate(&used(), &planes, &[0, 20], &weights, POSITIONS, &mut out);
    }

    #[test]
    #[should_panic(expected = "planes reach beyond each vector")]
    fn positions_beyond_the_maps_are_refused() {
        let (maps, planes) = (numbers(ROWS * 78, 5), numbers(200, 7));
        add_products(&used(), &maps, 78, &planes, &[0], &mut [0.0]);
    }

    /// A block of sums for each sixteen positions of 72 vectors; within it, sixteen sums of every
    /// sixteenth product, added by halves.
    #[test]
    fn every_processor_sums_positions_in_the_same_order() {
        const POSITIONS: usize = 2000;
        let used = Used { rows: vec![0], columns: POSITIONS - LANES };
        let (planes, mut maps) = (waves(POSITIONS + 3, 0.7), waves(ROWS * POSITIONS, 1.3));
        for map in maps.chunks_mut(POSITIONS) {
            map[POSITIONS - LANES..].fill(0.0);
        }
        let mut gradient = vec![0.0; ROWS * 2];
        add_products(&used, &maps, POSITIONS, &planes, &[0, 3], &mut gradient);
        for (at, found) in gradient.iter().enumerate() {
            let (map, pixels) = (&maps[at / 2 * POSITIONS..][..POSITIONS], &planes[3 * (at % 2)..]);
            let mut expected: f32 = 0.0;
            for block in (0..POSITIONS - LANES).collect::<Vec<_>>().chunks(72 * LANES) {
                let mut lanes = [0.0; LANES];
                for &at in block {
                    let (sum, map, pixel) = (&mut lanes[at % LANES], map[at], pixels[at]);
                    *sum = if is_fused() { map.mul_add(pixel, *sum) } else { *sum + map * pixel };
                }
                for half in [8, 4, 2, 1] {
                    (0..half).for_each(|at| lanes[at] += lanes[at + half]);
                }
                expected += lanes[0];
            }
            assert_eq!(found.to_bits(), expected.to_bits(), "{at}");
        }
    }

    #[test]
    fn every_instruction_set_sums_the_positions() {
        let (offsets, used) = ([0, 1, 7, 130, 131, 137, 260], used());
        let planes = numbers(260 + POSITIONS, 7);
        let mut maps = numbers(PLANES.next_multiple_of(ROWS) * POSITIONS, 5);
        for (at, value) in maps.iter_mut().enumerate() {
            *value *= f32::from(is_used(at % POSITIONS));
        }
        let run = |simd: &dyn Fn(WeightGradient<'_>)| {
            let mut gradient = vec![2.0; PLANES * offsets.len()];
            simd(WeightGradient {
                used: &used,
                maps: &maps,
                positions: POSITIONS,
                planes: &planes,
                offsets: &offsets,
                gradient: &mut gradient,
            });
            for (at, found) in gradient.iter().enumerate() {
                let (plane, offset) = (at / offsets.len(), offsets[at % offsets.len()]);
                let product = |at: usize| maps[plane * POSITIONS + at] * planes[offset + at];
                assert_eq!(*found, 2.0 + (0..POSITIONS).map(product).sum::<f32>());
            }
        };
        run(&|kernel| kernel.with_simd(pulp::Scalar::new()));
        run(&|kernel| Arch::new().dispatch(kernel));
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            run(&|kernel| simd.vectorize(|| kernel.with_simd(simd)));
        }
    }
}
