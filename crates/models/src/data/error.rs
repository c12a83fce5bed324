//! Errors of data sets. Each names the file and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use gradwire::{files, printable, suggestion};

/// Why a data set cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// The data set is in none of the searched places.
    #[error(
        "data set '{name}'{} is not at {}; put its files there, or give the folder that has them \
         (known data sets: {known})",
        suggestion(.name, known.split(", ")),
        list(.places)
    )]
    NotFound {
        /// The requested name.
        name: String,
        /// The searched places, in order.
        places: Vec<PathBuf>,
        /// The names in the catalogue, separated by commas.
        known: String,
    },
    /// A data set of another crate cannot be made.
    #[error("data set '{name}': {reason}")]
    Made {
        /// The data set.
        name: &'static str,
        /// The reason and the remedy.
        reason: String,
    },
    /// A file or folder cannot be read.
    #[error("cannot read '{}': {source}{}", printable(.path.display()), files::remedy(.source))]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A folder holds no known format.
    #[error(
        "'{}' has no data set of a known format; give a folder with MNIST idx files, CIFAR-10 \
         binary batches, train/<class>/*.jpg and test/<class>/*.jpg, text in .txt files, \
         MovieLens' u.data, ratings.dat or ratings.csv, or a .tar, .tar.gz, .tgz or .zip with \
         such folders or texts, or with images beside their masks (<folder>/<name>.jpg and .png)",
        printable(.path.display())
    )]
    Unrecognised {
        /// The folder.
        path: PathBuf,
    },
    /// A folder holds more than one data set.
    #[error("'{}' has several data sets ({}); name the one to use", printable(.path.display()), printable(.found.join(", ")))]
    Ambiguous {
        /// The folder.
        path: PathBuf,
        /// The found content.
        found: Vec<String>,
    },
    /// A data set lacks one of its files.
    #[error("'{}' does not have {file}; fetch it, because the data set is incomplete without it", printable(.path.display()), file = printable(.file))]
    MissingFile {
        /// The folder (or archive) that should hold it.
        path: PathBuf,
        /// The file or folder that is absent.
        file: String,
    },
    /// A file does not have the format of its name, or is incomplete.
    #[error("'{}' is damaged: {reason}; fetch the file again", printable(.path.display()), reason = printable(.reason))]
    Damaged {
        /// The file; for one inside an archive the archive's path comes first.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// An image that differs in size from the others.
    #[error(
        "'{}' is {found}, but the first image of the data set is {expected}; give all images the \
         same size and colour type",
        printable(.path.display()),
        found = printable(.found), expected = printable(.expected)
    )]
    ImageSize {
        /// The file.
        path: PathBuf,
        /// Its width × height × channels.
        found: String,
        /// The first image's.
        expected: String,
    },
    /// A data set or file with no image in it.
    #[error("'{}' has no images; put at least one there for training and one for testing", printable(.path.display()))]
    NoImages {
        /// The file or folder.
        path: PathBuf,
    },
    /// Too little text for training and testing.
    #[error("'{}' has too little text; put at least {least} characters there", printable(.path.display()))]
    NoText {
        /// The file, folder or archive.
        path: PathBuf,
        /// The fewest characters.
        least: usize,
    },
    /// A text in another encoding.
    #[error("'{}', line {line}, is not UTF-8; convert the file, for example with iconv", printable(.path.display()))]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line of the first byte that does not fit, from 1.
        line: usize,
    },
    /// A character of the test text that the training text does not have.
    #[error(
        "'{}', line {line}: the character {character:?} is not in the training text, so no model \
         can learn it; remove it, or give both texts as one file",
        printable(.path.display())
    )]
    UnknownCharacter {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The character.
        character: char,
    },
    /// A class folder with no image in it.
    #[error("class folder '{}' has no .jpg, .jpeg or .png file; fill it or remove it", printable(.path.display()))]
    EmptyClass {
        /// The folder.
        path: PathBuf,
    },
    /// Training and test folders that do not hold the same classes.
    #[error(
        "'{}': class '{class}' is in {present} but not in {absent}; both need the same class folders",
        printable(.path.display()),
        class = printable(.class), present = printable(.present), absent = printable(.absent)
    )]
    ClassMismatch {
        /// The folder or archive.
        path: PathBuf,
        /// The class.
        class: String,
        /// The split that has it.
        present: String,
        /// The split that lacks it.
        absent: String,
    },
    /// More classes than labels of sixteen bits can number.
    #[error("'{}' has {found} class folders, but at most 65536 are supported; merge or remove some", printable(.path.display()))]
    TooManyClasses {
        /// The folder or archive.
        path: PathBuf,
        /// The number of its classes.
        found: usize,
    },
}

impl DataError {
    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        DataError::Read { path: path.to_owned(), source }
    }

    pub(super) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        DataError::Damaged { path: path.to_owned(), reason: reason.into() }
    }
}

fn list(places: &[PathBuf]) -> String {
    let quoted: Vec<_> =
        places.iter().map(|place| format!("'{}'", printable(place.display()))).collect();
    quoted.join(" or ")
}
