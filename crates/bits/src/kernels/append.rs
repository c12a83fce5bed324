//! Appending numbers to a message, in one pass that also finds the largest of them.
//!
//! A copy is bound by memory, so a second pass that looks for NaN and infinity would show in its speed.

use alloc::vec::Vec;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use core::arch::x86_64::*;
use core::mem::MaybeUninit;

use super::convert::{bf16_pattern, f16_pattern};
use super::vectorised;

/// Bytes of a message that are reserved and not yet written.
type Unwritten = [MaybeUninit<u8>];

/// Bytes in a line of the cache.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
const LINE: usize = 64;

/// Appends bytes with stores that bypass the caches, where the processor has AVX2 and the memory is aligned.
///
/// For messages that caches cannot hold: a usual copy reads the memory that it writes, this one does not.
pub fn append_streamed(bytes: &[u8], message: &mut Vec<u8>) {
    message.reserve(bytes.len());
    stream(bytes, &mut message.spare_capacity_mut()[..bytes.len()]);
    // SAFETY: that many bytes are reserved and were written.
    unsafe { message.set_len(message.len() + bytes.len()) };
}

/// Appends numbers as little-endian binary32. Returns the bits of the largest absolute value, as
/// [`abs_max_bits`](super::abs_max_bits) does. Moves 12 bytes per element.
pub fn f32_append(values: &[f32], message: &mut Vec<u8>) -> u32 {
    append::<4>(values, message, f32_write)
}

/// Appends little-endian binary16 patterns: rounded to nearest, ties to even, and saturated. Returns the bits of the
/// largest absolute value. Moves 8 bytes per element.
pub fn f16_append(values: &[f32], message: &mut Vec<u8>) -> u32 {
    append::<2>(values, message, f16_write)
}

/// Appends little-endian bfloat16 patterns: rounded to nearest, ties to even, and saturated. Returns the bits of the
/// largest absolute value. Moves 8 bytes per element.
pub fn bf16_append(values: &[f32], message: &mut Vec<u8>) -> u32 {
    append::<2>(values, message, bf16_write)
}

/// Appends `SIZE` bytes for each number; `write` writes as many bytes as it gets.
fn append<const SIZE: usize>(
    values: &[f32],
    message: &mut Vec<u8>,
    write: fn(&[f32], &mut Unwritten) -> u32,
) -> u32 {
    let len = SIZE * values.len();
    message.reserve(len);
    let largest = write(values, &mut message.spare_capacity_mut()[..len]);
    // SAFETY: that many bytes are reserved and were written.
    unsafe { message.set_len(message.len() + len) };
    largest
}

fn stream(bytes: &[u8], out: &mut Unwritten) {
    let (mut bytes, mut out) = (bytes, out);
    // Miri has no streaming stores.
    #[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
    if super::level::Level::Avx2.is_used() {
        let before = out.as_ptr().align_offset(LINE).min(bytes.len());
        let whole = (bytes.len() - before) / LINE * LINE;
        let (first, lines);
        (first, out) = out.split_at_mut(before);
        (lines, out) = out.split_at_mut(whole);
        first.write_copy_of_slice(&bytes[..before]);
        // SAFETY: the processor has the instructions, and `lines` is aligned to a line.
        unsafe {
            avx2_stream(bytes[before..before + whole].as_chunks().0, lines.as_chunks_mut().0)
        };
        bytes = &bytes[before + whole..];
    }
    out.write_copy_of_slice(bytes);
}

