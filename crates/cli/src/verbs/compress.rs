//! `gradwire compress`: tensors into frames.

use std::path::{Path, PathBuf};

use clap::Args;
use gradwire::frame::{Budget, Frame};
use gradwire::{Encoder, Error, Spec};

use crate::failure::Failure;
use crate::numbers::whole;
use crate::overwriting::Force;
use crate::tensors::{self, Contents, Format, LeftOut, Named};
use crate::{output, streams};

/// Compress the tensors of a .npy or .safetensors file.
///
/// Each tensor becomes one frame of the .gw file, which can be decoded without any other data.
/// Tensors of float32, float16 and bfloat16 are compressed, and float64 as float32, unless the
/// compressor is lossless. Tensors of other types or with NaN or infinity are kept bit for bit, and
/// so is the metadata of a .safetensors file.
#[derive(Debug, Args)]
pub(crate) struct Compress {
    /// The file to read; - for standard input, with --format
    input: PathBuf,
    /// The .gw file to write; - for standard output
    output: PathBuf,
    /// The compressor, such as 3lc:s=1.75
    #[arg(long, value_name = "SPEC")]
    compressor: Spec,
    /// Seed of random draws
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = whole::<u64>)]
    seed: u64,
    /// The format of the input [default: by its extension]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    #[command(flatten)]
    force: Force,
}

impl Compress {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        check_output(&self.output)?;
        self.force.check(&self.output)?;
        let Contents { mut tensors, metadata } = tensors::read(&self.input, self.format)?;
        if tensors.is_empty() {
            return Err(self.refused("it has no tensors, so there is nothing to compress"));
        }
        let spec = self.compressor.clone().without_history();
        let mut encoder = Encoder::new(&spec, self.seed, 0);
        let (mut file, mut bytes, mut kept) = (Vec::new(), 0, LeftOut::default());
        let (mut lost, mut rounded) = (Lost::default(), LeftOut::default());
        let is_exact = spec.entry().lossless || spec.entry().is_identity();
        for named in &mut tensors {
            bytes += named.values.size();
            if let Some(values) = named.values.rounded().filter(|_| !is_exact) {
                rounded.add(named.tensor.name(), "float64".to_owned());
                named.values = values;
            }
            let reason = self.append(&mut encoder, named, &mut file, &mut lost);
            if let Some(reason) = reason.map_err(|error| self.refused(&error))? {
                named.store(&mut file).map_err(|error| self.refused(&error))?;
                kept.add(named.tensor.name(), reason);
            }
        }
        if let Some(metadata) = metadata {
            metadata.write(&mut file);
        }
        streams::write(&self.output, &file)?;
        if let Some(kept) = kept.text() {
            output::note(format!("Kept bit for bit, not compressed: {kept}."));
        }
        if let Some(rounded) = rounded.text() {
            output::note(format!("Rounded to float32 before compression: {rounded}."));
        }
        let text = format!(
            "{} of {bytes} bytes in {}, {:.2}×",
            file.len(),
            plural(tensors.len(), "tensor"),
            bytes as f64 / file.len().max(1) as f64
        );
        streams::report(&self.output, &text)?;
        lost.lines().into_iter().try_for_each(|line| match streams::is_standard(&self.output) {
            true => {
                output::note(line);
                Ok(())
            }
            false => output::line(line),
        })
    }

    /// Appends the frame of a compressed tensor. If no compressor accepts the tensor, appends
    /// nothing and returns the reason.
    fn append(
        &self,
        encoder: &mut Encoder,
        named: &Named,
        file: &mut Vec<u8>,
        lost: &mut Lost,
    ) -> Result<Option<String>, String> {
        let Some(floats) = named.values.floats() else {
            return Ok(Some(format!("type {}", named.values.element())));
        };
        let mut message = Vec::new();
        match encoder.encode(&named.tensor, 0, floats, &mut message) {
            Ok(_) => {}
            Err(Error::NonFinite { value, .. } | Error::Overflow { value, .. }) => {
                return Ok(Some(format!("with {value}")));
            }
            Err(error) => return Err(error.to_string()),
        }
        let frame = Frame {
            spec: encoder.spec_of(named.tensor.name()).clone(),
            tensor: named.tensor.clone(),
            dtype: floats.dtype(),
            seed: self.seed,
            step: 0,
            rank: 0,
            message: &message,
        };
        frame.write(file).map_err(|error| error.to_string())?;
        let mut budget = Budget::new(u64::MAX);
        let decoded = frame.decode(&mut budget).map_err(|error| error.to_string())?;
        let mut original = Vec::new();
        floats.append_to(&mut original);
        lost.add(&original, &decoded);
        Ok(None)
    }

    fn refused(&self, error: &str) -> Failure {
        Failure::Input(format!("{}: {error}", streams::shown(&self.input)))
    }
}

/// The squares of the values of compressed tensors, and of their errors.
#[derive(Default)]
struct Lost {
    values: f64,
    errors: f64,
}

impl Lost {
    fn add(&mut self, values: &[f32], decoded: &[f32]) {
        let square = |value: f64| value * value;
        self.values += values.iter().map(|x| square(f64::from(*x))).sum::<f64>();
        let errors = values.iter().zip(decoded).map(|(x, y)| square(f64::from(*x) - f64::from(*y)));
        self.errors += errors.sum::<f64>();
    }

    /// The relative error of all compressed values together, and a warning if it is large; none
    /// without values other than 0.
    fn lines(&self) -> Vec<String> {
        if self.values == 0.0 {
            return Vec::new();
        }
        let error = (self.errors / self.values).sqrt();
        let mut lines = vec![format!("Relative error of the compressed values: {error:.3}")];
        if error > 0.5 {
            lines.push(
                "More than half of the values' norm is lost. In training, later steps make up for \
                 it; a file has no later step. For a copy of the values use a quantizer of more \
                 bits, such as int8."
                    .to_owned(),
            );
        }
        lines
    }
}

/// Refuses a file that does not end in `.gw`: it may be the tensors themselves.
fn check_output(path: &Path) -> Result<(), Failure> {
    match streams::is_standard(path) || path.extension().is_some_and(|ending| ending == "gw") {
        true => streams::refuse_terminal(path),
        false => Err(Failure::Input(format!(
            "'{}' does not end in .gw; name a .gw file for the frames",
            path.display()
        ))),
    }
}

/// A count with its noun: `1 tensor`, `2 tensors`.
pub(crate) fn plural(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
