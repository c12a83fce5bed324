use super::*;
use crate::compressors::testing::{decode, encode, f32s, residual, round_trip};
use crate::{Decoder, Encoder, Floats, Spec, Tensor};

#[test]
fn messages_worked_by_hand() {
    // A vector is uncompressed.
    assert_eq!(encode("atomo", &[1.0, -2.0]), [1, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
    assert_eq!(residual("atomo:ef=on", &[1.0, -2.0]), [0.0; 2]);
    assert!(encode("atomo", &[]).is_empty());
    // Two entries of four; 4 is above the level of 2.
    let expected = [0, 1, 0, 0, 0x80, 0x40, 0b0010, 0, 1, 0, 0, 0, 0x40, 1, 0b1000];
    assert_eq!(encode("atomo:atoms=entries,s=2", &[0.0, 4.0, 0.0, -2.0]), expected);
}

fn messages(spec: &str, tensor: &Tensor, gradient: &[f32], step: u64) -> (Vec<u8>, Vec<f32>) {
    let spec: Spec = spec.parse().unwrap();
    let (mut message, mut out) = (Vec::new(), vec![0.0; gradient.len()]);
    Encoder::new(&spec, 5, 1).encode(tensor, step, Floats::F32(gradient), &mut message).unwrap();
    Decoder::new(&spec, 5).decode_add(tensor, step, 1, &message, 1.0, &mut out).unwrap();
    assert!(message.len() <= spec.compressor().max_len(gradient.len()));
    (message, out)
}

#[test]
fn probabilities_are_those_of_the_algorithm() {
    let of = |weights: &[f32], budget| {
        let mut found = Vec::new();
        probabilities(weights, budget, &mut found);
        found
    };
    assert_eq!(of(&[8.0, 4.0, 3.0, 1.0], 2.0), [1.0, 0.5, 0.375, 0.125]);
    // 10·2 is above 12: 10 is certain, and 1 and 1 share a budget of one.
    assert_eq!(of(&[10.0, 1.0, 1.0], 2.0), [1.0, 0.5, 0.5]);
    assert_eq!(of(&[2.0, 1.0, 0.0], 3.0), [1.0, 1.0, 0.0]);
    assert_eq!(of(&[0.0, 0.0], 1.0), [0.0, 0.0]);
    assert_eq!(of(&[3.0], 0.5), [0.5]);
    // In any order: 10 of 14 is certain with a budget of 2; 1, 1 and 2 share the rest.
    assert_eq!(of(&[1.0, 10.0, 1.0, 2.0], 2.0), [0.25, 1.0, 0.25, 0.5]);
}

/// The absolute values of elements, in decreasing order.
fn sorted(gradient: &[f32]) -> Vec<f32> {
    let mut sorted: Vec<f32> = gradient.iter().map(|x| x.abs()).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    sorted
}

const GRADIENT: [f32; 8] = [0.3, -1.5, 0.0, 2.0, 0.25, -0.75, 1.0, -0.1];

#[test]
fn entries_have_the_probabilities_of_qsgd_and_terngrad() {
    let weights = sorted(&GRADIENT);
    let sum: f64 = weights.iter().map(|&x| f64::from(x)).sum();
    let squares: f64 = weights.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
    for (budget, scale) in [(Budget::Norm, squares.sqrt()), (Budget::Largest, 2.0)] {
        let mut found = Vec::new();
        probabilities(&weights, budget.of(sum, squares, 2.0), &mut found);
        for (&weight, p) in weights.iter().zip(found) {
            // QSGD with one level is ±‖c‖₂ with probability |c| / ‖c‖₂; TernGrad is ±max with |c| /
            // max.
            assert!((p - f64::from(weight) / scale).abs() < 1e-12);
        }
    }
}

#[test]
fn entries_with_the_largest_as_level_are_terngrad_bit_for_bit() {
    let gradient: Vec<f32> = (0..10_000).map(|at| (at * 7919 % 1000) as f32 - 500.0).collect();
    let entries = round_trip("atomo:atoms=entries,budget=max", &gradient);
    assert_eq!(entries, round_trip("terngrad:clip=0", &gradient));
}

#[test]
fn entries_with_the_norm_as_level_are_qsgd_with_one_level() {
    let draws = 40_000;
    let tensor = Tensor::new("t", &[8]);
    let norm = GRADIENT.iter().map(|x| x * x).sum::<f32>().sqrt();
    let mut sent = [0; 8];
    for step in 0..draws {
        let (_, out) = messages("atomo:atoms=entries,budget=l2", &tensor, &GRADIENT, step);
        for ((&x, out), sent) in GRADIENT.iter().zip(out).zip(&mut sent) {
            assert!(out == 0.0 || (out / x > 0.0 && (out.abs() / norm - 1.0).abs() < 1e-6));
            *sent += u32::from(out != 0.0);
        }
    }
    for (x, sent) in GRADIENT.iter().zip(sent) {
        let p = f64::from(x.abs() / norm);
        let deviation = (p * (1.0 - p) / draws as f64).sqrt();
        let share = f64::from(sent) / draws as f64;
        assert!((share - p).abs() <= 5.0 * deviation, "{x}: {share} for {p}");
    }
}

/// 4 × 8 with singular values 8, 4, 3 and 1; all squares of an atom's elements are σ² / 32.
fn matrix() -> Vec<f32> {
    let sign = |bits: usize| if bits.count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
    let element = |at: usize| {
        let (row, column) = (at / 8, at % 8);
        let atoms = [8.0, 4.0, 3.0, 1.0].iter().enumerate();
        atoms.map(|(k, sigma)| sigma * sign(k & row) * sign(k & column)).sum::<f32>()
    };
    (0..32).map(|at| element(at) / 32f32.sqrt()).collect()
}

#[test]
fn spectral_atoms_have_the_matrix_as_expectation() {
    let (tensor, matrix, draws) = (Tensor::new("t", &[4, 2, 4]), matrix(), 4000);
    let (mut sums, mut squares, mut atoms) = ([0f64; 32], [0f64; 32], 0);
    for step in 0..draws {
        let (message, out) = messages("atomo:s=2", &tensor, &matrix, step);
        assert_eq!((message[0], message.len()), (ATOMS, 2 + usize::from(message[1]) * 4 * 12));
        atoms += u64::from(message[1]);
        for (at, x) in out.into_iter().enumerate() {
            sums[at] += f64::from(x);
            squares[at] += f64::from(x) * f64::from(x);
        }
    }
    // p is 1, ½, ⅜ and ⅛: the variance of an element is (16·1 + 9·5/3 + 1·7) / 32.
    let (n, variance) = (draws as f64, 38.0 / 32.0);
    for (at, &x) in matrix.iter().enumerate() {
        let mean = sums[at] / n;
        assert!(
            (mean - f64::from(x)).abs() < 5.0 * f64::sqrt(variance / n),
            "{at}: {mean} for {x}"
        );
        let found = squares[at] / n - mean * mean;
        assert!((found / variance - 1.0).abs() < 0.25, "{at}: {found}");
    }
    // Two on average, with a variance of ¼ + 15/64 + 7/64.
    assert!((atoms as f64 / n - 2.0).abs() < 5.0 * (38.0 / 64.0 / n).sqrt());
}

#[test]
fn directions_of_the_rest_keep_the_expectation() {
    // Wide, and transposed: some of the singular values 8, 4, 3 and 1 are found, the others are
    // random directions. With one found, the rest has norm √26: three of √(26/3). Atoms are
    // orthogonal: the total variance is Σσ²(1/p − 1).
    let wide = matrix();
    let tall: Vec<f32> = (0..32).map(|at| wide[at % 4 * 8 + at / 4]).collect();
    for (spec, matrix, found, budget) in [
        ("atomo:s=2,rank=1", &wide, 1, 2.0),
        ("atomo:s=2,rank=2", &tall, 2, 2.0),
        ("atomo:s=0.5,rank=1", &tall, 1, 0.5),
    ] {
        let shape = if std::ptr::eq(matrix, &wide) { [4, 8] } else { [8, 4] };
        let (tensor, draws) = (Tensor::new("t", &shape), 4000);
        let mut sigma = [8.0, 4.0, 3.0, 1.0];
        let rest = sigma[found..].iter().map(|x| x * x).sum::<f32>() / (4 - found) as f32;
        sigma[found..].fill(rest.sqrt());
        let mut p = Vec::new();
        probabilities(&sigma, budget, &mut p);
        let parts = sigma.iter().zip(&p).map(|(&x, p)| f64::from(x * x) * (1.0 / p - 1.0));
        let expected: f64 = parts.sum();
        let (mut sums, mut variance, mut atoms) = ([0f64; 32], 0.0, 0);
        for step in 0..draws {
            let (message, out) = messages(spec, &tensor, matrix, step);
            atoms += u64::from(message[1]);
            for ((sum, x), &exact) in sums.iter_mut().zip(out).zip(matrix) {
                *sum += f64::from(x);
                variance += f64::from(x - exact).powi(2);
            }
        }
        let n = draws as f64;
        // A found vector is not quite singular, which adds to the variance.
        let ratio = variance / n / expected;
        assert!((0.9..1.2).contains(&ratio), "{spec}: {ratio}");
        for (at, &x) in matrix.iter().enumerate() {
            let deviation = (expected / 32.0 / n).sqrt();
            let mean = sums[at] / n;
            assert!((mean - f64::from(x)).abs() < 6.0 * deviation, "{spec}, {at}: {mean} for {x}");
        }
        assert!((atoms as f64 / n - budget).abs() < 5.0 / n.sqrt(), "{spec}: {atoms}");
    }
}

#[test]
fn an_atom_is_divided_by_the_probability_of_its_draw() {
    let of = |p| f64::from(chances(p)) / f64::from(1u32 << DRAWN_BITS);
    assert_eq!([0.0, 0.5, 1.0].map(of), [0.0, 0.5, 1.0]);
    assert_eq!([1e-9, 0.3].map(chances), [1, 5_033_165]);
}

#[test]
fn a_product_of_vectors_is_one_certain_atom() {
    for scale in [1.0, 1e-40, 1e17] {
        let gradient: Vec<f32> =
            (0..40).map(|at| scale * (at / 8 + 1) as f32 * (at % 8) as f32).collect();
        let (message, out) = messages("atomo:s=1", &Tensor::new("t", &[5, 8]), &gradient, 0);
        assert_eq!((&message[..2], message.len()), (&[ATOMS, 1][..], 2 + 4 * 13));
        let room = gradient[39] * 1e-5 + 1e-42;
        assert!(gradient.iter().zip(&out).all(|(x, y)| (x - y).abs() < room), "{scale}");
    }
}

fn close(a: &[f32], b: &[f32]) {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).for_each(|(x, y)| assert!((x - y).abs() < 1e-5, "{a:?} and {b:?}"));
}

#[test]
fn certain_atoms_of_a_diagonal_matrix_worked_by_hand() {
    // 2·8 / (8 + 2) is above 1, so 2 alone has a budget of one. Rows and columns are exchanged.
    let mut matrix = [0.0; 25];
    (matrix[7], matrix[15]) = (-8.0, 2.0);
    let (message, out) = messages("atomo:s=2", &Tensor::new("t", &[5, 5]), &matrix, 0);
    assert_eq!((&message[..2], message.len()), (&[ATOMS, 2][..], 2 + 2 * 4 * (5 + 5)));
    for (atom, (row, column, sigma)) in
        f32s(&message[2..]).chunks(10).zip([(1, 2, -8.0), (3, 0, 2.0)])
    {
        // The decomposition decides which of the two vectors has a sign.
        let (left, right) = atom.split_at(5);
        let sign = right[column].signum();
        let unit = |at: usize, length: f32| -> Vec<f32> {
            (0..5).map(|i| if i == at { length } else { 0.0 }).collect()
        };
        close(left, &unit(row, sign * sigma));
        close(right, &unit(column, sign));
    }
    close(&out, &matrix);
}

#[test]
fn drawn_atoms_of_a_diagonal_matrix_worked_by_hand() {
    // s = 1: p = ¾ and ¼, so either is sent as 3 / ¾ = 1 / ¼ = 4. The draws are the upper 24 bits
    // of a word.
    let matrix = [3.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0];
    let tensor = Tensor::new("t", &[3, 3]);
    let mut seen = [0; 4];
    for step in 0..64 {
        let mut words = [0; 2];
        crate::Rng::new(5, tensor.id(), 1, step, 0).fill(&mut words);
        let sent = [words[0] >> 8 < 3 << 22, words[1] >> 8 < 1 << 22];
        let (message, out) = messages("atomo:s=1", &tensor, &matrix, step);
        let count = sent.map(u8::from).iter().sum();
        assert_eq!((&message[..2], message.len()), (&[ATOMS, count][..], 2 + 24 * count as usize));
        let [first, second] = sent.map(|sent| if sent { 4.0 } else { 0.0 });
        close(&out, &[first, 0.0, 0.0, 0.0, second, 0.0, 0.0, 0.0, 0.0]);
        seen[usize::from(sent[0]) + 2 * usize::from(sent[1])] += 1;
    }
    assert!(!seen.contains(&0), "{seen:?}");
}

#[test]
fn what_does_not_pay_travels_as_it_is() {
    let plain = |spec: &str, shape: &[usize], scale: f32| {
        let gradient: Vec<f32> = (0..24).map(|at| scale * ((at * at) % 7) as f32).collect();
        let (message, out) = messages(spec, &Tensor::new("t", shape), &gradient, 0);
        if message[0] == PLAIN {
            assert_eq!(out, gradient);
        }
        message[0] == PLAIN
    };
    assert!(plain("atomo", &[24], 1.0) && plain("atomo", &[24, 1], 1.0));
    // Two atoms of 10 are shorter than 24, three are not.
    assert!(!plain("atomo:s=2", &[4, 6], 1.0) && plain("atomo:s=3", &[4, 6], 1.0));
    assert!(plain("atomo:s=2", &[4, 6], 1e20));
    // Zeros have no atoms.
    let (message, _) = messages("atomo:s=2", &Tensor::new("t", &[4, 6]), &[0.0; 24], 0);
    assert_eq!(message, [ATOMS, 0]);
    let (message, _) = messages("atomo", &Tensor::new("t", &[4, 0, 6]), &[], 0);
    assert!(message.is_empty());
}

#[test]
fn the_residual_is_what_the_receiver_lacks() {
    let (tensor, matrix) = (Tensor::new("t", &[4, 8]), matrix());
    let spec: Spec = "atomo:s=1,ef=on".parse().unwrap();
    let (mut encoder, mut message, mut out) = (Encoder::new(&spec, 5, 1), Vec::new(), [0.0; 32]);
    encoder.encode(&tensor, 0, Floats::F32(&matrix), &mut message).unwrap();
    Decoder::new(&spec, 5).decode_add(&tensor, 0, 1, &message, 1.0, &mut out).unwrap();
    let left: Vec<f32> = matrix.iter().zip(out).map(|(x, y)| x - y).collect();
    assert_eq!(encoder.residual("t").unwrap(), left);
}

#[test]
fn malformed_messages_are_refused() {
    let refused = |shape: &[usize], message: &[u8]| {
        let spec: Spec = "atomo".parse().unwrap();
        let elements = shape.iter().product();
        let mut out = vec![0.5; elements];
        let tensor = Tensor::new("t", shape);
        let result = Decoder::new(&spec, 5).decode_add(&tensor, 0, 1, message, 1.0, &mut out);
        assert!(out.iter().all(|&x| x == 0.5));
        match result.unwrap_err() {
            crate::Error::Message { source, .. } => source,
            other => panic!("{other}"),
        }
    };
    let none = DecodeError::Corrupt("the tag is unknown, or does not fit the tensor's shape");
    assert_eq!(refused(&[6], &[ATOMS, 0]), none);
    assert_eq!(refused(&[2, 3], &[2, 0]), none);
    let many = DecodeError::Corrupt("there are more atoms than singular vectors");
    assert_eq!(refused(&[2, 3], &[ATOMS, 3]), many);
    assert_eq!(refused(&[2, 3], &[ATOMS, 1, 0]), DecodeError::Truncated);
    assert_eq!(refused(&[2, 3], &[PLAIN; 26]), DecodeError::Trailing { extra: 1 });
    let message = [&[ATOMS, 1][..], &[0; 18], &[0x80, 0x7f]].concat();
    assert_eq!(refused(&[2, 3], &message), DecodeError::Corrupt("an atom is not finite"));
    assert!(decode("atomo:atoms=entries,budget=max", &[0, 1], 1.0, &mut [0.0; 4]).is_err());
}
