//! Joins the deltas of a chain into one.

use std::io::Read;

use crate::diff::write_delta;
use crate::frame::{FrameReader, Sink};
use crate::options::{Absent, DiffOptions, Ends, Summary, Target};
use crate::source::bytes_of;
use crate::workers::Workers;
use crate::{Error, Mirror, Receiver, Source, State, Update, progress};

/// Writes one delta that leads from `base` to where the deltas `links` lead one after another. It
/// is what the trainer would have written for both ends of the chain.
///
/// Applies the links to a copy of the base in memory and compares; so folding needs twice the bytes
/// of the base, and those of a staged link, whose new tensors are limited by `max_bytes` as for
/// [`Receiver::with_max_bytes`].
///
/// # Errors
/// If there are no links, one of them does not fit the weights before it or is too large, or the
/// sink fails.
pub fn fold<R: Read>(
    base: &dyn Source,
    links: impl IntoIterator<Item = R>,
    options: &DiffOptions,
    max_bytes: Option<u64>,
    threads: usize,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    // It is copied, hashed and compared.
    progress::expect(3 * bytes_of(base));
    let mut receiver = Receiver::new(Mirror::copy_of(base)?, threads)?;
    if let Some(max_bytes) = max_bytes {
        receiver = receiver.with_max_bytes(max_bytes);
    }
    let mut state: Option<State> = None;
    let mut update = Update::default();
    for link in links {
        let link = FrameReader::new(link)?;
        if state.is_none() {
            receiver = receiver.with_version(link.header().run, link.header().base);
            state = Some(receiver.state());
        }
        receiver.stage_frames(vec![link], &mut update)?;
        receiver.commit(&mut update)?;
    }
    let state = state.ok_or(Error::NoLinks)?;
    let result = receiver.state();
    let target = Target { run: result.run.expect("a link names its run"), version: result.version };
    let options = DiffOptions { absent: Absent::Remove, ..*options };
    let mut workers = Workers::new(threads);
    let ends = Ends { base: state, target };
    write_delta(base, receiver.tensors(), &ends, &options, &mut workers, sink)
}
