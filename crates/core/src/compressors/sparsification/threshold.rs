//! `threshold`: the elements whose absolute value is above a fixed threshold.
//!
//! With v = 0 it is lossless: all non-zero elements are sent. A parameter server sends the mean of
//! a few sparse messages this way.
//!
//! - **Message**: as `topk`: a byte with the code of the positions, the count as varint, the values
//!   as f32, the positions in the shortest code; or, if this is shorter, a byte 255 and all
//!   elements as f32, with 0 for unsent ones.
//! - **Range**: v ≥ 0; up to 2³² − 1 elements.
//! - **Error feedback**: on.
//! - **Cost**: 8 bytes per element to count, 12 to select.
//!
//! Reference: Dutta et al.: "On the Discrepancy between the Theoretical Analysis and Practical
//! Implementations of Compressed Communication for Distributed Deep Learning", AAAI 2020.

use std::ops::Bound::Included;
use std::ops::Range;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Room, Side};

use crate::device::pairs::{self, Pairs};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::take::{NOTHING, clear, take_beyond};
use crate::parameters::{Parameters, real};
use crate::parts::cut_mut;
use crate::wire::fields;
use crate::wire::positions::{self, PositionCode};
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Properties, Source,
    Statistics, Unit, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "threshold",
    summary: "the elements above a fixed absolute value",
    formula: "x̂ = c where |c| > v, 0 elsewhere",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &["v=0.3", "v=0.5"],
    reference: "Dutta et al., AAAI 2020",
    payload: "code u8, count varint, values f32, positions; or 255 u8, d × f32",
    properties: |_| Properties { value_bits: Some(32), ..Properties::DEFAULT },
    ..Entry::of::<Threshold>(|values| Threshold::new(values).guarantee())
};

crate::parameters! {
    /// Sparsification by a fixed threshold.
    pub struct Threshold {
        /// the threshold; 0 sends all elements that are not zero
        v: f32 = real(0.0, Included(0.0), Included(1e30)),
    }
}

const DENSE: u8 = 255;

impl Threshold {
    fn guarantee(&self) -> Guarantee {
        match self.v {
            0.0 => Guarantee::Contractive,
            _ => Guarantee::Neither(
                "elements below the threshold are not sent, however many they are",
            ),
        }
    }

    /// The number of elements above the threshold. The helpers share the pass, which checks the
    /// elements, too.
    fn count(&self, source: &mut Source<'_>, workspace: &mut Workspace) -> usize {
        let mut all = 0;
        source.merge_parts(1, workspace, &mut all, |source, count| {
            source.peek_short_blocks(|_, block| *count += kernels::count_above(block, self.v));
        });
        all
    }
}

impl Compressor for Threshold {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let elements = source.len();
        let sent = self.count(source, workspace);
        if !source.ends_check() {
            return Coverage::All;
        }
        if sent == elements && elements > 0 {
            take_all(source, workspace, message);
            return Coverage::Positions;
        }
        clear(sent, workspace);
        take_beyond(source, Side::Both, self.v, NOTHING, workspace);
        write(elements, workspace, message);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        if let Some((&DENSE, all)) = message.split_first() {
            fields::expect_len(all, 4 * out.len())?;
            let unit = Unit { items: 4, elements: 1 };
            workspace.helpers.add_in_parts(all, unit, out, |_, all, out| {
                kernels::f32_add(all, weight, out);
            });
            return Ok(());
        }
        let values = read(message, out.len(), workspace)?;
        let Workspace { positions, helpers, .. } = workspace;
        fields::add_f32s_at(positions, values, weight, out, helpers);
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::Peeked
    }

    fn max_len(&self, elements: usize) -> usize {
        // A dense message has a tag and four bytes per element; an empty one has a code and a
        // count.
        elements.saturating_mul(4).saturating_add(2)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// Pairs of the sent elements; of the non-zero elements if the message has all elements.
impl DeviceForm for Threshold {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, elements, workspace, .. } = args;
        let pairs = Pairs::<0>::read(form, elements, elements)?;
        pairs.copy_to(&mut workspace.positions, &mut workspace.values)?;
        write(elements, workspace, message);
        Ok(Coverage::Positions)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, elements, workspace, .. } = args;
        if let Some((&DENSE, all)) = message.split_first() {
            fields::expect_len(all, 4 * elements)?;
            let (positions, values) = (&mut workspace.positions, &mut workspace.values);
            positions::make_room(elements, elements, positions)?;
            positions::make_room(elements, elements, values)?;
            let all = all.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
            for (at, value) in (0..).zip(all).filter(|(_, value)| *value != 0.0) {
                positions.push(at);
                values.push(value);
            }
            return pairs::write(&[], positions, values.iter().copied(), form);
        }
        let values = read(message, elements, workspace)?;
        let values = values.iter().map(|bytes| f32::from_le_bytes(*bytes));
        pairs::write(&[], &workspace.positions, values, form)
    }
}

