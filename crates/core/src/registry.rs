//! The table of compressors: gradwire's own, and those that other crates [register].
//!
//! A spec string, in a file or on any rank, looks its compressor up here. The name of a compressor
//! of another crate begins with the name of the crate: `acme/scaled-sign`. So it never hides one of
//! gradwire's own, and a reader without the crate knows which one it lacks.
//!
//! ```
//! use gradwire::{Encoder, Entry, Spec, registry};
//! # use gradwire::registry::REGISTRY;
//! # static ENTRY: Entry = Entry { id: "acme/none", ..*REGISTRY[0] };
//!
//! registry::register(&[&ENTRY])?;
//! let spec: Spec = "acme/none".parse().unwrap();
//! # Ok::<(), registry::RegistryError>(())
//! ```

use std::sync::{PoisonError, RwLock};

#[cfg(feature = "low-rank")]
use crate::compressors::low_rank;
use crate::compressors::{baseline, hybrid, quantization, sparsification};
use crate::entry::Entry;
use crate::printable;

/// A name for a compressor with certain parameters.
#[derive(Debug, Clone, Copy)]
pub struct Preset {
    /// The name in spec strings; parameters after it override the preset's.
    pub name: &'static str,
    /// The compressor.
    pub id: &'static str,
    /// Its parameters, as the part of a spec string after the colon.
    pub items: &'static str,
}

/// The presets: the three points of the SBC paper's experiments, and the one-bit method that EDEN
/// generalises.
pub static PRESETS: &[Preset] = &[
    Preset { name: "sbc1", id: "sbc", items: "p=0.001" },
    Preset { name: "sbc2", id: "sbc", items: "p=0.01,every=10" },
    Preset { name: "sbc3", id: "sbc", items: "p=0.01,every=100" },
    Preset { name: "drive", id: "eden", items: "bits=1" },
];

/// Every name that a spec string may begin with.
pub fn names() -> impl Iterator<Item = &'static str> {
    let presets = PRESETS.iter().map(|preset| preset.name);
    REGISTRY
        .iter()
        .map(|entry| entry.id)
        .chain(presets)
        .chain(registered().into_iter().map(|entry| entry.id))
}

/// Gradwire's own compressors, in the order of lists.
pub static REGISTRY: &[&Entry] = &[
    &baseline::none::ENTRY,
    &baseline::fp16::ENTRY,
    &baseline::bf16::ENTRY,
    &baseline::lossless::ENTRY,
    &quantization::int8::ENTRY,
    &quantization::int4::ENTRY,
    &quantization::mxfp8::ENTRY,
    &quantization::mxfp4::ENTRY,
    &quantization::nvfp4::ENTRY,
    &quantization::dynamic_tree::ENTRY,
    &quantization::qsgd::ENTRY,
    &quantization::lpc_svrg::ENTRY,
    &quantization::terngrad::ENTRY,
    &quantization::onebit::ENTRY,
    &quantization::signsgd::ENTRY,
    &quantization::signum::ENTRY,
    &quantization::efsignsgd::ENTRY,
    &quantization::natural::ENTRY,
    &quantization::inceptionn::ENTRY,
    &quantization::three_lc::ENTRY,
    &quantization::entropy_bits::ENTRY,
    &quantization::eden::ENTRY,
    &quantization::thc::ENTRY,
    &quantization::codebook8::ENTRY,
    &sparsification::topk::ENTRY,
    &sparsification::randomk::ENTRY,
    &sparsification::threshold::ENTRY,
    &sparsification::gradient_dropping::ENTRY,
    &sparsification::dgc::ENTRY,
    &sparsification::sgc::ENTRY,
    &sparsification::demo::ENTRY,
    &sparsification::adaptive::ENTRY,
    &sparsification::variance::ENTRY,
    &sparsification::sketched_sgd::ENTRY,
    &hybrid::strom::ENTRY,
    &hybrid::sbc::ENTRY,
    &hybrid::chunk_topk::ENTRY,
    &hybrid::dryden::ENTRY,
    &hybrid::adacomp::ENTRY,
    &hybrid::local_selection::ENTRY,
    &hybrid::sketchml::ENTRY,
    &hybrid::qsparse_local::ENTRY,
    #[cfg(feature = "low-rank")]
    &low_rank::powersgd::ENTRY,
    #[cfg(feature = "low-rank")]
    &low_rank::acp_sgd::ENTRY,
    #[cfg(feature = "low-rank")]
    &low_rank::gradzip::ENTRY,
    #[cfg(feature = "low-rank")]
    &low_rank::atomo::ENTRY,
    #[cfg(feature = "low-rank")]
    &low_rank::gradiveq::ENTRY,
];

/// The compressors of other crates, in the order of their registration.
static REGISTERED: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

fn registered() -> Vec<&'static Entry> {
    REGISTERED.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Every compressor, in the order of lists: gradwire's own, then those of other crates.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    REGISTRY.iter().copied().chain(registered())
}

/// The entry called `id`.
pub fn find(id: &str) -> Option<&'static Entry> {
    all().find(|entry| entry.id == id)
}

