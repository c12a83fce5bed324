//! Compressors with the bytes and speeds of their messages.

use gradwire::{Decoder, Encoder, Floats, Rng, Spec, Tensor};
use gradwire_exchange::{Exchange, ExchangeError, Result};

use super::kernels::{Kernels, core, kernels};
use super::phases::Message;
use super::plan::{Plan, Transport};
use crate::trials::Trials;
use crate::{BucketCost, Candidate, Costs, Recording, Watch};

/// The cost of compression on a core of the host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Codec {
    /// Messages, with lossless codes.
    pub message: Message,
    /// Seconds per element of compressing.
    pub compress: f64,
    /// Seconds per element of adding a message.
    pub add: f64,
}

/// A compressor with the bytes and speeds of its messages.
#[derive(Debug, Clone, PartialEq)]
pub struct Method {
    /// The compressor.
    pub spec: Spec,
    /// The error that remains of the sum of ten steps, after error feedback, relative to the sum:
    /// ‖sent − true‖ / ‖true‖.
    pub error: f64,
    /// On the host.
    pub host: Codec,
    /// The messages between GPUs, without lossless codes.
    pub(crate) form: Message,
    /// Kernels; `None` without measured ones.
    pub(crate) kernels: Option<Kernels>,
}

/// Elements of the tensor that is compressed to count bytes.
const ELEMENTS: usize = 1 << 16;

impl Method {
    /// A compressor, with the bytes of its tenth message and its error for normally distributed
    /// elements, and the speeds of an H200 and of a core of an AMD Zen 5. A compressor without a
    /// measured speed on a core is as fast as the slowest measured one. Takes some milliseconds.
    ///
    /// # Errors
    /// `Config` for compressors whose ranks compute the result together, in rounds.
    pub fn of(spec: &Spec) -> Result<Self> {
        if spec.compressor().rounds().is_some() {
            return Err(ExchangeError::config(format!(
                "'{spec}' takes several rounds, which are not simulated between nodes; leave it out"
            )));
        }
        let whole = Sample::of(spec, ELEMENTS)?;
        let half = Sample::of(spec, ELEMENTS / 2)?;
        let [compress, add] = core(spec).unwrap_or([4e-9 / 3.2, 4e-9 / 10.4]);
        let bits = 8.0 * (whole.form - half.form) / (ELEMENTS / 2) as f64;
        let message = Message::plain(8.0 * whole.message / ELEMENTS as f64).with_header();
        Ok(Self {
            spec: spec.clone(),
            error: whole.error,
            host: Codec { message, compress, add },
            form: Message { bits, constant: 2.0 * half.form - whole.form },
            kernels: kernels(spec),
        })
    }

    /// No compression: the framework's all-reduce averages elements of `bits` bits.
    pub fn none(bits: f64) -> Self {
        Self {
            spec: Spec::none(),
            error: 0.0,
            host: Codec { message: Message::plain(bits).with_header(), compress: 0.0, add: 0.0 },
            form: Message::plain(bits),
            kernels: None,
        }
    }

    /// As [`of`](Self::of) for several compressors, with the messages, the error and the speed on
    /// the host of a [trial](Costs::measure) between two ranks. Takes as long as the trials, whose
    /// progress `watch` receives.
    ///
    /// # Errors
    /// As for [`of`](Self::of) and [`Costs::measure`]; `Ended` if `watch` ended the trials.
    pub fn tried<'a>(
        specs: &[Spec],
        recording: &'a Recording<'a>,
        watch: &'a mut Watch<'a>,
    ) -> Result<Vec<Self>> {
        let methods = specs.iter().map(Self::of).collect::<Result<Vec<_>>>()?;
        let candidates: Vec<_> = methods.iter().map(Self::candidate).collect();
        let mut trials = Trials::new(recording, candidates.iter().map(|one| (one, 2)), watch);
        let tried = methods.into_iter().zip(&candidates).map(|(method, candidate)| {
            let costs = trials.costs(candidate, 2)?;
            Ok(method.with(&costs, recording.elements() as f64))
        });
        tried.collect()
    }

    /// The candidate of its trial, by the exchange in which each rank adds each message.
    fn candidate(&self) -> Candidate {
        let exchange = if self.adds() { Exchange::AllReduce } else { Exchange::AllGather };
        Candidate { exchange: Some(exchange), ..Candidate::new(self.spec.clone()) }
    }

    /// With the costs of a trial between two ranks.
    fn with(self, costs: &Costs, elements: f64) -> Self {
        let sum = |field: fn(&BucketCost) -> f64| costs.buckets.iter().map(field).sum::<f64>();
        let message = Message::plain(8.0 * costs.message_bytes() / elements);
        let host = Codec {
            message: message.with_header(),
            compress: sum(|cost| cost.compress) / elements,
            // Two messages each.
            add: sum(|cost| cost.decompress) / (2.0 * elements),
        };
        // The recorded gradients may have 16 bits.
        let form = if self.spec.sends_gradients() { message } else { self.form };
        Self { host, form, error: costs.error, ..self }
    }

    /// Whether messages add up, so the framework's all-reduce averages them.
    pub fn adds(&self) -> bool {
        self.spec.compressor().linear().is_some() && !self.spec.entry().sparse
    }

    /// Whether its gradients can travel from GPU to GPU, at a known speed of compression. Changes
    /// of local steps travel by the host.
    pub fn on_device(&self) -> bool {
        let has_form = self.spec.compressor().device_form().is_some();
        self.kernels.is_some() && has_form && self.spec.every() == 1
    }

    /// The messages of a transport.
    pub fn message(&self, transport: Transport) -> Message {
        match transport {
            Transport::Device => self.form,
            Transport::Host => self.host.message,
        }
    }

    /// The error of the mean of a group of ranks: the errors of their messages are independent of
    /// each other, and a scatter-reduce compresses the mean once more.
    pub fn error_of_mean(&self, plan: &Plan, group: usize) -> f64 {
        let again = if plan.exchange == Exchange::ScatterReduce { 1.0 } else { 0.0 };
        self.error * (1.0 / group as f64 + again).sqrt()
    }
}

