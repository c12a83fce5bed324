//! `gradwire bench`: the speed of compressors.

use std::path::{Path, PathBuf};

use clap::Args;
use gradwire::{Spec, Tensor};
use gradwire_delta::Mirror;
use gradwire_delta::safetensors::Checkpoint;
use gradwire_testbed::bench::deltas::{self, Way};
use gradwire_testbed::bench::peers::{self, Torch};
use gradwire_testbed::bench::{self, ELEMENTS, Effort, codes, threads};
use gradwire_testbed::table::Table;
use serde::Serialize;

use crate::failure::Failure;
use crate::form::{FORM, Form};
use crate::numbers::whole_in;
use crate::tensors::{self, Format, gradients};
use crate::{interrupt, output, streams};

/// Measure the speed of compressors on this machine.
///
/// Measures compression and decompression beside the speed that memory allows, on one or several
/// cores. The best of several repetitions counts; the spread is how much longer the median one
/// took. Decompression includes adding to the result. GB/s are 10⁹ bytes of float32 input per
/// second. The bound is the speed of only moving the bytes that a method must move: all bytes at
/// copy bandwidth, or the bytes that are read at read bandwidth, whichever is slower. Both
/// bandwidths are measured at the same time. Use a --release build; otherwise the figures mean
/// nothing.
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// A compressor; repeat it for several [default: all]
    #[arg(long = "compressor", value_name = "SPEC")]
    compressors: Vec<Spec>,
    /// Measure only the entropy codes, in symbols per second
    #[arg(long, conflicts_with = "compressors")]
    codes: bool,
    /// Measure N threads that share one tensor, or a group of 16 tensors, and compare them with one
    /// thread and with N independent threads; repeat it for several
    #[arg(long, value_name = "N", conflicts_with = "codes", value_parser = whole_in(1..=MOST_THREADS))]
    threads: Vec<u32>,
    /// Compare with equivalent PyTorch operations, if there are any; needs a python3 with PyTorch
    #[arg(long, conflicts_with_all = ["codes", "threads"])]
    peers: bool,
    /// Measure the delta between two checkpoints instead: its size, and the speed of encoding,
    /// staging and committing, beside a copy of the weights; takes as much memory as seven
    /// checkpoints
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"], conflicts_with_all = ["compressors", "codes", "peers", "elements"])]
    delta: Vec<PathBuf>,
    /// Measure on the tensors of this .safetensors or .npy file, all together, instead of normal
    /// variates; - for standard input, with --format
    #[arg(long, value_name = "FILE", conflicts_with_all = ["codes", "threads", "peers", "delta", "elements"])]
    input: Option<PathBuf>,
    /// The format of the input [default: by its extension]
    #[arg(long, value_name = "FORMAT", requires = "input")]
    format: Option<Format>,
    /// Number of elements of the tensor; repeat it for several [default: 65536, 1048576, 20971520;
    /// with --codes 65536, 8388608]
    #[arg(long, value_name = "N", value_parser = whole_in(1..=u32::MAX))]
    elements: Vec<u32>,
    /// Measure with fewer repetitions
    #[arg(long)]
    quick: bool,
    /// Print JSON: an array with a row for each measurement
    #[arg(long, group = FORM)]
    json: bool,
    #[command(flatten)]
    form: Form,
}

/// The most threads.
const MOST_THREADS: u32 = 4096;

