//! The table of compressors. Lists, tests and documentation iterate over it.

use crate::compressors::{baseline, hybrid, low_rank, quantization, sparsification};
use crate::entry::Entry;

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
    REGISTRY.iter().map(|entry| entry.id).chain(PRESETS.iter().map(|preset| preset.name))
}

/// Every compressor, in the order of lists.
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
    &low_rank::powersgd::ENTRY,
    &low_rank::acp_sgd::ENTRY,
    &low_rank::gradzip::ENTRY,
    &low_rank::atomo::ENTRY,
    &low_rank::gradiveq::ENTRY,
];

/// The entry called `id`.
pub fn find(id: &str) -> Option<&'static Entry> {
    REGISTRY.iter().copied().find(|entry| entry.id == id)
}
