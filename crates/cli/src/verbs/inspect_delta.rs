//! `gradwire inspect` of a .gwd file.

use gradwire_delta::on_disk::Input;
use gradwire_delta::survey::{Content, Described, Survey};
use gradwire_delta::{Header, Kind};
use gradwire_testbed::table::Table;
use serde::Serialize;

use crate::failure::Failure;
use crate::form::Form;
use crate::output;

/// The stream, in JSON.
#[derive(Debug, Serialize)]
struct StreamRow {
    kind: &'static str,
    run: String,
    base: Option<u64>,
    target: u64,
    base_hash: Option<String>,
    target_hash: String,
    share: u64,
    shares: u64,
    portable: bool,
    bytes: u64,
    files: Vec<String>,
}

/// A record, in JSON.
#[derive(Debug, Serialize)]
struct RecordRow {
    content: &'static str,
    tensor: String,
    dtype: Option<&'static str>,
    shape: Option<Vec<u64>>,
    bytes: usize,
}

/// A row of JSON.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Row {
    Stream(StreamRow),
    Record(RecordRow),
}

/// Shows a stream, after verifying its checksums.
pub(crate) fn run(input: &Input, json: bool, form: Form) -> Result<(), Failure> {
    let survey = input.survey()?;
    let stream = StreamRow::of(&survey);
    let records: Vec<RecordRow> = survey.records.iter().map(RecordRow::of).collect();
    if json {
        let rows: Vec<Row> =
            [Row::Stream(stream)].into_iter().chain(records.into_iter().map(Row::Record)).collect();
        return output::line(output::json(&rows));
    }
    form.text(heading(&stream, &survey.header))?;
    if records.is_empty() {
        return Ok(());
    }
    let table = Table::of(&records)
        .column("tensor", |row| &row.tensor)
        .column("content", |row| row.content)
        .column("type", |row| row.dtype.unwrap_or("-"))
        .column("shape", |row| row.shape.as_ref().map_or("-".to_owned(), |s| format!("{s:?}")))
        .column("bytes", |row| row.bytes)
        .table();
    form.text("")?;
    form.print(&table)
}

/// The lines above the records.
fn heading(stream: &StreamRow, header: &Header) -> String {
    let StreamRow { run, target, target_hash, bytes, .. } = stream;
    let way = match (stream.base, &stream.base_hash) {
        (Some(base), Some(hash)) => {
            format!("from version {base} (hash {hash}) to {target} (hash {target_hash})")
        }
        _ => format!("version {target} (hash {target_hash})"),
    };
    let mut text = format!("{} of run {run}: {way}\n{bytes} bytes, checksums right", stream.kind);
    if stream.shares > 1 {
        text += &format!(", share {} of {}", stream.share + 1, stream.shares);
    }
    if header.portable {
        text += ", portable";
    }
    if !stream.files.is_empty() {
        text += &format!("\nfiles: {}", stream.files.join(", "));
    }
    text
}

impl StreamRow {
    fn of(survey: &Survey) -> Self {
        let Header { kind, portable, run, base, target, base_hash, share, .. } = &survey.header;
        let is_delta = *kind == Kind::Delta;
        Self {
            kind: if is_delta { "delta" } else { "snapshot" },
            run: run.to_string(),
            base: is_delta.then_some(*base),
            target: *target,
            base_hash: is_delta.then(|| base_hash.to_string()),
            target_hash: survey.end.target_hash.to_string(),
            share: share.index,
            shares: share.count,
            portable: *portable,
            bytes: survey.end.len,
            files: survey.layout.as_ref().map(|layout| layout.names()).unwrap_or_default(),
        }
    }
}

impl RecordRow {
    fn of(record: &Described) -> Self {
        let row = |content, tensor| Self {
            content,
            tensor,
            dtype: None,
            shape: None,
            bytes: record.bytes,
        };
        match &record.content {
            Content::Changed(name) => row("changes", name.to_string()),
            Content::Pool { element, tensors } => Self {
                dtype: Some(element.name()),
                ..row("changes", format!("{tensors} small tensors"))
            },
            Content::Written(tensor) => Self {
                dtype: Some(tensor.element().name()),
                shape: Some(tensor.shape().to_vec()),
                ..row("all elements", tensor.name().to_owned())
            },
            Content::Removed(name) => row("removed", name.to_string()),
        }
    }
}
