//! Laws of tensors that threads encode and decode together.

use super::samples::{RANK, SEED, bits, encoder, gaussian};
use crate::parts::MIN_DIVIDED;
use crate::wire::symbols::PART_SYMBOLS;
use crate::{
    Coverage, DecodeJob, Decoder, EncodeJob, Encoder, Error, Family, Floats, ReduceOp, Spec, State,
    Tensor, Threads,
};

const WEIGHT: f32 = 0.25;

/// Tensors side by side.
pub(super) fn threads_change_nothing(spec: &Spec) {
    let model =
        [("a", vec![40, 25]), ("b", vec![3]), ("c", vec![0]), ("d", vec![60, 90]), ("e", vec![7])];
    let model = model.map(|(name, shape)| Tensor::new(name, &shape));
    compare_with_one_thread(spec, &model, 3, gaussian);
}

/// One tensor that threads divide, and small ones.
pub(super) fn threads_that_share_a_tensor_change_nothing(spec: &Spec) {
    let rows = MIN_DIVIDED / 256 + 1;
    let model = [("a", vec![256, rows]), ("b", vec![5]), ("c", vec![MIN_DIVIDED + 3])];
    let model = model.map(|(name, shape)| Tensor::new(name, &shape));
    compare_with_one_thread(spec, &model[..2], 2, gaussian);
    compare_with_one_thread(spec, &model[2..], 1, gaussian);
    // A threshold that many elements reach.
    compare_with_one_thread(spec, &model[2..], 1, |elements, _| vec![1.0; elements]);
    non_finite_is_refused(spec, &model[2]);
}

/// Too many coded symbols for one list: each part has its own code. Positions are in parts if one
/// per cent of a million elements is sent; only the defaults are compared there.
pub(super) fn threads_that_share_a_list_change_nothing(spec: &Spec) {
    let sparse = matches!(spec.entry().family, Family::Sparsification | Family::Hybrid);
    if sparse && spec.to_string() == spec.entry().id {
        let tensor = Tensor::new("a", &[1 << 10, (1 << 10) + 1]);
        compare_with_one_thread(spec, &[tensor], 1, gaussian);
    }
    if spec.to_string().contains("code=huffman") {
        // Of the methods with coded symbols, `terngrad` has the fewest symbols: one per five
        // elements.
        let tensor = Tensor::new("a", &[5 * PART_SYMBOLS + 13]);
        compare_with_one_thread(spec, &[tensor], 1, gaussian);
    }
}

/// A single rank's rounds of a tensor that threads divide.
pub(super) fn threads_that_share_rounds_change_nothing(spec: &Spec) {
    let tensor = Tensor::new("a", &[256, MIN_DIVIDED / 256 + 1]);
    let encoder = || encoder(spec).with_plain_memory();
    let (mut alone, mut together) = (encoder(), encoder());
    together.use_threads(3);
    if !alone.has_rounds("a") {
        return;
    }
    for step in 0..2 {
        let gradient = gaussian(tensor.elements(), step);
        let play = |encoder: &mut Encoder| {
            let (mut means, mut addend) = (Vec::new(), Vec::new());
            for round in 0.. {
                let input = Floats::F32(&gradient);
                let op = encoder.contribute(&tensor, step, round, input, &means, &mut addend);
                match op.unwrap() {
                    None => break,
                    Some(ReduceOp::TableMean(table)) => {
                        means.extend(addend.iter().map(|&at| f32::from(table[at as usize])));
                    }
                    Some(_) => means.extend_from_slice(&addend),
                }
            }
            let mut out = vec![0.5; tensor.elements()];
            encoder.conclude(&tensor, step, &means, &mut out).unwrap();
            (means, out, saved(encoder))
        };
        assert!(play(&mut together) == play(&mut alone), "step {step}");
    }
}

fn compare_with_one_thread(
    spec: &Spec,
    model: &[Tensor],
    steps: u64,
    values: impl Fn(usize, u64) -> Vec<f32>,
) {
    // Fewer threads than parts, so one works on several.
    let (mut alone, mut together, mut threads) = (encoder(spec), encoder(spec), Threads::new(2));
    for step in 0..steps {
        let gradient = |tensor: &Tensor| Gradient::new(values(tensor.elements(), step));
        let gradients: Vec<Gradient> = model.iter().map(gradient).collect();
        let jobs = encode_all(&mut together, step, (model, &gradients), &mut threads).unwrap();
        for ((tensor, gradient), job) in model.iter().zip(&gradients).zip(&jobs) {
            let mut message = Vec::new();
            alone.encode(tensor, step, gradient.at(step), &mut message).unwrap();
            assert!(job.message == message, "{tensor:?}, step {step}");
            if job.sent == Coverage::Positions {
                assert_eq!(job.positions, alone.positions(), "{tensor:?}, step {step}");
            }
        }
        assert!(saved(&together) == saved(&alone), "step {step}");
        decode(spec, step, &jobs, &mut threads);
        decode_damaged(spec, step, &jobs, &mut threads);
    }
}

