//! The marks of a run's compressors: of the decoded values, and of the bytes of the messages.

use gradwire::{Decoder, Encoder, Spec, Tensor};
use gradwire_exchange::{CompressionSchedule, Policy, RunDescription};

use super::cache::cached;
use super::mark::{Mark, values};
use crate::settings::TrainingSettings;

/// The marks of the decoded values and residuals, and of the messages.
pub(super) fn marks(
    settings: &TrainingSettings,
    compressor: &CompressionSchedule,
) -> Option<[String; 2]> {
    let mut marks = [Mark::default(), Mark::default()];
    for spec in specs(settings, compressor) {
        let both = cached(format!("messages {spec}"), || Some(of_spec(&spec)?.join(" ")))?;
        let (values, bytes) = both.split_once(' ')?;
        marks[0].bytes(values.as_bytes());
        marks[1].bytes(bytes.as_bytes());
    }
    Some(marks.map(Mark::text))
}

/// The compressors of a schedule, of the rules and of model deltas.
fn specs(settings: &TrainingSettings, compressor: &CompressionSchedule) -> Vec<Spec> {
    let drops = settings.learning_rate.drops(settings.steps);
    let run = RunDescription { drops: &drops, ..RunDescription::of_steps(settings.steps) };
    let stages = match compressor.resolve(run) {
        Ok(schedule) if !compressor.has_budget() => schedule.specs().cloned().collect(),
        // The compressor that a budget allows depends on the sizes of the model's tensors.
        _ => vec![compressor.first().clone()],
    };
    let pull = Policy::new(compressor.first().clone()).pull;
    stages
        .into_iter()
        .chain(pull)
        .chain(settings.rules.iter().map(|rule| rule.spec.clone()))
        .collect()
}

/// The marks of one compressor.
pub(super) fn of_spec(spec: &Spec) -> Option<[String; 2]> {
    let mut tensors = vec![Tensor::new("weight", &[48, 80]), Tensor::new("kernel", &[20, 9, 5])];
    if spec.entry().sparse {
        // Positions of a large tensor are written in several parts.
        tensors.push(Tensor::new("large", &[1024, 1024]));
    }
    let (mut decoded_mark, mut bytes_mark) = (Mark::default(), Mark::default());
    let (mut encoder, mut decoder) = (Encoder::new(spec, 0, 0), Decoder::new(spec, 0));
    for (index, tensor) in tensors.iter().enumerate() {
        let steps = if tensor.elements() > 1 << 16 { 1 } else { 3 };
        for step in 0..steps {
            let gradient = values(tensor.elements(), index as u64, 0, step);
            let mut message = Vec::new();
            encoder.encode(tensor, step, &gradient[..], &mut message).ok()?;
            let mut decoded = vec![0.0; tensor.elements()];
            decoder.decode_add(tensor, step, 0, &message, 1.0, &mut decoded).ok()?;
            decoded_mark.floats(&decoded);
            decoded_mark.floats(encoder.residual(tensor.name()).unwrap_or_default());
            bytes_mark.bytes(&message);
        }
    }
    Some([decoded_mark.text(), bytes_mark.text()])
}
