//! A partial sum: for each tensor, the elements with positions, or all elements.

use gradwire::{DecodeError, Tensor};
use gradwire_bits::{rice, varint};

use crate::elements;

/// The first byte of a part on the wire.
const DENSE: u8 = 0;
const SPARSE: u8 = 1;

/// The sum of some ranks' messages for one tensor.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct PartialSum {
    /// Whether `values` holds every element.
    pub(super) dense: bool,
    /// Otherwise the positions of the values, increasing.
    pub(super) positions: Vec<u32>,
    pub(super) values: Vec<f32>,
}

impl PartialSum {
    /// Removes all elements.
    pub(super) fn clear(&mut self) {
        self.dense = false;
        self.positions.clear();
        self.values.clear();
    }

    /// Replaces this part with `low` plus `high`. It becomes dense if all elements take no more
    /// bytes than elements with positions.
    pub(super) fn add(&mut self, low: &PartialSum, high: &PartialSum, elements: usize) {
        self.clear();
        match (low.dense, high.dense) {
            (false, false) => self.merge(low, high),
            (true, true) => {
                self.dense = true;
                self.values
                    .extend(low.values.iter().zip(&high.values).map(|(low, high)| low + high));
            }
            (true, false) => {
                self.clone_from(low);
                high.each(|at, value| self.values[at] += value);
            }
            (false, true) => {
                self.clone_from(high);
                low.each(|at, value| self.values[at] += value);
            }
        }
        self.make_dense_if_shorter(elements);
    }

    fn merge(&mut self, low: &PartialSum, high: &PartialSum) {
        let (mut a, mut b) = (0, 0);
        while a < low.positions.len() && b < high.positions.len() {
            let (left, right) = (low.positions[a], high.positions[b]);
            self.positions.push(left.min(right));
            self.values.push(match left.cmp(&right) {
                std::cmp::Ordering::Less => low.values[a],
                std::cmp::Ordering::Equal => low.values[a] + high.values[b],
                std::cmp::Ordering::Greater => high.values[b],
            });
            a += usize::from(left <= right);
            b += usize::from(right <= left);
        }
        self.positions.extend_from_slice(&low.positions[a..]);
        self.values.extend_from_slice(&low.values[a..]);
        self.positions.extend_from_slice(&high.positions[b..]);
        self.values.extend_from_slice(&high.values[b..]);
    }

    /// Becomes dense if that takes no more bytes.
    pub(super) fn make_dense_if_shorter(&mut self, elements: usize) {
        if self.dense || self.sparse_len(elements) < dense_len(elements) {
            return;
        }
        // The index of a value is at most its position, so values move to their positions in place,
        // the last one first.
        self.values.resize(elements, 0.0);
        for from in (0..self.positions.len()).rev() {
            let value = std::mem::take(&mut self.values[from]);
            self.values[self.positions[from] as usize] = value;
        }
        self.positions.clear();
        self.dense = true;
    }

    /// Visits the positions and values of a sparse part.
    fn each(&self, mut visit: impl FnMut(usize, f32)) {
        for (&at, &value) in self.positions.iter().zip(&self.values) {
            visit(at as usize, value);
        }
    }

    /// Writes every element.
    pub(super) fn spread(&self, out: &mut Vec<f32>, elements: usize) {
        out.clear();
        if self.dense {
            return out.extend_from_slice(&self.values);
        }
        out.resize(elements, 0.0);
        self.each(|at, value| out[at] = value);
    }

    fn sparse_len(&self, elements: usize) -> usize {
        let count = self.positions.len();
        let b = rice::optimal_parameter(count, elements);
        let places = rice::len_bits(&self.positions, b).div_ceil(8) as usize;
        1 + varint::len(count as u64) + places + 4 * count
    }

    /// Appends this part in its wire format.
    pub(super) fn write(&self, elements: usize, out: &mut Vec<u8>) {
        if self.dense {
            out.push(DENSE);
        } else {
            let count = self.positions.len();
            out.push(SPARSE);
            varint::write(count as u64, out);
            rice::encode(&self.positions, rice::optimal_parameter(count, elements), out);
        }
        elements::narrow_onto(&self.values, out);
    }

    /// Reads the part of a tensor with `elements` elements from the front of `bytes`, as
    /// [`write`](Self::write) wrote it.
    pub(super) fn read(&mut self, bytes: &mut &[u8], elements: usize) -> Result<(), DecodeError> {
        self.clear();
        let count = match take(bytes, 1)?[0] {
            DENSE => {
                self.dense = true;
                elements
            }
            SPARSE => self.read_positions(bytes, elements)?,
            _ => return Err(DecodeError::Corrupt("a part that is neither dense nor sparse")),
        };
        let length = count.checked_mul(4).ok_or(DecodeError::Truncated)?;
        elements::widen_onto(take(bytes, length)?, &mut self.values);
        Ok(())
    }

    fn read_positions(&mut self, bytes: &mut &[u8], elements: usize) -> Result<usize, DecodeError> {
        let count = usize::try_from(varint::read(bytes)?)
            .ok()
            .filter(|&count| count <= elements)
            .ok_or(DecodeError::Corrupt("more positions than elements"))?;
        // The values follow the positions, so a larger count cannot be right.
        if count > bytes.len() / 4 {
            return Err(DecodeError::Truncated);
        }
        let b = rice::optimal_parameter(count, elements);
        let used = rice::decode(bytes, count, elements, b, &mut self.positions)?;
        take(bytes, used)?;
        Ok(count)
    }
}

