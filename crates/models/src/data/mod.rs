//! Data sets of labelled images, of text and of ratings: standard files in known formats, and
//! generated sets of images.
//!
//! - [`register`] adds data sets of another crate, by name.
//! - [`load`] reads MNIST idx files, CIFAR-10 binary batches, image folders, the Penn Treebank's
//!   words and plain text (folders and text also from one archive), images with masks, and
//!   MovieLens' ratings; [`find`] looks for a data set by name; [`catalogue`] lists the names.
//! - [`embedded`] generates distorted digits from a seed; [`frames`] generates feature vectors of
//!   thousands of classes.
//! - [`normalise`], [`augment`] and [`shift`] turn an image's bytes into the inputs of a model.

mod archive;
mod augment;
mod catalogue;
mod cifar;
mod dataset;
mod digits;
mod error;
mod files;
mod folder;
mod frames;
mod idx;
mod images;
mod load;
mod masks;
mod picture;
mod ratings;
#[cfg(test)]
pub(crate) mod tests;
mod text;

pub use augment::{PADDING, SHIFT, augment, can_move, normalise, shift};
pub use catalogue::{
    Generate, Known, KnownFile, ROOT_VARIABLE, Verdict, catalogue, find, places, register,
};
pub use dataset::{Content, Dataset, ImageSet};
pub use digits::{embedded, embedded_sized};
pub use error::DataError;
pub use frames::{frames, frames_sized};
pub use images::Images;
pub use load::{folder_with_files, load};
pub use ratings::{Question, Ratings};
pub use text::{Text, Unit};
