//! Tests of whole parts.

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::testing::{InstructionSet, limited};

use super::*;

const PORTABLE: Options = Options { portable: true };
const BOTH: [Options; 2] = [Options { portable: false }, PORTABLE];

/// A linear congruential generator.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 32) % most
    }
}

/// Elements before and after a change of about one in `rarity`.
fn versions(element: ElementType, len: usize, rarity: u64, random: &mut Random) -> [Vec<u8>; 2] {
    let (width, mantissa) = (element.width(), element.mantissa_bits());
    let bits = 8 * width as u32;
    let [mut base, mut new] = [vec![], vec![]];
    for _ in 0..len {
        // Exponents near the middle, a few of any size.
        let below = random.below(9).min(random.below(9)) + 1;
        let octave = (1u64 << element.exponent_bits() >> 1).saturating_sub(below);
        let low = random.0 & ((1u64 << mantissa) - 1);
        let sign = random.below(2) << (bits - 1);
        let any = random.below(1 << 32) << 32 | random.below(1 << 32);
        let old = if mantissa == 0 || random.below(50) == 0 {
            any
        } else {
            sign | octave << mantissa | low
        };
        let size = match random.below(12) {
            0 => random.below(100),
            1 => any,
            _ => 1,
        };
        let changed = if random.below(rarity) > 0 {
            old
        } else if random.below(2) == 0 {
            old.wrapping_add(size)
        } else {
            old.wrapping_sub(size)
        };
        base.extend_from_slice(&old.to_le_bytes()[..width]);
        new.extend_from_slice(&changed.to_le_bytes()[..width]);
    }
    [base, new]
}

/// Encodes a part, checks what its decoder reports against a plain comparison, and that applying it
/// gives the new elements; returns the code.
fn round_trip(element: ElementType, base: &[u8], new: &[u8], options: Options) -> Vec<u8> {
    let (mut coder, mut code) = (Coder::default(), vec![]);
    coder.encode(element, Some(base), new, options, &mut code);
    let (width, mut target) = (element.width(), base.to_vec());
    let content = coder.decode(element, new.len() / width, Some(base), &code);
    let content = content.expect("the code is valid");
    let pairs = base.chunks(width).zip(new.chunks(width)).enumerate();
    let expected: Vec<_> = pairs.filter(|(_, (base, new))| base != new).collect();
    match content {
        Content::Same => assert!(expected.is_empty()),
        Content::Changes { positions, values } => {
            assert!(expected.iter().map(|(at, _)| *at as u32).eq(positions.iter().copied()));
            assert!(expected.iter().map(|(_, (_, new))| *new).eq(values.chunks(width)));
        }
        Content::Whole(all) => assert_eq!(all, new),
    }
    apply(element, &content, &mut target);
    assert_eq!(target, new, "{}", element.name());
    assert!(code.len() <= new.len() + 1, "{} bytes for {}", code.len(), new.len());
    code
}

#[test]
fn parts_of_every_type_and_density_return() {
    let mut random = Random(3);
    for element in ElementType::ALL {
        for len in [0, 1, 2, 63, 64, 65, 200, 4000] {
            for rarity in [u64::MAX, 1000, 100, 10, 3, 2, 1] {
                let [base, mut new] = versions(element, len, rarity, &mut random);
                for options in BOTH {
                    round_trip(element, &base, &new, options);
                }
                if let Some(last) = new.last_mut() {
                    *last ^= 0x80;
                    for options in BOTH {
                        round_trip(element, &base, &new, options);
                    }
                }
            }
        }
    }
}

#[test]
fn large_parts_return() {
    let mut random = Random(4);
    for (element, rarity) in [
        (ElementType::Bf16, 100_000),
        (ElementType::Bf16, 100),
        (ElementType::Bf16, 2),
        (ElementType::F32, 30),
        (ElementType::F8E4m3, 300),
    ] {
        let [base, new] = versions(element, PART, rarity, &mut random);
        for options in BOTH {
            round_trip(element, &base, &new, options);
        }
    }
}

