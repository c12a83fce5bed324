//! The symbols of a message. Long lists of fixed width are unpacked block by block, so no list goes
//! to memory and back.

use std::ops::Range;

use gradwire_bits::{DecodeError, fixed};

use super::alphabet::Alphabet;
use crate::wire::fields;
use crate::{BLOCK, Helpers, Workspace};

/// A list of up to this many symbols stays in a cache. More symbols stay packed, and are unpacked
/// twice: to check them, and to add their values.
const LISTED: usize = 1 << 18;

/// Symbols that have been checked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum View<'a> {
    /// More than [`LISTED`], of fixed width, in these bytes.
    Packed(Alphabet, &'a [u8]),
    /// In a list.
    List(&'a [u16]),
}

impl Alphabet {
    /// Checks `elements` symbols, takes them off the front of a message, and returns them with the
    /// workspace's helpers.
    pub(crate) fn view<'a>(
        self,
        message: &mut &'a [u8],
        elements: usize,
        workspace: &'a mut Workspace,
    ) -> Result<(View<'a>, &'a mut Helpers), DecodeError> {
        let (view, helpers) = self.unchecked(message, elements, workspace)?;
        if self.has_every_number() {
            // Only the padding of the last byte can be wrong.
            view.blocks(elements / BLOCK * BLOCK..elements, |_, _| Ok(()))?;
        } else if let View::Packed(..) = view {
            view.check(elements, helpers, |_, _| Ok(()))?;
        }
        Ok((view, helpers))
    }

    /// As [`view`](Self::view), with an additional `check` of the symbols: it gets some at a time,
    /// with the index of the first, a multiple of eight.
    pub(crate) fn view_checked<'a>(
        self,
        message: &mut &'a [u8],
        elements: usize,
        workspace: &'a mut Workspace,
        check: impl Fn(usize, &[u16]) -> Result<(), DecodeError> + Sync,
    ) -> Result<(View<'a>, &'a mut Helpers), DecodeError> {
        let (view, helpers) = self.unchecked(message, elements, workspace)?;
        view.check(elements, helpers, check)?;
        Ok((view, helpers))
    }

    /// The symbols at the front of a message; they are checked if they are in a list.
    fn unchecked<'a>(
        self,
        message: &mut &'a [u8],
        elements: usize,
        workspace: &'a mut Workspace,
    ) -> Result<(View<'a>, &'a mut Helpers), DecodeError> {
        let Workspace { symbols, coder, helpers, .. } = workspace;
        if !self.is_coded && elements > LISTED {
            let packed = fields::take(message, self.fixed_len(elements))?;
            return Ok((View::Packed(self, packed), helpers));
        }
        self.take(message, elements, symbols, coder, helpers)?;
        Ok((View::List(symbols), helpers))
    }
}

