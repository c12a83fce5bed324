//! Speed of the entropy codes alone, in symbols per second, relative to a copy of the symbols in
//! the same run.
//!
//! Encoding, decoding and copying take turns, and the best of several repetitions counts, as for
//! compressors. Huffman code and tANS are measured as messages use them: encoding includes counting
//! symbols and fitting the code, and decoding includes reading the code. Rice code encodes
//! positions; choosing its parameter is not included.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use gradwire::tools::{pack_coded, unpack_coded};
use gradwire::{Rng, Workspace};
use gradwire_bits::elias::Elias;
use gradwire_bits::huffman::{self, Code};
use gradwire_bits::rice;
use gradwire_bits::tans::{self, groups};
use serde::{Deserialize, Serialize};

use super::{Effort, seconds};
use crate::format::significant;
use crate::table::Table;

/// A size that stays in cache, and one that does not.
pub const SYMBOLS: [usize; 2] = [64 << 10, 8 << 20];

/// The alphabet of all distributions.
const ALPHABET: usize = 256;

/// One code on one list of symbols.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The code, and the number of streams.
    pub code: String,
    /// How the symbols are distributed.
    pub distribution: String,
    /// The number of symbols.
    pub symbols: usize,
    /// Encoding speed, in 10⁹ symbols per second.
    pub encode: f64,
    /// Decoding speed, in 10⁹ symbols per second.
    pub decode: f64,
    /// The speed of copying the symbols (two bytes each; four for numbers in Elias code and for
    /// positions), in 10⁹ symbols per second.
    pub copy: f64,
    /// Bits per symbol, with the code lengths.
    pub bits: f64,
    /// The empirical entropy of order 0, or the entropy of random positions, in bits per symbol.
    pub entropy: f64,
}

