//! What the tests of all compressors share.

#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub(crate) mod custom;

pub(crate) use gradwire::laws::samples::*;

use gradwire::registry::REGISTRY;
use gradwire::{Spec, laws};

/// What the laws are checked with, of every registered compressor.
pub(crate) fn specs() -> Vec<Spec> {
    REGISTRY.iter().flat_map(|entry| laws::specs(entry)).collect()
}
