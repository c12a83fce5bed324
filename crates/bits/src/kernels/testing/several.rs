//! Inputs and calls that several kernels share, and longer cases.

use alloc::vec::Vec;
use core::array;

use super::{Input, Output, Shifted};
use crate::kernels::{Bins, Entry, LookUp, RUN, Room, ShortCodes, Transition};
use crate::kernels::{decode_states, encode_states};
use crate::quarters::quarters_mut;
pub(in crate::kernels) use crate::zero_run::decoded_len;
use crate::zero_run::{Encoder, ZEROS};

pub(in crate::kernels) fn bins(input: &Input) -> Bins {
    Bins { least: f64::from(input.x), width: f64::from(input.y), top: 63 }
}

/// A kernel that adds the numbers of little-endian bytes.
pub(in crate::kernels) fn adds(
    add: fn(&[u8], f32, &mut [f32]),
    input: &Input,
    output: &mut Output,
) {
    let bytes = input.elements(4 * input.len, |at| (input.word(at / 4) >> (at % 4 * 8)) as u8);
    let mut out = input.more();
    add(&bytes, input.x, &mut out);
    output.computed(&out);
}

/// Splits elements of `WIDTH` bytes, rotated by a number of bits, into a plane for each byte.
type Split<const WIDTH: usize> = fn(&[[u8; WIDTH]], u32, [&mut [u8]; WIDTH]);

/// Joins planes to elements, and rotates them back.
type Join<const WIDTH: usize> = fn([&[u8]; WIDTH], u32, &mut [[u8; WIDTH]]);

/// A kernel that splits elements into planes.
pub(in crate::kernels) fn splits<const WIDTH: usize>(
    split: Split<WIDTH>,
    input: &Input,
    output: &mut Output,
) {
    for rotation in [0, 1] {
        let byte = |at| input.word(at) as u8;
        let elements = input.elements(input.len, |at| array::from_fn(|i| byte(WIDTH * at + i)));
        let mut planes: [_; WIDTH] = array::from_fn(|_| input.zeros());
        split(&elements, rotation, planes.each_mut().map(|plane| &mut plane[..]));
        planes.iter().for_each(|plane| output.bits(plane.iter().copied()));
    }
}

/// A kernel that joins planes.
pub(in crate::kernels) fn joins<const WIDTH: usize>(
    join: Join<WIDTH>,
    input: &Input,
    output: &mut Output,
) {
    for rotation in [0, 1] {
        let byte = |at| input.word(at) as u8;
        let planes: [_; WIDTH] =
            array::from_fn(|i| input.elements(input.len, |at| byte(WIDTH * at + i)));
        let mut elements = input.elements(input.len, |_| [0; WIDTH]);
        join(planes.each_ref().map(|plane| &plane[..]), rotation, &mut elements);
        output.bits(elements.as_flattened().iter().copied());
    }
}