/// A name, and the function from a uniform random word to a symbol.
type Distribution = (&'static str, fn(u32) -> usize);

/// The distributions: levels of normal values in fine and in coarse steps, exponents of normal
/// values; one symbol nine times in ten, with eight others; one three times in five, with dozens of
/// others; and one four times in five, with two others.
const DISTRIBUTIONS: [Distribution; 6] = [
    ("fine levels", |word| levels(word, 1.0)),
    ("coarse levels", |word| levels(word, 0.125)),
    ("exponents", |word| (word | 1 << 31).trailing_zeros() as usize),
    ("mostly one", |word| if word % 10 < 9 { 0 } else { 1 + levels(word / 10, 0.02) % 8 }),
    ("often one", |word| if word % 5 < 3 { 0 } else { levels(word / 5, 0.3) }),
    ("ternary", |word| [0, 0, 0, 0, 0, 0, 0, 0, 1, 2][word as usize % 10]),
];

/// The index of the distribution of exponents.
const EXPONENTS: usize = 2;

/// The level of a sum of four uniform bytes, around the middle of the alphabet.
fn levels(word: u32, scale: f64) -> usize {
    let sum: u32 = word.to_le_bytes().iter().map(|&byte| u32::from(byte)).sum();
    (128.0 + (f64::from(sum) - 510.0) / 4.0 * scale) as usize
}

/// Random positions: a name, and the number of elements for each position.
const POSITIONS: [(&str, u32); 3] = [("one in 10", 10), ("one in 100", 100), ("one in 4096", 4096)];

/// Measures the codes: Huffman, tANS and the code that messages choose on every distribution, Elias
/// on exponents, which are mostly small, and Rice on positions.
///
/// # Panics
/// If a code does not decode what it encoded.
pub fn measure(symbols: usize, effort: Effort) -> Vec<Measurement> {
    let mut words = vec![0; symbols];
    Rng::new(0, 0, 0, 0, 0).fill(&mut words);
    let mut rows = Vec::new();
    for (name, symbol) in DISTRIBUTIONS {
        let list: Vec<u16> = words.iter().map(|&word| symbol(word) as u16).collect();
        let entropy = entropy(&list);
        let mut add = |code: &str, figures| rows.push(row(code, name, &list, figures, entropy));
        add("Huffman, 1 stream", huffman(&list, false, effort));
        add("Huffman, 4 streams", huffman(&list, true, effort));
        add("tANS, 4 streams", measure_tans(&list, effort));
        let alphabet = list.iter().max().map_or(0, |&largest| usize::from(largest) + 1);
        if let Some(size) = groups::size(alphabet) {
            let figures = measure_groups(&list, alphabet, size, effort);
            add(&format!("tANS, groups of {size}"), figures);
        }
        add("as messages choose", measure_chosen(&list, alphabet, effort));
    }
    let (name, symbol) = DISTRIBUTIONS[EXPONENTS];
    let list: Vec<u32> = words.iter().map(|&word| 1 + symbol(word) as u32).collect();
    for (code, elias) in
        [("Elias γ", Elias::Gamma), ("Elias δ", Elias::Delta), ("Elias ω", Elias::Omega)]
    {
        let encode = |list: &[u32], bytes: &mut Vec<u8>| elias.encode(list, bytes);
        let decode = |bytes: &[u8], back: &mut Vec<u32>| {
            back.clear();
            elias.decode(bytes, symbols, back).expect("it was encoded");
        };
        let figures = figures(&list, effort, encode, decode);
        rows.push(row(code, name, &list, figures, entropy(&list)));
    }
    rows.extend(POSITIONS.map(|(name, step)| measure_rice(name, step, &words, effort)));
    rows
}

/// Rice code of positions, one for each word or as many as fit into 32 bits. Each position is drawn
/// with a chance of one in `step`.
fn measure_rice(name: &str, step: u32, words: &[u32], effort: Effort) -> Measurement {
    let share = 1.0 / f64::from(step);
    // Gaps of random positions are geometric.
    let gap = |word: u32| ((f64::from(word) + 0.5) / 4_294_967_296.0).ln() / (1.0 - share).ln();
    let mut next = 0u64;
    let positions = words.iter().map_while(|&word| {
        let position = next + gap(word) as u64;
        next = position + 1;
        u32::try_from(position).ok()
    });
    let list: Vec<u32> = positions.collect();
    let universe = list.last().map_or(0, |&last| last as usize + 1);
    let parameter = rice::optimal_parameter(list.len(), universe);
    let encode = |list: &[u32], bytes: &mut Vec<u8>| rice::encode(list, parameter, bytes);
    let decode = |bytes: &[u8], back: &mut Vec<u32>| {
        back.clear();
        rice::decode(bytes, list.len(), universe, parameter, back).expect("it was encoded");
    };
    let entropy = -share.log2() - (1.0 - share) / share * (1.0 - share).log2();
    row("Rice", name, &list, figures(&list, effort, encode, decode), entropy)
}

/// Measurements as a table.
pub fn table(measurements: &[Measurement]) -> Table {
    let speed = |x: f64| format!("{} G/s", significant(x));
    let percent = |part: f64| format!("{:.0} %", 100.0 * part);
    Table::of(measurements)
        .column("code", |m| &m.code)
        .column("distribution", |m| &m.distribution)
        .column("symbols", |m| m.symbols)
        .column("encode", |m| speed(m.encode))
        .column("of copy", |m| percent(m.encode / m.copy))
        .column("decode", |m| speed(m.decode))
        .column("of copy", |m| percent(m.decode / m.copy))
        .column("copy", |m| speed(m.copy))
        .column("bits", |m| significant(m.bits))
        .column("entropy", |m| significant(m.entropy))
        .table()
}

fn huffman(list: &[u16], four: bool, effort: Effort) -> Figures {
    let (mut code, mut received) = (Code::default(), Code::default());
    let (mut counts, limit) = (vec![0; ALPHABET], huffman::limit(ALPHABET));
    let encode = |list: &[u16], bytes: &mut Vec<u8>| {
        counts.fill(0);
        huffman::count(list, &mut counts);
        code.fit(&counts, limit);
        code.write(bytes);
        if four { code.encode_streams(list, bytes) } else { code.encode(list, bytes) }
    };
    let decode = |bytes: &[u8], back: &mut Vec<u16>| {
        let used = received.read(bytes, ALPHABET, limit).expect("it was encoded");
        let stream = &bytes[used..];
        back.resize(list.len(), 0);
        let decoded = if four {
            received.decode_streams(stream, back)
        } else {
            received.decode(stream, back)
        };
        decoded.expect("it was encoded");
    };
    figures(list, effort, encode, decode)
}

fn measure_tans(list: &[u16], effort: Effort) -> Figures {
    let (mut code, mut received) = (tans::Code::default(), tans::Code::default());
    let mut counts = vec![0; ALPHABET];
    let encode = |list: &[u16], bytes: &mut Vec<u8>| {
        counts.fill(0);
        huffman::count(list, &mut counts);
        code.fit(&counts);
        code.write(bytes);
        code.encode(list, bytes);
    };
    let decode = |bytes: &[u8], back: &mut Vec<u16>| {
        let used = received.read(bytes, ALPHABET).expect("it was encoded");
        back.resize(list.len(), 0);
        received.decode(&bytes[used..], back).expect("it was encoded");
    };
    figures(list, effort, encode, decode)
}

fn measure_groups(list: &[u16], alphabet: usize, size: usize, effort: Effort) -> Figures {
    let (mut code, mut received) = (tans::Code::default(), tans::Code::default());
    let values = groups::values(alphabet, size).expect("groups of this size have few values");
    let (mut joined, mut counts, mut parts) = (Vec::new(), vec![0; values], Vec::new());
    let encode = |list: &[u16], bytes: &mut Vec<u8>| {
        groups::join(list, alphabet, size, &mut joined);
        counts.fill(0);
        huffman::count(&joined, &mut counts);
        code.fit(&counts);
        code.write(bytes);
        code.encode(&joined, bytes);
    };
    let decode = |bytes: &[u8], back: &mut Vec<u16>| {
        let used = received.read(bytes, values).expect("it was encoded");
        parts.resize(list.len().div_ceil(size), 0);
        received.decode(&bytes[used..], &mut parts).expect("it was encoded");
        back.resize(list.len(), 0);
        groups::split(&mut parts, alphabet, size, back).expect("it was encoded");
    };
    figures(list, effort, encode, decode)
}

/// The code that messages choose by the counts.
fn measure_chosen(list: &[u16], alphabet: usize, effort: Effort) -> Figures {
    let [mut to_encode, mut to_decode] = [Workspace::default(), Workspace::default()];
    let encode = |list: &[u16], bytes: &mut Vec<u8>| {
        pack_coded(list, alphabet, &mut to_encode, bytes);
    };
    let decode = |mut bytes: &[u8], back: &mut Vec<u16>| {
        unpack_coded(&mut bytes, alphabet, list.len(), back, &mut to_decode)
            .expect("it was encoded");
    };
    figures(list, effort, encode, decode)
}

/// The seconds of encoding, decoding and copying, and the bytes of the code.
type Figures = ([f64; 3], usize);

fn figures<T: Copy + Default + PartialEq>(
    list: &[T],
    effort: Effort,
    mut encode: impl FnMut(&[T], &mut Vec<u8>),
    mut decode: impl FnMut(&[u8], &mut Vec<T>),
) -> Figures {
    let (mut bytes, mut back, mut copy) = (Vec::new(), Vec::new(), vec![T::default(); list.len()]);
    let mut best = [f64::INFINITY; 3];
    let (start, mut repetitions) = (Instant::now(), 0);
    while repetitions < effort.repetitions || start.elapsed() < effort.time {
        let encoding = once(|| {
            bytes.clear();
            encode(black_box(list), &mut bytes);
        });
        let decoding = once(|| {
            decode(black_box(&bytes), &mut back);
        });
        let copying = once(|| {
            copy.copy_from_slice(black_box(list));
            black_box(&mut copy);
        });
        for (best, time) in best.iter_mut().zip([encoding, decoding, copying]) {
            *best = best.min(time);
        }
        repetitions += 1;
    }
    assert!(back == list, "a code does not decode to what was encoded");
    (best, bytes.len())
}

/// Seconds of an operation that cannot fail.
fn once(mut operation: impl FnMut()) -> f64 {
    let Ok(seconds) = seconds(|| {
        operation();
        Ok::<_, Infallible>(())
    });
    seconds
}

fn row<T: Copy + Into<u32>>(
    code: &str,
    distribution: &str,
    list: &[T],
    (seconds, bytes): Figures,
    entropy: f64,
) -> Measurement {
    let [encode, decode, copy] = seconds.map(|seconds| 1e-9 * list.len() as f64 / seconds);
    Measurement {
        code: code.to_owned(),
        distribution: distribution.to_owned(),
        symbols: list.len(),
        encode,
        decode,
        copy,
        bits: 8.0 * bytes as f64 / list.len() as f64,
        entropy,
    }
}

/// The entropy of order 0 of symbols below twice the alphabet's size, in bits per symbol.
fn entropy<T: Copy + Into<u32>>(list: &[T]) -> f64 {
    let mut counts = [0f64; 2 * ALPHABET];
    list.iter().for_each(|&symbol| counts[symbol.into() as usize] += 1.0);
    let total = list.len() as f64;
    let used = counts.iter().filter(|&&count| count > 0.0);
    used.map(|count| count / total * (total / count).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn codes_are_no_shorter_than_the_entropy() {
        let rows = measure(20_000, Effort { repetitions: 1, time: Duration::ZERO });
        let groups = rows.iter().filter(|row| row.code.contains("groups")).count();
        assert!((2..=3).contains(&groups), "of 9 and of 3 symbols, and of few exponents");
        assert_eq!(rows.len(), 4 * DISTRIBUTIONS.len() + 3 + POSITIONS.len() + groups);
        for m in rows {
            assert!(m.encode > 0.0 && m.decode > 0.0 && m.copy > 0.0);
            assert!(m.bits >= m.entropy && m.entropy > 0.0, "{m:?}");
        }
    }

    #[test]
    fn entropies_by_hand() {
        assert_eq!((entropy(&[3u16; 4]), entropy(&[1u32, 2, 3, 3])), (0.0, 1.5));
    }
}
