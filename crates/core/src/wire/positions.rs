//! The positions of a sparse message, in the shortest code.

mod parts;

use gradwire_bits::{DecodeError, bitmap, rice, varint};

use super::fields;
use crate::Helpers;
use crate::parts::least;

/// The most elements whose positions fit in 32 bits.
pub(crate) const MOST_ELEMENTS: usize = u32::MAX as usize;

/// The codes of positions. The discriminants are the tags on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum PositionCode {
    /// One bit per element.
    Bitmap = 0,
    /// Rice-coded gaps, after a byte with their parameter.
    Rice = 1,
    /// 32 bits per position.
    Raw = 2,
    /// Rice-coded gaps in parts, after a byte with their parameter. Writers use it instead of
    /// [`Rice`](Self::Rice) for many positions.
    RiceParts = 3,
}

impl PositionCode {
    /// The shortest code for these positions.
    pub(crate) fn shortest(positions: &[u32], elements: usize) -> Self {
        Self::shortest_with_len(positions, elements).0
    }

    /// The shortest code for these positions, and their length in it, in bytes.
    pub(crate) fn shortest_with_len(positions: &[u32], elements: usize) -> (Self, u64) {
        let rice_code = PositionCode::Rice.for_count(positions.len());
        let rice = rice_code.rice_len(positions, elements);
        let (bitmap, raw) = (bitmap::len(elements) as u64, 4 * positions.len() as u64);
        match bitmap.min(rice).min(raw) {
            least if least == bitmap => (PositionCode::Bitmap, least),
            least if least == rice => (rice_code, least),
            least => (PositionCode::Raw, least),
        }
    }

    /// The form of this code for this number of positions.
    pub(crate) fn for_count(self, count: usize) -> Self {
        if self == PositionCode::Rice && count > parts::PART {
            PositionCode::RiceParts
        } else {
            self
        }
    }

    /// The name of this code in configurations: Rice in parts is Rice.
    pub(crate) fn whole(self) -> Self {
        if self == PositionCode::RiceParts { PositionCode::Rice } else { self }
    }

    /// The bytes that positions take in either form of Rice code.
    fn rice_len(self, positions: &[u32], elements: usize) -> u64 {
        let b = rice::optimal_parameter(positions.len(), elements);
        1 + match self {
            PositionCode::RiceParts => parts::len(positions, b),
            _ => rice::len_bits(positions, b).div_ceil(8),
        }
    }

    /// The most bytes that up to `count` positions take.
    pub(crate) fn max_len(self, count: usize, elements: usize) -> usize {
        match self {
            PositionCode::Bitmap => bitmap::len(elements),
            PositionCode::Raw => count.saturating_mul(4),
            PositionCode::Rice | PositionCode::RiceParts => {
                1 + rice_bound(count, elements).div_ceil(8) + parts::max_extra(count)
            }
        }
    }

    /// Appends the positions. The helpers share the work on a bitmap or on parts.
    pub(crate) fn encode(
        self,
        positions: &[u32],
        elements: usize,
        helpers: &mut Helpers,
        message: &mut Vec<u8>,
    ) {
        match self {
            PositionCode::Bitmap => put_bitmap(positions, elements, helpers, message),
            PositionCode::Rice | PositionCode::RiceParts => {
                let b = rice::optimal_parameter(positions.len(), elements);
                self.encode_rice(positions, b, helpers, message);
            }
            PositionCode::Raw => {
                message.extend(positions.iter().flat_map(|position| position.to_le_bytes()));
            }
        }
    }

    /// Appends the positions in either form of Rice code with this parameter.
    pub(crate) fn encode_rice(
        self,
        positions: &[u32],
        parameter: u32,
        helpers: &mut Helpers,
        message: &mut Vec<u8>,
    ) {
        message.push(parameter as u8);
        match self {
            PositionCode::RiceParts => parts::put(positions, parameter, helpers, message),
            _ => rice::encode(positions, parameter, message),
        }
    }

