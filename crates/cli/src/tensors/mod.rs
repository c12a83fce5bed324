//! Files of tensors: `.npy` holds one, `.safetensors` any number.

pub(crate) mod gradients;
mod left_out;
mod npy;
mod safetensors;
mod tensor;

use std::path::Path;

use gradwire::files;
use gradwire::frame::ElementType;

use crate::failure::Failure;
pub(crate) use left_out::LeftOut;
pub(crate) use tensor::{Contents, Named, Values};

/// The formats, distinguished by file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Npy,
    Safetensors,
}

impl Format {
    /// The format of a path.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
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

/// Reads a file of tensors.
pub(crate) fn read(path: &Path) -> Result<Contents, Failure> {
    let format = Format::of(path)?;
    let bytes = read_bytes(path)?;
    let contents = match format {
        Format::Npy => npy::read(&bytes, stem(path))
            .map(|tensor| Contents { tensors: vec![tensor], metadata: None }),
        Format::Safetensors => safetensors::read(&bytes),
    };
    contents.map_err(|message| Failure::Input(format!("'{}': {message}", path.display())))
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

/// The whole of a file.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    files::read(path).map_err(|error| {
        let remedy = files::remedy(&error);
        Failure::Input(format!("cannot read '{}': {error}{remedy}", path.display()))
    })
}

/// The name of the tensor in a `.npy` file: the name of the file without its extension.
fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("tensor")
}
