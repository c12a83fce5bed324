//! The data sets known by name: descriptions, folders, and the checksums of their files.

use std::env;
use std::path::{Path, PathBuf};

use gradwire::registry::RegistryError;
use gradwire::{Named, Table};

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
    /// Makes a data set that has no files.
    pub generate: Option<Generate>,
}

/// Makes a data set, always the same one; or says why it cannot, with the remedy.
pub type Generate = fn() -> Result<Dataset, String>;

impl Known {
    /// A data set that `generate` makes.
    pub const fn generated(name: &'static str, summary: &'static str, generate: Generate) -> Self {
        Self { name, summary, files: &[], generate: Some(generate) }
    }

    /// A data set with these files.
    const fn of_files(
        name: &'static str,
        summary: &'static str,
        files: &'static [KnownFile],
    ) -> Self {
        Self { name, summary, files, generate: None }
    }
}

impl Named for Known {
    const WHAT: &'static str = "data set";

    fn name(&self) -> &'static str {
        self.name
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
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

/// All known data sets.
static TABLE: Table<Known> = Table::new(OWN);

/// The data sets known by name: gradwire's own, the generated ones first; then those of other
/// crates.
pub fn catalogue() -> Vec<&'static Known> {
    TABLE.all().collect()
}

/// Adds data sets of another crate, for the rest of the process: `--data` and experiment files know
/// their names.
///
/// # Errors
/// If a name does not have the form `CRATE/NAME`, or belongs to another data set. Then nothing is
/// registered.
pub fn register(entries: &[&'static Known]) -> Result<(), RegistryError> {
    TABLE.register(entries)
}

static OWN: &[&Known] = &[
    &Known::generated(
        digits::NAME,
        "distorted digits drawn from strokes, 28×28 grey, 10 classes; generated, needs no files",
        || Ok(digits::embedded(0)),
    ),
    &Known::generated(
        frames::NAME,
        "frames of 440 features, 5999 classes, 60000 + 6000; generated, needs no files",
        || Ok(frames::frames(0)),
    ),
    &Known::of_files(
        "mnist",
        "MNIST handwritten digits, 28×28 grey, 10 classes, 60000 + 10000; idx files",
        &[
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
    ),
    &Known::of_files(
        "cifar10",
        "CIFAR-10 photographs, 32×32 colour, 10 classes, 50000 + 10000; binary batches",
        &[
            unsummed("data_batch_1.bin"),
            unsummed("data_batch_2.bin"),
            unsummed("data_batch_3.bin"),
            unsummed("data_batch_4.bin"),
            unsummed("data_batch_5.bin"),
            unsummed("test_batch.bin"),
        ],
    ),
    &Known::of_files(
        "cifar10-jpg",
        "CIFAR-10 as JPEG files (slightly lossy) in class folders, 50000 + 10000; one archive",
        &[file(
            "cifar10-jpg.tar.gz",
            "1fde636a137192241399fe9928af8c30ba7c867ca7901121faa671a7363be792",
        )],
    ),
    &Known::of_files(
        "magnetic-tile",
        "magnetic tiles with masks of their defects, shrunk to 96×96 grey, 315 + 77; one archive",
        &[file(
            "mt-defect.tar.gz",
            "15a8ce59abb78e8404f757231ad0256b160772afad25b0477556af218d8c7eff",
        )],
    ),
    &Known::of_files(
        "movielens-100k",
        "MovieLens' 100000 ratings of 1682 films by 943 users, with each user's last \
            film held out for testing; one file",
        &[file("u.data", "06416e597f82b7342361e41163890c81036900f418ad91315590814211dca490")],
    ),
    &Known::of_files(
        "shakespeare-complete",
        "complete works of Shakespeare by characters, 80 symbols, 5178120 + 105675; one archive",
        &[file(
            "shakespeare.tar.gz",
            "ec3404fa0021ad60850bcb907e7c511aa594e6e92175a2b5cfbce41de711108a",
        )],
    ),
    &Known::of_files(
        "tinyshakespeare",
        "a million characters of Shakespeare's plays, 65 symbols, 1093087 + 22307; one text",
        &[file("input.txt", "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed")],
    ),
    &Known::of_files(
        "ptb",
        "Penn Treebank by words, 10000 symbols, 929589 + 82430; one archive",
        &[file("ptb.zip", "6957baa63e145820032f12d3f1e6f4ba71789c3f5dbf289902bc3f0a96beef7a")],
    ),
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
/// catalogue; `digits`, `frames` and data sets of other crates are generated if no folder is given.
///
/// # Errors
/// [`DataError::NotFound`] with these places if none of them exists, [`DataError::Made`] if it
/// cannot be generated; otherwise as [`load`].
pub fn find(name: &str, explicit: Option<&Path>) -> Result<Dataset, DataError> {
    if let (Some(known), None) = (TABLE.find(name), explicit)
        && let Some(generate) = known.generate
    {
        return generate().map_err(|reason| DataError::Made { name: known.name, reason });
    }
    first_of(name, places(name, explicit))
}

pub(super) fn first_of(name: &str, places: Vec<PathBuf>) -> Result<Dataset, DataError> {
    match places.iter().find(|place| place.exists()) {
        Some(place) => load(place),
        None => {
            let known: Vec<_> = TABLE.all().map(|known| known.name).collect();
            Err(DataError::NotFound { name: name.to_owned(), places, known: known.join(", ") })
        }
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
