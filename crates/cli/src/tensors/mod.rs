//! Files of tensors: `.npy` holds one, `.safetensors` any number.

pub(crate) mod gradients;
mod left_out;
mod npy;
mod safetensors;
mod tensor;

use std::path::Path;

use clap::ValueEnum;
use gradwire::frame::ElementType;

use crate::failure::Failure;
use crate::streams;
pub(crate) use left_out::LeftOut;
pub(crate) use tensor::{Contents, Named, Values};

/// The formats, distinguished by file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    Npy,
    Safetensors,
}

impl Format {
    /// The given format, or else the format of a path.
    pub(crate) fn of(given: Option<Self>, path: &Path) -> Result<Self, Failure> {
        if let Some(format) = given {
            return Ok(format);
        }
        if streams::is_standard(path) {
            return Err(Failure::Input(
                "a pipe has no file extension; give --format npy or --format safetensors"
                    .to_owned(),
            ));
        }
        let extension = path.extension().and_then(|extension| extension.to_str());
        let remedy = match extension {
            Some("npy") => return Ok(Format::Npy),
            Some("safetensors") => return Ok(Format::Safetensors),
            Some("npz") => {
                "a .npz file holds several arrays: save them with safetensors.numpy.save_file"
            }
            Some("pt" | "pth" | "bin" | "ckpt") => {
                "a file of torch.save holds Python objects: save its state dict with safetensors.torch.save_file"
            }
            _ => "give a .npy or a .safetensors file",
        };
        Err(Failure::Input(format!(
            "'{}' is not a .npy or .safetensors file; {remedy}",
            path.display()
        )))
    }

    /// Whether a file of this format can hold elements of this type.
    pub(crate) fn holds(self, element: ElementType) -> bool {
        self == Format::Safetensors || npy::descr(element).is_some()
    }
}

/// Reads a file of tensors in the given format, or else in the format of its extension.
pub(crate) fn read(path: &Path, format: Option<Format>) -> Result<Contents, Failure> {
    let format = Format::of(format, path)?;
    let bytes = streams::read(path)?;
    let contents = match format {
        Format::Npy => npy::read(&bytes, stem(path))
            .map(|tensor| Contents { tensors: vec![tensor], metadata: None }),
        Format::Safetensors => safetensors::read(&bytes),
    };
    contents.map_err(|message| Failure::Input(format!("{}: {message}", streams::shown(path))))
}

/// The bytes of a file of this format.
pub(crate) fn write(format: Format, contents: &Contents) -> Result<Vec<u8>, Failure> {
    match (format, contents.tensors.as_slice()) {
        (Format::Npy, [tensor]) => npy::write(tensor).map_err(Failure::Input),
        (Format::Npy, tensors) => Err(Failure::Input(format!(
            "a .npy file holds one tensor, but there are {}; write to a .safetensors file",
            tensors.len()
        ))),
        (Format::Safetensors, _) => safetensors::write(contents).map_err(Failure::Input),
    }
}

/// The name of the tensor in a `.npy` file: the name of the file without its extension.
fn stem(path: &Path) -> &str {
    let name = path.file_stem().and_then(|stem| stem.to_str());
    name.filter(|_| !streams::is_standard(path)).unwrap_or("tensor")
}
