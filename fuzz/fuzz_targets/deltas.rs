//! Deltas and snapshots of weights.

#![no_main]

#[path = "../deltas.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod deltas;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| deltas::stage(input));
