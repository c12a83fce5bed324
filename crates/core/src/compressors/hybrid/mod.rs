//! Few elements, in few bits.

pub mod sbc;