fn dense_len(elements: usize) -> usize {
    1 + 4 * elements
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Result<&'a [u8], DecodeError> {
    let (front, rest) = bytes.split_at_checked(count).ok_or(DecodeError::Truncated)?;
    *bytes = rest;
    Ok(front)
}

/// Appends the parts of all tensors.
pub(super) fn write(parts: &[PartialSum], tensors: &[Tensor], out: &mut Vec<u8>) {
    out.clear();
    parts.iter().zip(tensors).for_each(|(part, tensor)| part.write(tensor.elements(), out));
}

/// Reads the parts of all tensors, and nothing else.
pub(super) fn read(
    parts: &mut [PartialSum],
    tensors: &[Tensor],
    mut bytes: &[u8],
) -> Result<(), DecodeError> {
    for (part, tensor) in parts.iter_mut().zip(tensors) {
        part.read(&mut bytes, tensor.elements())?;
    }
    if bytes.is_empty() { Ok(()) } else { Err(DecodeError::Corrupt("bytes after the last part")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparse(elements: &[(u32, f32)]) -> PartialSum {
        let (positions, values) = elements.iter().copied().unzip();
        PartialSum { dense: false, positions, values }
    }

    fn dense(values: &[f32]) -> PartialSum {
        PartialSum { dense: true, positions: Vec::new(), values: values.to_vec() }
    }

    #[test]
    fn a_part_is_these_bytes() {
        // 2 of 100 places: p = 0.02, b = 1 + ⌊log2(0.4812 / 0.0202)⌋ = 5. Gaps 3 and 40 = 1·32 + 8:
        // 0 11000 and 10 00010, the first bit the lowest.
        let part = sparse(&[(3, 1.5), (44, -2.0)]);
        let mut bytes = Vec::new();
        part.write(100, &mut bytes);
        assert_eq!(bytes[..4], [1, 2, 0b0100_0110, 0b0000_1000]);
        assert_eq!(bytes[4..], [0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0]);
        assert_eq!(part.sparse_len(100), bytes.len());
        bytes.clear();
        dense(&[1.5]).write(1, &mut bytes);
        assert_eq!(bytes, [0, 0, 0, 0xc0, 0x3f]);
    }

    #[test]
    fn sums_are_those_of_dense_tensors_and_dense_where_it_pays() {
        let forms = [
            sparse(&[]),
            sparse(&[(0, 1.0)]),
            sparse(&[(1, 2.0), (7, 0.1)]),
            sparse(&[(0, 0.7), (7, 1e-8), (8, 3.0)]),
            dense(&[0.5; 9]),
            dense(&[1e8, 0.1, 0.2, -0.3, 1.0, 2.0, 3.0, -0.1, 1e-9]),
        ];
        for low in &forms {
            for high in &forms {
                let (mut sum, mut found) = (PartialSum::default(), Vec::new());
                sum.add(low, high, 9);
                sum.spread(&mut found, 9);
                let (mut a, mut b) = (Vec::new(), Vec::new());
                low.spread(&mut a, 9);
                high.spread(&mut b, 9);
                let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
                assert_eq!(found, expected);
                // Dense is 37 bytes; five elements are 1 + 1 + 20 and at least 5 bits.
                assert_eq!(sum.dense, low.dense || high.dense);
            }
        }
        let mut full = sparse(&[]);
        full.positions.extend(0..9);
        full.values.extend((0..9).map(|at| at as f32));
        let mut sum = PartialSum::default();
        sum.add(&full, &sparse(&[(8, 1.0)]), 9);
        assert_eq!(sum, dense(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 9.0]));
        // Some values move up into place, others stay.
        let but_one = (0..40).filter(|&at| at != 5);
        let mut moved = sparse(&but_one.map(|at| (at, at as f32)).collect::<Vec<_>>());
        moved.make_dense_if_shorter(40);
        let all: Vec<f32> = (0..40).map(|at| if at == 5 { 0.0 } else { at as f32 }).collect();
        assert_eq!(moved, dense(&all));
    }

    #[test]
    fn what_is_cut_or_too_long_is_refused() {
        let tensors = [Tensor::new("a", &[100]), Tensor::new("b", &[2]), Tensor::new("c", &[0])];
        let parts = [sparse(&[(3, 1.5), (99, -2.0)]), dense(&[1.0, 2.0]), sparse(&[])];
        let (mut bytes, mut found) = (Vec::new(), vec![PartialSum::default(); 3]);
        write(&parts, &tensors, &mut bytes);
        read(&mut found, &tensors, &bytes).unwrap();
        assert_eq!(found, parts);
        for cut in 0..bytes.len() {
            assert!(read(&mut found, &tensors, &bytes[..cut]).is_err(), "{cut}");
        }
        bytes.push(0);
        assert!(read(&mut found, &tensors, &bytes).is_err());
        assert!(found[0].read(&mut &[2, 0][..], 1).is_err(), "an unknown form");
        assert!(
            found[0].read(&mut &[1, 3, 0, 0, 0][..], 2).is_err(),
            "more positions than elements"
        );
        let mut far: &[u8] = &[1, 255, 255, 255, 255, 15];
        assert!(found[0].read(&mut far, usize::MAX).is_err(), "a length without the bytes");
    }
}
