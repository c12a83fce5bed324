//! The data sets known by name: descriptions, folders, and the checksums of their files.

use std::env;
use std::path::{Path, PathBuf};

use super::files::{content, sha256, sha256_of, unreadable};
use super::{DataError, Dataset, digits, frames, load};

/// Environment variable with the path of a folder that has one subfolder per data set.
pub const ROOT_VARIABLE: &str = "GRADWIRE_DATA";

/// A data set known by name.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// The name of the data set and of its subfolder.
    pub name: &'static str,
    /// A description in one line.
    pub summary: &'static str,
    /// The files expected; empty for a data set that is generated.
    pub files: &'static [KnownFile],
}

/// A file of a known data set.
#[derive(Debug, Clone, Copy)]
pub struct KnownFile {
    /// Its name. MNIST may have a file of this name with `.gz` appended instead.
    pub name: &'static str,
    /// The SHA-256 of its content, unpacked, if known.
    pub sha256: Option<&'static str>,
}

/// How a file compares with its entry in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Its checksum is the known one.
    Matches,
    /// Its checksum is this one instead of the known one.
    Differs(String),
    /// It exists and has this checksum; none is known.
    Unknown(String),
    /// The file is missing.
    Missing,
}

/// The data sets known by name, the generated ones first.
pub fn catalogue() -> &'static [Known] {
    &CATALOGUE
}

