//! Simulated steps of clusters of 2 to 10 000 ranks: which exchange and which compressor, and where
//! no compression wins.
//!
//! The simulation is [`gradwire_advice::topology`]. Its speeds are measured, its machines, links
//! and models are stated; the page lists them. A repetition gives the same page.

mod assumptions;
mod cell;
mod charts;
mod kind;
mod tables;
mod variations;

use gradwire_advice::topology::published;

use super::findings::page;
use super::study::{Report, Results, Study};
use crate::TestbedError;
use crate::table::Table;
use kind::{KINDS, Simulated};

/// The study of simulated clusters.
pub(crate) const CLUSTERS: Study = Study {
    id: "clusters",
    summary: "simulated steps of clusters of 2 to 10 000 ranks: which exchange and compressor, and where none wins",
    report: |results, _| report(results),
    ..Study::PLAIN
};

fn config(error: gradwire_exchange::ExchangeError) -> TestbedError {
    TestbedError::Config(error.to_string())
}

fn report(results: &Results<'_>) -> Result<Report, TestbedError> {
    let simulated = KINDS.iter().map(Simulated::of).collect::<Result<Vec<_>, _>>();
    let simulated = simulated.map_err(config)?;
    let (mut text, mut printed) = (format!("{}\n", assumptions::INTRODUCTION), Vec::new());
    for Simulated { kind, cells, .. } in &simulated {
        let (heading, picture) = (kind.heading, &kind.picture);
        let table = tables::table(kind, cells);
        text.push_str(&format!(
            "\n## {heading}\n\n{}\n\n{}\n{}\n",
            assumptions::of(picture),
            table.markdown(),
            tables::summary(picture, cells)
        ));
        printed.extend([heading.to_owned().into(), table.into()]);
    }
    let nodes = &simulated[1];
    text.push_str(&format!(
        "\n## Messages that stay on the GPU\n\n{}",
        variations::on_the_device(nodes)
    ));
    text.push_str(&format!("\n## Larger buckets\n\n{}", variations::larger_buckets(nodes)));
    text.push_str(&format!("\n## Other guesses\n\n{}", variations::other_guesses(nodes)));
    text.push_str(&format!("\n## Beside published gains\n\n{}", beside()?.markdown()));
    text.push_str(&format!("\n## Assumptions\n\n{}\n## Charts\n", assumptions::LIST));
    Ok(page(results, &text, &charts::charts(&simulated), printed))
}

/// Published figures beside simulated ones.
fn beside() -> Result<Table, TestbedError> {
    let all = published().map_err(config)?;
    let table = Table::of(&all)
        .column("publication", |one| one.work)
        .column("published", |one| one.figure)
        .column("simulated", |one| &one.simulated)
        .column("the difference", |one| one.difference);
    Ok(table.table().left_aligned())
}

#[cfg(test)]
mod tests;
