//! Numbers at the end of a message, written in one pass that also finds the largest of them.
//!
//! A copy is bound by memory, so a second pass that looks for NaN and infinity would show in its
//! speed.

#[cfg(all(target_arch = "x86_64", feature = "std"))]
use core::arch::x86_64::*;
use core::mem::MaybeUninit;

use super::convert::{bf16_pattern, f16_pattern};
use super::kernel;
use super::room::{Room, Unwritten};

/// Fills room with little-endian binary32 numbers. Returns the bits of the largest absolute value,
/// as [`abs_max_bits`](super::abs_max_bits) does.
///
/// Set `streamed` for messages that caches cannot hold: stores then bypass the caches, if the
/// processor has AVX2 and the memory is aligned. That moves 8 bytes per element; usual stores also
/// read the memory that they write, and move 12.
///
/// # Panics
/// If the room is not the size of the numbers.
pub fn f32_fill(values: &[f32], room: Room<'_>, streamed: bool) -> u32 {
    room.fill::<4>(values, if streamed { f32_stream } else { f32_write })
}

/// Fills room with little-endian binary16 patterns: rounded to nearest, ties to even, and
/// saturated. Returns the bits of the largest absolute value. Moves 6 bytes per element if
/// `streamed`, as [`f32_fill`] is, otherwise 8.
///
/// # Panics
/// If the room is not the size of the patterns.
pub fn f16_fill(values: &[f32], room: Room<'_>, streamed: bool) -> u32 {
    room.fill::<2>(values, if streamed { f16_stream } else { f16_write })
}

/// Fills room with little-endian bfloat16 patterns: rounded to nearest, ties to even, and
/// saturated. Returns the bits of the largest absolute value. Moves 6 bytes per element if
/// `streamed`, as [`f32_fill`] is, otherwise 8.
///
/// # Panics
/// If the room is not the size of the patterns.
pub fn bf16_fill(values: &[f32], room: Room<'_>, streamed: bool) -> u32 {
    room.fill::<2>(values, if streamed { bf16_stream } else { bf16_write })
}

fn f32_stream(values: &[f32], out: &mut Unwritten) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if super::level::has_avx2() && is_aligned(out) {
        // SAFETY: the processor has the instructions, and `out` is aligned.
        return unsafe { stream(values, out, streamed::f32s, f32_write) };
    }
    f32_write(values, out)
}

fn f16_stream(values: &[f32], out: &mut Unwritten) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if super::convert::has_f16c() && is_aligned(out) {
        // SAFETY: the processor has F16C and AVX2, and `out` is aligned.
        return unsafe { stream(values, out, streamed::f16s, f16_write) };
    }
    f16_write(values, out)
}

fn bf16_stream(values: &[f32], out: &mut Unwritten) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if super::level::has_avx2() && is_aligned(out) {
        // SAFETY: the processor has the instructions, and `out` is aligned.
        return unsafe { stream(values, out, streamed::bf16s, bf16_write) };
    }
    bf16_write(values, out)
}

#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
fn is_aligned(out: &Unwritten) -> bool {
    out.as_ptr().addr().is_multiple_of(16)
}

/// Writes groups of sixteen numbers in `BYTES` bytes each, and returns the bits of the largest
/// absolute value.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
type Groups<const BYTES: usize> = unsafe fn(&[[f32; 16]], &mut [[MaybeUninit<u8>; BYTES]]) -> u32;

/// Writes whole groups of sixteen with `groups`, and the remainder with `rest`. Fills `out`, which
/// has `BYTES` bytes for sixteen values.
///
/// # Safety
/// `out` is aligned to 16 bytes, and the processor has the instructions of `groups`.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
unsafe fn stream<const BYTES: usize>(
    values: &[f32],
    out: &mut Unwritten,
    groups: Groups<BYTES>,
    rest: fn(&[f32], &mut Unwritten) -> u32,
) -> u32 {
    let (whole, last) = values.as_chunks();
    let (done, end) = out.split_at_mut(BYTES * whole.len());
    // SAFETY: the conditions of this function; the first group is at the start of `out`.
    let largest = unsafe { groups(whole, done.as_chunks_mut().0) };
    largest.max(rest(last, end))
}

/// Stores that bypass the caches. Miri does not have them.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
mod streamed {
    use core::arch::x86_64::*;
    use core::mem::MaybeUninit;

    use super::super::convert::{BF16_MAX, f16c};
    use super::{larger, largest_of};

