//! Measures kernels in the first-level cache of one core, in GB/s and in cycles an element:
//! `cargo run --release -p gradwire-bits --example kernels`, with `GRADWIRE_SIMD=avx2` or `sse2`
//! for fewer instructions. `benchmarks/cycles.py` estimates the same for other processors.

use std::hint::black_box;
use std::time::Instant;

use gradwire_bits::{instruction_set, kernels};

/// Elements, of which the first-level cache holds two arrays.
const ELEMENTS: usize = 1 << 12;
const ROUNDS: usize = 200;

/// The least time of one call, in seconds.
fn least(mut call: impl FnMut()) -> f64 {
    const CALLS: usize = 20;
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_secs_f64() / CALLS as f64
    });
    times.fold(f64::INFINITY, f64::min)
}

/// Cycles a second: a multiplication takes three on the processors of x86-64, and each waits for
/// the one before.
fn clock() -> f64 {
    const PRODUCTS: usize = 10_000;
    let chain = || {
        let mut x = black_box(3u64);
        for _ in 0..PRODUCTS {
            x = x.wrapping_mul(black_box(5));
        }
        black_box(x);
    };
    3.0 * PRODUCTS as f64 / least(chain)
}

fn main() {
    let clock = clock();
    println!("{}, {:.2} GHz", instruction_set(), clock / 1e9);
    let report = |name: &str, seconds: f64| {
        let (bytes, cycles) = (4.0 * ELEMENTS as f64, clock * seconds / ELEMENTS as f64);
        println!("{name:18} {:7.1} GB/s {cycles:7.3} cycles", bytes / seconds / 1e9);
    };
    let wave = |at: usize| ((at * 37 % 1001) as f32 - 500.0) / 500.0;
    let values: Vec<f32> = (0..ELEMENTS).map(wave).collect();
    let (mut left, mut bits) = (values.clone(), vec![0; ELEMENTS / 8]);
    let (mut whole, mut digits) = (vec![0; ELEMENTS], vec![0; ELEMENTS]);
    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();

    report("accumulate", least(|| kernels::accumulate(&mut left, black_box(&values), 1.0, 1.0)));
    left.copy_from_slice(&values);
    report("sign_bits", least(|| kernels::sign_bits(black_box(&values), &mut bits)));
    let tiny = 1e-9;
    report("sign_residual", least(|| kernels::sign_residual(&mut left, -tiny, tiny, &mut bits)));
    report("sign_add", least(|| kernels::sign_add(black_box(&bits), -tiny, tiny, &mut left)));
    let small = 1e-30;
    report("int8_residual", least(|| kernels::int8_residual(&mut left, 60.0, small, &mut whole)));
    report("int8_add", least(|| kernels::int8_add(black_box(&whole), small, &mut left)));
    report("ternary_residual", least(|| kernels::ternary_residual(&mut left, small, &mut digits)));
    report("ternary_add", least(|| kernels::ternary_add(black_box(&digits), 2, small, &mut left)));
    // The parts of eden.
    let mut words = vec![0; ELEMENTS / 32];
    let mut turned = values.clone();
    report("philox4x32", least(|| kernels::philox4x32([1, 2], [0; 4], black_box(&mut words))));
    report("flip_to", least(|| kernels::flip_to(black_box(&values), &words, &mut turned)));
    report("hadamard", least(|| kernels::hadamard(black_box(&mut turned))));
    let sum = || {
        black_box(kernels::sum_of_magnitudes(black_box(&values)));
    };
    report("sum_of_magnitudes", least(sum));
    report("signed_ones", least(|| kernels::signed_ones(black_box(&bits), &mut turned)));
    report("add_flipped", least(|| kernels::add_flipped(&mut left, &turned, &words, small, 1.0)));
    report("f32_add", least(|| kernels::f32_add(black_box(&bytes), small, &mut left)));
    let largest = || {
        black_box(kernels::abs_max_bits(black_box(&values)));
    };
    report("abs_max_bits", least(largest));
}
