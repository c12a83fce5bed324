//! What a stream holds, without decoding the elements.

use std::io::Read;
use std::ops::Range;

use crate::record::{Record, Reference};
use crate::safetensors::Layout;
use crate::{ElementType, End, Error, FrameReader, Header, Tensor};

/// The content of a stream, whose checksums are right and which is complete.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The start of the stream.
    pub header: Header,
    /// The end of the stream.
    pub end: End,
    /// The records.
    pub records: Vec<Described>,
    /// Names and headers of the files, if the stream was made of files.
    pub layout: Option<Layout>,
}

/// What a record is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// What happens.
    pub effect: Effect,
    /// The bytes of the record.
    pub bytes: usize,
}

/// What happens to tensors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Some elements change.
    Changed(Name),
    /// Some elements of small tensors change.
    Pool {
        /// The type of the tensors.
        element: ElementType,
        /// The number of tensors.
        tensors: usize,
    },
    /// All elements are there; several records may hold a tensor.
    Written(Tensor),
    /// The tensor is removed.
    Removed(Name),
}

/// How a stream names a tensor of the base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// By its number among the base's tensors, in order of their names.
    Number(u64),
    /// By its name and its rows, those of a shard or all.
    Text {
        /// The name.
        name: String,
        /// The rows.
        rows: Range<u64>,
    },
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Name::Number(number) => write!(f, "#{number}"),
            Name::Text { name, rows } => write!(f, "{name}[{}..{}]", rows.start, rows.end),
        }
    }
}

impl Survey {
    /// Reads a stream to its end. Costs its length, and memory for the longest frame and for a
    /// description of each record: its names and shapes, and about 100 bytes.
    ///
    /// # Errors
    /// A stream that is damaged or truncated.
    pub fn of(input: impl Read) -> Result<Self, Error> {
        let mut frames = FrameReader::new(input)?;
        let header = frames.header().clone();
        let (mut records, mut layout, mut payload) = (Vec::new(), None, Vec::new());
        while frames.records(&mut payload)? {
            let mut rest = &payload[..];
            while !rest.is_empty() {
                let before = rest.len();
                let record = Record::read(&mut rest, header.named)?;
                let bytes = before - rest.len();
                match effect(record)? {
                    Ok(effect) => records.push(Described { effect, bytes }),
                    Err(found) => layout = Some(found),
                }
            }
        }
        let end = frames.end().expect("the records have been read");
        Ok(Self { header, end, records, layout })
    }
}

/// What a record is about, or the layout that it holds.
fn effect(record: Record<'_>) -> Result<Result<Effect, Layout>, Error> {
    let name = |reference: Reference<'_>| match reference {
        Reference::Index(number) => Name::Number(number),
        Reference::Named(name, rows) => Name::Text { name: name.to_owned(), rows },
    };
    Ok(Ok(match record {
        Record::Changed { tensor, .. } => Effect::Changed(name(tensor)),
        Record::Pool { element, tensors, .. } => Effect::Pool { element, tensors: tensors.len() },
        Record::Written { tensor, .. } => Effect::Written(tensor),
        Record::Removed { tensor } => Effect::Removed(name(tensor)),
        Record::Layout(bytes) => return Ok(Err(Layout::read(bytes).map_err(Error::Layout)?)),
    }))
}
