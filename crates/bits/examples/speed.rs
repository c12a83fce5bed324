//! Measures the speed of the codes on one core:
//! `cargo run --release -p gradwire-bits --example speed`.

use std::hint::black_box;
use std::time::Instant;

use gradwire_bits::elias::Elias;
use gradwire_bits::huffman::{self, Code};
use gradwire_bits::planes::{Coder, Layout};
use gradwire_bits::{rice, tans};

const SYMBOLS: usize = 1 << 20;
const REPEATS: usize = 30;

/// The upper bits of a linear congruential generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// The best of several runs, in million symbols per second.
fn speed(count: usize, mut work: impl FnMut()) -> f64 {
    let times = (0..REPEATS).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    count as f64 / times.fold(f64::INFINITY, f64::min) / 1e6
}

fn report(name: &str, bits: f64, write: f64, read: f64) {
    println!("{name:32} {bits:6.3} bits  write {write:6.0}  read {read:6.0} Msymbol/s");
}

fn rice_at(p: f64, state: &mut u64) {
    let universe = (SYMBOLS as f64 / p) as u32;
    let threshold = (p * f64::from(1u32 << 31)) as u64;
    let positions: Vec<u32> = (0..universe).filter(|_| random(state) < threshold).collect();
    let b = rice::optimal_parameter(positions.len(), universe as usize);
    let mut code = Vec::new();
    let write = speed(positions.len(), || {
        code.clear();
        rice::encode(black_box(&positions), b, &mut code);
    });
    let mut back = Vec::with_capacity(positions.len());
    let read = speed(positions.len(), || {
        back.clear();
        let count = positions.len();
        rice::decode(black_box(&code), count, universe as usize, b, &mut back).unwrap();
    });
    let bits = 8.0 * code.len() as f64 / positions.len() as f64;
    report(&format!("rice, 1 of {:.0}", 1.0 / p), bits, write, read);
}

/// Numbers below a power of two with uniformly distributed logarithms.
fn elias_below(bits: u64, state: &mut u64) {
    let values: Vec<u32> = (0..SYMBOLS)
        .map(|_| {
            let below = random(state) % bits;
            1 << below | (random(state) & ((1 << below) - 1)) as u32
        })
        .collect();
    for elias in [Elias::Gamma, Elias::Delta, Elias::Omega] {
        let (mut code, mut back) = (Vec::new(), Vec::new());
        let write = speed(SYMBOLS, || {
            code.clear();
            elias.encode(black_box(&values), &mut code);
        });
        let read = speed(SYMBOLS, || {
            back.clear();
            elias.decode(black_box(&code), SYMBOLS, &mut back).unwrap();
        });
        assert_eq!(back, values);
        let mean = 8.0 * code.len() as f64 / SYMBOLS as f64;
        report(&format!("elias {elias:?}, below 2^{bits}"), mean, write, read);
    }
}

/// Symbols around the middle of an alphabet: sums of uniform ones.
fn huffman_of(alphabet: usize, width: u64, state: &mut u64) {
    let mut counts = vec![0; alphabet];
    let symbols: Vec<u16> = (0..SYMBOLS)
        .map(|_| {
            let sum: u64 = (0..4).map(|_| random(state) % width).sum();
            let symbol = (alphabet as u64 / 2 + sum).saturating_sub(2 * width) as usize;
            counts[symbol.min(alphabet - 1)] += 1;
            symbol.min(alphabet - 1) as u16
        })
        .collect();
    let limit = huffman::limit(alphabet);
    let (mut code, mut book, mut bytes, mut back) =
        (Code::default(), Vec::new(), Vec::new(), vec![0; SYMBOLS]);
    code.fit(&counts, limit);
    code.write(&mut book);
    let write = speed(SYMBOLS, || {
        bytes.clear();
        code.encode(black_box(&symbols), &mut bytes);
    });
    code.read(&book, alphabet, limit).unwrap();
    let read = speed(SYMBOLS, || {
        code.decode(black_box(&bytes), &mut back).unwrap();
    });
    assert_eq!(back, symbols);
    let bits = 8.0 * bytes.len() as f64 / SYMBOLS as f64;
    report(&format!("huffman, {alphabet} symbols"), bits, write, read);
    if limit <= huffman::STREAMS_BITS {
        let write = speed(SYMBOLS, || {
            bytes.clear();
            code.encode_streams(black_box(&symbols), &mut bytes);
        });
        let read = speed(SYMBOLS, || {
            code.decode_streams(black_box(&bytes), &mut back).unwrap();
        });
        assert_eq!(back, symbols);
        let bits = 8.0 * bytes.len() as f64 / SYMBOLS as f64;
        report(&format!("four streams, {alphabet} symbols"), bits, write, read);
    }
    if alphabet <= tans::MOST_SYMBOLS {
        let (mut code, mut book) = (tans::Code::default(), Vec::new());
        let fits = speed(1, || code.fit(black_box(&counts))) * 1e6;
        code.write(&mut book);
        let write = speed(SYMBOLS, || {
            bytes.clear();
            code.encode(black_box(&symbols), &mut bytes);
        });
        let reads = speed(1, || code.read(black_box(&book), alphabet).map(drop).unwrap()) * 1e6;
        let read = speed(SYMBOLS, || {
            code.decode(black_box(&bytes), &mut back).unwrap();
        });
        assert_eq!(back, symbols);
        let bits = 8.0 * bytes.len() as f64 / SYMBOLS as f64;
        report(&format!("tANS, {alphabet} symbols"), bits, write, read);
        println!(
            "{:32} {} bytes of shares, {fits:.0} fits, {reads:.0} reads a second",
            "",
            book.len()
        );
    }
    let counted = speed(SYMBOLS, || {
        counts.fill(0);
        huffman::count(black_box(&symbols), &mut counts);
    });
    println!("{:32} counts {counted:.0} Msymbol/s", "");
    let fits = speed(1, || code.fit(black_box(&counts), limit)) * 1e6;
    let book_bits =
        8.0 * book.len() as f64 / counts.iter().filter(|&&count| count > 0).count() as f64;
    println!("{:32} {book_bits:6.3} bits a symbol of the codebook, {fits:.0} fits a second", "");
}

