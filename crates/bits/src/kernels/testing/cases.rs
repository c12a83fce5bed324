//! Each kernel, run on an input.

use alloc::vec;
use alloc::vec::Vec;

use super::several::{adds, bins, fills, lookups, run_places, states, streams, tags, thin};
use super::versions::{Changes, changes, octaves, versions};
use super::{Input, Output};
use crate::group_writer::{GROUP_BITS, GroupWriter, ROOM};
use crate::kernels::*;
use crate::zero_run;

/// A kernel, run on slices of the input; it appends all its results to the output.
type Case = fn(&Input, &mut Output);

/// The block-scaled formats.
fn block_scaled(input: &Input) -> [BlockScaled; 4] {
    let scale = if input.x.is_finite() { input.x.abs() } else { 1.0 };
    let nv = BlockScaled::Nvfp4 { scale };
    [BlockScaled::Mxfp8E4m3, BlockScaled::Mxfp8E5m2, BlockScaled::Mxfp4, nv]
}

/// All kernels, by name.
pub const KERNELS: &[(&str, Case)] = &[
    ("accumulate", |input, output| {
        for (beta, gamma) in [(input.x, input.y), (1.0, 1.0)] {
            let mut memory = input.floats();
            accumulate(&mut memory, &input.more(), beta, gamma);
            output.computed(&memory);
        }
    }),
    ("accumulate_to", |input, output| {
        for (beta, gamma) in [(input.x, input.y), (1.0, 1.0)] {
            let mut out = input.zeros();
            accumulate_to(&mut out, &input.floats(), &input.more(), beta, gamma);
            output.computed(&out);
        }
    }),
    ("copy", |input, output| {
        let mut out = input.zeros();
        copy(&input.floats(), &mut out);
        output.moved(&out);
    }),
    ("add_limited", |input, output| {
        let mut out = input.floats();
        add_limited(&mut out, &input.more(), input.x, input.y);
        output.computed(&out);
    }),
    ("scale", |input, output| {
        let mut values = input.floats();
        scale(&mut values, input.x);
        output.computed(&values);
    }),
    ("add_scaled", |input, output| {
        let mut out = input.floats();
        add_scaled(&mut out, &input.more(), input.x);
        output.computed(&out);
    }),
    ("bin_maxima", |input, output| {
        for bin in [1, 7, 16, 50] {
            let mut maxima = Vec::new();
            bin_maxima(&input.floats(), bin, &mut maxima);
            output.moved(&maxima);
        }
    }),
    ("reaching", |input, output| {
        for bin in [1, 7, 16, 50] {
            let (values, gradient, mut positions) = (input.floats(), input.more(), Vec::new());
            let mut limits = Vec::new();
            bin_maxima(&values, bin, &mut limits);
            let near = Near { bin, limits: &limits, weight: input.x };
            reaching(&values, &gradient, near, u32::MAX - 9, &mut positions);
            output.bits(positions);
        }
    }),
    ("nearest_residual", |input, output| {
        let mut next = 1e-6;
        let limits = core::array::from_fn(|_| {
            next *= 1.1;
            next
        });
        let numbers = core::array::from_fn(|byte| input.y * byte as f32);
        let (mut values, mut bytes) = (input.floats(), input.zeros());
        nearest_residual(&mut values, input.x, &Codebook::new(&limits), &numbers, &mut bytes);
        output.symbols((&input.floats(), input.x), &values, &bytes);
    }),
    ("numbers_add", |input, output| {
        let numbers = core::array::from_fn(|byte| input.y * byte as f32);
        let mut out = input.more();
        numbers_add(&input.symbols(), &numbers, &mut out);
        output.computed(&out);
    }),
    ("few_numbers_add", |input, output| {
        let numbers = core::array::from_fn(|at| input.y * at as f32);
        let mut out = input.more();
        few_numbers_add(&input.symbols(), &numbers, &mut out);
        output.computed(&out);
    }),
    ("pack_bits", |input, output| {
        let symbols = input.elements(input.len, |at| (input.word(at) & 1) as u16);
        let mut bits = input.elements(input.len.div_ceil(8), |_| 0);
        pack_bits(&symbols, &mut bits);
        output.bits(bits.iter().copied());
    }),
    ("unpack_bits", |input, output| {
        let bits = input.elements(input.len.div_ceil(8), |at| input.word(at) as u8);
        let mut symbols = input.zeros();
        unpack_bits(&bits, &mut symbols);
        output.bits(symbols.iter().copied());
    }),
    ("moments", |input, output| moments(&input.floats()).into_iter().for_each(|x| output.wide(x))),
    ("negative_zeros", |input, output| {
        let exponents = input.elements(input.len, |at| (input.word(at) % 7) as u16);
        let bytes = input.len.div_ceil(8);
        // Zeros are positive, except that one byte is any.
        for any in [usize::MAX, 0, bytes / 2] {
            let signs = input.elements(bytes, |byte| {
                (0..8).fold(0, |bits, bit| {
                    let at = 8 * byte + bit;
                    bits | u8::from(byte == any || input.word(at) % 7 == 0) << bit
                }) & if byte == any { input.word(byte) as u8 } else { 0xff }
            });
            output.bits([u32::from(negative_zeros(&exponents, &signs))]);
        }
    }),
    ("sign_bits", |input, output| {
        let mut bits = input.elements(input.len.div_ceil(8), |_| 9);
        sign_bits(&input.floats(), &mut bits);
        output.bits(bits.iter().copied());
    }),
    ("ones", |input, output| {
        let mut positions = Vec::new();
        for dense in [0, !0] {
            let bits =
                input.elements(input.len, |at| (input.word(at) & input.word(3 * at) ^ dense) as u8);
            ones(&bits, u32::MAX - 99, &mut positions);
        }
        let few = |word: u32| match word % 400 {
            0 => 0xff,
            1..8 => 1 << (word >> 29),
            _ => 0,
        };
        let bits = input.elements(input.len, |at| few(input.word(at)));
        ones(&bits, u32::MAX - 99, &mut positions);
        output.bits(positions);
    }),
    ("compact_beyond", |input, output| {
        for side in [Side::Both, Side::Above, Side::Below] {
            let (mut values, mut positions, mut taken) = (input.floats(), Vec::new(), Vec::new());
            compact_beyond(&mut values, side, input.x, u32::MAX - 9, &mut positions, &mut taken);
            output.moved(&values);
            output.moved(&taken);
            output.bits(positions);
        }
    }),
    ("values_between", |input, output| {
        for side in [Side::Both, Side::Above, Side::Below] {
            let mut taken = Vec::new();
            let above = values_between(&input.floats(), side, [input.x, input.y], &mut taken);
            output.moved(&taken);
            output.wide(above as f64);
        }
    }),
    ("count_above", |input, output| output.wide(count_above(&input.floats(), input.x) as f64)),
    ("bf16_to_f32", |input, output| {
        let mut out = input.zeros();
        bf16_to_f32(&input.symbols(), &mut out);
        output.moved(&out);
    }),
    ("f16_to_f32", |input, output| {
        let mut out = input.zeros();
        f16_to_f32(&input.symbols(), &mut out);
        output.moved(&out);
    }),
    ("bf16_add", |input, output| adds(bf16_add, input, output)),
    ("f16_add", |input, output| adds(f16_add, input, output)),
    ("f32_add", |input, output| adds(f32_add, input, output)),
    ("f32_to_bf16", |input, output| {
        let mut out = input.zeros();
        f32_to_bf16(&input.floats(), &mut out);
        output.bits(out.iter().copied());
    }),
    ("f32_to_f16", |input, output| {
        let mut out = input.zeros();
        f32_to_f16(&input.floats(), &mut out);
        output.bits(out.iter().copied());
    }),
    ("f32_fill", |input, output| fills(f32_fill, 4, input, output)),
    ("f16_fill", |input, output| fills(f16_fill, 2, input, output)),
    ("bf16_fill", |input, output| fills(bf16_fill, 2, input, output)),
    ("drawn", |input, output| {
        let mut out = input.zeros();
        drawn(&input.floats(), input.x, &input.draws(), &mut out);
        output.moved(&out);
    }),
    ("sum_up_to", |input, output| {
        let (sum, above) = sum_up_to(&input.floats(), input.x);
        output.wide(sum);
        output.wide(above as f64);
    }),
    ("hashed", |input, output| {
        let mut out = input.zeros();
        hashed(&input.draws(), input.x.to_bits(), (input.y.to_bits() as u16).max(1), &mut out);
        output.bits(out.iter().copied());
    }),
    ("columns_and_signs", |input, output| {
        let wide = |at| u64::from(input.word(at)) << 32 | u64::from(input.word(at + 1));
        let columns = input.word(4).max(1);
        let (mut places, mut signs) = (input.zeros(), input.zeros());
        columns_and_signs(wide(0), wide(2), columns, &mut places, &mut signs);
        output.bits(places.iter().copied());
        output.bits(signs.iter().copied());
    }),
    ("add_runs", |input, output| {
        let (columns, signs) = run_places(input);
        for len in [RUN, 1 + input.word(0) as usize % RUN] {
            let mut row = input.elements(input.len + RUN, |at| f32::from_bits(input.word(3 * at)));
            let runs = Runs { len, columns: &columns, signs: &signs };
            add_runs(&input.floats(), runs, &mut row);
            output.computed(&row);
        }
    }),
    ("read_runs", |input, output| {
        let (columns, signs) = run_places(input);
        let row = input.elements(input.len + RUN, |at| f32::from_bits(input.word(3 * at)));
        for len in [RUN, 1 + input.word(0) as usize % RUN] {
            let mut values = input.zeros();
            read_runs(&row, Runs { len, columns: &columns, signs: &signs }, &mut values);
            output.moved(&values);
        }
    }),
    ("smaller_first", |input, output| {
        let (mut a, mut b) = (input.floats(), input.more());
        smaller_first(&mut a, &mut b);
        output.moved(&a);
        output.moved(&b);
    }),
    ("median_of_five", |input, output| {
        let of = |factor| input.elements(input.len, |at| f32::from_bits(input.word(factor * at)));
        let mut median = of(1);
        median_of_five(&of(3), &of(5), &mut median, &of(7), &of(9));
        output.computed(&median);
    }),
    ("middle", |input, output| {
        let mut b = input.more();
        middle(&input.floats(), &mut b);
        output.computed(&b);
    }),
    ("blocks_residual", |input, output| {
        for format in block_scaled(input) {
            let mut values = input.floats();
            let mut scales = input.elements(input.len.div_ceil(format.block()), |_| 9);
            let mut codes = input.elements((input.len * format.bits()).div_ceil(8), |_| 9);
            blocks_residual(&mut values, format, &mut scales, &mut codes);
            output.computed(&values);
            output.bits(scales.iter().chain(&*codes).copied());
        }
    }),
    ("blocks_add", |input, output| {
        for format in block_scaled(input) {
            let scales =
                input.elements(input.len.div_ceil(format.block()), |at| input.word(at) as u8);
            let codes = (input.len * format.bits()).div_ceil(8);
            let codes = input.elements(codes, |at| (input.word(at) >> 16) as u8);
            let mut out = input.more();
            blocks_add(&scales, &codes, format, input.y, &mut out);
            output.computed(&out);
        }
    }),
    ("max_without_sign", |input, output| {
        output.bits(input.bytes().windows(5).map(max_without_sign));
    }),
    ("int8_add", |input, output| {
        let quantized = input.elements(input.len, |at| input.word(at) as i8);
        let mut out = input.more();
        int8_add(&quantized, input.x, &mut out);
        output.computed(&out);
    }),
    ("int8_residual", |input, output| {
        let (mut values, mut out) = (input.floats(), input.zeros());
        int8_residual(&mut values, input.x, input.y, &mut out);
        let out: Vec<u8> = out.iter().map(|q: &i8| *q as u8).collect();
        output.symbols((&input.floats(), input.x), &values, &out);
    }),
    ("int8_levels", |input, output| {
        let (values, mut out) = (input.floats(), input.zeros());
        int8_levels(&values, input.x, &mut out);
        let out: Vec<u8> = out.iter().map(|q: &i8| *q as u8).collect();
        output.symbols((&values, input.x), &values, &out);
    }),
    ("pack_nibbles", |input, output| {
        let numbers = input.elements(input.len, |at| input.word(at) as i8);
        let mut bytes = alloc::vec![0; input.len.div_ceil(2)];
        pack_nibbles(&numbers, &mut bytes);
        output.bits(bytes.iter().map(|&byte| u32::from(byte)));
    }),
    ("unpack_nibbles", |input, output| {
        let bytes = input.elements(input.len, |at| input.word(at) as u8);
        for len in [2 * input.len, (2 * input.len).saturating_sub(1)] {
            let mut numbers = alloc::vec![0; len];
            unpack_nibbles(&bytes, &mut numbers);
            output.bits(numbers.iter().map(|&number: &i8| number as u32));
        }
    }),
    ("has_empty_nibble", |input, output| {
        let bytes = input.elements(input.len, |at| input.word(at) as u8);
        output.bits(bytes.windows(5).map(|five| u32::from(has_empty_nibble(five))));
    }),
    ("levels_add", |input, output| {
        let mut out = input.more();
        levels_add(&input.symbols(), -100.0, input.x, &mut out);
        output.computed(&out);
    }),
    ("spread", |input, output| {
        let (own, shared) = (input.bytes(), input.symbols());
        let mut out = input.draws();
        spread(&own, &shared, &mut out);
        output.bits(out.iter().copied());
    }),
    ("levels_off", |input, output| {
        let levels = Levels { least: -100.0, most: 99.0, inverse: input.x, step: input.y };
        let mut values = input.floats();
        levels_off(&mut values, &input.symbols(), levels);
        output.computed(&values);
    }),
    ("stochastic_levels", |input, output| {
        for (least, most) in [(-100.0, 99.0), (-1000.0, 999.0)] {
            let levels = Levels { least, most, inverse: input.x, step: input.y };
            let (mut values, mut symbols) = (input.floats(), input.zeros());
            stochastic_levels(&values, levels, &input.draws(), &mut symbols);
            levels_off(&mut values, &symbols, levels);
            output.symbols((&input.floats(), input.x), &values, &symbols);
        }
    }),
    ("stochastic_entries", |input, output| {
        let (table, mut indices) = (Table::new(&[0, 1, 5, 9, 30]), input.zeros());
        stochastic_entries(&input.floats(), input.x, 15.0, &table, &input.draws(), &mut indices);
        output.bits(indices.iter().copied());
    }),
    ("occurrences", |input, output| {
        let symbols = input.elements(input.len, |at| (input.word(at) % 3) as u16);
        output
            .bits([occurrences(&symbols, 0), occurrences(&input.symbols(), symbols.len() as u16)]);
    }),
    ("join_codes", |input, output| {
        let mut codes = ShortCodes::default();
        codes.set(&core::array::from_fn::<_, 256, _>(|symbol| {
            let length = 1 + u64::from(input.word(symbol)) % 12;
            u64::from(input.word(symbol + 1)) << (64 - length) | length
        }));
        let symbols = input.symbols();
        let mut words = input.elements(input.len / 4, |_| 0u64);
        join_codes(symbols.as_chunks().0, &codes, &mut words);
        words.iter().for_each(|&word| output.bits([word as u32, (word >> 32) as u32]));
    }),
    ("join_byte_codes", |input, output| {
        // Within 64 symbols, or not.
        for alphabet in [1, 40, 64, 256] {
            let mut codes = ShortCodes::default();
            codes.set(&core::array::from_fn::<_, 256, _>(|symbol| {
                let length = 1 + u64::from(input.word(symbol)) % 12;
                let code = u64::from(input.word(symbol + 1)) << (64 - length) | length;
                if (100..100 + alphabet).contains(&symbol) { code } else { 0 }
            }));
            let symbols =
                input.elements(input.len, |at| (100 + input.word(at) as usize % alphabet) as u8);
            let mut words = input.elements(input.len / 4, |_| 0u64);
            join_byte_codes(symbols.as_chunks().0, &codes, &mut words);
            words.iter().for_each(|&word| output.bits([word as u32, (word >> 32) as u32]));
        }
    }),
    ("join_words", |input, output| {
        let words = input.elements(input.len, |at| {
            let width = u64::from(input.word(at)) % 29;
            u64::from(input.word(at + 1)).checked_shl(64 - width as u32).unwrap_or(0) | width
        });
        let mut joined = input.elements(input.len / 2, |_| 0u64);
        output.bits([join_words(words.as_chunks().0, &mut joined) as u32]);
        joined.iter().for_each(|&word| output.bits([word as u32, (word >> 32) as u32]));
    }),
    ("byte_range", |input, output| output.bits(<[u8; 2]>::from(byte_range(&input.bytes())))),
    ("pair_near", |input, output| {
        let bytes = input.elements(input.len, |at| 9 + input.word(at) as u8 % 64);
        let mut pairs = input.elements(input.len / 2, |_| 0);
        pair_near(bytes.as_chunks().0, 9, &mut pairs);
        output.bits(pairs.iter().copied());
    }),
    ("look_up_singles", |input, output| {
        let entry = |symbol, length| (symbol << 16 | length) as u32;
        lookups(input, output, entry, look_up_singles);
    }),
    ("look_up_bytes", |input, output| {
        let entry = |symbol, length| (symbol << 16 | length) as u32;
        lookups(input, output, entry, look_up_bytes);
    }),
    ("look_up_pairs", |input, output| {
        let entry = |word: u64, length| word << 32 | (1 + word % 2) << 8 | length;
        lookups(input, output, entry, look_up_pairs);
    }),
    ("look_up_sixes", |input, output| {
        let entry = |word: u64, length| word << 16 | (1 + word % 6) << 8 | length;
        lookups(input, output, entry, look_up_sixes);
    }),
    ("join_entries", |input, output| {
        let entries = input.elements(input.len, |at| {
            let length = input.word(at) % 13;
            ((input.word(at + 1) << (16 - length)) as u16) & 0xfff0 | length as u16
        });
        let mut words = input.elements(input.len / 4, |_| 0u64);
        join_entries(entries.as_chunks().0, &mut words);
        words.iter().for_each(|&word| output.bits([word as u32, (word >> 32) as u32]));
    }),
    ("pack_words", |input, output| {
        let words = input.elements(input.len.min(ROOM / 8), |at| {
            let width = u64::from(input.word(at)) % u64::from(GROUP_BITS + 1);
            let bits = (u64::from(input.word(at + 1)) << 32 | u64::from(input.word(at))) >> 15;
            bits.checked_shl(64 - width as u32).unwrap_or(0) | width
        });
        let mut bytes = vec![7];
        let mut writer = GroupWriter::new(&mut bytes);
        let (some, others) = words.split_at(words.len() / 3);
        writer.put_words(some);
        writer.put_words(others);
        writer.finish();
        output.bits(bytes);
    }),
    ("join_gaps", |input, output| {
        let any = input.elements(input.len.min(JOINED), |at| input.word(at));
        let mut next = 0;
        let increasing = input.elements(input.len.min(JOINED), |at| {
            // Mostly short gaps.
            next += 1 + (input.word(at) >> (9 + input.word(at + 1) % 23));
            next - 1
        });
        for (positions, next) in [(&any, u64::from(input.word(6))), (&increasing, 0)] {
            let mut words = [0; JOINED / 2];
            let increase = join_gaps(next, positions, input.word(5) % 31, &mut words);
            output.bits([u32::from(increase)]);
            words.iter().for_each(|&word| output.bits([word as u32, (word >> 32) as u32]));
        }
    }),
    ("ones_of_gaps", |input, output| {
        for parameter in [0, 4, 30] {
            let positions = input.elements(input.len, |at| input.word(at));
            let next = positions.first().map_or(0, |&first| u64::from(first / 2));
            let ones = ones_of_gaps(next, &positions, parameter);
            output.bits([ones as u32, (ones >> 32) as u32]);
        }
    }),
    ("read_gaps", |input, output| {
        let ones = input.elements(input.len, |at| input.word(at) as u8 | 0xfe);
        for ((bytes, parameter), bits) in [(input.bytes(), 0), (input.bytes(), 9), (ones, 3)]
            .iter()
            .flat_map(|case| [0, 3, 40, 98].map(|bits| (case, bits)))
        {
            let (mut place, mut positions) = (Place { bits, next: 3 }, input.zeros());
            let universe = u64::from(input.word(1));
            let count = read_gaps(bytes, *parameter, universe, &mut place, &mut positions);
            output.bits([count as u32, place.bits as u32, place.next as u32]);
            output.bits(positions.iter().copied());
        }
    }),
    ("decode_states", streams),
    ("encode_states", states),
    ("looked_up", |input, output| {
        let (numbers, mut out) = (input.more(), input.zeros());
        let sixteen = core::array::from_fn(|at| numbers.get(at).copied().unwrap_or(at as f32));
        looked_up(&input.symbols(), &sixteen, &mut out);
        output.moved(&out);
    }),
    ("natural_add", |input, output| {
        let exponents = input.elements(input.len, |at| input.word(at) as u16 % 255);
        let mut out = input.more();
        natural_add(&exponents, &input.bytes(), input.x, &mut out);
        output.computed(&out);
    }),
    ("natural_residual", |input, output| {
        let (mut values, mut rounded, mut exponents) =
            (input.floats(), input.zeros(), input.zeros());
        natural_residual(&mut values, &input.draws(), &mut rounded, &mut exponents);
        output.computed(&values);
        output.moved(&rounded);
        output.bits(exponents.iter().copied());
    }),
    ("prefetch", |input, output| {
        let values = input.floats();
        prefetch(&values);
        output.moved(&values);
    }),
    ("philox4x32", |input, output| {
        let [first, second] = [input.word(2), input.word(3)];
        // Any counter, and counters that carry into the second word and past it.
        let carry = u32::MAX - 3;
        for start in [[input.word(0), input.word(1)], [carry, first], [carry, u32::MAX]] {
            let mut out = input.zeros();
            let counter = [start[0], start[1], first, second];
            philox4x32([input.x.to_bits(), input.y.to_bits()], counter, &mut out);
            output.bits(out.iter().copied());
        }
    }),
    ("add_product", |input, output| {
        let ([rows, columns, rank], [mut out, p]) = thin(input);
        let q = input.elements(columns * rank, |at| f32::from_bits(input.word(at + 2)));
        add_product(&mut out, &p[..rows * rank], &q, rank, input.x);
        output.computed(&out);
    }),
    ("times_thin", |input, output| {
        let ([rows, columns, rank], [c, q]) = thin(input);
        let mut out = input.elements(rows * rank, |_| 9.0);
        times_thin(&c, &q[..columns * rank], rank, &mut out);
        output.computed(&out);
    }),
    ("transposed_times_thin", |input, output| {
        let ([rows, columns, rank], [c, p]) = thin(input);
        for first in [0, columns / 3] {
            let mut out = input.elements((columns - first) * rank, |_| 9.0);
            transposed_times_thin(&c, columns, first, &p[..rows * rank], rank, &mut out);
            output.computed(&out);
        }
    }),
    ("abs_max_bits", |input, output| output.bits([abs_max_bits(&input.floats())])),
    ("abs_max_of_sum", |input, output| {
        let largest = abs_max_of_sum(&input.floats(), &input.more(), input.x, input.y);
        // NaN has several patterns.
        output.bits([largest.min(f32::NAN.to_bits())]);
    }),
    ("max_byte", |input, output| output.bits([max_byte(&input.bytes())])),
    ("max_symbol", |input, output| output.bits([u32::from(max_symbol(&input.symbols()))])),
    ("has_byte", |input, output| {
        output.bits(input.bytes().chunks(40).map(|bytes| u32::from(has_byte(bytes, 0x80))));
    }),
    ("sum_of_squares", |input, output| output.wide(sum_of_squares(&input.floats()))),
    ("inner_product", |input, output| {
        output.wide(inner_product(&input.floats(), &input.more()));
    }),
    ("hadamard", |input, output| {
        let mut values = input.floats();
        if let Some(bits) = values.len().checked_ilog2() {
            hadamard(&mut values[..1 << bits]);
        }
        output.computed(&values);
    }),
    ("rotate", |input, output| {
        let mut values = input.floats();
        if let Some(bits) = values.len().checked_ilog2() {
            rotate(&mut values[..1 << bits], &input.draws());
        }
        output.computed(&values);
    }),
    ("rotate_back", |input, output| {
        let mut values = input.floats();
        if let Some(bits) = values.len().checked_ilog2() {
            rotate_back(&mut values[..1 << bits], &input.draws());
        }
        output.computed(&values);
    }),
    ("limits_reached", |input, output| {
        let mut symbols = input.symbols();
        limits_reached(&input.floats(), input.x, &[0.1, 0.5, 3.0], 4, &mut symbols);
        output.bits(symbols.iter().copied());
    }),
    ("sums_by_sign", |input, output| {
        let sums = sums_by_sign(&input.floats());
        output.wide(sums.negative_sum);
        output.wide(sums.positive_sum);
        output.wide(sums.negative_count as f64);
    }),
    ("sign_add", |input, output| {
        let bits = input.elements(input.len.div_ceil(8), |at| input.word(at) as u8);
        let mut out = input.more();
        sign_add(&bits, input.x, input.y, &mut out);
        output.computed(&out);
    }),
    ("signs", |input, output| {
        let mut bits = input.elements(input.len.div_ceil(8), |_| 0xaa);
        signs(&input.floats(), &mut bits);
        output.bits(bits.iter().copied());
    }),
    ("sign_residual", |input, output| {
        let (mut values, mut bits) =
            (input.floats(), input.elements(input.len.div_ceil(8), |_| 0xaa));
        sign_residual(&mut values, input.x, input.y, &mut bits);
        output.computed(&values);
        output.bits(bits.iter().copied());
    }),
    ("stochastic_ternary", |input, output| {
        let mut digits = input.bytes();
        stochastic_ternary(&input.floats(), input.x.abs(), &input.draws(), &mut digits);
        output.bits(digits.iter().copied());
    }),
    ("ternary_add", |input, output| {
        for part in 0..5 {
            let mut out = input.more();
            ternary_add(&input.bytes(), part, input.x, &mut out);
            output.computed(&out);
        }
    }),
    ("ternary_residual", |input, output| {
        let (mut values, mut digits) = (input.floats(), input.bytes());
        ternary_residual(&mut values, input.x.abs(), &mut digits);
        output.computed(&values);
        output.bits(digits.iter().copied());
    }),
    ("truncate_residual", |input, output| {
        for (least, middle) in [(117, 122), (126, 127), (1, 64)] {
            let (mut values, mut tags, mut words) = (input.floats(), input.zeros(), input.zeros());
            truncate_residual(&mut values, Cuts { least, middle }, &mut tags, &mut words);
            output.computed(&values);
            output.bits(tags.iter().copied());
            output.bits(words.iter().copied());
        }
    }),
    ("pack_tags", |input, output| {
        let tags = input.elements(input.len, |at| input.word(at) as u8 % 4);
        let mut packed = input.elements(input.len.div_ceil(4), |_| 0);
        pack_tags(&tags, &mut packed);
        output.bits(packed.iter().copied());
    }),
    ("unpack_tags", |input, output| {
        let (packed, mut tags) = (tags(input), input.zeros());
        unpack_tags(&packed, &mut tags);
        output.bits(tags.iter().copied());
    }),
    ("tagged_len", |input, output| output.bits([tagged_len(&tags(input)) as u32])),
    ("pack_tagged", |input, output| {
        let mut bytes = Vec::new();
        pack_tagged(&tags(input), &input.draws(), &mut bytes);
        output.bits(bytes);
    }),
    ("unpack_tagged", |input, output| {
        let packed = tags(input);
        for more in [0, 20] {
            let bytes = input.elements(tagged_len(&packed) + more, |at| input.word(at) as u8);
            let mut words = input.zeros();
            output.bits([unpack_tagged(&packed, &bytes, &mut words) as u32]);
            output.bits(words.iter().copied());
        }
    }),
    ("truncated_add", |input, output| {
        let tags = input.elements(input.len, |at| input.word(at) as u8 % 4);
        let mut out = input.more();
        truncated_add(&tags, &input.draws(), input.x, &mut out);
        output.computed(&out);
    }),
    ("truncated_valid", |input, output| {
        let cuts = Cuts { least: 117, middle: 122 };
        let (mut values, mut tags, mut words) = (input.floats(), input.zeros(), input.zeros());
        truncate_residual(&mut values, cuts, &mut tags, &mut words);
        output.bits([truncated_valid(&tags, &words, cuts)]);
        output.bits([truncated_valid(&tags, &input.draws(), cuts)]);
    }),
    ("bin_of", |input, output| {
        let mut symbols = input.zeros();
        bin_of(&input.floats(), bins(input), &mut symbols);
        output.bits(symbols.iter().copied());
    }),
    ("extremes", |input, output| {
        let (least, greatest) = extremes(&input.floats());
        output.moved(&[least, greatest]);
    }),
    ("middle_add", |input, output| {
        let mut out = input.more();
        middle_add(&input.symbols(), bins(input), input.x, &mut out);
        output.computed(&out);
    }),
    ("middle_off", |input, output| {
        let mut values = input.floats();
        middle_off(&mut values, &input.symbols(), bins(input));
        output.computed(&values);
    }),
    ("widen", |input, output| {
        let mut symbols = input.symbols();
        output.bits([u32::from(widen(&input.bytes(), &mut symbols))]);
        output.bits(symbols.iter().copied());
    }),
    ("narrow", |input, output| {
        let mut bytes = input.bytes();
        narrow(&input.symbols(), &mut bytes);
        output.bits(bytes.iter().copied());
    }),
    ("split_2", |input, output| {
        for rotation in [0, 1] {
            let elements = input.elements(input.len, |at| {
                core::array::from_fn::<_, 2, _>(|byte| input.word(2 * at + byte) as u8)
            });
            let mut planes: [_; 2] = core::array::from_fn(|_| input.zeros());
            split_2(&elements, rotation, planes.each_mut().map(|plane| &mut plane[..]));
            planes.iter().for_each(|plane| output.bits(plane.iter().copied()));
        }
    }),
    ("join_2", |input, output| {
        for rotation in [0, 1] {
            let planes: [_; 2] = core::array::from_fn(|plane| {
                input.elements(input.len, |at| input.word(2 * at + plane) as u8)
            });
            let mut elements = input.elements(input.len, |_| [0; 2]);
            join_2(planes.each_ref().map(|plane| &plane[..]), rotation, &mut elements);
            output.bits(elements.as_flattened().iter().copied());
        }
    }),
    ("split_4", |input, output| {
        for rotation in [0, 1] {
            let elements = input.elements(input.len, |at| {
                core::array::from_fn::<_, 4, _>(|byte| input.word(4 * at + byte) as u8)
            });
            let mut planes: [_; 4] = core::array::from_fn(|_| input.zeros());
            split_4(&elements, rotation, planes.each_mut().map(|plane| &mut plane[..]));
            planes.iter().for_each(|plane| output.bits(plane.iter().copied()));
        }
    }),
    ("join_4", |input, output| {
        for rotation in [0, 1] {
            let planes: [_; 4] = core::array::from_fn(|plane| {
                input.elements(input.len, |at| input.word(4 * at + plane) as u8)
            });
            let mut elements = input.elements(input.len, |_| [0; 4]);
            join_4(planes.each_ref().map(|plane| &plane[..]), rotation, &mut elements);
            output.bits(elements.as_flattened().iter().copied());
        }
    }),
    ("split_8", |input, output| {
        for rotation in [0, 1] {
            let elements = input.elements(input.len, |at| {
                core::array::from_fn::<_, 8, _>(|byte| input.word(8 * at + byte) as u8)
            });
            let mut planes: [_; 8] = core::array::from_fn(|_| input.zeros());
            split_8(&elements, rotation, planes.each_mut().map(|plane| &mut plane[..]));
            planes.iter().for_each(|plane| output.bits(plane.iter().copied()));
        }
    }),
    ("join_8", |input, output| {
        for rotation in [0, 1] {
            let planes: [_; 8] = core::array::from_fn(|plane| {
                input.elements(input.len, |at| input.word(8 * at + plane) as u8)
            });
            let mut elements = input.elements(input.len, |_| [0; 8]);
            join_8(planes.each_ref().map(|plane| &plane[..]), rotation, &mut elements);
            output.bits(elements.as_flattened().iter().copied());
        }
    }),
    ("add_digits", |input, output| {
        let mut numbers = input.symbols();
        let digits: Vec<u16> = numbers.iter().map(|number| number % 7).collect();
        add_digits(&mut numbers, &digits, input.word(0) as u16);
        output.bits(numbers.iter().copied());
    }),
    ("take_digits", |input, output| {
        let mut numbers = input.symbols();
        let mut digits: Vec<u16> = numbers.to_vec();
        take_digits(&mut numbers, 1 + input.word(0) as u16 % 80, &mut digits);
        output.bits(numbers.iter().chain(&digits).copied());
    }),
    ("separate", |input, output| {
        let list = input.elements(input.len, |at| (input.word(at) % 3) as u16);
        let (mut marks, mut others) = (input.symbols(), input.symbols());
        let kept = separate(&list, 0, &mut marks, &mut others);
        output.bits(others[..kept].iter().chain(marks.iter()).copied());
    }),
    ("put_back", |input, output| {
        let mut marks = input.elements(input.len, |at| (input.word(at) % 3) as u16);
        // Enough for the marks, or too few.
        let others = &input.symbols()[..input.word(1) as usize % (input.len + 1)];
        put_back(&mut marks, 7, others);
        output.bits(marks.iter().copied());
    }),
    ("encode_runs", |input, output| {
        // Runs of zeros that cross words, among other bytes.
        let digit = |at: usize| match input.word(at / 9 % (1 + at % 40)) % 3 {
            0 => (input.word(at) % 243) as u8,
            _ => zero_run::ZEROS,
        };
        let (mut encoder, mut coded) = (zero_run::Encoder::default(), Vec::new());
        for part in input.elements(2 * input.len, digit).chunks(input.len.max(1)) {
            encoder.push(part, &mut coded);
        }
        encoder.finish(&mut coded);
        output.bits(coded);
    }),
    ("above", |input, output| {
        let bytes = input.bytes();
        let naive = |word: &[u8; 64]| {
            word.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(byte > 100))
        };
        let words = bytes.as_chunks().0;
        words.iter().for_each(|word| assert_eq!(above(word, 100), naive(word)));
        let bits = words.iter().map(|word| above(word, 100));
        output.bits(bits.flat_map(|bits| [bits as u32, (bits >> 32) as u32]));
    }),
    ("expanded_len", |input, output| output.wide(zero_run::decoded_len(&input.bytes()) as f64)),
    ("state_hash", |input, output| {
        let seed = u64::from(input.word(3)) << 32 | u64::from(input.word(2));
        for first in [0, u64::from(input.word(1)) << 20] {
            let sums = state_hash(&input.bytes(), first, seed);
            sums.iter().for_each(|&sum| output.bits([sum as u32, (sum >> 32) as u32]));
        }
    }),
    ("state_term", |input, output| {
        let seed = u64::from(input.word(3)) << 32 | u64::from(input.word(2));
        let terms = state_term(seed, u64::from(input.word(1)), u64::from(input.word(0)));
        terms.iter().for_each(|&term| output.bits([term as u32, (term >> 32) as u32]));
    }),
    ("changed", |input, output| {
        for width in [1, 2, 4, 8] {
            let (base, new) = versions(input, width);
            let mut bits = input.elements(input.len.div_ceil(64), |_| 9u64);
            output.bits([changed(width, &base, &new, &mut bits) as u32]);
            output.words(&bits);
        }
    }),
    ("scatter", |input, output| {
        for width in [1, 2, 4, 8] {
            let (mut base, new) = versions(input, width);
            let positions: Vec<u32> = (0..input.len as u32).rev().step_by(3).collect();
            scatter(width, &positions, &new[..width * positions.len()], &mut base);
            output.bits(base.iter().copied());
        }
    }),
    ("class_counts", |input, output| {
        for octaves in octaves(input) {
            let (base, _) = versions(input, octaves.width);
            let mut counts = input.elements(input.len.div_ceil(64), |_| 9u64);
            output.bits(class_counts(&octaves, &base, &mut counts));
            output.words(&counts);
        }
    }),
    ("class_ranks", |input, output| {
        for octaves in octaves(input) {
            let changes = changes(input, &octaves);
            output.bits(changes.ranks.into_iter().chain(changes.sizes));
        }
    }),
    ("class_places", |input, output| {
        for octaves in octaves(input) {
            let Changes { base, positions, sorted, ends, .. } = changes(input, &octaves);
            let mut counts = input.elements(input.len.div_ceil(64), |_| 9u64);
            class_counts(&octaves, &base, &mut counts);
            let (mut ranked, mut back) = (Ranked::new(&sorted, ends), vec![9; counts.len()]);
            let (first, second) = counts.split_at(counts.len() / 2);
            let (base, rest) = base.split_at(64 * octaves.width * first.len());
            let (start, end) = back.split_at_mut(first.len());
            class_places(&octaves, base, first, &mut ranked, start);
            class_places(&octaves, rest, second, &mut ranked, end);
            let bytes: Vec<u8> = back.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut found = Vec::new();
            ones(&bytes, 0, &mut found);
            assert_eq!(found, positions, "the ranks are those of the changed elements");
            output.bits(found);
        }
    }),
];
