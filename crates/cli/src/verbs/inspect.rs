//! `gradwire inspect`: the content of a file of frames, or of a delta.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use gradwire::Tensor;
use gradwire::frame::{ElementType, Frame, Item, Metadata, StoredTensor};
use gradwire_delta::on_disk::Input;
use gradwire_testbed::table::Table;
use serde::Serialize;

use crate::failure::Failure;
use crate::form::{FORM, Form};
use crate::verbs::inspect_delta;
use crate::{output, streams};

/// Show the content of a .gw or .gwd file.
///
/// Verifies all checksums first.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The .gw or .gwd file; - for standard input
    input: PathBuf,
    /// Print JSON: an array with a row for each frame; for a .gwd file a row for the whole and one
    /// for each record
    #[arg(long, group = FORM)]
    json: bool,
    #[command(flatten)]
    form: Form,
}

/// A frame, in JSON.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Row {
    Tensor(TensorRow),
    Metadata { metadata: BTreeMap<String, String> },
}

/// A tensor. An uncompressed one has no compressor and no message fields.
#[derive(Debug, Serialize)]
struct TensorRow {
    tensor: String,
    shape: Vec<usize>,
    dtype: &'static str,
    compressor: Option<String>,
    seed: Option<u64>,
    step: Option<u64>,
    rank: Option<u32>,
    elements: usize,
    message_bytes: usize,
    bits_per_element: f64,
}

impl Inspect {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let file = match streams::is_standard(&self.input) {
            true => Input::Bytes("standard input".into(), streams::read(&self.input)?),
            false => Input::File(self.input.clone()),
        };
        if file.is_stream() {
            return inspect_delta::run(&file, self.json, self.form);
        }
        let bytes = match file {
            Input::Bytes(_, bytes) => bytes,
            Input::File(path) => streams::read(&path)?,
        };
        let items = frames(&self.input, &bytes)?;
        let rows = items.iter().map(Row::of).collect::<Result<Vec<_>, _>>()?;
        if self.json {
            return output::line(output::json(&rows));
        }
        let (mut tensors, mut entries) = (Vec::new(), Vec::new());
        for row in &rows {
            match row {
                Row::Tensor(tensor) => tensors.push(tensor),
                Row::Metadata { metadata } => entries.extend(metadata),
            }
        }
        self.form.print(&table(&tensors))?;
        if !entries.is_empty() {
            let entries = Table::of(&entries)
                .column("metadata", |(name, _)| name)
                .column("value", |(_, value)| value)
                .table();
            output::line("")?;
            self.form.print(&entries.left_aligned())?;
        }
        Ok(())
    }
}

/// All frames of a file, their checksums verified.
pub(crate) fn frames<'a>(path: &Path, bytes: &'a [u8]) -> Result<Vec<Item<'a>>, Failure> {
    let (mut rest, mut frames) = (bytes, Vec::new());
    // An empty file is not a file of frames either: reading a frame gives the error.
    while frames.is_empty() || !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let frame = Item::read(&mut rest).map_err(|error| {
            let number = frames.len() + 1;
            let path = streams::shown(path);
            Failure::Input(format!("{path}, frame {number} (at byte {at}): {error}"))
        })?;
        frames.push(frame);
    }
    Ok(frames)
}

impl Row {
    fn of(item: &Item<'_>) -> Result<Self, Failure> {
        Ok(match item {
            Item::Message(frame) => Row::Tensor(TensorRow::of(frame)),
            Item::Stored(stored) => Row::Tensor(TensorRow::stored(stored)),
            Item::Metadata(Metadata(metadata)) => Row::Metadata { metadata: metadata.clone() },
            _ => {
                let reason =
                    "this command does not know a frame's kind; update gradwire".to_owned();
                return Err(Failure::Input(reason));
            }
        })
    }
}

impl TensorRow {
    fn of(frame: &Frame<'_>) -> Self {
        Self {
            compressor: Some(frame.spec.to_string()),
            seed: Some(frame.seed),
            step: Some(frame.step),
            rank: Some(frame.rank),
            ..Self::new(&frame.tensor, frame.dtype.into(), frame.message.len())
        }
    }

    fn stored(stored: &StoredTensor<'_>) -> Self {
        Self::new(stored.tensor(), stored.element(), stored.data().len())
    }

    fn new(tensor: &Tensor, element: ElementType, bytes: usize) -> Self {
        let elements = tensor.elements();
        Self {
            tensor: tensor.name().to_owned(),
            shape: tensor.shape().to_vec(),
            dtype: element.name(),
            compressor: None,
            seed: None,
            step: None,
            rank: None,
            elements,
            message_bytes: bytes,
            bits_per_element: 8.0 * bytes as f64 / elements.max(1) as f64,
        }
    }
}

fn table(rows: &[&TensorRow]) -> Table {
    let or_dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |n| n.to_string());
    Table::of(rows)
        .column("tensor", |row| &row.tensor)
        .column("shape", |row| format!("{:?}", row.shape))
        .column("type", |row| row.dtype)
        .column("compressor", |row| row.compressor.as_deref().unwrap_or("(uncompressed)"))
        .column("seed", |row| or_dash(row.seed))
        .column("step", |row| or_dash(row.step))
        .column("rank", |row| or_dash(row.rank.map(u64::from)))
        .column("elements", |row| row.elements)
        .column("bytes", |row| row.message_bytes)
        .column("bits/element", |row| format!("{:.3}", row.bits_per_element))
        .column("checksum", |_| "right")
        .table()
        .with_optional(&["checksum", "rank", "step", "seed", "elements"])
}
