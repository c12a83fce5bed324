//! `gradwire inspect`: what is in a file of frames.

use std::path::{Path, PathBuf};

use clap::Args;
use gradwire::Dtype;
use gradwire::frame::Frame;
use gradwire_testbed::table::Table;
use serde::Serialize;

use crate::failure::Failure;
use crate::{output, tensors};

/// Show the frames of a .gw file, after verifying their checksums.
#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// The .gw file
    input: PathBuf,
    /// Print JSON: an array with a row for each frame
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    tensor: String,
    shape: Vec<usize>,
    dtype: &'static str,
    compressor: String,
    seed: u64,
    step: u64,
    rank: u32,
    elements: usize,
    message_bytes: usize,
    bits_per_element: f64,
}

impl Inspect {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let bytes = tensors::read_bytes(&self.input)?;
        let rows: Vec<Row> = frames(&self.input, &bytes)?.iter().map(Row::of).collect();
        output::line(if self.json { output::json(&rows) } else { table(&rows).terminal() })
    }
}

/// All frames of a file, their checksums verified.
pub(crate) fn frames<'a>(path: &Path, bytes: &'a [u8]) -> Result<Vec<Frame<'a>>, Failure> {
    let (mut rest, mut frames) = (bytes, Vec::new());
    // An empty file is not a file of frames either: reading a frame gives the error.
    while frames.is_empty() || !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let frame = Frame::read(&mut rest).map_err(|error| {
            let number = frames.len() + 1;
            let path = path.display();
            Failure::Input(format!("'{path}', frame {number} (at byte {at}): {error}"))
        })?;
        frames.push(frame);
    }
    Ok(frames)
}

impl Row {
    fn of(frame: &Frame<'_>) -> Self {
        let elements = frame.tensor.elements();
        let bits = 8.0 * frame.message.len() as f64 / elements.max(1) as f64;
        Self {
            tensor: frame.tensor.name().to_owned(),
            shape: frame.tensor.shape().to_vec(),
            dtype: match frame.dtype {
                Dtype::F32 => "f32",
                Dtype::F16 => "f16",
                Dtype::Bf16 => "bf16",
            },
            compressor: frame.spec.to_string(),
            seed: frame.seed,
            step: frame.step,
            rank: frame.rank,
            elements,
            message_bytes: frame.message.len(),
            bits_per_element: bits,
        }
    }
}

fn table(rows: &[Row]) -> Table {
    Table::of(rows)
        .column("tensor", |row| &row.tensor)
        .column("shape", |row| format!("{:?}", row.shape))
        .column("type", |row| row.dtype)
        .column("compressor", |row| &row.compressor)
        .column("seed", |row| row.seed)
        .column("step", |row| row.step)
        .column("rank", |row| row.rank)
        .column("elements", |row| row.elements)
        .column("bytes", |row| row.message_bytes)
        .column("bits/element", |row| format!("{:.3}", row.bits_per_element))
        .column("checksum", |_| "right")
        .table()
}