    /// Reads exactly `count` increasing positions below `elements` from exactly these bytes. The
    /// helpers share parts.
    pub(crate) fn decode(
        self,
        mut bytes: &[u8],
        count: usize,
        elements: usize,
        positions: &mut Vec<u32>,
        helpers: &mut Helpers,
    ) -> Result<(), DecodeError> {
        self.take(&mut bytes, count, elements, positions, helpers)?;
        fields::expect_len(bytes, 0)
    }

    /// Reads exactly `count` increasing positions below `elements` off the front. The helpers share
    /// parts.
    pub(crate) fn take(
        self,
        bytes: &mut &[u8],
        count: usize,
        elements: usize,
        positions: &mut Vec<u32>,
        helpers: &mut Helpers,
    ) -> Result<(), DecodeError> {
        make_room(count, elements, positions)?;
        match self {
            PositionCode::Bitmap => {
                let bits = fields::take(bytes, bitmap::len(elements))?;
                if bitmap::count(bits, elements)? != count {
                    return Err(DecodeError::Corrupt("the bitmap has a wrong number of ones"));
                }
                bitmap::decode(bits, elements, positions)
            }
            PositionCode::Rice => {
                let parameter = take_parameter(bytes)?;
                let used = rice::decode(bytes, count, elements, parameter, positions)?;
                fields::take(bytes, used).map(drop)
            }
            PositionCode::RiceParts => {
                let parameter = take_parameter(bytes)?;
                // Each position takes at least a bit, so a message claims no more memory than its
                // length warrants.
                if count / 8 > bytes.len() {
                    return Err(DecodeError::Truncated);
                }
                positions.resize(count, 0);
                parts::take(bytes, parameter, elements, positions, helpers)
            }
            PositionCode::Raw => {
                let raw = fields::take(bytes, count.saturating_mul(4))?;
                let all = raw.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
                positions.extend(all);
                let increasing = positions.is_sorted_by(|a, b| a < b);
                if increasing && positions.last().is_none_or(|&last| (last as usize) < elements) {
                    Ok(())
                } else {
                    Err(DecodeError::Corrupt("positions are not increasing and within the tensor"))
                }
            }
        }
    }

    /// The most bytes that up to `count` positions take in their [shortest](Self::shortest) code.
    pub(crate) fn shortest_max_len(count: usize, elements: usize) -> usize {
        [PositionCode::Bitmap, PositionCode::Rice, PositionCode::Raw]
            .map(|code| code.max_len(count, elements))
            .into_iter()
            .fold(usize::MAX, usize::min)
    }

    /// The code that a byte names.
    pub(crate) fn from_tag(tag: u8) -> Result<Self, DecodeError> {
        use PositionCode::{Bitmap, Raw, Rice, RiceParts};

        [Bitmap, Rice, Raw, RiceParts]
            .into_iter()
            .find(|&code| code as u8 == tag)
            .ok_or(DecodeError::Corrupt("unknown position code"))
    }
}

/// Elements of a part of a bitmap. One thread sets the bits of a part.
const BITMAP_PART: usize = least(1 << 18, 1 << 10);

/// Reads the parameter of a Rice code.
fn take_parameter(bytes: &mut &[u8]) -> Result<u32, DecodeError> {
    match u32::from(fields::take(bytes, 1)?[0]) {
        parameter @ ..=rice::MAX_PARAMETER => Ok(parameter),
        _ => Err(DecodeError::Corrupt("the Rice parameter is above 30")),
    }
}

/// Appends the bitmap of increasing positions. The helpers share its parts.
fn put_bitmap(positions: &[u32], elements: usize, helpers: &mut Helpers, message: &mut Vec<u8>) {
    let (start, mut rest) = (message.len(), positions);
    message.resize(start + bitmap::len(elements), 0);
    let parts = message[start..].chunks_mut(BITMAP_PART / 8).enumerate().map(|(at, bits)| {
        let range = at * BITMAP_PART..elements.min((at + 1) * BITMAP_PART);
        let positions;
        (positions, rest) = rest.split_at(rest.partition_point(|&at| (at as usize) < range.end));
        (positions, range, bits)
    });
    helpers.share(parts, |(positions, range, bits)| bitmap::set(positions, range, bits));
    assert!(rest.is_empty(), "positions are below {elements}");
}

