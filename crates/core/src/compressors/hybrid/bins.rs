//! The compressor behind `adacomp` and `local-selection`: it sends the largest element of each bin,
//! or all elements near it.

use std::ops::Range;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Near};

use super::signs;
use crate::device::pairs::{self, Pairs};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::take::Taken;
use crate::parameters::{Kind, either, whole};
use crate::parts::{PartResult, SHORT, part_result};
use crate::tools::give_back;
use crate::wire::fields;
use crate::wire::positions::{MOST_ELEMENTS, make_room};
use crate::{BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Source, Workspace};

/// The largest bin.
const MOST: u64 = 1 << 24;

/// Elements of a bin in tensors of three or more dimensions.
pub(super) const CONV: Kind = whole(50, 1..=MOST);
/// Elements of a bin in other tensors.
pub(super) const FC: Kind = whole(500, 1..=MOST);
/// The codes of positions.
pub(super) const CODE: Kind = either(&["gaps", "records"]);

/// A compressor that selects elements by bin and sends their signs and one scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Bins {
    /// Elements of a bin in tensors of three or more dimensions.
    pub(super) conv: usize,
    /// Elements of a bin in all other tensors.
    pub(super) fc: usize,
    /// Whether positions are the paper's records of 8 or 16 bits.
    pub(super) records: bool,
    /// The elements of a bin to send.
    pub(super) pick: Pick,
}

/// The elements of a bin to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pick {
    /// The first of its largest elements.
    Largest,
    /// All elements whose absolute value reaches the bin's largest after this multiple of the
    /// latest gradient is added.
    Near(f32),
}

impl Bins {
    /// Elements of a bin of a tensor with this shape. Tensors of three or more dimensions are
    /// convolution kernels.
    fn bin(&self, shape: &[usize]) -> usize {
        if shape.len() > 2 { self.conv } else { self.fc }
    }
}

impl Bins {
    /// Appends the message of the elements in the workspace; the tensor is not empty.
    fn write(&self, scale: f32, shape: &[usize], workspace: &mut Workspace, message: &mut Vec<u8>) {
        let Workspace { positions, values, helpers, .. } = workspace;
        let elements = shape.iter().product();
        if self.records {
            write_records(scale, self.bin(shape), elements, positions, values, message);
        } else {
            signs::write(&[scale], elements, positions, values, helpers, message);
        }
    }
}

/// Bits of a value: a sign; [records](Bins::records) have other widths.
pub(super) fn value_bits(records: bool) -> Option<u32> {
    (!records).then_some(1)
}

impl Compressor for Bins {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let (elements, bin) = (source.len(), self.bin(context.shape));
        workspace.positions.clear();
        if elements == 0 {
            return Coverage::Positions;
        }
        let scale = select(self.pick, bin, source, workspace);
        self.write(scale, context.shape, workspace, message);
        let Workspace { positions, values, helpers, .. } = workspace;
        values.iter_mut().for_each(|x| *x -= scale.copysign(*x));
        give_back(source, positions, values, helpers);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, context, weight, workspace, out } = args;
        if self.records && !out.is_empty() {
            let bin = self.bin(context.shape);
            let Workspace { positions, values, helpers, .. } = workspace;
            read_records(message, bin, out.len(), (&mut *positions, &mut *values))?;
            helpers.add_at(positions, values, out, |value| weight * value);
            return Ok(());
        }
        signs::read_add::<1>(message, out.len(), weight, workspace, out)
    }

    fn max_len(&self, elements: usize) -> usize {
        if self.records {
            let width = Record::of(self.conv.max(self.fc)).width;
            return 4 + elements.saturating_mul(width);
        }
        signs::max_len::<1>(elements, elements)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        if !self.records || message_len == usize::MAX {
            // A bin of zeros sends nothing.
            return if message_len == 0 { 0 } else { MOST_ELEMENTS };
        }
        message_len.saturating_mul(self.conv.max(self.fc)).min(MOST_ELEMENTS)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// The scale, and [pairs](Pairs) of the sent elements; only the signs of the values count.
impl DeviceForm for Bins {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, context, elements, workspace } = args;
        let pairs = Pairs::<1>::read(form, elements, elements)?;
        let Workspace { positions, values, .. } = workspace;
        pairs.copy_to(positions, values)?;
        if elements > 0 {
            self.write(pairs.levels[0], context.shape, workspace, message);
        }
        Ok(Coverage::Positions)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, context, elements, workspace } = args;
        let Workspace { positions, values, helpers, .. } = workspace;
        if self.records && elements > 0 {
            let bin = self.bin(context.shape);
            let scale = read_records(message, bin, elements, (&mut *positions, &mut *values))?;
            return pairs::write(&[scale], positions, values.iter().copied(), form);
        }
        let ([scale], signs) = signs::read::<1>(message, elements, elements, positions, helpers)?;
        pairs::write(&[scale], positions, signs::levels(signs, [scale; 2]), form)
    }
}