#[test]
fn parts_without_a_base_return() {
    let mut random = Random(5);
    for element in ElementType::ALL {
        for len in [0, 1, 100, 5000] {
            let [_, new] = versions(element, len, 1, &mut random);
            let (mut coder, mut code) = (Coder::default(), vec![]);
            coder.encode(element, None, &new, Options::default(), &mut code);
            assert!(code.len() <= new.len() + 1);
            assert_eq!(coder.decode(element, len, None, &code), Ok(Content::Whole(&new)));
        }
    }
}

/// Pairs that mislead a coder of changes: the new elements are simpler than what changed.
fn hostile(element: ElementType, len: usize, random: &mut Random) -> Vec<[Vec<u8>; 2]> {
    let width = element.width();
    let noise = |random: &mut Random| -> Vec<u8> {
        (0..len * width).map(|_| random.below(256) as u8).collect()
    };
    // Elements of which about one in `rarity` is random, and the others equal.
    let sparse = |rarity: u64, random: &mut Random| -> Vec<u8> {
        let element = |_| match random.below(rarity) {
            0 => random.below(1 << 32).to_le_bytes(),
            _ => [0; 8],
        };
        (0..len).map(element).flat_map(|element| element[..width].to_vec()).collect()
    };
    let [old, other] = [(); 2].map(|()| noise(random));
    let mut pairs = vec![
        [old.clone(), vec![0; len * width]],
        [vec![0; len * width], old.clone()],
        [old.clone(), other],
        [old.clone(), old.iter().map(|byte| byte ^ 0x80).collect()],
        [old.clone(), old.iter().rev().copied().collect()],
        [old.clone(), old.chunks(2 * width).flat_map(|pair| pair.repeat(2)).collect()],
    ];
    pairs[5][1].truncate(len * width);
    for rarity in [2, 4, 10, 30, 100, 1000] {
        for after in [1, 3, 10, u64::MAX] {
            let base = sparse(rarity, random);
            pairs.push([base, sparse(rarity.saturating_mul(after), random)]);
        }
    }
    // Masks of 0 and 1, half of each, of which some elements flip.
    let one = ((1u64 << element.exponent_bits() >> 1).saturating_sub(1) << element.mantissa_bits())
        .max(1)
        .to_le_bytes();
    for flips in [1, 6, 20] {
        let base: Vec<bool> = (0..len).map(|_| random.below(2) == 0).collect();
        let new: Vec<bool> = base.iter().map(|&old| old ^ (random.below(100) < flips)).collect();
        pairs.push([base, new].map(|mask| {
            let element = |is_one| if is_one { &one[..width] } else { &[0; 8][..width] };
            mask.into_iter().flat_map(element).copied().collect()
        }));
    }
    pairs
}

#[test]
fn a_part_is_never_larger_than_its_dense_form_and_a_thousandth_of_its_elements() {
    let (mut random, mut coder) = (Random(9), Coder::default());
    for element in ElementType::ALL {
        for len in [1, 7, 64, 1000, 1025, 20_000] {
            let mut pairs = hostile(element, len, &mut random);
            let rarities = [1, 2, 3, 10, 100, 10_000].into_iter();
            pairs.extend(rarities.map(|rarity| versions(element, len, rarity, &mut random)));
            for (case, [base, new]) in pairs.iter().enumerate() {
                let mut dense = vec![];
                coder.encode(element, None, new, Options::default(), &mut dense);
                for options in BOTH {
                    let mut code = vec![];
                    coder.encode(element, Some(base), new, options, &mut code);
                    let most = dense.len() + new.len() / 1000;
                    let name = element.name();
                    assert!(
                        code.len() <= most,
                        "{} bytes, but {} dense: {len} {name}, case {case}, {options:?}",
                        code.len(),
                        dense.len()
                    );
                }
            }
        }
    }
}

#[test]
fn forms_that_need_a_base_are_refused_without() {
    let (mut coder, base) = (Coder::default(), [0; 2000]);
    let mut new = base;
    for options in BOTH {
        let mut code = vec![];
        coder.encode(ElementType::Bf16, Some(&base), &new, options, &mut code);
        let error = coder.decode(ElementType::Bf16, 1000, None, &code);
        assert_eq!(error, Err(DecodeError::Corrupt("the form of a part needs a base")));
        new[700] = 1;
    }
    assert!(coder.decode(ElementType::Bf16, 1000, Some(&base), &[]).is_err());
    assert!(coder.decode(ElementType::Bf16, 1000, Some(&base), &[77]).is_err());
}

