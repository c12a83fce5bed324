//! `gradwire compress`: tensors into frames.

use std::path::{Path, PathBuf};

use clap::Args;
use gradwire::frame::Frame;
use gradwire::{Encoder, Spec};
use gradwire_testbed::files::write_atomic;

use crate::failure::Failure;
use crate::{output, tensors};

/// Compress the tensors of a .npy or .safetensors file into a .gw file.
///
/// Each tensor becomes one frame, which says by itself how it is decoded. Elements are float32,
/// float16 or (.safetensors only) bfloat16.
#[derive(Debug, Args)]
pub(crate) struct Compress {
    /// The file to read
    input: PathBuf,
    /// The .gw file to write
    output: PathBuf,
    /// The compressor, such as 3lc:s=1.75
    #[arg(long, value_name = "SPEC")]
    compressor: Spec,
    /// Seed of random draws
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
}

impl Compress {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        check_output(&self.output)?;
        let tensors = tensors::read(&self.input)?;
        if tensors.is_empty() {
            let input = self.input.display();
            return Err(Failure::Input(format!(
                "'{input}' holds no tensors; there is nothing to compress"
            )));
        }
        let spec = self.compressor.clone().without_history();
        let mut encoder = Encoder::new(&spec, self.seed, 0);
        let (mut file, mut message, mut bytes) = (Vec::new(), Vec::new(), 0);
        for named in &tensors {
            message.clear();
            let floats = named.values.floats();
            encoder
                .encode(&named.tensor, 0, floats, &mut message)
                .map_err(|e| Failure::Input(format!("'{}': {e}", self.input.display())))?;
            bytes += floats.len() * floats.dtype().size();
            let frame = Frame {
                spec: spec.clone(),
                tensor: named.tensor.clone(),
                dtype: floats.dtype(),
                seed: self.seed,
                step: 0,
                rank: 0,
                message: &message,
            };
            frame
                .write(&mut file)
                .map_err(|e| Failure::Input(format!("'{}': {e}", self.input.display())))?;
        }
        write_atomic(&self.output, &file)?;
        output::line(format!(
            "{}: {} of {bytes} bytes in {}, {:.2}×",
            self.output.display(),
            file.len(),
            plural(tensors.len(), "tensor"),
            bytes as f64 / file.len().max(1) as f64
        ))
    }
}

/// Refuses a file that does not end in `.gw`: it may be the tensors themselves.
fn check_output(path: &Path) -> Result<(), Failure> {
    match path.extension().is_some_and(|ending| ending == "gw") {
        true => Ok(()),
        false => Err(Failure::Input(format!(
            "'{}' does not end in .gw; name a .gw file for the frames",
            path.display()
        ))),
    }
}

/// A number of things: `1 tensor`, `2 tensors`.
pub(crate) fn plural(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