/// Normal numbers, by the method of Box and Muller.
fn normal(state: &mut u64) -> Vec<f32> {
    let mut uniform = || (random(state) as f64 + 0.5) / (1u64 << 31) as f64;
    let mut number =
        || (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos() * 0.02;
    (0..SYMBOLS).map(|_| number() as f32).collect()
}

/// Rounded down to E4M3, the largest to 448.
fn e4m3(values: &[f32]) -> Vec<u8> {
    let scale = 448.0 / values.iter().fold(0f32, |largest, x| largest.max(x.abs()));
    let pattern = |x: &f32| {
        let (scaled, sign) = ((x * scale).abs(), u8::from(*x < 0.0) << 7);
        let exponent = (scaled.max(1e-30).log2().floor() as i32).max(-6);
        let units = (scaled / 2f32.powi(exponent - 3)) as i32;
        sign | (8 * (exponent + 6) + units) as u8
    };
    values.iter().map(pattern).collect()
}

/// Floats in blocks of several lengths, in bytes of floats.
fn planes_of(name: &str, layout: Layout, floats: &[u8]) {
    for len in [SYMBOLS, 1 << 16, 1 << 12] {
        let blocks: Vec<&[u8]> = floats.chunks(len * layout.width()).collect();
        let mut coder = Coder::default();
        let mut coded = vec![Vec::new(); blocks.len()];
        let write = speed(floats.len(), || {
            for (block, coded) in blocks.iter().zip(&mut coded) {
                coded.clear();
                coder.encode(layout, black_box(block), coded);
            }
        });
        let mut back = vec![0; floats.len()];
        let read = speed(floats.len(), || {
            for (block, coded) in back.chunks_mut(len * layout.width()).zip(&coded) {
                coder.decode(layout, black_box(coded), block).unwrap();
            }
        });
        assert!(back == floats);
        let size = coded.iter().map(Vec::len).sum::<usize>() as f64 / floats.len() as f64;
        println!(
            "{:32} {:6.2} %     write {write:6.0}  read {read:6.0} MB/s",
            format!("planes, {name}, blocks of {len}"),
            100.0 * size
        );
    }
}

fn main() {
    let mut state = 1;
    let values = normal(&mut state);
    let bf16: Vec<u8> = values
        .iter()
        .map(|x| (x.to_bits() + 0x7fff + (x.to_bits() >> 16 & 1)) >> 16)
        .flat_map(|pattern| (pattern as u16).to_le_bytes())
        .collect();
    let f32: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
    planes_of("bf16", Layout::floats(2), &bf16);
    planes_of("f32", Layout::floats(4), &f32);
    planes_of("e4m3", Layout::floats(1), &e4m3(&values));
    for p in [0.01, 0.001] {
        rice_at(p, &mut state);
    }
    for bits in [4, 20] {
        elias_below(bits, &mut state);
    }
    for (alphabet, width) in [(256, 8), (512, 16), (1024, 100), (65_536, 8000)] {
        huffman_of(alphabet, width, &mut state);
    }
}
