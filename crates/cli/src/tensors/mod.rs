//! Files of tensors: `.npy` holds one, `.safetensors` any number.

mod npy;
mod safetensors;
mod tensor;

use std::path::Path;

use gradwire::Dtype;

use crate::failure::Failure;
pub(crate) use tensor::{Named, Values};

/// The formats, distinguished by file extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Npy,
    Safetensors,
}

impl Format {
    /// The format of a path.
    pub(crate) fn of(path: &Path) -> Result<Self, Failure> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("npy") => Ok(Format::Npy),
            Some("safetensors") => Ok(Format::Safetensors),
            _ => Err(Failure::Input(format!(
                "'{}' is no file of tensors; give a .npy or a .safetensors file",
                path.display()
            ))),
        }
    }

    /// Whether a file of this format can hold elements of this type.
    pub(crate) fn holds(self, dtype: Dtype) -> bool {
        self == Format::Safetensors || dtype != Dtype::Bf16
    }
}

/// Reads all tensors of a file, by name: a .safetensors file does not keep the order of a model.
pub(crate) fn read(path: &Path) -> Result<Vec<Named>, Failure> {
    let format = Format::of(path)?;
    let bytes = read_bytes(path)?;
    let tensors = match format {
        Format::Npy => npy::read(&bytes, stem(path)).map(|tensor| vec![tensor]),
        Format::Safetensors => safetensors::read(&bytes),
    };
    tensors.map_err(|message| Failure::Input(format!("'{}': {message}", path.display())))
}

/// The bytes of a file of this format.
pub(crate) fn write(format: Format, tensors: &[Named]) -> Result<Vec<u8>, Failure> {
    match (format, tensors) {
        (Format::Npy, [tensor]) => npy::write(tensor).map_err(Failure::Input),
        (Format::Npy, _) => Err(Failure::Input(format!(
            "a .npy file holds one tensor, and there are {}; write to a .safetensors file",
            tensors.len()
        ))),
        (Format::Safetensors, _) => safetensors::write(tensors).map_err(Failure::Input),
    }
}

/// The whole of a file.
pub(crate) fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        Failure::Input(format!("cannot read '{}': {error}; check the path", path.display()))
    })
}

/// The name of the tensor in a `.npy` file: that of the file without its extension.
fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("tensor")
}