impl View<'_> {
    /// Adds the values of symbols: calls `add` with some symbols at a time, the index of the first,
    /// and as many elements of `out`. The helpers share the work.
    pub(crate) fn add(
        self,
        out: &mut [f32],
        helpers: &mut Helpers,
        add: impl Fn(usize, &[u16], &mut [f32]) + Sync,
    ) {
        let parts = helpers.parts(out.len(), BLOCK);
        let jobs = parts.places().zip(out.chunks_mut(parts.len()));
        let of_part = |(places, out): (Range<usize>, &mut [f32])| {
            let start = places.start;
            let added = self.blocks(places, |first, symbols| {
                add(first, symbols, &mut out[first - start..][..symbols.len()]);
                Ok(())
            });
            added.expect("the symbols were checked");
        };
        helpers.share(jobs, of_part);
    }

    /// Passes all symbols to `check`. The helpers share the work.
    fn check(
        self,
        elements: usize,
        helpers: &mut Helpers,
        check: impl Fn(usize, &[u16]) -> Result<(), DecodeError> + Sync,
    ) -> Result<(), DecodeError> {
        let parts = helpers.parts(elements, BLOCK);
        helpers.try_share(parts.places(), |places| self.blocks(places, &check))
    }

    /// The symbols at these places, no more than [`BLOCK`]; `unpacked` has room for them. Places
    /// begin at whole bytes, and end at one or with the last symbol.
    pub(crate) fn some<'s>(
        &'s self,
        places: Range<usize>,
        unpacked: &'s mut [u16; BLOCK],
    ) -> Result<&'s [u16], DecodeError> {
        let (alphabet, bytes) = match self {
            View::List(symbols) => return Ok(&symbols[places]),
            View::Packed(alphabet, bytes) => (alphabet, bytes),
        };
        let (symbols, width) = (&mut unpacked[..places.len()], alphabet.width());
        let bytes = &bytes[fixed::len(places.start, width)..][..fixed::len(places.len(), width)];
        alphabet.unpack(bytes, symbols)?;
        Ok(symbols)
    }

    /// Calls `each` with some of the symbols at these places at a time, and the index of the first.
    /// Places begin at multiples of [`BLOCK`].
    fn blocks(
        self,
        places: Range<usize>,
        mut each: impl FnMut(usize, &[u16]) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if let View::List(symbols) = self {
            return each(places.start, &symbols[places]);
        }
        let mut unpacked = [0; BLOCK];
        for first in places.clone().step_by(BLOCK) {
            each(first, self.some(first..places.end.min(first + BLOCK), &mut unpacked)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// The sums from adding symbols to 0.5, with the index in the upper digits to reveal a wrong
    /// place.
    fn added(view: View<'_>, elements: usize, helpers: &mut Helpers) -> Vec<f32> {
        let mut out = vec![0.5; elements];
        view.add(&mut out, helpers, |first, symbols, out| {
            assert_eq!(symbols.len(), out.len());
            for ((at, symbol), out) in (first..).zip(symbols).zip(out) {
                *out += f32::from(*symbol) + 1e6 * (at % 7) as f32;
            }
        });
        out
    }

    #[test]
    fn long_lists_are_unpacked_block_by_block() {
        let elements = LISTED + 2 * BLOCK + 3;
        for count in [2, 3, 15, 16, 200, 256, 300] {
            let alphabet = Alphabet::new(count, false);
            let symbols: Vec<u16> = (0..elements).map(|i| (i * i % 8191 % count) as u16).collect();
            let mut message = Vec::new();
            alphabet.put_fixed(&symbols, &mut message);
            let expected: Vec<f32> = (0..elements)
                .map(|at| 0.5 + (f32::from(symbols[at]) + 1e6 * (at % 7) as f32))
                .collect();
            let workspace = &mut Workspace { helpers: Helpers::new(2), ..Workspace::default() };
            let mut rest = &message[..];
            let seen = Mutex::new(vec![0u8; elements]);
            let check = |first: usize, some: &[u16]| {
                assert!(first.is_multiple_of(8) && some == &symbols[first..][..some.len()]);
                seen.lock().unwrap()[first..][..some.len()].iter_mut().for_each(|n| *n += 1);
                Ok(())
            };
            let (view, helpers) =
                alphabet.view_checked(&mut rest, elements, workspace, check).unwrap();
            assert!(rest.is_empty() && matches!(view, View::Packed(..)));
            assert!(added(view, elements, helpers) == expected, "{count} symbols");
            assert!(seen.into_inner().unwrap().iter().all(|n| *n == 1));
            let mut unpacked = [0; BLOCK];
            assert_eq!(view.some(8..24, &mut unpacked).unwrap(), &symbols[8..24]);
            // On one thread, and the refused bytes.
            let mut workspace = Workspace::default();
            let (view, helpers) =
                alphabet.view(&mut &message[..], elements, &mut workspace).unwrap();
            assert!(added(view, elements, helpers) == expected, "{count} symbols");
            let mut refused =
                |message: &[u8]| alphabet.view(&mut &message[..], elements, &mut workspace).err();
            assert_eq!(refused(&message[..message.len() - 1]), Some(DecodeError::Truncated));
            for at in [0, message.len() / 2, message.len() - 1] {
                let mut wrong = message.clone();
                wrong[at] = 0xff;
                // The upper byte of 16-bit symbols comes second.
                wrong[(at | 1).min(message.len() - 1)] = 0xff;
                let has_wrong =
                    count != 256 && (!count.is_power_of_two() || at == message.len() - 1);
                assert_eq!(refused(&wrong).is_some(), has_wrong, "{count} symbols, byte {at}");
            }
        }
    }

    #[test]
    fn errors_of_checks_are_passed_on_and_short_lists_are_unpacked_once() {
        let (alphabet, elements) = (Alphabet::new(4, false), LISTED + 9);
        let message = vec![0b10; fixed::len(elements, 2)];
        for (elements, from) in [(elements, LISTED), (LISTED, 5)] {
            let mut workspace = Workspace::default();
            let mut message = &message[..fixed::len(elements, 2)];
            let wrong = DecodeError::Corrupt("wrong");
            let check = |first: usize, some: &[u16]| {
                if first + some.len() > from { Err(wrong.clone()) } else { Ok(()) }
            };
            let found = alphabet.view_checked(&mut message, elements, &mut workspace, check);
            assert_eq!(found.err(), Some(wrong.clone()));
        }
        let mut workspace = Workspace::default();
        let mut message = &message[..fixed::len(LISTED, 2)];
        let (view, _) = alphabet.view(&mut message, LISTED, &mut workspace).unwrap();
        assert!(matches!(view, View::List(symbols) if symbols.len() == LISTED));
    }
}
