//! Studies: tables and figures of papers, run again at a size for a small machine, with the paper's
//! figures beside the measured ones; and this project's own measurements.

mod adacomp;
mod all_methods;
mod clusters;
mod entropy_bits;
mod exchange_scaling;
mod findings;
mod grace;
mod run;
mod sbc;
mod study;
mod three_lc;
mod transformer;
mod variation;

use gradwire::suggestion;

use crate::TestbedError;

pub use run::{StudyPart, run_parts};
pub use study::{Printed, Report, Results, Study};

/// All studies, in the order of listings.
pub static STUDIES: [Study; 22] = [
    three_lc::TABLE_1,
    three_lc::TABLE_2,
    sbc::TABLE_2,
    sbc::GRID,
    adacomp::TABLE_2,
    adacomp::FIGURE_4,
    adacomp::FIGURE_5,
    adacomp::FIGURE_7,
    entropy_bits::FIGURE_1,
    entropy_bits::FIGURE_4,
    entropy_bits::FIGURE_5,
    grace::FIGURE_6,
    grace::PLAIN_SGD,
    grace::FEEDBACK,
    grace::FIGURE_8,
    grace::FIGURE_9,
    three_lc::LINKS,
    exchange_scaling::EXCHANGE_SCALING,
    clusters::CLUSTERS,
    transformer::FRONTIER,
    transformer::SET_UPS,
    all_methods::ALL_METHODS,
];

/// The study with this id.
///
/// # Errors
/// If there is none; the error lists all ids.
pub fn find(id: &str) -> Result<&'static Study, TestbedError> {
    STUDIES.iter().find(|study| study.id == id).ok_or_else(|| {
        let known: Vec<&str> = STUDIES.iter().map(|study| study.id).collect();
        let near = suggestion(id, known.iter().copied());
        TestbedError::Config(format!(
            "unknown study '{id}'{near}; known ones: {}",
            known.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests;
