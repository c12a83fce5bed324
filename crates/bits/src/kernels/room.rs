//! Room for numbers at the end of a message.

use alloc::vec::Vec;
use core::mem::{self, MaybeUninit};
use core::sync::atomic::{AtomicUsize, Ordering};

use fearless_simd::prelude::*;
use fearless_simd::{f32x16, u32x16};

use super::dispatch::dispatch;

/// Reserved bytes of a message that are not yet written.
pub(super) type Unwritten = [MaybeUninit<u8>];

/// Room for bytes at the end of a message, to be filled by kernels. Threads may fill parts of it
/// concurrently.
pub struct Room<'a> {
    unwritten: &'a mut Unwritten,
    /// The number of written bytes of the whole room.
    written: &'a AtomicUsize,
}

impl<'a> Room<'a> {
    /// Makes room for `len` bytes at the end of a message, and lets `fill` fill it.
    ///
    /// # Panics
    /// If `fill` leaves bytes out.
    pub fn at_end<R>(message: &mut Vec<u8>, len: usize, fill: impl FnOnce(Room<'_>) -> R) -> R {
        message.reserve(len);
        let written = AtomicUsize::new(0);
        let unwritten = &mut message.spare_capacity_mut()[..len];
        let result = fill(Room { unwritten, written: &written });
        assert_eq!(written.into_inner(), len, "the room is filled");
        // SAFETY: these bytes are reserved, and all were written: rooms share no byte, and bytes
        // count only after they were written. Threads that hold a room have ended, because it does
        // not outlive the closure.
        unsafe { message.set_len(message.len() + len) };
        result
    }

    /// Cuts off room for the first `len` bytes.
    ///
    /// # Panics
    /// If there is less.
    pub fn split_off(&mut self, len: usize) -> Room<'a> {
        let (unwritten, rest) = mem::take(&mut self.unwritten).split_at_mut(len);
        self.unwritten = rest;
        Room { unwritten, written: self.written }
    }

    /// Writes each number in a format, past the caches if `streamed`. Returns the bits of the
    /// largest absolute value.
    pub(super) fn fill<F: Format>(self, values: &[f32], streamed: bool) -> u32 {
        assert_eq!(self.unwritten.len(), F::SIZE * values.len(), "room for each number");
        let largest = write::<F>(values, self.unwritten, streamed);
        self.written.fetch_add(self.unwritten.len(), Ordering::Relaxed);
        largest
    }
}

/// A format of numbers in a message.
pub(super) trait Format: Sized {
    /// The bytes of a number.
    const SIZE: usize;
    /// The bits of the largest absolute value that [`pack`](Self::pack) converts.
    const MOST: u32;
    /// The bytes of sixteen numbers.
    type Bytes: AsRef<[u8]>;

    /// The bytes of sixteen numbers. Any bytes for a number of larger absolute value.
    fn pack<S: Simd>(simd: S, values: &[f32; 16]) -> Self::Bytes;

    /// Writes all bytes of any numbers. Returns the bits of the largest absolute value.
    #[inline(always)]
    fn write<S: Simd>(simd: S, values: &[f32], out: &mut Unwritten) -> u32 {
        pack_all::<Self, _>(simd, values, out, |bytes, out| _ = out.write_copy_of_slice(bytes))
    }

    /// The same as a plain loop.
    fn plain(values: &[f32], out: &mut Unwritten) -> u32;
}

fn write<F: Format>(values: &[f32], out: &mut Unwritten, streamed: bool) -> u32 {
    #[cfg(any(test, feature = "testing"))]
    if super::level::is_plain() {
        return F::plain(values, out);
    }
    // Miri does not have stores that bypass the caches.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if streamed && out.as_ptr().addr().is_multiple_of(16) {
        let largest = dispatch!(simd => pack_all::<F, _>(simd, values, out, stream));
        // SAFETY: x86-64 includes SSE. Other threads see the bytes like usual stores only after a
        // fence.
        unsafe { core::arch::x86_64::_mm_sfence() };
        return largest;
    }
    let _ = streamed;
    dispatch!(simd => F::write(simd, values, out))
}

/// Writes the bytes of sixteen numbers at a time with `put`. Returns the bits of the largest
/// absolute value.
#[inline(always)]
fn pack_all<F: Format, S: Simd>(
    simd: S,
    values: &[f32],
    out: &mut Unwritten,
    put: impl Fn(&[u8], &mut Unwritten),
) -> u32 {
    let (groups, rest) = values.as_chunks::<16>();
    let (places, last) = out.split_at_mut(16 * F::SIZE * groups.len());
    let mut largest = u32x16::splat(simd, 0);
    for (values, place) in groups.iter().zip(places.chunks_exact_mut(16 * F::SIZE)) {
        let bits = f32x16::load_array_ref(simd, values).bitcast::<u32x16<S>>();
        largest = largest.max(bits & 0x7fff_ffff);
        put(F::pack(simd, values).as_ref(), place);
    }
    let largest = largest.reduce_max().max(F::plain(rest, last));
    // Rarely a number is so large that it would become infinite.
    if largest > F::MOST { F::plain(values, out) } else { largest }
}

/// Writes bytes past the caches; `out` is aligned to 16 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
fn stream(bytes: &[u8], out: &mut Unwritten) {
    use core::arch::x86_64::{_mm_loadu_si128, _mm_stream_si128};

    for (bytes, piece) in bytes.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0) {
        let (bytes, piece) = (bytes.as_ptr().cast(), piece.as_mut_ptr().cast());
        // SAFETY: both have sixteen bytes, and the second is aligned.
        unsafe { _mm_stream_si128(piece, _mm_loadu_si128(bytes)) };
    }
}

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;
    use crate::kernels::{bf16_fill, f16_fill};

    #[test]
    fn parts_of_a_room_are_filled_in_any_order() {
        let mut message = vec![7];
        Room::at_end(&mut message, 6, |mut rest| {
            let first = rest.split_off(2);
            bf16_fill(&[-2.0, 1.0], rest, false);
            f16_fill(&[1.0], first, false);
        });
        assert_eq!(message, [7, 0x00, 0x3c, 0x00, 0xc0, 0x80, 0x3f]);
    }

    #[test]
    #[should_panic(expected = "the room is filled")]
    fn a_room_that_is_not_filled_is_refused() {
        Room::at_end(&mut Vec::new(), 4, |mut room| {
            f16_fill(&[1.0], room.split_off(2), false);
        });
    }

    #[test]
    #[should_panic(expected = "room for each number")]
    fn a_room_of_another_length_is_refused() {
        Room::at_end(&mut Vec::new(), 5, |room| f16_fill(&[1.0, 2.0], room, false));
    }
}