/// The error names the element, whichever thread finds it, and the state is unchanged.
fn non_finite_is_refused(spec: &Spec, tensor: &Tensor) {
    let (mut encoder, mut threads) = (encoder(spec), Threads::new(3));
    let mut values = gaussian(tensor.elements(), 0);
    let index = tensor.elements() - 2;
    for step in 0..3 {
        let before = saved(&encoder);
        values[index] = if step == 1 { f32::NAN } else { 1.0 };
        let (model, gradients) = (std::slice::from_ref(tensor), [Gradient::new(values.clone())]);
        // In 32 bits.
        let encoded = encode_all(&mut encoder, 2 * step, (model, &gradients), &mut threads);
        assert_eq!(encoded.is_err(), step == 1, "step {step}");
        if let Err(error) = encoded {
            assert!(
                matches!(&error, Error::NonFinite { index: at, .. } if *at == index),
                "{error}"
            );
            assert!(saved(&encoder) == before, "an error has changed the state");
        }
        assert_eq!(threads.count(), 3);
    }
}

/// A gradient, and its upper halves.
struct Gradient(Vec<f32>, Vec<u16>);

impl Gradient {
    fn new(values: Vec<f32>) -> Self {
        let halves = values.iter().map(|x| (x.to_bits() >> 16) as u16).collect();
        Self(values, halves)
    }

    /// In 16 bits at odd steps.
    fn at(&self, step: u64) -> Floats<'_> {
        if step.is_multiple_of(2) { Floats::F32(&self.0) } else { Floats::Bf16(&self.1) }
    }
}

fn encode_all<'a>(
    encoder: &mut Encoder,
    step: u64,
    (model, gradients): (&'a [Tensor], &'a [Gradient]),
    threads: &mut Threads,
) -> Result<Vec<EncodeJob<'a>>, Error> {
    let job = |(tensor, gradient): (&'a Tensor, &'a Gradient)| EncodeJob {
        tensor,
        input: gradient.at(step).into(),
        message: vec![1, 2, 3],
        sent: Coverage::All,
        positions: vec![9],
    };
    let mut jobs: Vec<EncodeJob<'_>> = model.iter().zip(gradients).map(job).collect();
    encoder.encode_all(step, &mut jobs, threads)?;
    Ok(jobs)
}

fn saved(encoder: &Encoder) -> Vec<u8> {
    let mut state = State::new();
    encoder.save("", &mut state);
    state.to_bytes().unwrap()
}

/// Adds each message twice, side by side and one by one.
fn decode(spec: &Spec, step: u64, jobs: &[EncodeJob<'_>], threads: &mut Threads) {
    let mut decoder = Decoder::new(spec, SEED);
    let mut sides: [Vec<(Vec<f32>, Vec<f32>)>; 2] = Default::default();
    for side in &mut sides {
        *side = jobs.iter().map(|job| (Vec::new(), vec![0.5; job.tensor.elements()])).collect();
    }
    let [together, alone] = &mut sides;
    for _ in 0..2 {
        let all = jobs.iter().zip(&mut *together);
        let all = all.map(|(job, (sums, out))| DecodeJob {
            tensor: job.tensor,
            message: &job.message,
            sums: Some(sums),
            out,
        });
        decoder.accumulate_all((step, RANK), WEIGHT, all.collect(), threads).unwrap();
        for (job, (sums, out)) in jobs.iter().zip(&mut *alone) {
            let from = (step, RANK);
            decoder.accumulate(job.tensor, from, &job.message, WEIGHT, sums, out).unwrap();
        }
    }
    for ((found, out), (expected, also)) in together.iter().zip(alone) {
        let is_same = (bits(found), bits(out)) == (bits(expected), bits(also));
        assert!(is_same, "{} elements, step {step}", out.len());
    }
}

/// Threads refuse the same truncated or changed messages, and add nothing.
fn decode_damaged(spec: &Spec, step: u64, jobs: &[EncodeJob<'_>], threads: &mut Threads) {
    let mut decoder = Decoder::new(spec, SEED);
    for EncodeJob { tensor, message, .. } in jobs {
        let cut = &message[..message.len().saturating_sub(1)];
        let mut changed = message.clone();
        if let Some(byte) = changed.get_mut(message.len() / 2) {
            *byte = 0xff;
        }
        for message in [cut, &changed] {
            let from = (step, RANK);
            let (mut sums, mut out) = (Vec::new(), vec![0.5; tensor.elements()]);
            let job = DecodeJob { tensor, message, sums: Some(&mut sums), out: &mut out };
            let together = decoder.accumulate_all(from, WEIGHT, vec![job], threads);
            let (mut also_sums, mut also_out) = (Vec::new(), vec![0.5; tensor.elements()]);
            let (sums_alone, out_alone) = (&mut also_sums, &mut also_out);
            let alone = decoder.accumulate(tensor, from, message, WEIGHT, sums_alone, out_alone);
            let text = |result: &Result<(), Error>| result.as_ref().err().map(Error::to_string);
            assert_eq!(text(&together), text(&alone), "{tensor:?}");
            assert!(bits(&out) == bits(&also_out), "{tensor:?}");
            assert!(together.is_ok() || out.iter().all(|x| *x == 0.5), "{tensor:?}");
        }
    }
}
