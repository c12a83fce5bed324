//! Every kernel on hostile values, at every short length and at alignments of all kinds.

use super::*;
use alloc::vec::Vec;

/// Three rounds of 64 elements and a rest; only a few lengths and alignments under Miri, which is
/// slow.
const MOST: usize = if cfg!(miri) { 99 } else { 210 };
const STRIDE: usize = if cfg!(miri) { 33 } else { 1 };

/// A quarter of the alignments for each length: all lengths modulo 16 meet all alignments within 64
/// lengths.
fn alignments(len: usize) -> impl Iterator<Item = usize> {
    (0..16).skip(len / 16 % 4).step_by(if cfg!(miri) { 33 } else { 4 })
}

/// Patterns of floats at the limits of arithmetic: zeros, subnormals, the ends of the normal range,
/// limits of 16-bit floats, infinities, and quiet and signalling NaNs with payloads, of either
/// sign.
const SPECIAL: [u32; 24] = [
    0,
    0x8000_0000,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x807f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0xffc1_2345,
    0x7f80_0001,
    0xff81_2345,
    0x3f80_0000,
    0xbf80_0000,
    0x477f_e000,
    0xc77f_f000,
    0x3880_0000,
    0x3300_0000,
    0x4b40_0000,
    0xcf00_0000,
];

/// Words that are special floats, floats near 1, or any bits.
fn hostile(len: usize) -> Vec<u32> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let word = |at| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let random = (state >> 32) as u32;
        match at % 4 {
            0 => SPECIAL[random as usize % SPECIAL.len()],
            1 => random,
            _ => 0x3c00_0000 + (random & 0x83ff_ffff),
        }
    };
    (0..len).map(word).collect()
}

/// Two parameters of kernels: mostly ordinary numbers, sometimes special ones.
fn numbers(at: usize) -> [f32; 2] {
    let ordinary = [1.0, 0.5, 0.9, -0.3, 127.0, 1e-3];
    let number = |at: usize| match at % 3 {
        0 => f32::from_bits(SPECIAL[at / 3 % SPECIAL.len()]),
        _ => ordinary[at % ordinary.len()],
    };
    [number(at), number(at / 2 + 1)]
}

#[test]
fn every_instruction_set_gives_the_bits_of_the_plain_loop() {
    let data: Vec<u32> = hostile(4 * 300);
    for len in (0..=MOST).step_by(STRIDE).chain((!cfg!(miri)).then_some(4099)) {
        for offset in alignments(len) {
            let numbers = numbers(len + 5 * offset);
            let input = Input::new(&data, len, offset, numbers);
            kernels().for_each(|case| check(case, &input));
        }
    }
}

#[test]
fn every_kernel_is_compared() {
    let exports = include_str!("../mod.rs").lines().filter_map(|line| {
        let (_, names) = line.split_once("use ").filter(|(before, _)| before.starts_with("pub"))?;
        names.trim_end_matches(['}', ';']).split_once("::")
    });
    let names = exports.flat_map(|(_, names)| names.trim_start_matches('{').split(", "));
    let names: Vec<&str> = names.filter(|name| name.starts_with(char::is_lowercase)).collect();
    assert!(names.len() > 30, "{names:?}");
    for name in names {
        assert!(kernels().any(|(known, _)| known == name), "{name} has no case");
    }
}

#[test]
fn a_limit_holds_until_the_end() {
    let before = crate::instruction_set();
    let within = limited(InstructionSet::Baseline, crate::instruction_set);
    assert_eq!(crate::instruction_set(), before);
    assert!(before == within || cfg!(target_arch = "x86_64"));
}
