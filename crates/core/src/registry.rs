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

#[cfg(feature = "low-rank")]
use crate::compressors::low_rank;
use crate::compressors::{baseline, hybrid, quantization, sparsification};
use crate::entry::Entry;
use crate::table::{Named, Table};

pub use crate::table::{RegistryError, crate_of};

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
    let (own, others): (Vec<_>, Vec<_>) =
        all().map(|entry| entry.id).partition(|id| crate_of(id).is_none());
    own.into_iter().chain(PRESETS.iter().map(|preset| preset.name)).chain(others)
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

/// All compressors.
static TABLE: Table<Entry> = Table::new(REGISTRY);

impl Named for Entry {
    const WHAT: &'static str = "compressor";

    fn name(&self) -> &'static str {
        self.id
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}

/// Every compressor, in the order of lists: gradwire's own, then those of other crates.
pub fn all() -> impl Iterator<Item = &'static Entry> {
    TABLE.all()
}

/// The entry called `id`.
pub fn find(id: &str) -> Option<&'static Entry> {
    TABLE.find(id)
}

/// The place of a compressor in lists, by the name that begins a spec string or a schedule; behind
/// all others if this program does not know it.
pub fn place_of(spec: &str) -> usize {
    let id = spec.split([':', ' ']).next();
    all().position(|entry| Some(entry.id) == id).unwrap_or(usize::MAX)
}

/// The crate that a compressor's name names, if no registered compressor is of that crate.
pub(crate) fn missing_crate(id: &str) -> Option<&str> {
    TABLE.missing_crate(id)
}

/// Adds compressors of another crate, for the rest of the process. Register them first, before any
/// spec string is read, and on every rank. Entries that are registered already are left out.
///
/// # Errors
/// If a name does not have the form `CRATE/NAME`, or belongs to another compressor. Then nothing is
/// registered.
pub fn register(entries: &[&'static Entry]) -> Result<(), RegistryError> {
    TABLE.register(entries)
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