/// Start and length of ranges of at most a block, or a short block if bins are that short. A range
/// is whole bins, or part of a bin longer than a block. The first begins with a bin.
fn stretches(places: Range<usize>, bin: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut start = places.start;
    std::iter::from_fn(move || {
        let most = if bin <= SHORT { SHORT } else { BLOCK };
        let len = if bin <= most { most / bin * bin } else { most.min(bin - start % bin) };
        let stretch = (start, len.min(places.end - start));
        start += stretch.1;
        (stretch.1 > 0).then_some(stretch)
    })
}

/// The largest absolute value of each bin.
#[derive(Debug, Default)]
struct Maxima(Vec<f32>);

/// The selected elements, and the largest absolute value of each bin.
#[derive(Debug, Default)]
struct Selected {
    taken: Taken,
    maxima: Vec<f32>,
}

part_result!(Selected { taken, maxima });

/// Moves the elements to send into the workspace, and returns the mean of the bins' maxima. The
/// helpers share the bins.
fn select(pick: Pick, bin: usize, source: &mut Source<'_>, workspace: &mut Workspace) -> f32 {
    let Maxima(maxima) = std::mem::take(workspace.own());
    let mut all = Selected { taken: Taken::out_of(workspace), maxima };
    all.reset();
    source.merge_parts(bin, workspace, &mut all, |source, selected| {
        select_of_part(pick, bin, source, selected);
    });
    let Selected { taken, maxima } = all;
    taken.keep_in(workspace);
    let sum: f64 = maxima.iter().map(|&x| f64::from(x)).sum();
    let mean = (sum / maxima.len() as f64) as f32;
    *workspace.own() = Maxima(maxima);
    mean
}

fn select_of_part(pick: Pick, bin: usize, source: &mut Source<'_>, selected: &mut Selected) {
    let Selected { taken: Taken { positions, values }, maxima } = selected;
    let places = source.places();
    if bin > BLOCK {
        for (start, len) in stretches(places.clone(), bin) {
            let largest = source.peek(start, len, kernels::abs_max_bits);
            let at = (start - places.start) / bin;
            maxima.resize(at + 1, 0.0);
            maxima[at] = maxima[at].max(f32::from_bits(largest));
        }
    }
    let weight = match pick {
        Pick::Largest => 0.0,
        Pick::Near(factor) => (factor - 1.0) * source.gradient_weight(),
    };
    let mut taken = None;
    for (start, len) in stretches(places.clone(), bin) {
        source.take_with_gradient(start, len, |sum, gradient| {
            if bin <= BLOCK {
                kernels::bin_maxima(sum, bin, maxima);
            }
            let (first, from) = (positions.len(), (start - places.start) / bin);
            let near = Near { bin, limits: &maxima[from..from + len.div_ceil(bin)], weight };
            kernels::reaching(sum, gradient, near, start as u32, positions);
            if pick == Pick::Largest {
                keep_first(bin, first, positions, &mut taken);
            }
            let found = positions[first..].iter();
            values.extend(found.map(|&position| sum[position as usize - start]));
        });
    }
}

/// Keeps only the first position of each bin, and none of the bin `taken`, among the positions from
/// index `first` on.
fn keep_first(bin: usize, first: usize, positions: &mut Vec<u32>, taken: &mut Option<usize>) {
    let mut kept = first;
    for at in first..positions.len() {
        let here = Some(positions[at] as usize / bin);
        if here != *taken {
            positions[kept] = positions[at];
            kept += 1;
            *taken = here;
        }
    }
    positions.truncate(kept);
}

