//! Studies: tables and figures of papers, run again at a size that fits a small machine with the paper's figures beside
//! the measured ones, and measurements of this project's own.

mod adacomp;
mod entropy_bits;
mod exchange_scaling;
mod findings;
mod grace;
mod run;
mod sbc;
mod study;
mod three_lc;

use crate::TestbedError;

pub use run::{Part, parts, run_parts};
pub use study::{About, Report, Results, Study, default_folder, row_of};

/// All studies, in the order in which they are listed.
pub static STUDIES: [&dyn Study; 18] = [
    &three_lc::Table1,
    &three_lc::Table2,
    &sbc::Table2,
    &sbc::Grid,
    &adacomp::Table2,
    &adacomp::Figure4,
    &adacomp::Figure5,
    &adacomp::Figure7,
    &entropy_bits::FIGURE_1,
    &entropy_bits::FIGURE_4,
    &entropy_bits::FIGURE_5,
    &grace::Figure6,
    &grace::PlainSgd,
    &grace::Feedback,
    &grace::Figure8,
    &grace::Figure9,
    &three_lc::Links,
    &exchange_scaling::ExchangeScaling,
];

/// The study with this id.
///
/// # Errors
/// If there is none; the error lists those there are.
pub fn find(id: &str) -> Result<&'static dyn Study, TestbedError> {
    STUDIES.into_iter().find(|study| study.about().id == id).ok_or_else(|| {
        let known: Vec<&str> = STUDIES.iter().map(|study| study.about().id).collect();
        TestbedError::Config(format!("unknown study '{id}'; known ones: {}", known.join(", ")))
    })
}

#[cfg(test)]
mod tests;
