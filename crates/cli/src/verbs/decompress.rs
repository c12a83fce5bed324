//! `gradwire decompress`: frames back into tensors.

use std::path::PathBuf;

use clap::Args;
use gradwire::Dtype;
use gradwire::frame::Budget;
use gradwire_testbed::files::write_atomic;

use crate::failure::Failure;
use crate::output;
use crate::tensors::{self, Format, Named, Values};
use crate::verbs::compress::plural;
use crate::verbs::inspect::frames;

/// Decompress a .gw file into a .npy or .safetensors file.
///
/// Tensors come back in the element type they had. A .npy file holds one tensor, and bfloat16,
/// which NumPy does not have, becomes float32 there, which loses nothing.
#[derive(Debug, Args)]
pub(crate) struct Decompress {
    /// The .gw file to read
    input: PathBuf,
    /// The file to write; its ending says which format
    output: PathBuf,
    /// The most bytes that the tensors may take as float32, together [default: 1024 times the input, at least 256 MiB]
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<u64>,
}

impl Decompress {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let format = Format::of(&self.output)?;
        let bytes = tensors::read_bytes(&self.input)?;
        let default = || Budget::for_frames(bytes.len());
        let mut budget = self.max_bytes.map_or_else(default, Budget::new);
        let mut decoded = Vec::new();
        for frame in frames(&self.input, &bytes)? {
            let values = frame
                .decode(&mut budget)
                .map_err(|e| Failure::Input(format!("'{}': {e}", self.input.display())))?;
            let dtype = if format.holds(frame.dtype) { frame.dtype } else { Dtype::F32 };
            let values = Values::from_f32(values, dtype).map_err(Failure::Input)?;
            decoded.push(Named { tensor: frame.tensor, values });
        }
        write_atomic(&self.output, &tensors::write(format, &decoded)?)?;
        output::line(format!("{}: {}", self.output.display(), plural(decoded.len(), "tensor")))
    }
}
