//! Vector kernels of the convolution: blocks of sums stay in registers, and pixels are read from
//! the padded planes themselves.

use pulp::{Arch, Simd, WithSimd};

/// Kernels take positions in whole vectors, up to three of sixteen lanes at once.
pub(super) const MULTIPLE: usize = 48;

/// Kernels in the order in which [`correlate`] reads them: of each group of [`GROUP`](Self::GROUP) output planes, term
/// after term, the weight of each plane.
pub(super) struct Weights {
    values: Vec<f32>,
    terms: usize,
}

impl Weights {
    /// Output planes that are computed together.
    const GROUP: usize = 8;

    /// The weight of each term of each of `planes` output planes. Missing planes of the last group are zero.
    pub(super) fn new(planes: usize, terms: usize, weight: impl Fn(usize, usize) -> f32) -> Self {
        let groups = planes.div_ceil(Self::GROUP);
        let mut values = vec![0.0; groups * terms * Self::GROUP];
        for plane in 0..planes {
            let (group, within) = (plane / Self::GROUP, plane % Self::GROUP);
            for term in 0..terms {
                values[(group * terms + term) * Self::GROUP + within] = weight(plane, term);
            }
        }
        Self { values, terms }
    }

    /// Output planes, those that fill the last group included.
    pub(super) fn planes(&self) -> usize {
        self.values.len() / self.terms
    }
}

/// Writes for each output plane and each of `positions`, a multiple of [`MULTIPLE`], the sum of its terms:
/// `weight · planes[offset + position]`.
pub(super) fn correlate(
    positions: usize,
    planes: &[f32],
    offsets: &[usize],
    weights: &Weights,
    out: &mut [f32],
) {
    Arch::new().dispatch(Correlate { positions, planes, offsets, weights, out });
}

struct Correlate<'a> {
    positions: usize,
    planes: &'a [f32],
    offsets: &'a [usize],
    weights: &'a Weights,
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
    fn run<S: Simd, const PLANES: usize, const VECTORS: usize>(&mut self, simd: S) {
        let width = VECTORS * S::F32_LANES;
        let terms = self.weights.terms;
        for start in (0..self.positions).step_by(width) {
            let groups = self.weights.values.chunks_exact(terms * Weights::GROUP);
            for (group, weights) in groups.enumerate() {
                for first in (0..Weights::GROUP).step_by(PLANES) {
                    let sums = self.sums::<S, PLANES, VECTORS>(simd, &weights[first..], start);
                    for (plane, sums) in sums.iter().enumerate() {
                        let plane = group * Weights::GROUP + first + plane;
                        let out = &mut self.out[plane * self.positions + start..][..width];
                        let (out, _) = S::as_mut_simd_f32s(out);
                        out.copy_from_slice(sums);
                    }
                }
            }
        }
    }

    /// The sums of `PLANES` output planes at `VECTORS` vectors of positions.
    #[inline(always)]
    fn sums<S: Simd, const PLANES: usize, const VECTORS: usize>(
        &self,
        simd: S,
        weights: &[f32],
        start: usize,
    ) -> [[S::f32s; VECTORS]; PLANES] {
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; PLANES];
        for (&offset, weights) in self.offsets.iter().zip(weights.chunks(Weights::GROUP)) {
            let pixels = &self.planes[offset + start..][..VECTORS * S::F32_LANES];
            let (pixels, _) = S::as_simd_f32s(pixels);
            for (sums, &weight) in sums.iter_mut().zip(&weights[..PLANES]) {
                let weight = simd.splat_f32s(weight);
                for (sum, &pixels) in sums.iter_mut().zip(pixels) {
                    *sum = simd.mul_add_e_f32s(weight, pixels, *sum);
                }
            }
        }
        sums
    }
}

/// Adds to the gradient of the weight of each output plane and term the sum over `positions`, a multiple of
/// [`MULTIPLE`], of `maps · planes[offset + position]`. `maps` has a whole number of [`ROWS`] planes.
pub(super) fn add_products(
    positions: usize,
    maps: &[f32],
    planes: &[f32],
    offsets: &[usize],
    gradient: &mut [f32],
) {
    Arch::new().dispatch(WeightGradient { positions, maps, planes, offsets, gradient });
}

/// Output planes are taken in groups of this size, or half of it.
pub(super) const ROWS: usize = 4;