/// Adds compressors of another crate, for the rest of the process. Register them first, before any
/// spec string is read, and on every rank. Entries that are registered already are left out.
///
/// # Errors
/// If a name does not have the form `CRATE/NAME`, or belongs to another compressor. Then nothing is
/// registered.
pub fn register(entries: &[&'static Entry]) -> Result<(), RegistryError> {
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let mut longer = registered.clone();
    for &entry in entries {
        check_name(entry)?;
        match longer.iter().find(|known| known.id == entry.id) {
            Some(known) if std::ptr::eq(*known, entry) => {}
            Some(known) => {
                return Err(RegistryError::Twice {
                    id: entry.id,
                    summaries: [known.summary, entry.summary],
                });
            }
            None => longer.push(entry),
        }
    }
    *registered = longer;
    Ok(())
}

/// Refuses a name that is gradwire's own, or could be.
fn check_name(entry: &Entry) -> Result<(), RegistryError> {
    let id = entry.id;
    if let Some(own) = REGISTRY.iter().find(|own| own.id == id) {
        return Err(RegistryError::Shadows { id, summaries: [own.summary, entry.summary] });
    }
    let is_word = |word: &str| {
        let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        !word.is_empty() && word.bytes().all(plain)
    };
    match id.split_once('/') {
        Some((krate, name)) if is_word(krate) && is_word(name) => Ok(()),
        _ => Err(RegistryError::Name { id }),
    }
}

/// The crate of a compressor, by the compressor's name; `None` for gradwire's own.
pub fn crate_of(id: &str) -> Option<&str> {
    id.split_once('/').map(|(krate, _)| krate)
}

/// Why compressors were not registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// A name without the crate's name, or with other characters.
    #[error(
        "a compressor of another crate cannot be registered as '{id}'; call it CRATE/NAME, in small \
         letters, digits, '-' and '_', such as 'acme/scaled-sign'", id = printable(.id)
    )]
    Name {
        /// The name.
        id: &'static str,
    },
    /// The name of one of gradwire's own compressors.
    #[error(
        "'{id}' ({new}) cannot be registered: gradwire has its own '{id}' ({own}); call the new one \
         CRATE/{id}, with the name of its crate", own = .summaries[0], new = .summaries[1]
    )]
    Shadows {
        /// The name.
        id: &'static str,
        /// What gradwire's own compressor does, and what the new one does.
        summaries: [&'static str; 2],
    },
    /// Two compressors with one name.
    #[error(
        "two compressors have the name '{id}': one is '{}', the other '{}'; give one of them \
         another name", .summaries[0], .summaries[1]
    )]
    Twice {
        /// The name.
        id: &'static str,
        /// What each of them does.
        summaries: [&'static str; 2],
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Budget, Frame, FrameError};
    use crate::parameters::Value;
    use crate::{Dtype, Guarantee, Spec, SpecError, Tensor};

    const fn named(id: &'static str) -> Entry {
        let build: fn(&[Value]) -> _ = |_| baseline::none::ENTRY.compressor();
        Entry { id, summary: "a new method", ..Entry::new(&[], |_| Guarantee::Both, build) }
    }

    #[test]
    fn a_registered_compressor_has_a_spec_string_and_frames() {
        static ENTRY: Entry = named("test-crate/sent");
        assert_eq!(
            "test-crate/sent".parse::<Spec>(),
            Err(SpecError::Unlinked { id: "test-crate/sent".into(), krate: "test-crate".into() })
        );
        let frame = |spec| Frame {
            spec,
            tensor: Tensor::new("t", &[1]),
            dtype: Dtype::F32,
            seed: 0,
            step: 0,
            rank: 0,
            message: &[0, 0, 0x80, 0x3f],
        };
        let mut bytes = Vec::new();
        assert!(matches!(
            frame(Spec::of(&ENTRY)).write(&mut bytes),
            Err(FrameError::Unregistered { .. })
        ));
        register(&[&ENTRY]).unwrap();
        // The same again, as by two libraries that use one.
        register(&[&ENTRY]).unwrap();
        assert_eq!(all().filter(|entry| entry.id == ENTRY.id).count(), 1);
        frame("test-crate/sent:every=2".parse().unwrap()).write(&mut bytes).unwrap();
        let read = Frame::read(&mut &bytes[..]).unwrap();
        assert_eq!(read.spec.to_string(), "test-crate/sent:every=2");
        assert_eq!(read.decode(&mut Budget::for_frames(0)).unwrap(), [1.0]);
        // A reader without the crate is told which one it lacks.
        let at = bytes.iter().position(|&byte| byte == b'/').unwrap();
        bytes[at - 5..at].copy_from_slice(b"other");
        let end = bytes.len() - 4;
        let checksum = crc32fast::hash(&bytes[..end]).to_le_bytes();
        bytes[end..].copy_from_slice(&checksum);
        let error = Frame::read(&mut &bytes[..]).unwrap_err().to_string();
        assert!(
            error.contains("of the crate 'test-other', which this program does not"),
            "{error}"
        );
        // One of its crate that it does not have.
        let error = "test-crate/send".parse::<Spec>().unwrap_err().to_string();
        assert!(error.contains("did you mean 'test-crate/sent'"), "{error}");
    }

    #[test]
    fn names_of_others_are_refused_and_nothing_is_registered() {
        static FINE: Entry = named("test-refused/fine");
        static SHADOW: Entry = named("topk");
        static PRESET: Entry = named("sbc2");
        static SPACE: Entry = named("test-refused/a b");
        static TWICE: Entry = Entry { summary: "another method", ..named("test-refused/fine") };
        for (second, parts) in [
            (
                &SHADOW,
                ["'topk' (a new method)", "largest absolute values", "call the new one CRATE/topk"],
            ),
            (&PRESET, ["'sbc2'", "call it CRATE/NAME", "acme/scaled-sign"]),
            (&SPACE, ["'test-refused/a b'", "call it CRATE/NAME", "small"]),
            (&TWICE, ["'test-refused/fine'", "'a new method'", "'another method'"]),
        ] {
            let error = register(&[&FINE, second]).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
            assert_eq!(find("test-refused/fine").map(|entry| entry.id), None);
        }
    }
}
