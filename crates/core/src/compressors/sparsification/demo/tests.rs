use super::*;
use crate::compressors::testing::{Sender, encode, f32s, refused, round_trip};
use crate::{Decoder, Spec, Tensor};

fn near(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 1e-5, "{found:?} for {expected:?}");
    }
}

#[test]
fn two_messages_of_two_elements_by_hand() {
    // The transform of (x, y) is ((x + y)/√2, (x − y)/√2).
    let mut sender = Sender::new("demo:k=1,momentum=0.5", &[2]);
    let (message, decoded) = sender.send(0, &[3.0, 1.0]);
    assert_eq!(message.len(), 2 + 4 + 1);
    assert_eq!((message[..2].to_vec(), message[6]), (vec![0, 1], 0b01));
    near(&f32s(&message[2..6]), &[4.0 / 2f32.sqrt()]);
    near(&decoded, &[2.0, 2.0]);
    near(sender.residual(), &[1.0, -1.0]);
    // Half of the rest plus (1, 0) is (1.5, −0.5); the second coefficient, 2/√2, is sent.
    let (message, decoded) = sender.send(1, &[1.0, 0.0]);
    assert_eq!(message[6], 0b10);
    near(&decoded, &[1.0, -1.0]);
    near(sender.residual(), &[0.5, 0.5]);
}

#[test]
fn a_coefficient_is_averaged_over_the_ranks_that_sent_it() {
    let spec: Spec = "demo:k=1".parse().unwrap();
    let tensor = Tensor::new("t", &[2]);
    let [mut sums, mut out] = [vec![], vec![1.0, 1.0]];
    let mut decoder = Decoder::new(&spec, 0);
    // Ranks 0 and 1 send the first coefficient, of (3, 3) and (1, 1), rank 2 the second, of (4,
    // −4).
    for (rank, gradient) in [[3.0, 3.0], [1.0, 1.0], [4.0, -4.0]].iter().enumerate() {
        let message = encode("demo:k=1", gradient);
        let at = (0, rank as u32);
        decoder.accumulate(&tensor, at, &message, 1.0 / 3.0, &mut sums, &mut out).unwrap();
    }
    assert_eq!(out, [1.0, 1.0]);
    decoder.finish(&tensor, 0, &mut sums, &mut out).unwrap();
    near(&out, &[1.0 + 2.0 + 4.0, 1.0 + 2.0 - 4.0]);
    assert!(sums.is_empty());
    let mut mean = out;
    mean.push(0.0);
    spec.compressor().aggregate(&mut mean);
    assert_eq!(mean, [1.0, -1.0, 0.0]);
}

#[test]
fn all_coefficients_give_the_tensor_back() {
    for shape in [&[64, 64][..], &[70, 130], &[6, 5, 4], &[127]] {
        let mut rng = crate::Rng::new(1, 2, 3, 4, 5);
        let gradient: Vec<f32> = (0..shape.iter().product()).map(|_| rng.uniform() - 0.5).collect();
        let mut sender = Sender::new("demo:k=4096", shape);
        let (_, decoded) = sender.send(0, &gradient);
        near(&decoded, &gradient);
    }
}

#[test]
fn each_block_sends_its_own_largest() {
    // Sides 35 and 65 / 13 = 65 > 64, so blocks are 35 × 13, five in a row.
    let mut gradient = vec![0.0; 35 * 65];
    for block in 0..5 {
        // A constant block has one coefficient that is not zero.
        for at in 0..35 * 13 {
            gradient[at / 13 * 65 + 13 * block + at % 13] = (block + 1) as f32;
        }
    }
    let mut sender = Sender::new("demo:k=1", &[35, 65]);
    let (message, decoded) = sender.send(0, &gradient);
    assert_eq!(message[1], 5);
    decoded.iter().zip(&gradient).for_each(|(a, b)| assert!((a - b).abs() < 1e-4));
}

#[test]
fn signs_take_a_bit_each() {
    let message = encode("demo:k=4096,values=sign", &[3.0, -1.0]);
    // Coefficients 2/√2 and 4/√2.
    assert_eq!(message, [0, 2, 0b00, 0b11]);
    near(&round_trip("demo:k=4096,values=sign", &[3.0, -1.0]), &[2f32.sqrt(), 0.0]);
    assert_eq!(encode("demo:k=4096,values=sign", &[-3.0, -1.0])[2], 0b11);
}

#[test]
fn malformed_messages_are_refused() {
    let good = encode("demo", &[3.0, -1.0, 2.0]);
    assert_eq!(refused("demo", 3, &good[..good.len() - 1]), DecodeError::Truncated);
    let mut large = good.clone();
    large[2..6].copy_from_slice(&1e34f32.to_le_bytes());
    assert!(matches!(refused("demo", 3, &large), DecodeError::Corrupt(_)));
    let signs = encode("demo:values=sign", &[3.0, -1.0, 2.0]);
    let mut spare = signs.clone();
    spare[2] |= 0b1000;
    assert!(matches!(refused("demo:values=sign", 3, &spare), DecodeError::Corrupt(_)));
}
