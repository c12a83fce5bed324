//! Tables of papers, run again at a size that fits a small machine: the paper's figures and the
//! measured ones side by side.

pub mod adacomp;
pub mod entropy;
pub mod grace;
pub mod paper;
mod report;
pub mod sbc;
mod tables;

use gradwire_train::plan::Plan;

use crate::TestbedError;
use crate::experiment::Experiment;
use crate::{exchange_scaling, latency, measured};

pub use report::{Files, files, paper_table};
pub use tables::{COMPRESSOR, table_1, table_2};

/// A table that can be reproduced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reproduction {
    /// Table 1 of the 3LC paper: speed-up and accuracy of eleven designs.
    Table1,
    /// Table 2 of the 3LC paper: compression of 3LC by sparsity multiplier.
    Table2,
    /// A row of Table II of the SBC paper: quality and compression of six methods.
    SbcTable2(sbc::Row),
    /// Figures 3, 4 and 9 of the SBC paper: quality over temporal and gradient sparsity.
    SbcGrid,
    /// Tables and figures of the AdaComp paper.
    AdaComp(adacomp::Study),
    /// Figures of the paper on entropy-driven bit widths.
    Entropy(entropy::Study),
    /// Figures of the survey of compressed communication.
    Grace(grace::Study),
}

impl Reproduction {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Table1,
        Self::Table2,
        Self::SbcTable2(sbc::Row::LeNet),
        Self::SbcGrid,
        Self::AdaComp(adacomp::Study::ALL[0]),
        Self::AdaComp(adacomp::Study::ALL[1]),
        Self::AdaComp(adacomp::Study::ALL[2]),
        Self::AdaComp(adacomp::Study::ALL[3]),
        Self::Entropy(entropy::Study::ALL[0]),
        Self::Entropy(entropy::Study::ALL[1]),
        Self::Entropy(entropy::Study::ALL[2]),
        Self::Grace(grace::Study::ALL[0]),
        Self::Grace(grace::Study::ALL[1]),
        Self::Grace(grace::Study::ALL[2]),
        Self::Grace(grace::Study::ALL[3]),
    ];

    /// Its name on the command line.
    pub fn id(self) -> &'static str {
        match self {
            Self::Table1 => "3lc-table1",
            Self::Table2 => "3lc-table2",
            Self::SbcTable2(_) => "sbc-table2",
            Self::SbcGrid => "sbc-fig3",
            Self::AdaComp(study) => study.id(),
            Self::Entropy(study) => study.id(),
            Self::Grace(study) => study.id(),
        }
    }

    /// What it is, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Table1 => {
                "speed-up and accuracy of the eleven designs of the 3LC paper (Table 1, Figures 4 to 9)"
            }
            Self::Table2 => {
                "compression ratio and bits per state change of 3LC by sparsity multiplier (Table 2)"
            }
            Self::SbcTable2(_) => {
                "quality and compression of six methods in the SBC paper (Table II; --row lenet, \
                 resnet32, wordlstm or charlstm)"
            }
            Self::SbcGrid => {
                "quality over temporal and gradient sparsity in the SBC paper (Figures 3, 4 and 9)"
            }
            Self::AdaComp(study) => study.summary(),
            Self::Entropy(study) => study.summary(),
            Self::Grace(study) => study.summary(),
        }
    }

    /// The one called `id`.
    ///
    /// # Errors
    /// If there is none; the error names those there are.
    pub fn find(id: &str) -> Result<Self, TestbedError> {
        Self::ALL.into_iter().find(|one| one.id() == id).ok_or_else(|| {
            let known =
                [&Self::ALL.map(Self::id)[..], &[latency::ID, measured::ID, exchange_scaling::ID]]
                    .concat()
                    .join(", ");
            TestbedError::Config(format!("unknown reproduction '{id}'; known ones: {known}"))
        })
    }

    /// The same with another row, of a table that has rows of their own.
    ///
    /// # Errors
    /// If it has none, or none of this name.
    pub fn with_row(self, row: &str) -> Result<Self, TestbedError> {
        match self {
            Self::SbcTable2(_) => row.parse().map(Self::SbcTable2).map_err(TestbedError::Config),
            Self::AdaComp(adacomp::Study::Table2(_)) => {
                let row = row.parse().map_err(TestbedError::Config)?;
                Ok(Self::AdaComp(adacomp::Study::Table2(row)))
            }
            Self::Grace(study) => {
                let row = row.parse().map_err(TestbedError::Config)?;
                study.with_row(row).map(Self::Grace).map_err(TestbedError::Config)
            }
            _ => Err(TestbedError::Config(format!("{} has no rows to choose from", self.id()))),
        }
    }

    /// The paper in a line.
    pub fn citation(self) -> &'static str {
        match self {
            Self::Table1 | Self::Table2 => paper::CITATION,
            Self::SbcTable2(_) | Self::SbcGrid => sbc::CITATION,
            Self::AdaComp(_) => adacomp::CITATION,
            Self::Entropy(_) => entropy::CITATION,
            Self::Grace(_) => grace::CITATION,
        }
    }

    /// The designs it compares in runs of so many steps; `none` is the first.
    pub fn compressors(self, steps: u64) -> Vec<Plan> {
        let parse = |text: &str| text.parse().expect("the paper's designs are specs");
        let own: Vec<&str> = match self {
            Self::AdaComp(study) => return study.compressors().iter().map(|c| parse(c)).collect(),
            Self::Entropy(study) => return study.compressors().iter().map(|c| parse(c)).collect(),
            Self::Grace(study) => return study.compressors().iter().map(|c| parse(c)).collect(),
            Self::Table1 => paper::TABLE_1.iter().map(|design| design.compressor).collect(),
            Self::Table2 => {
                let rows = paper::TABLE_2.iter().map(|row| row.compressor);
                std::iter::once("none").chain(rows).collect()
            }
            Self::SbcTable2(row) => return row.experiment().compressors,
            Self::SbcGrid => return sbc::grid_compressors(steps),
        };
        own.into_iter().map(parse).collect()
    }

    /// The experiments it consists of: one, where not several set-ups are compared.
    pub fn variants(self, experiment: &Experiment) -> Vec<Experiment> {
        match self {
            Self::AdaComp(study) => study.variants(experiment),
            Self::Grace(study) => study.variants(experiment),
            _ => vec![experiment.clone()],
        }
    }

    /// Whether its runs are of several set-ups, which tables by compressor would mix up.
    pub fn is_of_several(self) -> bool {
        matches!(
            self,
            Self::AdaComp(adacomp::Study::Figure7) | Self::Grace(grace::Study::Figure8(_))
        )
    }

    /// Parts of the standard number of steps that it trains for, each a run of its own with the
    /// learning rate going through its whole range.
    pub fn fractions(self) -> Vec<f64> {
        match self {
            Self::Table1 => vec![0.25, 0.5, 0.75, 1.0],
            _ => vec![1.0],
        }
    }

    /// The set-up where no other is given. For the rows of a table of the SBC paper that is the
    /// paper's own; for the others one that needs no data: the default experiment with the paper's
    /// designs and links.
    pub fn experiment(self) -> Experiment {
        let steps = 2000;
        let generated = Experiment {
            compressors: self.compressors(steps),
            links_mbit: paper::LINKS_MBIT.to_vec(),
            raw_vectors: false,
            steps,
            ..Experiment::default()
        };
        match self {
            Self::Table1 | Self::Table2 => generated,
            Self::SbcTable2(row) => row.experiment(),
            Self::SbcGrid => Experiment {
                data: generated.data,
                steps,
                compressors: generated.compressors,
                ..sbc::Row::LeNet.experiment()
            },
            Self::AdaComp(study) => study.experiment(),
            Self::Entropy(study) => study.experiment(),
            Self::Grace(study) => study.experiment(),
        }
    }
}

