//! Long lists of symbols in parts. Each part has its own code; threads write and read parts side by
//! side.

use gradwire_bits::DecodeError;

use super::alphabet::Alphabet;
use super::coding::PART_SYMBOLS;
use crate::Helpers;
use crate::threads::try_side_by_side;
use crate::wire::fields;
use crate::workspace::SymbolCoder;

/// The byte that comes before a list in parts.
pub(super) const DIVIDED: u8 = 5;
/// Bytes that a part takes besides its list: its length, and the byte before its list.
pub(super) const EXTRA: usize = 4 + 1;

impl Alphabet {
    /// Appends the parts of a list, each after its length in bytes. The helpers share the parts.
    pub(super) fn put_parts(
        self,
        symbols: &[u16],
        coder: &mut SymbolCoder,
        helpers: &mut Helpers,
        message: &mut Vec<u8>,
    ) {
        let put = |part: &[u16], coder: &mut &mut SymbolCoder, to: &mut Vec<u8>| {
            let start = to.len();
            to.extend_from_slice(&[0; 4]);
            self.put_list(part, coder, to);
            let len =
                u32::try_from(to.len() - start - 4).expect("a part has at most 2 MiB and a byte");
            to[start..start + 4].copy_from_slice(&len.to_le_bytes());
        };
        let parts = symbols.chunks(PART_SYMBOLS);
        helpers.append(coder, |workspace| &mut workspace.coder, parts, message, put);
    }

    /// Reads symbols from parts at the front of a message. The helpers share the parts.
    pub(super) fn take_parts(
        self,
        message: &mut &[u8],
        symbols: &mut [u16],
        coder: &mut SymbolCoder,
        helpers: &mut Helpers,
    ) -> Result<(), DecodeError> {
        let parts = symbols.chunks_mut(PART_SYMBOLS).map(|part| (take_part(message), part));
        let coders = helpers.each().map(|(workspace, _)| &mut workspace.coder);
        try_side_by_side(coder, coders, parts, |(list, part), coder| {
            self.read_part((list?, part), coder)
        })
    }

    /// Reads the symbols of a part from exactly these bytes.
    fn read_part(
        self,
        (mut list, symbols): (&[u8], &mut [u16]),
        coder: &mut SymbolCoder,
    ) -> Result<(), DecodeError> {
        self.take_list(&mut list, symbols, PART_SYMBOLS, coder, &mut Helpers::default())?;
        fields::expect_len(list, 0)
    }
}

/// Takes the list of a part, after its length, off the front of a message.
fn take_part<'a>(message: &mut &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let len = fields::take_u32(message)?;
    fields::take(message, len as usize)
}