/// A kernel that fills room with numbers of `size` bytes and returns the largest.
pub(in crate::kernels) fn fills(
    fill: fn(&[f32], Room<'_>, bool) -> u32,
    size: usize,
    input: &Input,
    output: &mut Output,
) {
    let any = input.floats();
    // Without numbers too large for binary16, which are written in another way.
    let mut small = input.floats();
    small.iter_mut().filter(|x| x.is_nan() || x.abs() > 65_504.0).for_each(|x| *x = 1.5);
    for values in [any, small] {
        // Behind a header that leaves the memory aligned, or not.
        for (start, streamed) in [(1, false), (1, true), (16, true)] {
            let mut message = Vec::with_capacity(start + 4 * input.len);
            message.resize(start, 9);
            let len = size * input.len;
            output.bits([Room::at_end(&mut message, len, |room| fill(&values, room, streamed))]);
            output.bits(message);
        }
    }
}

/// Columns of runs in a row with sixteen more elements than the input, and their signs.
pub(in crate::kernels) fn run_places(input: &Input) -> (Shifted<u32>, Shifted<u32>) {
    let row = (input.len + RUN) as u32;
    let columns = input.elements(input.len, |at| input.word(at) % row);
    (columns, input.elements(input.len, |at| input.word(at) << 31))
}

/// A matrix of rows as long as the input, the numbers of its rows and columns and of a thin
/// matrix's columns, and elements of the thin matrix.
pub(in crate::kernels) fn thin(input: &Input) -> ([usize; 3], [Shifted<f32>; 2]) {
    let [rows, columns, rank] = [input.len % 10, input.len, input.len % 6];
    let float = |at| f32::from_bits(input.word(at));
    let c = input.elements(rows * columns, float);
    let factor = input.elements(rows.max(columns) * rank, |at| float(at + 7));
    ([rows, columns, rank], [c, factor])
}

/// Codes of up to 12 bits for the symbols of an alphabet, which begins with 100: within 64 symbols,
/// or not. Symbols from 256 on have none.
pub(in crate::kernels) fn short_codes(input: &Input, alphabet: u16) -> ShortCodes {
    let mut codes = ShortCodes::default();
    codes.set(&array::from_fn::<_, 256, _>(|symbol| {
        let length = 1 + u64::from(input.word(symbol)) % 12;
        let code = u64::from(input.word(symbol + 1)) << (64 - length) | length;
        if (100..100 + usize::from(alphabet)).contains(&symbol) { code } else { 0 }
    }));
    codes
}

/// Encodes four tANS streams, the last one the shortest, with any table.
pub(in crate::kernels) fn states(input: &Input, output: &mut Output) {
    let transitions: Vec<Transition> = (0..64)
        .map(|at| Transition { add: input.word(at) % (12 << 16), find: input.word(at + 64) })
        .collect();
    let next = array::from_fn(|at| input.word(at) as u16 % (1 << 13));
    let mut states = array::from_fn(|i| (input.word(i) & 0xfff) + 0x1000);
    let mut symbols = input.elements(input.len, |at| input.word(at) as u16 % 64);
    encode_states(&transitions, &next, &mut states, &mut quarters_mut(&mut symbols));
    output.bits(states);
    output.bits(symbols.iter().map(|&symbol| u32::from(symbol)));
}

/// Decodes four tANS streams with any table.
pub(in crate::kernels) fn streams(input: &Input, output: &mut Output) {
    let entry =
        |at| Entry::new(input.word(at) >> 22, input.word(at) >> 5 & 0xfff, input.word(at) % 13);
    let entries = array::from_fn(entry);
    let mut states = array::from_fn(|i| input.word(i) & 0xfff);
    let mut positions = array::from_fn(|i| 13 * i as u64);
    let mut symbols: Shifted<u16> = input.zeros();
    let parts = &mut quarters_mut(&mut symbols);
    let done = decode_states(&entries, &input.bytes(), &mut states, &mut positions, parts);
    output.bits(states.into_iter().chain(positions.map(|position| position as u32)));
    output.bits(symbols.iter().map(|&symbol| u32::from(symbol)).chain([done as u32]));
}

/// Decodes four Huffman streams with any table. `words` writes an entry of the number of symbols
/// and the length of their codes, with symbols from bit 16 or 32 up.
pub(in crate::kernels) fn lookups<T, S: Copy + Default + Into<u32>>(
    input: &Input,
    output: &mut Output,
    entry: impl Fn(u64, u64) -> T,
    look_up: LookUp<[T; 4096], S>,
) {
    let table =
        array::from_fn(|at| entry(input.word(at).into(), u64::from(input.word(at + 1)) % 12 + 1));
    let mut positions = array::from_fn(|i| 13 * i as u64);
    let mut symbols: Shifted<S> = input.elements(3 * input.len, |_| S::default());
    let parts = &mut quarters_mut(&mut symbols);
    let done = look_up(&table, &input.bytes(), &mut positions, parts);
    // Bytes behind those that were decoded are unspecified.
    for (part, done) in parts.iter().zip(done) {
        output.bits(part[..done].iter().copied());
    }
    output.bits(positions.map(|position| position as u32));
    output.bits(done.map(|done| done as u32));
}

/// Any tags of two bits for the elements, four to a byte.
pub(in crate::kernels) fn tags(input: &Input) -> Shifted<u8> {
    input.elements(input.len.div_ceil(4), |at| (input.word(at) ^ input.word(at) >> 13) as u8)
}

/// Encodes runs of zeros that cross words, among other bytes.
pub(in crate::kernels) fn coded_runs(input: &Input, output: &mut Output) {
    let digit = |at: usize| match input.word(at / 9 % (1 + at % 40)) % 3 {
        0 => (input.word(at) % 243) as u8,
        _ => ZEROS,
    };
    let (mut encoder, mut coded) = (Encoder::default(), Vec::new());
    for part in input.elements(2 * input.len, digit).chunks(input.len.max(1)) {
        encoder.push(part, &mut coded);
    }
    encoder.finish(&mut coded);
    output.bits(coded);
}
