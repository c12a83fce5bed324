//! Laws of tensors that threads encode and decode together.

use super::samples::{RANK, SEED, bits, encode, encoder, gaussian};
use crate::source::LEAST_DIVIDED;
use crate::{DecodeJob, Decoder, EncodeJob, Encoder, Floats, Sent, Spec, State, Tensor, Threads};

const WEIGHT: f32 = 0.25;

/// Tensors side by side.
pub(super) fn threads_change_nothing(spec: &Spec) {
    let model =
        [("a", vec![40, 25]), ("b", vec![3]), ("c", vec![0]), ("d", vec![60, 90]), ("e", vec![7])];
    compare_with_one_thread(spec, &model.map(|(name, shape)| Tensor::new(name, &shape)), 3);
}

/// One tensor that threads divide, and small ones.
pub(super) fn threads_that_share_a_tensor_change_nothing(spec: &Spec) {
    let rows = LEAST_DIVIDED / 256 + 1;
    let model = [("a", vec![256, rows]), ("b", vec![5]), ("c", vec![LEAST_DIVIDED + 3])];
    let model = model.map(|(name, shape)| Tensor::new(name, &shape));
    compare_with_one_thread(spec, &model[..2], 2);
    compare_with_one_thread(spec, &model[2..], 2);
}

fn compare_with_one_thread(spec: &Spec, model: &[Tensor], steps: u64) {
    let (mut alone, mut together, mut threads) = (encoder(spec), encoder(spec), Threads::new(3));
    for step in 0..steps {
        let gradients: Vec<Vec<f32>> =
            model.iter().map(|tensor| gaussian(tensor.elements(), step)).collect();
        let jobs = encode_all(&mut together, step, (model, &gradients), &mut threads);
        for ((tensor, gradient), job) in model.iter().zip(&gradients).zip(&jobs) {
            let message = encode(&mut alone, tensor, step, gradient).unwrap();
            assert!(job.message == message, "{tensor:?}, step {step}");
            if job.sent == Sent::Positions {
                assert_eq!(job.positions, alone.positions(), "{tensor:?}, step {step}");
            }
        }
        assert!(saved(&together) == saved(&alone), "step {step}");
        decode(spec, step, &jobs, &mut threads);
    }
}

fn encode_all<'a>(
    encoder: &mut Encoder,
    step: u64,
    (model, gradients): (&'a [Tensor], &'a [Vec<f32>]),
    threads: &mut Threads,
) -> Vec<EncodeJob<'a>> {
    let job = |(tensor, gradient): (&'a Tensor, &'a Vec<f32>)| EncodeJob {
        tensor,
        input: Floats::F32(gradient).into(),
        message: vec![1, 2, 3],
        sent: Sent::All,
        positions: vec![9],
    };
    let mut jobs: Vec<EncodeJob<'_>> = model.iter().zip(gradients).map(job).collect();
    encoder.encode_all(step, &mut jobs, threads).unwrap();
    jobs
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
            sums,
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
