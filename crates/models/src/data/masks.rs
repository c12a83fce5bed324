//! Images with masks: in one archive, `<folder>/<name>.jpg` beside `<folder>/<name>.png`, whose
//! white pixels mark the pixels of the second class.
//!
//! Images may have any size; a mask has the size of its image. Both are converted to grey and
//! scaled down to [`SIDE`] × [`SIDE`]. A pixel of the scaled mask is a weighted mean around it;
//! near pixels weigh more. The pixel is of the second class if at least a quarter of the weight is,
//! so thin cracks stay. Images alternate between the folders, each folder sorted by name; every
//! fifth image of a folder is for testing.

use std::collections::BTreeMap;
use std::path::Path;

use super::picture::{self, Picture};
use super::{DataError, Images, archive};

/// Rows and columns of the scaled images.
pub(super) const SIDE: usize = 96;
/// In each group of this many images of a folder, the last is for testing.
const TEST_EACH: usize = 5;
/// The smallest grey level of a scaled mask that marks a pixel.
const QUARTER: u8 = 64;

/// The two files of an image, as in the archive.
#[derive(Default)]
struct Pair {
    image: Option<Vec<u8>>,
    mask: Option<Vec<u8>>,
}

/// Pairs by name, by folder.
type Folders = BTreeMap<String, BTreeMap<String, Pair>>;

/// Loads images with masks, for training and for testing, from the archive at `path`; `None` if no
/// image in it has a mask.
pub(super) fn load_archive(
    path: &Path,
    bytes: &[u8],
) -> Result<Option<(Images, Images)>, DataError> {
    let folders = unpack(path, bytes)?;
    if !folders.values().flatten().any(|(_, pair)| pair.image.is_some() && pair.mask.is_some()) {
        return Ok(None);
    }
    let (mut train, mut test) = (empty(), empty());
    for (turn, name, pair) in in_turn(folders) {
        let lacks = |file: String| DataError::MissingFile { path: path.to_owned(), file };
        let image = pair.image.ok_or_else(|| lacks(format!("{name}.jpg")))?;
        let mask = pair.mask.ok_or_else(|| lacks(format!("{name}.png")))?;
        let set = if turn % TEST_EACH == TEST_EACH - 1 { &mut test } else { &mut train };
        let image = decode(&path.join(format!("{name}.jpg")), &image)?;
        let mask_path = path.join(format!("{name}.png"));
        let mask = decode(&mask_path, &mask)?;
        if (mask.width, mask.height) != (image.width, image.height) {
            let size = |picture: &Picture| format!("{}×{}×1", picture.width, picture.height);
            let (found, expected) = (size(&mask), size(&image));
            return Err(DataError::ImageSize { path: mask_path, found, expected });
        }
        let mask = mask.scaled(SIDE, SIDE).pixels.into_iter();
        set.pixels.extend(image.scaled(SIDE, SIDE).pixels);
        set.labels.extend(mask.map(|grey| u16::from(grey >= QUARTER)));
    }
    Ok(Some((train, test)))
}

fn empty() -> Images {
    let (pixels, labels) = (Vec::new(), Vec::new());
    Images { channels: 1, height: SIDE, width: SIDE, classes: 2, pixels, labels }
}

fn unpack(path: &Path, bytes: &[u8]) -> Result<Folders, DataError> {
    let mut folders = Folders::new();
    archive::visit(path, bytes, |entry| {
        let [within @ .., file] = entry.parts else { return Ok(()) };
        let Some((stem, extension)) = file.rsplit_once('.') else { return Ok(()) };
        let is = |known: &str| extension.eq_ignore_ascii_case(known);
        if entry.folder || stem.is_empty() || !(is("jpg") || is("png")) {
            return Ok(());
        }
        let (folder, is_image) = (within.join("/"), is("jpg"));
        let name = if folder.is_empty() { stem.to_owned() } else { format!("{folder}/{stem}") };
        let bytes = entry.bytes()?;
        let pair = folders.entry(folder).or_default().entry(name).or_default();
        *(if is_image { &mut pair.image } else { &mut pair.mask }) = Some(bytes);
        Ok(())
    })?;
    Ok(folders)
}

/// The first image of each folder, then the second of each, and so on, each with its index in its
/// folder.
fn in_turn(folders: Folders) -> Vec<(usize, String, Pair)> {
    let mut keyed: Vec<_> = folders
        .into_values()
        .flat_map(|pairs| {
            let pairs = pairs.into_iter().enumerate();
            pairs.map(|(turn, (name, pair))| (turn, name, pair))
        })
        .collect();
    keyed.sort_by(|(a, one, _), (b, other, _)| (a, one).cmp(&(b, other)));
    keyed
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Picture, DataError> {
    let picture = picture::decode(bytes)
        .map_err(|error| DataError::damaged(path, format!("it cannot be decoded ({error})")))?;
    Ok(picture.grey())
}
