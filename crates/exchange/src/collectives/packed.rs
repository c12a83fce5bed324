//! One step's messages for one peer, packed into a single transport message: for each tensor in
//! order, the length of its message as a varint, then the message.

use gradwire_bits::varint;

use crate::{ExchangeError, Operation, Result};

/// Appends one tensor's message.
pub(crate) fn append(message: &[u8], packed: &mut Vec<u8>) {
    varint::write(message.len() as u64, packed);
    packed.extend_from_slice(message);
}

/// Appends one tensor's message and leaves `message` empty. The first message of a step is not
/// copied: the buffers are swapped, so a group of one large tensor takes one buffer of its size,
/// not two.
pub(crate) fn take(message: &mut Vec<u8>, packed: &mut Vec<u8>) {
    if !packed.is_empty() {
        append(message, packed);
    } else {
        varint::write(message.len() as u64, packed);
        message.reserve_exact(packed.len());
        message.splice(..0, packed.drain(..));
        std::mem::swap(message, packed);
    }
    message.clear();
}

/// Reads the next tensor's message of `peer` from byte `at` on, and moves `at` behind it.
pub(crate) fn next<'a>(
    peer: usize,
    packed: &'a [u8],
    at: &mut usize,
    operation: Operation<'_>,
) -> Result<&'a [u8]> {
    let mut rest = &packed[*at..];
    let length =
        varint::read(&mut rest).map_err(|error| ExchangeError::protocol(peer, operation, error))?;
    let message = usize::try_from(length).ok().and_then(|length| rest.get(..length));
    let message = message.ok_or_else(|| {
        let what = format!("a length of {length} bytes, but only {} bytes are left", rest.len());
        ExchangeError::protocol(peer, operation, what)
    })?;
    *at = packed.len() - rest.len() + message.len();
    Ok(message)
}

/// Refuses bytes of `peer` after its last message.
pub(crate) fn finish(
    peer: usize,
    packed: &[u8],
    at: usize,
    operation: Operation<'_>,
) -> Result<()> {
    match packed.len() - at {
        0 => Ok(()),
        extra => Err(ExchangeError::protocol(peer, operation, format!("{extra} bytes too many"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Phase;

    #[test]
    fn taking_writes_what_appending_does_in_one_buffer() {
        let (mut message, mut taken, mut appended) = (vec![9; 1000], Vec::new(), Vec::new());
        append(&message, &mut appended);
        take(&mut message, &mut taken);
        assert!(taken.capacity() < 1100 && message.capacity() < 100);
        append(b"abc", &mut appended);
        message.extend(b"abc");
        take(&mut message, &mut taken);
        assert_eq!(taken, appended);
    }

    #[test]
    fn messages_are_read_as_written_and_truncation_is_repacked() {
        let operation = Operation::whole(Phase::Gather, 4);
        let mut packed = Vec::new();
        append(b"abc", &mut packed);
        append(b"", &mut packed);
        append(&[7; 130], &mut packed);
        assert_eq!(packed.len(), 1 + 3 + 1 + 2 + 130);
        assert_eq!(&packed[..5], b"\x03abc\x00");
        let read = |bytes: &[u8]| {
            let mut at = 0;
            for expected in [&b"abc"[..], b"", &[7; 130]] {
                assert_eq!(next(2, bytes, &mut at, operation)?, expected);
            }
            finish(2, bytes, at, operation)
        };
        read(&packed).unwrap();
        for cut in 0..packed.len() {
            assert!(matches!(read(&packed[..cut]), Err(ExchangeError::Protocol { peer: 2, .. })));
        }
        packed.push(0);
        assert!(read(&packed).unwrap_err().to_string().contains("1 bytes too many"));
    }
}