struct WeightGradient<'a> {
    positions: usize,
    maps: &'a [f32],
    planes: &'a [f32],
    offsets: &'a [usize],
    gradient: &'a mut [f32],
}

impl WithSimd for WeightGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        if S::REGISTER_COUNT >= 32 { self.run::<S, 4, 6>(simd) } else { self.run::<S, 2, 4>(simd) }
    }
}

impl WeightGradient<'_> {
    /// Positions of which maps and pixels stay in the first-level cache.
    const BLOCK: usize = 1152;

    #[inline(always)]
    fn run<S: Simd, const PLANES: usize, const TERMS: usize>(&mut self, simd: S) {
        let terms = self.offsets.len();
        for start in (0..self.positions).step_by(Self::BLOCK) {
            let length = Self::BLOCK.min(self.positions - start);
            for (tile, gradient) in self.gradient.chunks_mut(PLANES * terms).enumerate() {
                let maps: [&[S::f32s]; PLANES] = std::array::from_fn(|plane| {
                    let first = (tile * PLANES + plane) * self.positions + start;
                    S::as_simd_f32s(&self.maps[first..][..length]).0
                });
                for (at, offsets) in self.offsets.chunks(TERMS).enumerate() {
                    // The last terms may be fewer: the first stands for those that are missing.
                    let pixels: [&[S::f32s]; TERMS] = std::array::from_fn(|term| {
                        let offset = offsets.get(term).unwrap_or(&offsets[0]);
                        S::as_simd_f32s(&self.planes[offset + start..][..length]).0
                    });
                    let sums = sums(simd, maps, pixels);
                    for (gradient, sums) in gradient.chunks_exact_mut(terms).zip(sums) {
                        let gradient = &mut gradient[at * TERMS..];
                        for (value, sum) in gradient.iter_mut().zip(sums) {
                            *value += simd.reduce_sum_f32s(sum);
                        }
                    }
                }
            }
        }
    }
}

/// The products of each plane with each term, lane by lane.
#[inline(always)]
fn sums<S: Simd, const PLANES: usize, const TERMS: usize>(
    simd: S,
    maps: [&[S::f32s]; PLANES],
    pixels: [&[S::f32s]; TERMS],
) -> [[S::f32s; TERMS]; PLANES] {
    let mut sums = [[simd.splat_f32s(0.0); TERMS]; PLANES];
    for at in 0..maps[0].len() {
        let maps: [S::f32s; PLANES] = std::array::from_fn(|plane| maps[plane][at]);
        for term in 0..TERMS {
            let pixels = pixels[term][at];
            for plane in 0..PLANES {
                sums[plane][term] = simd.mul_add_e_f32s(maps[plane], pixels, sums[plane][term]);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small whole numbers, whose sums are exact in any order.
    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|at| (at * step % 11) as f32 - 5.0).collect()
    }

    const POSITIONS: usize = 2 * MULTIPLE;
    const PLANES: usize = 11;

    #[test]
    fn every_instruction_set_sums_the_terms() {
        let offsets = [0, 1, 7, 130, 131, 137, 260];
        let planes = numbers(260 + POSITIONS, 7);
        let weight = |plane: usize, term: usize| ((plane * 5 + term * 3) % 7) as f32 - 3.0;
        let weights = Weights::new(PLANES, offsets.len(), weight);
        let run = |simd: &dyn Fn(Correlate<'_>)| {
            let mut out = vec![f32::NAN; weights.planes() * POSITIONS];
            simd(Correlate {
                positions: POSITIONS,
                planes: &planes,
                offsets: &offsets,
                weights: &weights,
                out: &mut out,
            });
            for (at, found) in out[..PLANES * POSITIONS].iter().enumerate() {
                let (plane, position) = (at / POSITIONS, at % POSITIONS);
                let term = |(term, offset): (usize, &usize)| {
                    weight(plane, term) * planes[offset + position]
                };
                assert_eq!(*found, offsets.iter().enumerate().map(term).sum::<f32>());
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
    fn every_instruction_set_sums_the_positions() {
        let offsets = [0, 1, 7, 130, 131, 137, 260];
        let planes = numbers(260 + POSITIONS, 7);
        let maps = numbers(PLANES.next_multiple_of(ROWS) * POSITIONS, 5);
        let run = |simd: &dyn Fn(WeightGradient<'_>)| {
            let mut gradient = vec![2.0; PLANES * offsets.len()];
            simd(WeightGradient {
                positions: POSITIONS,
                maps: &maps,
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
