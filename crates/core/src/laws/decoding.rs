//! Laws of decoders: the messages that they accept, and the values that they add.

use super::samples::{RANK, SEED, decode, encode, encoder, gaussian, tensors};
use crate::{Decoder, Error, Rng, Spec, Tensor};

/// Decodes into a marked buffer; an error must leave the marks unchanged.
fn decode_untrusted(decoder: &mut Decoder, tensor: &Tensor, message: &[u8]) -> Result<(), Error> {
    let mut out = vec![-7.25; tensor.elements()];
    let result = decoder.decode_add(tensor, 3, RANK, message, 1.0, &mut out);
    if result.is_err() {
        assert!(out.iter().all(|&x| x == -7.25), "a refused message was added in part");
    }
    result
}

/// Lengths below `len`: all near both ends, and some between.
fn cuts(len: usize) -> impl Iterator<Item = usize> {
    const NEAR: usize = 64;
    (0..len).filter(move |&cut| cut < NEAR || cut + NEAR >= len || cut % 29 == 0)
}

pub(super) fn truncation_is_refused(spec: &Spec) {
    let mut decoder = Decoder::new(spec, SEED);
    for elements in [1, 2, 4, 5, 6, 7, 1023] {
        for (kind, gradient) in tensors(elements) {
            let tensor = Tensor::new("t", &[elements]);
            let message = encode(&mut encoder(spec), &tensor, 3, &gradient).unwrap();
            decode_untrusted(&mut decoder, &tensor, &message).unwrap();
            for len in cuts(message.len()) {
                let result = decode_untrusted(&mut decoder, &tensor, &message[..len]);
                assert!(result.is_err(), "{elements} {kind}, cut at {len}");
            }
            let longer = [&message[..], &[0]].concat();
            let result = decode_untrusted(&mut decoder, &tensor, &longer);
            assert!(result.is_err(), "{elements} {kind}, a byte too long");
        }
    }
}

pub(super) fn arbitrary_bytes_add_all_or_nothing(spec: &Spec) {
    let mut words = vec![0; 300];
    let mut decoder = Decoder::new(spec, SEED);
    for elements in [0, 1, 7, 33, 1023] {
        let tensor = Tensor::new("t", &[elements]);
        let valid = encode(&mut encoder(spec), &tensor, 3, &gaussian(elements, 9)).unwrap();
        let mut rng = Rng::new(3, 0, 0, elements as u64, 0);
        for _ in 0..300 {
            rng.fill(&mut words);
            let noise: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let len = rng.below(noise.len() as u64) as usize;
            let _ = decode_untrusted(&mut decoder, &tensor, &noise[..len]);
            // Of the right length, to get past the length check.
            let _ = decode_untrusted(&mut decoder, &tensor, &noise[..valid.len().min(noise.len())]);
            let mut changed = valid.clone();
            if !changed.is_empty() {
                let at = rng.below(changed.len().min(40) as u64) as usize;
                changed[at] ^= 1 << rng.below(8);
                let _ = decode_untrusted(&mut decoder, &tensor, &changed);
            }
        }
    }
}

pub(super) fn is_linear_in_the_weight(spec: &Spec) {
    let tensor = Tensor::new("t", &[1023]);
    let message = encode(&mut encoder(spec), &tensor, 3, &gaussian(1023, 8)).unwrap();
    let whole = decode(spec, &tensor, 3, &message).unwrap();
    let mut decoder = Decoder::new(spec, SEED);
    let mut out = vec![0.0; 1023];
    decoder.decode_add(&tensor, 3, RANK, &message, 0.25, &mut out).unwrap();
    let quarter: Vec<f32> = whole.iter().map(|x| 0.25 * x).collect();
    assert!(out == quarter, "a quarter of the weight does not add a quarter");
    decoder.decode_add(&tensor, 3, RANK, &message, 0.25, &mut out).unwrap();
    decoder.decode_add(&tensor, 3, RANK, &message, -0.5, &mut out).unwrap();
    assert!(out.iter().all(|&x| x == 0.0), "weights that add up to 0 do not add 0");
}