/// The most bits of up to `count` Rice-coded positions with their optimal parameter. With parameter
/// b each position takes b low bits and a terminating bit. The quotients add up to at most d / 2^b,
/// and b is optimal only for up to d / 2^b positions.
fn rice_bound(count: usize, elements: usize) -> usize {
    (rice::optimal_parameter(count, elements)..=rice::MAX_PARAMETER)
        .map(|b| {
            let quotients = elements >> b;
            let symbols = count.min(quotients + 1);
            symbols.saturating_mul(b as usize + 1).saturating_add(quotients)
        })
        .max()
        .unwrap_or(0)
}

/// Clears a list of up to `count` of `elements` positions, or of their values, and reserves memory
/// for twice `count`: counts vary from step to step, and counts up to that number then allocate
/// nothing.
pub(crate) fn make_room<T>(
    count: usize,
    elements: usize,
    list: &mut Vec<T>,
) -> Result<(), DecodeError> {
    list.clear();
    if list.capacity() < count {
        let ample = count.saturating_mul(2).saturating_add(64);
        list.try_reserve(ample.min(elements.max(count)))?;
    }
    Ok(())
}

/// Appends the header of values and positions: the code's tag and their number.
pub(crate) fn put_header(code: PositionCode, count: usize, message: &mut Vec<u8>) {
    message.push(code as u8);
    varint::write(count as u64, message);
}

/// The bytes of the header of `count` positions.
pub(crate) fn header_len(count: usize) -> usize {
    1 + varint::len(count as u64)
}

/// Splits the header of at most `most` positions off the front.
pub(crate) fn take_header(
    message: &mut &[u8],
    most: usize,
) -> Result<(PositionCode, usize), DecodeError> {
    let code = PositionCode::from_tag(fields::take(message, 1)?[0])?;
    Ok((code, take_count(message, most)?))
}

/// Splits a number of at most `most` positions off the front.
pub(crate) fn take_count(message: &mut &[u8], most: usize) -> Result<usize, DecodeError> {
    match varint::read(message)? {
        count if count <= most as u64 => Ok(count as usize),
        _ => Err(DecodeError::Corrupt("there are more positions than the configuration allows")),
    }
}