/// # Safety
/// `out` is aligned to 32 bytes.
#[cfg(all(target_arch = "x86_64", feature = "std", not(miri)))]
#[target_feature(enable = "avx2")]
unsafe fn avx2_stream(lines: &[[u8; LINE]], out: &mut [[MaybeUninit<u8>; LINE]]) {
    for (line, out) in lines.iter().zip(out) {
        // SAFETY: the arrays hold the 64 bytes that are read and written, whose halves are aligned.
        unsafe {
            let halves = line.as_ptr().cast::<__m256i>();
            let [low, high] = [_mm256_loadu_si256(halves), _mm256_loadu_si256(halves.add(1))];
            let out = out.as_mut_ptr().cast::<__m256i>();
            _mm256_stream_si256(out, low);
            _mm256_stream_si256(out.add(1), high);
        }
    }
    // Only behind this, other threads see streamed bytes as they see those of usual stores.
    _mm_sfence();
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

vectorised! {
    fn f32_write / f32_write_scalar(values: &[f32], out: &mut Unwritten) -> u32 {
        let mut largest = 0;
        for (x, out) in values.iter().zip(out.as_chunks_mut().0) {
            *out = x.to_le_bytes().map(MaybeUninit::new);
            largest = largest.max(x.to_bits() & 0x7fff_ffff);
        }
        largest
    }
}

vectorised! {
    fn bf16_write / bf16_write_scalar(values: &[f32], out: &mut Unwritten) -> u32 {
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
    if super::level::Level::Avx512.is_used() {
        let (groups, rest) = values.as_chunks();
        let (done, left) = out.split_at_mut(32 * groups.len());
        // SAFETY: the processor has the instructions.
        let largest = unsafe { avx512_f16_write(groups, done.as_chunks_mut().0) };
        return largest.max(f16_write_scalar(rest, left));
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::convert::has_f16c() {
        let (groups, rest) = values.as_chunks();
        let (done, left) = out.split_at_mut(16 * groups.len());
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
fn f16c_write(values: &[[f32; 8]], out: &mut [[MaybeUninit<u8>; 16]]) -> u32 {
    let mut largest = _mm256_setzero_si256();
    for (values, out) in values.iter().zip(out) {
        // SAFETY: the arrays hold the eight numbers that are read and the eight patterns that are written.
        unsafe {
            let x = _mm256_loadu_ps(values.as_ptr());
            largest = larger(largest, _mm256_castps_si256(x));
            _mm_storeu_si128(out.as_mut_ptr().cast(), super::convert::f16c::narrow_eight(x));
        }
    }
    largest_of(largest)
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn avx512_f16_write(values: &[[f32; 16]], out: &mut [[MaybeUninit<u8>; 32]]) -> u32 {
    let (sign, most) = (_mm512_set1_epi32(i32::MIN), _mm512_set1_ps(super::convert::F16_MAX));
    let mut largest = _mm512_setzero_si512();
    for (values, out) in values.iter().zip(out) {
        // SAFETY: the arrays hold the sixteen numbers that are read and the sixteen patterns that are written.
        unsafe {
            let x = _mm512_loadu_si512(values.as_ptr().cast());
            let magnitude = _mm512_andnot_si512(sign, x);
            largest = _mm512_max_epu32(largest, magnitude);
            // The minimum with NaN is its second operand.
            let limited = _mm512_min_ps(_mm512_castsi512_ps(magnitude), most);
            let x = _mm512_or_si512(_mm512_castps_si512(limited), _mm512_and_si512(sign, x));
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

    type Append = fn(&[f32], &mut Vec<u8>) -> u32;

    const APPEND: [Append; 3] = [f32_append, f16_append, bf16_append];

    #[test]
    fn messages_by_hand() {
        // 1 and −2 in each format, behind a byte that stays.
        let binary32 = &[7, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
        let binary16 = &[7, 0x00, 0x3c, 0x00, 0xc0];
        let bfloat16 = &[7, 0x80, 0x3f, 0x00, 0xc0];
        let messages: [&[u8]; 3] = [binary32, binary16, bfloat16];
        for (append, expected) in APPEND.into_iter().zip(messages) {
            let mut message = vec![7];
            assert_eq!(append(&[1.0, -2.0], &mut message), 2f32.to_bits());
            assert_eq!(append(&[], &mut message), 0);
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn what_is_not_finite_is_seen_anywhere() {
        for append in APPEND {
            for at in 0..40 {
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = [1.0; 40];
                    values[at] = bad;
                    assert!(append(&values, &mut Vec::new()) >= f32::INFINITY.to_bits(), "{at}");
                }
            }
            assert_eq!(append(&[f32::MAX, f32::MIN], &mut Vec::new()), f32::MAX.to_bits());
        }
    }

    #[test]
    fn streamed_bytes_are_the_bytes() {
        for len in [0, 1, 7, 63, 64, 65, 500, 5000] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37) as u8).collect();
            // Behind a header that leaves the memory aligned, or not.
            for start in [0, 1, 16, 64] {
                let mut message = Vec::with_capacity(start + len);
                message.resize(start, 9);
                append_streamed(&bytes, &mut message);
                append_streamed(&bytes, &mut message);
                let expected = [&vec![9; start], &bytes[..], &bytes].concat();
                assert_eq!(message, expected, "{len} bytes behind {start}");
            }
        }
    }
}
