//! Bare messages, of the compressor that the environment variable names, or of all.

#![no_main]

#[path = "../checks.rs"]
#[allow(dead_code, reason = "each target uses its part")]
mod checks;

use std::sync::OnceLock;

use gradwire::registry::REGISTRY;
use libfuzzer_sys::fuzz_target;

/// The compressors to decode by.
fn ids() -> &'static [String] {
    static IDS: OnceLock<Vec<String>> = OnceLock::new();
    IDS.get_or_init(|| match std::env::var("GRADWIRE_FUZZ") {
        Ok(id) => vec![id],
        Err(_) => REGISTRY.iter().map(|entry| entry.id.to_owned()).collect(),
    })
}

fuzz_target!(|input: &[u8]| {
    ids().iter().for_each(|id| checks::message(id, input));
});
