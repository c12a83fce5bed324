//! A hint to the processor about upcoming reads.

use super::cases;

/// Asks the processor to load these elements into its first-level cache, and returns at once.
///
/// While a method works on a cached block, the processor loads only a few kilobytes of the
/// following data. This requests all of it. Only x86-64 is supported; elsewhere it does nothing.
#[inline]
pub fn prefetch<T>(elements: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in elements.chunks(const { LINE / size_of::<T>() }) {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        // SAFETY: a prefetch changes no value, and faults at no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = elements;
}

/// The bytes in a line of the cache.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Asks for the line at an offset of the bytes, if there is one.
#[inline(always)]
pub(super) fn prefetch_line(bytes: &[u8], offset: usize) {
    if let Some(byte) = bytes.get(offset..=offset) {
        prefetch(byte);
    }
}

cases![("prefetch", |input, output| {
    let values = input.floats();
    prefetch(&values);
    output.moved(&values);
}),];
