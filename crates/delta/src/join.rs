//! Joins the shares of an update into one stream.

use std::io::Read;

use crate::base_check::joined;
use crate::frame::{End, FrameReader, FrameWriter, Share, Sink};
use crate::{Error, StateHash};

/// Writes one stream with the records of all shares of an update, which the ranks of a trainer
/// wrote for their own rows, in any order. It can be published to a folder, and staged alone.
///
/// Copies records without decoding them, with the memory of the longest frame.
///
/// # Errors
/// If the streams are damaged, or are not all shares of one update, or the sink fails.
pub fn join<R: Read>(
    shares: impl IntoIterator<Item = R>,
    sink: &mut Sink<'_>,
) -> Result<End, Error> {
    let mut shares = shares.into_iter().map(FrameReader::new).collect::<Result<Vec<_>, _>>()?;
    let header = joined(&shares.iter().map(FrameReader::header).collect::<Vec<_>>())?;
    let (expected, found) = (header.share.count, shares.len() as u64);
    if expected != found {
        return Err(Error::MissingShares { expected, found });
    }
    let mut writer = FrameWriter::new(&crate::Header { share: Share::WHOLE, ..header });
    let (mut payload, mut target) = (Vec::new(), StateHash::default());
    for share in &mut shares {
        while share.records(&mut payload)? {
            writer.copy(&payload, sink)?;
        }
        let end = share.end().expect("the records have been read");
        writer.count(end.records);
        target += end.target_hash;
    }
    Ok(writer.end(target, sink)?)
}