/// Steps of a part of the standard number, at least one.
pub fn part_of(steps: u64, fraction: f64) -> u64 {
    ((steps as f64 * fraction).round() as u64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unknown_ones_refused() {
        for one in Reproduction::ALL {
            assert_eq!(Reproduction::find(one.id()).unwrap(), one);
            assert!(one.experiment().check().is_ok());
            assert!(one.compressors(2000)[0].to_string().starts_with("none"));
            let compressors = one.compressors(one.experiment().steps);
            assert_eq!(one.experiment().compressors, compressors);
            // Tables find runs by what specs print.
            if let Reproduction::AdaComp(study) = one {
                let printed: Vec<String> = compressors.iter().map(Plan::to_string).collect();
                assert_eq!(study.compressors(), printed);
            }
        }
        let error = Reproduction::find("3lc-table9").unwrap_err().to_string();
        assert!(error.contains("3lc-table1"), "{error}");
    }

    #[test]
    fn vectors_are_compressed_as_in_the_papers() {
        for one in Reproduction::ALL {
            assert!(!one.experiment().raw_vectors, "{}", one.id());
        }
        assert!(!exchange_scaling::experiment().raw_vectors);
    }

    #[test]
    fn parts_of_steps() {
        assert_eq!(part_of(1000, 0.25), 250);
        assert_eq!(part_of(1, 0.25), 1);
    }
}
