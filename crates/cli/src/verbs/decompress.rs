//! `gradwire decompress`: frames back into tensors.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use gradwire::frame::{Budget, FrameError, Item, Metadata};
use gradwire::{Dtype, printable};

use crate::failure::Failure;
use crate::numbers::whole;
use crate::overwriting::Force;
use crate::tensors::{self, Contents, Format, Named, Values};
use crate::verbs::compress::plural;
use crate::verbs::inspect::frames;
use crate::{output, streams};

/// Decompress a .gw file into a .npy or .safetensors file.
///
/// Restores the element types of the messages, and the metadata of a .safetensors file. A .npy file
/// holds one tensor and no metadata. NumPy has no bfloat16, so bfloat16 becomes float32 there,
/// without loss.
#[derive(Debug, Args)]
pub(crate) struct Decompress {
    /// The .gw file to read; - for standard input
    input: PathBuf,
    /// The file to write; - for standard output, with --format
    output: PathBuf,
    /// The format of the output [default: by its extension]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Maximum number of bytes for all tensors together; compressed tensors count as float32
    /// [default: 1024 times the input, at least 256 MiB]
    #[arg(long, value_name = "BYTES", value_parser = whole::<u64>)]
    max_bytes: Option<u64>,
    #[command(flatten)]
    force: Force,
}

impl Decompress {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let format = Format::of(self.format, &self.output)?;
        streams::refuse_terminal(&self.output)?;
        self.force.check(&self.output)?;
        let bytes = streams::read(&self.input)?;
        let default = || Budget::for_frames(bytes.len());
        let budget = self.max_bytes.map_or_else(default, Budget::new);
        let mut restored = Restored { format, budget, tensors: Vec::new(), metadata: None };
        for item in frames(&self.input, &bytes)? {
            restored
                .add(item)
                .map_err(|e| Failure::Input(format!("{}: {e}", streams::shown(&self.input))))?;
        }
        let Restored { tensors, metadata, .. } = restored;
        if format == Format::Npy && metadata.is_some() {
            output::note("The metadata was left out, because a .npy file cannot hold it.");
        }
        let contents = Contents { tensors, metadata };
        streams::write(&self.output, &tensors::write(format, &contents)?)?;
        streams::report(&self.output, &plural(contents.tensors.len(), "tensor"))
    }
}

/// The tensors restored so far, for a file of this format.
struct Restored {
    format: Format,
    budget: Budget,
    tensors: Vec<Named>,
    metadata: Option<Metadata>,
}

impl Restored {
    fn add(&mut self, item: Item<'_>) -> Result<(), String> {
        let said = |error: FrameError| error.to_string();
        match item {
            Item::Message(frame) => {
                let values = frame.decode(&mut self.budget).map_err(said)?;
                let holds = self.format.holds(frame.dtype.into());
                let dtype = if holds { frame.dtype } else { Dtype::F32 };
                let values = Values::from_f32(values, dtype)?;
                self.tensors.push(Named { tensor: frame.tensor, values });
            }
            Item::Stored(stored) => {
                self.budget.spend_stored(&stored).map_err(said)?;
                let values = Values::from_bytes(stored.data(), stored.element());
                let values = match values.to_f32() {
                    Some(wide) if !self.format.holds(stored.element()) => Values::F32(wide),
                    _ => values,
                };
                self.tensors.push(Named { tensor: stored.tensor().clone(), values });
            }
            Item::Metadata(Metadata(entries)) => self.describe(entries)?,
            _ => {
                return Err("this command does not know a frame's kind; update gradwire".to_owned());
            }
        }
        Ok(())
    }

    /// Adds metadata; a file joined from several has several frames of it.
    fn describe(&mut self, entries: BTreeMap<String, String>) -> Result<(), String> {
        let Metadata(known) = self.metadata.get_or_insert_default();
        for (name, value) in entries {
            match known.get(&name) {
                Some(other) if *other != value => {
                    let [name, other, value] = [&name, other, &value].map(printable);
                    return Err(format!(
                        "the metadata '{name}' has two values, '{other}' and '{value}', because \
                         several files were joined; decompress these files one by one"
                    ));
                }
                _ => known.insert(name, value),
            };
        }
        Ok(())
    }
}