/// Appends the header, values as f32 and their positions.
pub(crate) fn put_with_values(
    code: PositionCode,
    positions: &[u32],
    values: &[f32],
    elements: usize,
    helpers: &mut Helpers,
    message: &mut Vec<u8>,
) {
    put_header(code, positions.len(), message);
    fields::put_f32s(values, message);
    code.encode(positions, elements, helpers, message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_code_is_the_densitys() {
        let every = |step: usize| (0..100_000).step_by(step).map(|x| x as u32).collect::<Vec<_>>();
        assert_eq!(PositionCode::shortest(&every(2), 100_000), PositionCode::Bitmap);
        assert_eq!(PositionCode::shortest(&every(100), 100_000), PositionCode::Rice);
        // A bitmap of one byte beats a Rice code of two.
        assert_eq!(PositionCode::shortest(&[3], 8), PositionCode::Bitmap);
    }

    #[test]
    fn bytes_worked_by_hand() {
        let bytes = |code: PositionCode, positions: &[u32], elements| {
            let mut bytes = Vec::new();
            code.encode(positions, elements, &mut Helpers::default(), &mut bytes);
            bytes
        };
        assert_eq!(bytes(PositionCode::Bitmap, &[0, 9], 10), [1, 2]);
        assert_eq!(bytes(PositionCode::Raw, &[0, 258], 300), [0, 0, 0, 0, 2, 1, 0, 0]);
        // One of ten: b = 3. Gap 9 - 0 = 9 = 1·8 + 1: bits 1 0 then 1 0 0, from the lowest.
        assert_eq!(bytes(PositionCode::Rice, &[9], 10), [3, 0b00101]);
    }

    #[test]
    fn many_positions_are_in_parts() {
        // 2^13 and two more: 0, 9, 18, …; b = 3.
        let positions: Vec<u32> = (0..8194).map(|at| 9 * at).collect();
        let elements = 9 * 8194;
        assert_eq!(PositionCode::shortest(&positions[1..8193], elements), PositionCode::Rice);
        let (code, len) = PositionCode::shortest_with_len(&positions, elements);
        assert_eq!(code, PositionCode::RiceParts);
        let mut bytes = Vec::new();
        code.encode(&positions, elements, &mut Helpers::default(), &mut bytes);
        // A gap of 0, then gaps of 8: 0 or 1 0, and three zeros. 4 + 8191·5 bits are 5120 bytes
        // less 1 bit.
        let end = (9 * 8191 + 1u32).to_le_bytes();
        assert_eq!(bytes[..9], [&[3, 0x00, 0x14, 0, 0], &end[..]].concat());
        assert_eq!(bytes[9..11], [0b0001_0000, 0b0100_0010]);
        // Two gaps of 8: 1 0 000, 1 0 000.
        let end = (9 * 8193 + 1u32).to_le_bytes();
        assert_eq!(bytes[9 + 5120..], [&[2, 0, 0, 0], &end[..], &[0b0010_0001, 0]].concat());
        assert_eq!(bytes.len() as u64, len);
        for threads in [1, 2, 3] {
            let (mut helpers, mut same, mut back) = (Helpers::new(threads - 1), vec![], vec![9]);
            code.encode(&positions, elements, &mut helpers, &mut same);
            assert!(same == bytes, "{threads} threads");
            code.decode(&bytes, positions.len(), elements, &mut back, &mut helpers).unwrap();
            assert!(back == positions, "{threads} threads");
        }
    }

    #[test]
    fn malformed_parts_are_refused() {
        let positions: Vec<u32> = (0..20_000).map(|at| 9 * at + at % 7).collect();
        let elements = 9 * 20_000 + 7;
        let mut bytes = Vec::new();
        PositionCode::RiceParts.encode(&positions, elements, &mut Helpers::default(), &mut bytes);
        let decode = |bytes: &[u8], count| {
            let (mut back, mut helpers) = (Vec::new(), Helpers::new(1));
            PositionCode::RiceParts.decode(bytes, count, elements, &mut back, &mut helpers)
        };
        assert_eq!(decode(&bytes, 20_000), Ok(()));
        let mut longer = bytes.clone();
        longer.push(0);
        for bad in [&longer[..], &bytes[..bytes.len() - 1], &bytes[..9], &bytes[..3], &[3], &[]] {
            assert!(decode(bad, 20_000).is_err(), "{} bytes", bad.len());
        }
        assert!(decode(&bytes, 19_999).is_err() && decode(&bytes, 20_001).is_err());
        assert_eq!(decode(&[3; 100], 900), Err(DecodeError::Truncated));
        // The parameter, and the lengths and ends of the first two parts.
        let second = 1 + 8 + u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
        for (at, change) in
            [(0, 31), (1, 1), (3, 0x40), (5, 1), (8, 0xff), (second, 1), (second + 4, 1)]
        {
            let mut bad = bytes.clone();
            bad[at] ^= change;
            assert!(decode(&bad, 20_000).is_err(), "byte {at}");
        }
    }

    #[test]
    fn no_code_exceeds_its_bound() {
        for code in
            [PositionCode::Bitmap, PositionCode::Rice, PositionCode::RiceParts, PositionCode::Raw]
        {
            for count in [0, 1, 2, 10, 1_000, 4_000, 6_500, 9_999] {
                // The last gap is as long as it can be.
                let mut positions: Vec<u32> = (0..count).collect();
                positions.iter_mut().last().into_iter().for_each(|last| *last = 9_999);
                let mut bytes = Vec::new();
                code.encode(&positions, 10_000, &mut Helpers::default(), &mut bytes);
                for most in [count as usize, 2 * count as usize, 10_000] {
                    assert!(bytes.len() <= code.max_len(most, 10_000), "{code:?} {count} {most}");
                }
            }
        }
    }
}