    /// # Safety
    /// `out` is aligned to 16 bytes.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn f32s(values: &[[f32; 16]], out: &mut [[MaybeUninit<u8>; 64]]) -> u32 {
        let mut largest = _mm256_setzero_si256();
        for (values, out) in values.iter().zip(out) {
            let [low, high] = load(values);
            largest = larger(larger(largest, low), high);
            // SAFETY: the array holds the 64 bytes that are written, and is aligned.
            unsafe {
                let out = out.as_mut_ptr().cast();
                put(low, out);
                put(high, out.add(2));
            }
        }
        _mm_sfence();
        largest_of(largest)
    }

    /// # Safety
    /// `out` is aligned to 16 bytes.
    #[target_feature(enable = "avx2,f16c")]
    pub(super) unsafe fn f16s(values: &[[f32; 16]], out: &mut [[MaybeUninit<u8>; 32]]) -> u32 {
        let mut largest = _mm256_setzero_si256();
        for (values, out) in values.iter().zip(out) {
            let [low, high] = load(values);
            largest = larger(larger(largest, low), high);
            let [low, high] = [low, high].map(|x| f16c::narrow_eight(_mm256_castsi256_ps(x)));
            // SAFETY: the array holds the 32 bytes that are written, and is aligned.
            unsafe {
                let out = out.as_mut_ptr().cast();
                _mm_stream_si128(out, low);
                _mm_stream_si128(out.add(1), high);
            }
        }
        _mm_sfence();
        largest_of(largest)
    }

    /// # Safety
    /// `out` is aligned to 16 bytes.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn bf16s(values: &[[f32; 16]], out: &mut [[MaybeUninit<u8>; 32]]) -> u32 {
        // SAFETY: the caller's.
        let largest = unsafe { bf16s_limited::<false>(values, out) };
        // Rarely a number is so large that it would become infinite.
        if largest > BF16_MAX << 16 {
            // SAFETY: the caller's.
            unsafe { bf16s_limited::<true>(values, out) };
        }
        largest
    }

    /// # Safety
    /// `out` is aligned to 16 bytes.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn bf16s_limited<const LIMITED: bool>(
        values: &[[f32; 16]],
        out: &mut [[MaybeUninit<u8>; 32]],
    ) -> u32 {
        let mut largest = _mm256_setzero_si256();
        for (values, out) in values.iter().zip(out) {
            let [low, high] = load(values);
            largest = larger(larger(largest, low), high);
            let [low, high] = [low, high].map(|bits| bf16_patterns::<LIMITED>(bits));
            // Packing works on each half of a register; the quarters are put in order afterwards.
            let packed = _mm256_packus_epi32(low, high);
            let patterns = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            // SAFETY: the array holds the 32 bytes that are written, and is aligned.
            unsafe { put(patterns, out.as_mut_ptr().cast()) };
        }
        _mm_sfence();
        largest_of(largest)
    }

    /// The patterns of eight numbers, as by `bf16_pattern`. Unless `LIMITED`, no number is above
    /// the largest bfloat16.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn bf16_patterns<const LIMITED: bool>(bits: __m256i) -> __m256i {
        if !LIMITED {
            // Rounding does not carry into the sign.
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff));
            return _mm256_srli_epi32::<16>(_mm256_add_epi32(rounded, odd));
        }
        let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(i32::MAX));
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(magnitude), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(magnitude, _mm256_set1_epi32(0x7fff));
        let rounded = _mm256_srli_epi32::<16>(_mm256_add_epi32(rounded, odd));
        let limited = _mm256_min_epu32(rounded, _mm256_set1_epi32(BF16_MAX as i32));
        let sign = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(0x8000));
        _mm256_or_si256(limited, sign)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn load(values: &[f32; 16]) -> [__m256i; 2] {
        let values = values.as_ptr().cast::<__m256i>();
        // SAFETY: the array holds the sixteen numbers that are read.
        unsafe { [_mm256_loadu_si256(values), _mm256_loadu_si256(values.add(1))] }
    }

    /// # Safety
    /// `out` is aligned to 16 bytes, and 32 bytes of it may be written. Other threads see these
    /// bytes like usual stores only after a fence.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn put(bytes: __m256i, out: *mut __m128i) {
        // SAFETY: the caller's.
        unsafe {
            _mm_stream_si128(out, _mm256_castsi256_si128(bytes));
            _mm_stream_si128(out.add(1), _mm256_extracti128_si256::<1>(bytes));
        }
    }
}

/// The maximum, lane by lane, of `largest` and the bits of the absolute values of `x`.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx2")]
#[inline]
fn larger(largest: __m256i, x: __m256i) -> __m256i {
    _mm256_max_epu32(largest, _mm256_and_si256(x, _mm256_set1_epi32(0x7fff_ffff)))
}

/// The largest of eight numbers.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn largest_of(lanes: __m256i) -> u32 {
    // SAFETY: both have 32 bytes, and any are numbers.
    let lanes: [u32; 8] = unsafe { core::mem::transmute(lanes) };
    lanes.into_iter().fold(0, u32::max)
}

