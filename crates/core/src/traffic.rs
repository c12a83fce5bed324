//! The bytes that compression must move between memory and processor. They bound its speed.
//!
//! Arithmetic aside, a tensor larger than the caches cannot be compressed faster than memory
//! delivers it. The bound counts the method's needs, not the code's actual traffic:
//!
//! - A pass over the tensor reads 4 bytes per element, plus 4 of the residual with error feedback.
//! - If a message depends on the whole tensor, by its maximum or a threshold, a pass precedes the
//!   one that writes it. Blocks of a few thousand elements stay in the cache, so a dependence on a
//!   block costs no pass.
//! - A residual or a velocity must not change before every element is known to be finite, so a
//!   method that keeps one always needs a pass before.
//! - Stores are counted once: a residual was just read in the same pass, and a message can be
//!   written past the cache.
//! - Decompression reads the message, and reads and writes the elements it adds to, in lines of 64
//!   bytes.

use crate::{Passes, Spec};

/// Bytes per element of a velocity that is read and written.
const VELOCITY: u8 = 8;

/// Bytes per element that compression and decompression move between memory and processor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryTraffic {
    /// For compression, with the error feedback of the spec.
    pub compress: Moved,
    /// For decompression and addition.
    pub decompress: Moved,
}

/// Bytes per element in each direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moved {
    /// From memory to the processor.
    pub read: f64,
    /// From the processor to memory.
    pub written: f64,
}

impl Moved {
    /// In both directions.
    pub fn bytes(self) -> f64 {
        self.read + self.written
    }
}

impl MemoryTraffic {
    /// The traffic of a spec if messages have this many bits per element, and are added to this
    /// fraction of the tensor's cache lines: 1 if dense.
    pub fn of(spec: &Spec, bits: f64, touched: f64) -> Self {
        let Passes { before, after, mut memory } = spec.entry().passes;
        if spec.configured_momentum() > 0.0 {
            memory += VELOCITY;
        }
        let (read, written, after) = match spec.feedback() {
            None => (4.0, 0.0, 0),
            Some(_) => (8.0, 4.0, after),
        };
        let keeps = spec.feedback().is_some() || memory > 0;
        let passes = before.max(u8::from(keeps)) + 1 + after;
        let (message, memory) = (bits / 8.0, f64::from(memory) / 2.0);
        Self {
            compress: Moved {
                read: f64::from(passes) * read + memory,
                written: written + memory + message,
            },
            decompress: Moved { read: message + 4.0 * touched, written: 4.0 * touched },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_by_hand() {
        let moved = |read, written| Moved { read, written };
        for (spec, bits, touched, compress, decompress) in [
            // Reads 4, writes 4; decoding reads the message and the sum, and writes the sum.
            ("none", 32.0, 1.0, moved(4.0, 4.0), moved(8.0, 4.0)),
            ("fp16", 16.0, 1.0, moved(4.0, 2.0), moved(6.0, 4.0)),
            ("int8:ef=off", 8.0, 1.0, moved(8.0, 1.0), moved(5.0, 4.0)),
            // Gradient and residual twice, the residual written, a byte of message.
            ("int8:ef=on", 8.0, 1.0, moved(16.0, 5.0), moved(5.0, 4.0)),
            // One pass without error feedback, and one more to check the elements with it.
            ("threshold:ef=off", 0.0, 0.25, moved(4.0, 0.0), moved(1.0, 1.0)),
            ("threshold:ef=on", 0.0, 0.25, moved(16.0, 4.0), moved(1.0, 1.0)),
            // The gradient twice; the running mean read and written; one bit of message.
            ("signum", 1.0, 1.0, moved(12.0, 4.125), moved(4.125, 4.0)),
            // A velocity is read and written, too: the method's, or the velocity of the parameter
            // `momentum`.
            ("dgc", 0.8, 0.0, moved(20.0, 8.1), moved(0.1, 0.0)),
            ("topk:momentum=0.9", 0.8, 0.0, moved(20.0, 8.1), moved(0.1, 0.0)),
            // Without a residual, a pass checks the velocity before it is stored.
            ("fp16:momentum=0.9", 16.0, 1.0, moved(12.0, 6.0), moved(6.0, 4.0)),
            // A pass per factor and one for the residual.
            ("powersgd", 0.0, 1.0, moved(24.0, 4.0), moved(4.0, 4.0)),
        ] {
            let traffic = MemoryTraffic::of(&spec.parse().unwrap(), bits, touched);
            assert_eq!(traffic, MemoryTraffic { compress, decompress }, "{spec}");
        }
    }
}
