//! Laws of device forms.

use super::samples::{RANK, SEED, encode, encoder, gaussian};
use super::subjects::over_tensors;
use crate::{Coverage, Decoder, Error, Rng, Spec, Tensor};

/// The device form of a message.
fn unpack(decoder: &mut Decoder, tensor: &Tensor, message: &[u8]) -> Result<Vec<u8>, Error> {
    let mut form = b"before".to_vec();
    decoder.unpack(tensor, 3, RANK, message, &mut form)?;
    assert!(form.starts_with(b"before"), "a form is appended");
    Ok(form.split_off(6))
}

pub(super) fn packing_the_form_gives_the_message(spec: &Spec) {
    if spec.compressor().device_form().is_none() {
        return;
    }
    over_tensors(|tensor, values, what| {
        let mut sender = encoder(spec);
        let Ok(message) = encode(&mut sender, tensor, 3, values) else { return };
        let form = unpack(&mut Decoder::new(spec, SEED), tensor, &message).unwrap();
        let (mut packer, mut packed) = (encoder(spec), b"before".to_vec());
        let sent = packer.pack(tensor, 3, &form, &mut packed).unwrap();
        assert!(packed.starts_with(b"before") && packed[6..] == message, "{what}");
        if sent == Coverage::Positions {
            assert_eq!(packer.positions(), sender.positions(), "{what}");
        }
    });
}

pub(super) fn unpacking_accepts_what_decoding_accepts(spec: &Spec) {
    if spec.compressor().device_form().is_none() {
        return;
    }
    let mut decoder = Decoder::new(spec, SEED);
    let mut agree = |tensor: &Tensor, message: &[u8]| {
        let mut out = vec![0.0; tensor.elements()];
        let decoded = decoder.decode_add(tensor, 3, RANK, message, 1.0, &mut out);
        let unpacked = unpack(&mut decoder, tensor, message).map(drop);
        assert_eq!(format!("{unpacked:?}"), format!("{decoded:?}"), "{message:?}");
    };
    let mut words = vec![0; 300];
    for elements in [0, 1, 7, 33, 1023] {
        let tensor = Tensor::new("t", &[elements]);
        let valid = encode(&mut encoder(spec), &tensor, 3, &gaussian(elements, 9)).unwrap();
        (0..valid.len()).for_each(|len| agree(&tensor, &valid[..len]));
        agree(&tensor, &[&valid[..], &[0]].concat());
        let mut rng = Rng::new(3, 0, 0, elements as u64, 0);
        for _ in 0..100 {
            rng.fill(&mut words);
            let noise: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            agree(&tensor, &noise[..valid.len().min(noise.len())]);
            let mut changed = valid.clone();
            if !changed.is_empty() {
                let at = rng.below(changed.len().min(40) as u64) as usize;
                changed[at] ^= 1 << rng.below(8);
                agree(&tensor, &changed);
            }
        }
    }
}