impl Bench {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        interrupt::listen();
        if cfg!(debug_assertions) {
            output::note(
                "warning: this is not a release build; measure with cargo run --release -- bench",
            );
        }
        let effort = if self.quick { Effort::QUICK } else { Effort::USUAL };
        let done = if self.codes {
            let rows = self.measure_codes(effort);
            self.print(&rows, codes::table)?
        } else if self.peers {
            let mut torch = Torch::start().map_err(failed)?;
            let rows = self.measure(peers::specs, |spec, elements| {
                peers::measure(&mut torch, spec, elements, effort)
                    .map(|row| vec![row])
                    .map_err(failed)
            })?;
            self.print(&rows, peers::table)?
        } else if let Some(file) = &self.input {
            self.print(&self.measure_file(file, effort)?, bench::table)?
        } else if let [old, new] = &self.delta[..] {
            let rows = self.measure_deltas(old, new, effort)?;
            self.print(&rows, deltas::table)?
        } else if self.threads.is_empty() {
            let rows = self.measure(bench::default_specs, |spec, elements| {
                Ok(vec![bench::measure(spec, elements, effort)?])
            })?;
            self.print(&rows, bench::table)?
        } else {
            let counts: Vec<usize> = self.threads.iter().map(|&count| count as usize).collect();
            let rows = self.measure(bench::default_specs, |spec, elements| {
                Ok(threads::measure(spec, elements, &counts, effort)?)
            })?;
            self.print(&rows, threads::table)?
        };
        if interrupt::asked() {
            return Err(Failure::Interrupted(format!("{done} measurements are done")));
        }
        Ok(())
    }

    /// Prints rows, and returns their number.
    fn print<T: Serialize>(&self, rows: &[T], table: fn(&[T]) -> Table) -> Result<usize, Failure> {
        match self.json {
            true => output::line(output::json(rows))?,
            false => self.form.print_rows(rows, table)?,
        }
        Ok(rows.len())
    }

    fn measure_codes(&self, effort: Effort) -> Vec<codes::Measurement> {
        let sizes = self.sizes(&codes::SYMBOLS);
        let sizes = sizes.into_iter().take_while(|_| !interrupt::asked());
        sizes.flat_map(|symbols| codes::measure(symbols, effort)).collect()
    }

    /// A row for each compressor, on the tensors of a file.
    fn measure_file(
        &self,
        file: &Path,
        effort: Effort,
    ) -> Result<Vec<bench::Measurement>, Failure> {
        let mut steps = vec![tensors::read(file, self.format)?.tensors];
        gradients::retain(&mut steps)?;
        let named = steps.into_iter().flatten().filter(|named| named.tensor.elements() > 0);
        let tensors: Vec<(Tensor, Vec<f32>)> =
            named.filter_map(|named| Some((named.tensor, named.values.to_f32()?))).collect();
        let mut rows = Vec::new();
        for spec in self.specs(bench::default_specs) {
            if interrupt::asked() {
                break;
            }
            output::note(format!("{spec}, {}", streams::shown(file)));
            match bench::measure_on(&spec, &tensors, effort) {
                Ok(row) => rows.push(row),
                // A compressor of the default list may refuse a tensor.
                Err(error) if self.compressors.is_empty() => {
                    output::note(format!("{spec}: {error}"))
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(rows)
    }

    /// A row for each kind of delta and number of threads.
    fn measure_deltas(
        &self,
        old: &Path,
        new: &Path,
        effort: Effort,
    ) -> Result<Vec<deltas::Measurement>, Failure> {
        let [old, new] = [old, new].map(|path| -> Result<Mirror, Failure> {
            Ok(Mirror::copy_of(&Checkpoint::open(path)?)?)
        });
        let (old, new) = (old?, new?);
        let counts = if self.threads.is_empty() { &[1][..] } else { &self.threads };
        let mut rows = Vec::new();
        for portable in [false, true] {
            for &threads in counts {
                if interrupt::asked() {
                    return Ok(rows);
                }
                let way = Way { portable, threads: threads as usize };
                rows.push(deltas::measure(&old, &new, way, effort)?);
            }
        }
        Ok(rows)
    }

    /// The requested sizes, or the usual ones.
    fn sizes(&self, usual: &[usize]) -> Vec<usize> {
        match self.elements.as_slice() {
            [] => usual.to_vec(),
            given => given.iter().map(|&n| n as usize).collect(),
        }
    }

    /// The requested compressors, or the `usual` ones.
    fn specs(&self, usual: fn() -> Vec<Spec>) -> Vec<Spec> {
        if self.compressors.is_empty() { usual() } else { self.compressors.clone() }
    }

    /// The rows of all requested compressors and sizes, or of the `usual` compressors.
    fn measure<T>(
        &self,
        usual: fn() -> Vec<Spec>,
        mut measure: impl FnMut(&Spec, usize) -> Result<Vec<T>, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let specs = self.specs(usual);
        let sizes = self.sizes(&ELEMENTS);
        let mut rows = Vec::new();
        for &elements in &sizes {
            for spec in &specs {
                if interrupt::asked() {
                    return Ok(rows);
                }
                output::note(format!("{spec}, {elements} elements"));
                rows.extend(measure(spec, elements)?);
            }
        }
        Ok(rows)
    }
}

/// The peer's errors name the missing program or option.
fn failed(error: peers::PeerError) -> Failure {
    Failure::Input(error.to_string())
}
