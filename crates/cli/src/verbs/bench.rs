//! `gradwire bench`: the speed of compressors.

use clap::Args;
use gradwire::Spec;
use gradwire_testbed::bench::{self, ELEMENTS, Effort, Measurement};

use crate::failure::Failure;
use crate::{interrupt, output};

/// Measure compress and decompress-add speed beside what memory allows, on one core.
///
/// GB/s are 10⁹ bytes of float32 input a second. The bound is the speed at which the bytes that a
/// method must move pass at the bandwidth of a copy, measured in the same moments. Build with
/// --release, or the figures mean nothing.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// A compressor; repeat it for several [default: every registered one]
    #[arg(long = "compressor", value_name = "SPEC")]
    compressors: Vec<Spec>,
    /// Elements of the tensor; repeat it for several [default: 65536, 1048576, 20971520]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    elements: Vec<u32>,
    /// Fewer repetitions
    #[arg(long)]
    quick: bool,
    /// Print JSON: an array with a row for each measurement
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        interrupt::listen();
        if cfg!(debug_assertions) {
            output::note(
                "warning: this is no release build; measure with cargo run --release -- bench",
            );
        }
        let effort = if self.quick { Effort::QUICK } else { Effort::USUAL };
        let rows = self.measure(effort)?;
        output::line(if self.json { output::json(&rows) } else { bench::table(&rows).terminal() })?;
        if interrupt::asked() {
            return Err(Failure::Interrupted(format!("{} measurements are done", rows.len())));
        }
        Ok(())
    }

    fn measure(&self, effort: Effort) -> Result<Vec<Measurement>, Failure> {
        let specs = match self.compressors.as_slice() {
            [] => bench::default_specs(),
            given => given.to_vec(),
        };
        let sizes: Vec<usize> = match self.elements.as_slice() {
            [] => ELEMENTS.to_vec(),
            given => given.iter().map(|&n| n as usize).collect(),
        };
        let mut rows = Vec::new();
        for &elements in &sizes {
            for spec in &specs {
                if interrupt::asked() {
                    return Ok(rows);
                }
                output::note(format!("{spec}, {elements} elements"));
                rows.push(bench::measure(spec, elements, effort)?);
            }
        }
        Ok(rows)
    }
}