const CATALOGUE: [Known; 10] = [
    Known {
        name: digits::NAME,
        summary: "distorted digits drawn from strokes, 28×28 grey, 10 classes; generated, needs no files",
        files: &[],
    },
    Known {
        name: frames::NAME,
        summary: "frames of 440 features, 5999 classes, 60000 + 6000; generated, needs no files",
        files: &[],
    },
    Known {
        name: "mnist",
        summary: "MNIST handwritten digits, 28×28 grey, 10 classes, 60000 + 10000; idx files",
        files: &[
            file(
                "train-images-idx3-ubyte",
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            ),
            file(
                "train-labels-idx1-ubyte",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            ),
            file(
                "t10k-images-idx3-ubyte",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            ),
            file(
                "t10k-labels-idx1-ubyte",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ],
    },
    Known {
        name: "cifar10",
        summary: "CIFAR-10 photographs, 32×32 colour, 10 classes, 50000 + 10000; binary batches",
        files: &[
            unsummed("data_batch_1.bin"),
            unsummed("data_batch_2.bin"),
            unsummed("data_batch_3.bin"),
            unsummed("data_batch_4.bin"),
            unsummed("data_batch_5.bin"),
            unsummed("test_batch.bin"),
        ],
    },
    Known {
        name: "cifar10-jpg",
        summary: "CIFAR-10 as JPEG files (slightly lossy) in class folders, 50000 + 10000; one archive",
        files: &[file(
            "cifar10-jpg.tar.gz",
            "1fde636a137192241399fe9928af8c30ba7c867ca7901121faa671a7363be792",
        )],
    },
    Known {
        name: "magnetic-tile",
        summary: "magnetic tiles with masks of their defects, shrunk to 96×96 grey, 315 + 77; one archive",
        files: &[file(
            "mt-defect.tar.gz",
            "15a8ce59abb78e8404f757231ad0256b160772afad25b0477556af218d8c7eff",
        )],
    },
    Known {
        name: "movielens-100k",
        summary: "MovieLens' 100000 ratings of 1682 films by 943 users, with each user's last \
            film held out for testing; one file",
        files: &[file(
            "u.data",
            "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490",
        )],
    },
    Known {
        name: "shakespeare-complete",
        summary: "complete works of Shakespeare by characters, 80 symbols, 5178120 + 105675; one archive",
        files: &[file(
            "shakespeare.tar.gz",
            "ec3404fa0021ad60850bcb907e7c511aa594e6e92175a2b5cfbce41de711108a",
        )],
    },
    Known {
        name: "tinyshakespeare",
        summary: "a million characters of Shakespeare's plays, 65 symbols, 1093087 + 22307; one text",
        files: &[file(
            "input.txt",
            "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
        )],
    },
    Known {
        name: "ptb",
        summary: "Penn Treebank by words, 10000 symbols, 929589 + 82430; one archive",
        files: &[file(
            "ptb.zip",
            "6957baa63e145820032f12d3f1e6f4ba71789c3f5dbf289902bc3f0a96beef7a",
        )],
    },
];

const fn file(name: &'static str, sha256: &'static str) -> KnownFile {
    KnownFile { name, sha256: Some(sha256) }
}

const fn unsummed(name: &'static str) -> KnownFile {
    KnownFile { name, sha256: None }
}

/// The folders to search for data set `name`, in order: `explicit/name` and `explicit` if a folder
/// is given, else `$GRADWIRE_DATA/name` (if the variable is set) and `./data/name`.
pub fn places(name: &str, explicit: Option<&Path>) -> Vec<PathBuf> {
    places_under(name, explicit, env::var_os(ROOT_VARIABLE).map(PathBuf::from).as_deref())
}

pub(super) fn places_under(
    name: &str,
    explicit: Option<&Path>,
    root: Option<&Path>,
) -> Vec<PathBuf> {
    match explicit {
        Some(dir) => vec![dir.join(name), dir.to_owned()],
        None => root.into_iter().chain([Path::new("data")]).map(|dir| dir.join(name)).collect(),
    }
}

/// Loads data set `name` from the first of its [`places`] that exists. The name need not be in the
/// catalogue; `digits` and `frames` are generated from seed 0 if no folder is given.
///
/// # Errors
/// [`DataError::NotFound`] with these places if none of them exists; otherwise as [`load`].
pub fn find(name: &str, explicit: Option<&Path>) -> Result<Dataset, DataError> {
    match (name, explicit) {
        (digits::NAME, None) => return Ok(digits::embedded(0)),
        (frames::NAME, None) => return Ok(frames::frames(0)),
        _ => {}
    }
    first_of(name, places(name, explicit))
}

pub(super) fn first_of(name: &str, places: Vec<PathBuf>) -> Result<Dataset, DataError> {
    match places.iter().find(|place| place.exists()) {
        Some(place) => load(place),
        None => Err(DataError::NotFound {
            name: name.to_owned(),
            places,
            known: CATALOGUE.map(|known| known.name).join(", "),
        }),
    }
}

impl Known {
    /// Compares the files in `dir` with the catalogue, in its order. Reads every file whole.
    ///
    /// # Errors
    /// [`DataError::Read`] if a file cannot be read, [`DataError::Damaged`] if one cannot be
    /// unpacked.
    pub fn verify(&self, dir: &Path) -> Result<Vec<(&'static str, Verdict)>, DataError> {
        self.files.iter().map(|file| Ok((file.name, file.verify(dir)?))).collect()
    }
}

impl KnownFile {
    fn verify(&self, dir: &Path) -> Result<Verdict, DataError> {
        let plain = dir.join(self.name);
        let zipped = dir.join(format!("{}.gz", self.name));
        let found = if plain.is_file() {
            let bytes = gradwire::files::read(&plain).map_err(|e| DataError::read(&plain, e))?;
            sha256(&bytes)
        } else if zipped.is_file() {
            let bytes = gradwire::files::read(&zipped).map_err(|e| DataError::read(&zipped, e))?;
            sha256_of(&mut content(&zipped, &bytes)).map_err(|e| unreadable(&zipped, &e))?
        } else {
            return Ok(Verdict::Missing);
        };
        Ok(match self.sha256 {
            None => Verdict::Unknown(found),
            Some(known) if known == found => Verdict::Matches,
            Some(_) => Verdict::Differs(found),
        })
    }
}