fn f32_write(values: &[f32], out: &mut Unwritten) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let (groups, rest) = values.as_chunks();
        let (done, left) = out.split_at_mut(64 * groups.len());
        // SAFETY: the processor has the instructions.
        let largest = unsafe { avx2_f32_write(groups, done.as_chunks_mut().0) };
        return largest.max(f32_write_scalar(rest, left));
    }
    f32_write_scalar(values, out)
}

fn f32_write_scalar(values: &[f32], out: &mut Unwritten) -> u32 {
    let mut largest = 0;
    for (x, out) in values.iter().zip(out.as_chunks_mut().0) {
        *out = x.to_le_bytes().map(MaybeUninit::new);
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    largest
}

/// The compiler turns the scalar loop into a call of `memcpy`, which may be [slow](super::copy()),
/// and a second pass for the largest; but not for a loop with two stores.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx2")]
fn avx2_f32_write(values: &[[f32; 16]], out: &mut [[MaybeUninit<u8>; 64]]) -> u32 {
    let mut largest = [_mm256_setzero_si256(); 2];
    for (values, out) in values.iter().zip(out) {
        let (values, out) = (values.as_ptr().cast::<__m256i>(), out.as_mut_ptr().cast::<__m256i>());
        // SAFETY: the arrays hold the sixteen numbers that are read and the 64 bytes that are
        // written.
        unsafe {
            let [low, high] = [_mm256_loadu_si256(values), _mm256_loadu_si256(values.add(1))];
            largest = [larger(largest[0], low), larger(largest[1], high)];
            _mm256_storeu_si256(out, low);
            _mm256_storeu_si256(out.add(1), high);
        }
    }
    largest_of(_mm256_max_epu32(largest[0], largest[1]))
}

kernel! {
    fn bf16_write(values: &[f32], out: &mut Unwritten) -> u32 {
        let mut largest = 0;
        for (x, out) in values.iter().zip(out.as_chunks_mut().0) {
            *out = bf16_pattern(*x).to_le_bytes().map(MaybeUninit::new);
            largest = largest.max(x.to_bits() & 0x7fff_ffff);
        }
        largest
    }
}

fn f16_write(values: &[f32], out: &mut Unwritten) -> u32 {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let (groups, rest) = values.as_chunks();
        let (done, left) = out.split_at_mut(32 * groups.len());
        // SAFETY: the processor has the instructions.
        let largest = unsafe { avx512_f16_write(groups, done.as_chunks_mut().0) };
        return largest.max(f16_write_scalar(rest, left));
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::convert::has_f16c() {
        let (groups, rest) = values.as_chunks();
        let (done, left) = out.split_at_mut(32 * groups.len());
        // SAFETY: the processor has the instructions.
        let largest = unsafe { f16c_write(groups, done.as_chunks_mut().0) };
        return largest.max(f16_write_scalar(rest, left));
    }
    f16_write_scalar(values, out)
}

fn f16_write_scalar(values: &[f32], out: &mut Unwritten) -> u32 {
    let mut largest = 0;
    for (x, out) in values.iter().zip(out.as_chunks_mut().0) {
        *out = f16_pattern(*x).to_le_bytes().map(MaybeUninit::new);
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    largest
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx2,f16c")]
fn f16c_write(values: &[[f32; 16]], out: &mut [[MaybeUninit<u8>; 32]]) -> u32 {
    let largest = f16c_write_limited::<false>(values, out);
    // Rarely a number is so large that it would become infinite.
    if largest > super::convert::F16_MAX.to_bits() {
        f16c_write_limited::<true>(values, out);
    }
    largest
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn f16c_write_limited<const LIMITED: bool>(
    values: &[[f32; 16]],
    out: &mut [[MaybeUninit<u8>; 32]],
) -> u32 {
    let mut largest = [_mm256_setzero_si256(); 2];
    for (values, out) in values.iter().zip(out) {
        let (eights, places) = (values.as_chunks::<8>().0, out.as_chunks_mut::<16>().0);
        for ((eight, place), largest) in eights.iter().zip(places).zip(&mut largest) {
            // SAFETY: the arrays hold the eight numbers that are read and the eight patterns that
            // are written.
            unsafe {
                let x = _mm256_loadu_ps(eight.as_ptr());
                *largest = larger(*largest, _mm256_castps_si256(x));
                let patterns = if LIMITED {
                    super::convert::f16c::narrow_eight(x)
                } else {
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x)
                };
                _mm_storeu_si128(place.as_mut_ptr().cast(), patterns);
            }
        }
    }
    largest_of(_mm256_max_epu32(largest[0], largest[1]))
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512_f16_write(values: &[[f32; 16]], out: &mut [[MaybeUninit<u8>; 32]]) -> u32 {
    let largest = avx512_f16_write_limited::<false>(values, out);
    // Rarely a number is so large that it would become infinite.
    if largest > super::convert::F16_MAX.to_bits() {
        avx512_f16_write_limited::<true>(values, out);
    }
    largest
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
#[inline]
fn avx512_f16_write_limited<const LIMITED: bool>(
    values: &[[f32; 16]],
    out: &mut [[MaybeUninit<u8>; 32]],
) -> u32 {
    let (sign, most) = (_mm512_set1_epi32(i32::MIN), _mm512_set1_ps(super::convert::F16_MAX));
    let mut largest = _mm512_setzero_si512();
    for (values, out) in values.iter().zip(out) {
        // SAFETY: the arrays hold the sixteen numbers that are read and the sixteen patterns that
        // are written.
        unsafe {
            let x = _mm512_loadu_si512(values.as_ptr().cast());
            let magnitude = _mm512_andnot_si512(sign, x);
            largest = _mm512_max_epu32(largest, magnitude);
            let x = if LIMITED {
                // The minimum with NaN is its second operand.
                let limited = _mm512_min_ps(_mm512_castsi512_ps(magnitude), most);
                _mm512_or_si512(_mm512_castps_si512(limited), _mm512_and_si512(sign, x))
            } else {
                x
            };
            let patterns = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_castsi512_ps(x));
            _mm256_storeu_si256(out.as_mut_ptr().cast(), patterns);
        }
    }
    _mm512_reduce_max_epu32(largest)
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    type Append = fn(&[f32], &mut Vec<u8>, bool) -> u32;

    const APPEND: [Append; 3] = [
        |values, message, streamed| {
            append(values, 4, message, |room| f32_fill(values, room, streamed))
        },
        |values, message, streamed| {
            append(values, 2, message, |room| f16_fill(values, room, streamed))
        },
        |values, message, streamed| {
            append(values, 2, message, |room| bf16_fill(values, room, streamed))
        },
    ];

    fn append(
        values: &[f32],
        size: usize,
        message: &mut Vec<u8>,
        fill: impl FnOnce(Room<'_>) -> u32,
    ) -> u32 {
        Room::at_end(message, size * values.len(), fill)
    }

    #[test]
    fn messages_by_hand() {
        // 1 and −2 in each format, behind a byte that stays.
        let binary32 = &[7, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
        let binary16 = &[7, 0x00, 0x3c, 0x00, 0xc0];
        let bfloat16 = &[7, 0x80, 0x3f, 0x00, 0xc0];
        let messages: [&[u8]; 3] = [binary32, binary16, bfloat16];
        for (append, expected) in APPEND.into_iter().zip(messages) {
            let mut message = vec![7];
            assert_eq!(append(&[1.0, -2.0], &mut message, false), 2f32.to_bits());
            assert_eq!(append(&[], &mut message, true), 0);
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn what_is_not_finite_is_seen_anywhere() {
        for (append, streamed) in APPEND.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            for at in 0..40 {
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = [1.0; 40];
                    values[at] = bad;
                    let largest = append(&values, &mut Vec::with_capacity(160), streamed);
                    assert!(largest >= f32::INFINITY.to_bits(), "{at}");
                }
            }
            let largest = append(&[f32::MAX, f32::MIN], &mut Vec::new(), streamed);
            assert_eq!(largest, f32::MAX.to_bits());
        }
    }

    #[test]
    fn streamed_numbers_are_the_numbers() {
        // The second is the least number that bfloat16 would round to infinity, the third the
        // largest binary32.
        for large in [f32::from_bits(0x7f7f_7fff), f32::from_bits(0x7f7f_8000), f32::MAX] {
            for value in [large, -large] {
                let mut message = Vec::with_capacity(64);
                assert_eq!(APPEND[2](&[value; 32], &mut message, true), large.to_bits());
                let largest = [0x7f, 0x7f | (value.to_bits() >> 24) as u8 & 0x80];
                assert_eq!(message, largest.repeat(32), "{value}");
            }
        }
        crate::kernels::samples::sweep(|values| {
            for append in APPEND {
                // Behind a header that leaves the memory aligned, or not.
                for start in [0, 1, 16] {
                    let [plain, streamed] = [false, true].map(|streamed| {
                        let mut message = Vec::with_capacity(start + 4 * values.len());
                        message.resize(start, 9);
                        (append(values, &mut message, streamed), message)
                    });
                    assert_eq!(plain, streamed, "{} numbers behind {start} bytes", values.len());
                }
            }
        });
    }
}