#[test]
fn bytes_by_hand() {
    // Element 5 of 16 rises by one. One change of 16 has the Rice parameter 4: 2 + 32 in six bits.
    let base = [7u8; 16];
    let mut new = base;
    new[5] = 8;
    let code = round_trip(ElementType::U8, &base, &new, Options::default());
    assert_eq!(code[0], form::PORTABLE);
    let expected = {
        let mut bits = String::new();
        bits += "110001"; // 3 + 32, the lowest bit first: (15/16)^8 is below 0.618
        bits += "010"; // the list of sizes has the parameter 1: −1 is 1 as zigzag, 2 in γ code
        bits += "1"; // the parameter of sizes is 0
        bits += "0101"; // a gap of 5: 0 eights and 101
        bits += "11"; // the other ten: two eights
        bits += "0"; // it did not become smaller
        bits += "1"; // no other size: one two
        bits
    };
    let bits = |code: &[u8]| -> String {
        (0..8 * code.len())
            .map(|at| if code[at / 8] >> (at % 8) & 1 == 1 { '1' } else { '0' })
            .collect()
    };
    assert_eq!(bits(&code[1..]).trim_end_matches('0'), expected.trim_end_matches('0'));
}

/// Checks that content is possible.
fn check(element: ElementType, len: usize, content: &Content<'_>) {
    match *content {
        Content::Same => {}
        Content::Whole(all) => assert_eq!(all.len(), len * element.width()),
        Content::Changes { positions, values } => {
            assert!(positions.is_sorted_by(|a, b| a < b));
            assert!(positions.iter().all(|&position| (position as usize) < len));
            assert_eq!(values.len(), positions.len() * element.width());
        }
    }
}

#[test]
fn damaged_parts_do_no_harm() {
    let mut random = Random(6);
    let mut coder = Coder::default();
    let mut valid = 0;
    for element in ElementType::ALL {
        for (len, rarity) in [(40, 3), (1000, 50), (3000, 2), (3000, 1000)] {
            let [base, new] = versions(element, len, rarity, &mut random);
            for options in BOTH {
                let mut code = vec![];
                coder.encode(element, Some(&base), &new, options, &mut code);
                for _ in 0..60 {
                    let mut bad = code.clone();
                    for _ in 0..1 + random.below(3) {
                        let at = (random.below(bad.len() as u64)).min(random.below(40)) as usize;
                        bad[at] ^= 1 << random.below(8);
                    }
                    bad.truncate(
                        bad.len() - random.below(9).saturating_sub(6) as usize % bad.len(),
                    );
                    if let Ok(content) = coder.decode(element, len, Some(&base), &bad) {
                        check(element, len, &content);
                        valid += 1;
                    }
                    // A part with another base.
                    if let Ok(content) = coder.decode(element, len, Some(&new), &code) {
                        check(element, len, &content);
                    }
                }
            }
        }
    }
    assert!(valid > 100, "{valid}");
}

#[test]
fn any_bytes_do_no_harm() {
    let mut random = Random(7);
    let mut coder = Coder::default();
    for case in 0..20_000 {
        let element = ElementType::ALL[case % ElementType::ALL.len()];
        let len = random.below(300) as usize;
        let [base, _] = versions(element, len, 1, &mut random);
        let mut bytes: Vec<u8> = (0..random.below(60)).map(|_| random.below(256) as u8).collect();
        if let Some(form) = bytes.first_mut() {
            *form %= 7;
        }
        if let Ok(content) = coder.decode(element, len, Some(&base), &bytes) {
            check(element, len, &content);
        }
    }
}

#[test]
fn every_instruction_set_gives_the_same_bytes() {
    use InstructionSet::{Avx2, Avx512, Baseline, Plain};
    let mut random = Random(8);
    for element in ElementType::ALL {
        for (len, rarity) in [(1000, 20), (20_000, 300), (999, 2)] {
            let [base, new] = versions(element, len, rarity, &mut random);
            for options in BOTH {
                let code = |set| limited(set, || round_trip(element, &base, &new, options));
                let expected = code(Plain);
                for set in [Baseline, Avx2, Avx512] {
                    assert_eq!(code(set), expected, "{} with {set:?}", element.name());
                }
            }
        }
    }
}