/// Steps of a sample, until residuals have grown.
const STEPS: u64 = 10;

/// The messages of a tensor whose elements are normally distributed, over some steps.
struct Sample {
    /// The bytes of the last message.
    message: f64,
    /// The bytes of its device form, or of the message if it has none.
    form: f64,
    /// The error of the sum of all messages, relative to the sum of all tensors.
    error: f64,
}

impl Sample {
    fn of(spec: &Spec, elements: usize) -> Result<Self> {
        Self::encoded(spec, elements).map_err(|error| {
            ExchangeError::config(format!("'{spec}' cannot be simulated: {error}"))
        })
    }

    fn encoded(spec: &Spec, elements: usize) -> std::result::Result<Self, gradwire::Error> {
        let tensor = Tensor::new("weight", &[elements]);
        let mut rng = Rng::new(0, 0, 0, 0, 0);
        let (mut encoder, mut decoder) = (Encoder::new(spec, 0, 0), Decoder::new(spec, 0));
        let (mut message, mut form) = (Vec::new(), Vec::new());
        let (mut sent, mut truth) = (vec![0.0; elements], vec![0.0; elements]);
        for step in 0..STEPS {
            let values: Vec<f32> = (0..elements).map(|_| rng.normal()).collect();
            truth.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
            message.clear();
            encoder.encode(&tensor, step, Floats::F32(&values), &mut message)?;
            decoder.decode_add(&tensor, step, 0, &message, 1.0, &mut sent)?;
        }
        if spec.compressor().device_form().is_some() {
            decoder.unpack(&tensor, STEPS - 1, 0, &message, &mut form)?;
        } else {
            form.clone_from(&message);
        }
        let square = |values: &[f32]| values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
        let all = square(&truth);
        sent.iter_mut().zip(&truth).for_each(|(sent, truth)| *sent -= truth);
        let error = (square(&sent) / all).sqrt();
        Ok(Self { message: message.len() as f64, form: form.len() as f64, error })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::topology::plan::Levels;

    fn method(spec: &str) -> Method {
        Method::of(&spec.parse().unwrap()).unwrap()
    }

    #[test]
    fn forms_have_the_bits_of_the_formats() {
        let form = |spec: &str| (method(spec).form.bits, method(spec).form.constant);
        assert_eq!(form("none"), (32.0, 0.0));
        assert_eq!(method("none").form, Method::none(32.0).form);
        assert_eq!(form("bf16"), (16.0, 0.0));
        // A step of 4 bytes; a scale in each block of 4096, of 128.
        assert_eq!(form("int8"), (8.0, 4.0));
        assert_eq!(form("eden"), (1.0 + 32.0 / 4096.0, 0.0));
        assert_eq!(form("int4"), (4.0 + 16.0 / 128.0, 0.0));
        // Five trits in a byte, before lossless codes.
        let (bits, constant) = form("3lc");
        assert!((bits - 1.6).abs() < 1e-3 && (constant - 4.0).abs() < 2.0, "{bits} {constant}");
        assert!((0.5..1.3).contains(&method("3lc").host.message.bits));
    }

    #[test]
    fn errors_are_those_of_the_papers() {
        // EDEN of one bit: π/2 − 1.
        let eden = method("eden");
        assert!((eden.error.powi(2) - 0.571).abs() < 0.01, "{}", eden.error);
        let plan = |exchange| Plan { exchange, levels: Levels::Flat, transport: Transport::Device };
        let of = |exchange| eden.error_of_mean(&plan(exchange), 4) / eden.error;
        assert_eq!(of(Exchange::AllGather), 0.5);
        assert!((of(Exchange::ScatterReduce) - 1.25_f64.sqrt()).abs() < 1e-12);
        assert!(method("none").error < 1e-6 && method("int8").error < 0.01);
    }

    #[test]
    fn rounds_are_refused_and_a_trial_measures_the_own_gradients() {
        let error = Method::of(&"powersgd".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("several rounds"), "{error}");
        // Half of the elements are zero: fewer bits than of normally distributed ones.
        let values: Vec<f32> = (0..4096).map(|at| if at % 2 == 0 { 0.0 } else { 1.0 }).collect();
        let recording = Recording::untimed(
            vec![Tensor::new("w", &[64, 64])],
            vec![vec![Floats::F32(&values)]],
            1.0,
            0.5,
        );
        let specs = ["3lc".parse().unwrap()];
        let watch = &mut |_: &crate::Progress<'_>| ControlFlow::Continue(());
        let tried = Method::tried(&specs, &recording, watch).unwrap().remove(0);
        let of = method("3lc");
        assert!(tried.host.message.bits != of.host.message.bits && tried.form == of.form);
        assert!(tried.host.compress > 0.0 && tried.host.add > 0.0);
    }
}