/// Appends the message of the elements in the workspace.
fn write(elements: usize, workspace: &mut Workspace, message: &mut Vec<u8>) {
    let Workspace { positions, values, helpers, .. } = workspace;
    if values.len() == elements && elements > 0 {
        return put_dense(positions, values, elements, message);
    }
    let (code, len) = PositionCode::shortest_with_len(positions, elements);
    let sparse = (positions::header_len(values.len()) + 4 * values.len()) as u64 + len;
    if elements > 0 && sparse > 1 + 4 * elements as u64 {
        put_dense(positions, values, elements, message);
    } else {
        positions::put_with_values(code, positions, values, elements, helpers, message);
    }
}

/// Checks a message of positions, reads them into the workspace, and returns the values.
fn read<'a>(
    mut message: &'a [u8],
    elements: usize,
    workspace: &mut Workspace,
) -> Result<&'a [[u8; 4]], DecodeError> {
    let (code, count) = positions::take_header(&mut message, elements)?;
    let values = fields::take(&mut message, 4 * count)?;
    let Workspace { positions, helpers, .. } = workspace;
    code.decode(message, count, elements, positions, helpers)?;
    Ok(values.as_chunks().0)
}

/// Takes all elements and appends them as a dense message; their positions are in the workspace.
/// The helpers share the pass.
fn take_all(source: &mut Source<'_>, workspace: &mut Workspace, message: &mut Vec<u8>) {
    let mut positions = std::mem::take(&mut workspace.positions);
    positions.resize(source.len(), 0);
    message.push(DENSE);
    Room::at_end(message, 4 * source.len(), |mut room| {
        let mut rest = &mut positions[..];
        let of_part =
            |part: Range<usize>| (room.split_off(4 * part.len()), cut_mut(&mut rest, part.len()));
        source.in_parts(workspace, of_part, |source, (mut room, mut positions), _| {
            source.take_short_blocks(|offset, block| {
                kernels::f32_fill(block, room.split_off(4 * block.len()), false);
                block.fill(0.0);
                let positions = cut_mut(&mut positions, block.len());
                (offset as u32..).zip(positions).for_each(|(at, position)| *position = at);
            });
        });
    });
    workspace.positions = positions;
}

/// Values are copied in groups of this many; a group without gaps is copied as a block.
const RUN: usize = 64;

/// Appends every element, with 0 for unsent ones.
fn put_dense(positions: &[u32], values: &[f32], elements: usize, message: &mut Vec<u8>) {
    message.push(DENSE);
    let start = message.len();
    message.resize(start + 4 * elements, 0);
    let all = message[start..].as_chunks_mut::<4>().0;
    for (positions, values) in positions.chunks(RUN).zip(values.chunks(RUN)) {
        let [first, last] = [positions[0], positions[positions.len() - 1]].map(|at| at as usize);
        let all = &mut all[first..=last];
        if all.len() == values.len() {
            all.iter_mut().zip(values).for_each(|(to, value)| *to = value.to_le_bytes());
        } else {
            let places = positions.iter().map(|&position| position as usize - first);
            places.zip(values).for_each(|(at, value)| all[at] = value.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, residual, round_trip};

    #[test]
    fn messages_worked_by_hand() {
        let gradient = [0.5, -3.0, 0.0, 1.0, 2.0, -0.5];
        // -3 and 2, as a bitmap.
        let expected = [0, 2, 0, 0, 0x40, 0xc0, 0, 0, 0, 0x40, 0b01_0010];
        assert_eq!(encode("threshold:v=1", &gradient), expected);
        assert_eq!(residual("threshold:v=1", &gradient), [0.5, 0.0, 0.0, 1.0, 0.0, -0.5]);
        // Nearly all of many elements are shorter as a dense message.
        let many: Vec<f32> =
            (0..300).map(|at| if at == 70 { 0.5 } else { at as f32 + 2.0 }).collect();
        let mut sent = many.clone();
        sent[70] = 0.0;
        let bytes: Vec<u8> = sent.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(encode("threshold:v=1", &many), [&[DENSE][..], &bytes].concat());
        // All of two elements are shorter as a dense message.
        assert_eq!(encode("threshold", &[1.0, -2.0]), [DENSE, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
    }

    #[test]
    fn nothing_is_lost_at_zero() {
        let mut gradient = vec![0.0; 5000];
        for at in (0..5000).step_by(97) {
            gradient[at] = at as f32 - 2500.0;
        }
        assert_eq!(round_trip("threshold", &gradient), gradient);
        assert!(encode("threshold", &gradient).len() < 300);
        gradient.fill(-1e-30);
        assert_eq!(round_trip("threshold", &gradient), gradient);
    }
}
