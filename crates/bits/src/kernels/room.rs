//! Room for numbers at the end of a message.

use alloc::vec::Vec;
use core::mem::{self, MaybeUninit};
use core::sync::atomic::{AtomicUsize, Ordering};

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

    /// Writes `SIZE` bytes for each number. `write` must write all its bytes.
    pub(super) fn fill<const SIZE: usize>(
        self,
        values: &[f32],
        write: fn(&[f32], &mut Unwritten) -> u32,
    ) -> u32 {
        assert_eq!(self.unwritten.len(), SIZE * values.len(), "room for each number");
        let largest = write(values, self.unwritten);
        self.written.fetch_add(self.unwritten.len(), Ordering::Relaxed);
        largest
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