/// A record of an element: its index in the bin, whether it is the bin's last, and its sign. A bin
/// that sends no elements has one record with an impossible index.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Record {
    /// Bytes of a record.
    width: usize,
    /// Bits of the index.
    index_bits: u32,
}

impl Record {
    /// Records for bins of `bin` elements: 8 bits below 64, 16 below 16 Ki, else (beyond the
    /// paper) 32.
    fn of(bin: usize) -> Self {
        let width = match bin {
            ..64 => 1,
            64..0x4000 => 2,
            _ => 4,
        };
        Self { width, index_bits: 8 * width as u32 - 2 }
    }

    /// The index in the record of a bin without elements.
    fn nothing(self) -> u32 {
        (1 << self.index_bits) - 1
    }

    fn write(self, index: u32, last: bool, below: bool, message: &mut Vec<u8>) {
        let flags = u32::from(last) | u32::from(below) << 1;
        let record = index | flags << self.index_bits;
        message.extend_from_slice(&record.to_le_bytes()[..self.width]);
    }

    /// Index, whether it is the last, and whether it is below zero.
    fn read(self, message: &mut &[u8]) -> Result<(u32, bool, bool), DecodeError> {
        let mut bytes = [0; 4];
        bytes[..self.width].copy_from_slice(fields::take(message, self.width)?);
        let record = u32::from_le_bytes(bytes);
        let flags = record >> self.index_bits;
        Ok((record & self.nothing(), flags & 1 != 0, flags & 2 != 0))
    }
}

fn write_records(
    scale: f32,
    bin: usize,
    elements: usize,
    positions: &[u32],
    values: &[f32],
    message: &mut Vec<u8>,
) {
    fields::put_f32(scale, message);
    let record = Record::of(bin);
    let mut next = 0;
    for start in (0..elements).step_by(bin) {
        let first = next;
        while next < positions.len() && (positions[next] as usize) < start + bin {
            next += 1;
        }
        if first == next {
            record.write(record.nothing(), true, false, message);
        }
        for at in first..next {
            let below = values[at].is_sign_negative();
            record.write(positions[at] - start as u32, at + 1 == next, below, message);
        }
    }
}

/// Checks a message of records, replaces two lists by its positions and values, and returns its
/// scale.
fn read_records(
    mut message: &[u8],
    bin: usize,
    elements: usize,
    (positions, values): (&mut Vec<u32>, &mut Vec<f32>),
) -> Result<f32, DecodeError> {
    let scale = fields::take_scale(&mut message)?;
    let record = Record::of(bin);
    let most = message.len() / record.width;
    make_room(most, elements, positions)?;
    make_room(most, elements, values)?;
    for start in (0..elements).step_by(bin) {
        let len = bin.min(elements - start) as u32;
        let mut least = 0;
        loop {
            let (index, last, below) = record.read(&mut message)?;
            if index == record.nothing() && least == 0 && last && !below {
                break;
            }
            if !(least..len).contains(&index) {
                return Err(DecodeError::Corrupt("the indices of a bin do not increase within it"));
            }
            positions.push(start as u32 + index);
            values.push(if below { -scale } else { scale });
            least = index + 1;
            if last {
                break;
            }
        }
    }
    fields::expect_len(message, 0)?;
    Ok(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_hold_whole_bins_or_parts_of_one() {
        let found = |elements, bin| stretches(0..elements, bin).collect::<Vec<_>>();
        assert_eq!(found(2500, 500), [(0, 1000), (1000, 1000), (2000, 500)]);
        assert_eq!(found(5000, 2000), [(0, 4000), (4000, 1000)]);
        assert_eq!(found(120, 50), [(0, 120)]);
        assert_eq!(found(9000, 5000), [(0, 4096), (4096, 904), (5000, 4000)]);
        assert_eq!(found(0, 50), []);
        // A part of a tensor.
        assert_eq!(stretches(1000..2200, 500).collect::<Vec<_>>(), [(1000, 1000), (2000, 200)]);
    }
}
