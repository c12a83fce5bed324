//! Symbols in Huffman code: packed code lengths, then one stream or four.

use gradwire_bits::DecodeError;
use gradwire_bits::huffman::{Code, limit};

/// Appends symbols in a code fitted to them.
pub(super) fn put(in_four: bool, symbols: &[u16], code: &Code, message: &mut Vec<u8>) {
    code.write(message);
    if in_four {
        code.encode_streams(symbols, message);
    } else {
        code.encode(symbols, message);
    }
}

/// Reads symbols of an alphabet of `alphabet` symbols, and returns the number of bytes read.
pub(super) fn read(
    in_four: bool,
    message: &[u8],
    alphabet: usize,
    code: &mut Code,
    out: &mut [u16],
) -> Result<usize, DecodeError> {
    let used = code.read(message, alphabet, limit(alphabet))?;
    let streams = &message[used..];
    let decoded =
        if in_four { code.decode_streams(streams, out)? } else { code.decode(streams, out)? };
    Ok(used + decoded)
}
