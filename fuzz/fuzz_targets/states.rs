//! State files.

#![no_main]

#[path = "../checks.rs"]
#[allow(dead_code, reason = "each target uses its part")]
mod checks;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| checks::state(input));
