//! Recorded training steps.

use gradwire::{Dtype, Floats, Tensor};
use gradwire_exchange::{ExchangeError, Result};

/// The limits of `DistributedDataParallel`'s buckets in bytes: the first one, and the others.
const BUCKET_BYTES: [usize; 2] = [1 << 20, 25 << 20];

/// Some training steps of one rank, without any exchange.
#[derive(Debug, Clone)]
pub struct Recording<'a> {
    /// The tensors of the model.
    pub tensors: Vec<Tensor>,
    /// The gradients of each recorded step, a flat buffer for each tensor, in their recorded type.
    pub gradients: Vec<Vec<Floats<'a>>>,
    /// The seconds of a whole step.
    pub step_seconds: f64,
    /// For each tensor, the seconds from the start of the step until its gradient is ready.
    pub ready: Vec<f64>,
}

/// Tensors of one type that are averaged together.
#[derive(Debug, Clone, PartialEq)]
pub struct Bucket {
    /// Their places in the model, in the order their gradients become ready.
    pub tensors: Vec<usize>,
    /// The type of their gradients, in which they are sent without compression.
    pub dtype: Dtype,
    /// The seconds from the start of the step until the last of them is ready.
    pub ready: f64,
}

impl Bucket {
    /// The number of its elements.
    pub(crate) fn elements(&self, recording: &Recording<'_>) -> usize {
        self.tensors.iter().map(|&at| recording.tensors[at].elements()).sum()
    }

    /// The bytes of its gradients.
    pub(crate) fn bytes(&self, recording: &Recording<'_>) -> usize {
        self.dtype.size() * self.elements(recording)
    }

    /// The buckets that `DistributedDataParallel` forms after its first step, with tensors in the
    /// order their gradients become ready. Each has gradients of one type. The first bucket of a
    /// type has up to one MiB, the others up to 25 MiB.
    pub fn form(tensors: &[Tensor], dtypes: &[Dtype], ready: &[f64]) -> Vec<Self> {
        let mut order: Vec<usize> = (0..tensors.len()).rev().collect();
        order.sort_by(|&a, &b| ready[a].total_cmp(&ready[b]));
        let mut all = Vec::new();
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let (mut buckets, mut bytes) = (Vec::<Self>::new(), usize::MAX);
            for &tensor in order.iter().filter(|&&tensor| dtypes[tensor] == dtype) {
                if bytes >= BUCKET_BYTES[usize::from(buckets.len() > 1)] {
                    buckets.push(Self { tensors: Vec::new(), dtype, ready: 0.0 });
                    bytes = 0;
                }
                let bucket = buckets.last_mut().expect("the first tensor opens a bucket");
                bucket.tensors.push(tensor);
                bucket.ready = ready[tensor];
                bytes += dtype.size() * tensors[tensor].elements();
            }
            all.append(&mut buckets);
        }
        all.sort_by(|a, b| a.ready.total_cmp(&b.ready));
        all
    }
}

impl<'a> Recording<'a> {
    /// Gradients without times: in a step of `step_seconds`, gradients become ready during the last
    /// `backward` seconds, from the last tensor to the first. Each takes a time in proportion to
    /// its elements.
    pub fn untimed(
        tensors: Vec<Tensor>,
        gradients: Vec<Vec<Floats<'a>>>,
        step_seconds: f64,
        backward: f64,
    ) -> Self {
        let all: usize = tensors.iter().map(Tensor::elements).sum();
        let mut behind = all;
        let ready = tensors.iter().map(|tensor| {
            let share = behind as f64 / all.max(1) as f64;
            behind -= tensor.elements();
            step_seconds - backward * (1.0 - share)
        });
        let ready = ready.collect();
        Self { tensors, gradients, step_seconds, ready }
    }

    /// The buckets of the model; see [`Bucket::form`].
    pub fn buckets(&self) -> Vec<Bucket> {
        let dtypes: Vec<_> = (0..self.tensors.len()).map(|tensor| self.dtype(tensor)).collect();
        Bucket::form(&self.tensors, &dtypes, &self.ready)
    }

    /// The type of a tensor's gradients in all recorded steps; `f32` if they differ, or if none is
    /// recorded.
    fn dtype(&self, tensor: usize) -> Dtype {
        let steps = self.gradients.iter().filter_map(|step| step.get(tensor));
        let mut dtypes = steps.map(Floats::dtype);
        let first = dtypes.next().unwrap_or(Dtype::F32);
        if dtypes.all(|dtype| dtype == first) { first } else { Dtype::F32 }
    }

    /// The bytes of a tensor's gradients.
    pub(crate) fn bytes_of(&self, tensor: usize) -> usize {
        self.dtype(tensor).size() * self.tensors[tensor].elements()
    }

    /// The bytes of all gradients of a step.
    pub(crate) fn bytes(&self) -> usize {
        (0..self.tensors.len()).map(|tensor| self.bytes_of(tensor)).sum()
    }

    /// The number of elements of the model.
    pub fn elements(&self) -> usize {
        self.tensors.iter().map(Tensor::elements).sum()
    }

    /// Refuses recordings whose parts do not fit together.
    ///
    /// # Errors
    /// `Config`, with the parts that do not fit.
    pub fn check(&self) -> Result<()> {
        let refuse = |reason: String| Err(ExchangeError::config(reason));
        if self.tensors.is_empty() {
            return refuse("there are no tensors; record the gradients of a model".to_owned());
        }
        if self.gradients.is_empty() {
            return refuse("no steps are recorded; record at least one".to_owned());
        }
        if !(self.step_seconds.is_finite() && self.step_seconds > 0.0) {
            return refuse(format!(
                "a step takes more than 0 s, not {} s; measure it again",
                self.step_seconds
            ));
        }
        if self.ready.len() != self.tensors.len() {
            let (times, tensors) = (self.ready.len(), self.tensors.len());
            return refuse(format!("there are {times} times for {tensors} tensors"));
        }
        for (step, gradients) in self.gradients.iter().enumerate() {
            let elements = gradients.iter().map(Floats::len);
            if !elements.eq(self.tensors.iter().map(Tensor::elements)) {
                return refuse(format!(
                    "the gradients of step {step} do not have the shapes of the tensors; record one model"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enough zeros for every tensor of these tests.
    static ZEROS: [f32; 25 << 18] = [0.0; 25 << 18];

    fn recording(elements: &[usize], ready: &[f64]) -> Recording<'static> {
        let tensors = elements.iter().enumerate();
        Recording {
            tensors: tensors.map(|(at, &n)| Tensor::new(format!("t{at}"), &[n])).collect(),
            gradients: vec![elements.iter().map(|&n| Floats::F32(&ZEROS[..n])).collect()],
            step_seconds: 1.0,
            ready: ready.to_vec(),
        }
    }

    #[test]
    fn buckets_fill_in_the_order_of_readiness() {
        let mib = 1 << 18;
        // The first bucket closes with the tensor that fills 1 MiB, the second at 25 MiB.
        let found = recording(&[mib, 25 * mib, mib / 2, mib / 2], &[0.9, 0.8, 0.3, 0.2]).buckets();
        let tensors: Vec<_> = found.iter().map(|bucket| bucket.tensors.clone()).collect();
        assert_eq!(tensors, [vec![3, 2], vec![1], vec![0]]);
        assert_eq!(found.iter().map(|bucket| bucket.ready).collect::<Vec<_>>(), [0.3, 0.8, 0.9]);
    }

    #[test]
    fn a_bucket_has_gradients_of_one_type_and_its_size_in_their_bytes() {
        let mib = 1 << 18;
        let tensors = [2 * mib, mib / 2, mib / 2, 2 * mib, 60].map(|n| Tensor::new("t", &[n]));
        let dtypes = [Dtype::Bf16, Dtype::Bf16, Dtype::F32, Dtype::Bf16, Dtype::F32];
        // From the last to the first: 1 MiB of bfloat16, and the rest of it up to 25 MiB.
        let found = Bucket::form(&tensors, &dtypes, &[0.5, 0.4, 0.3, 0.2, 0.1]);
        let found: Vec<_> =
            found.iter().map(|one| (&one.tensors[..], one.dtype, one.ready)).collect();
        assert_eq!(
            found,
            [(&[3][..], Dtype::Bf16, 0.2), (&[4, 2], Dtype::F32, 0.3), (&[1, 0], Dtype::Bf16, 0.5)]
        );
    }

    #[test]
    fn without_times_gradients_are_spread_over_the_backward_pass() {
        let tensors = [30, 10].map(|n| Tensor::new(format!("t{n}"), &[n]));
        let found = Recording::untimed(tensors.to_vec(), vec![], 1.0, 0.4);
        // The last tensor after a quarter of the backward pass, which begins at 0.6.
        assert!((found.ready[1] - 0.7).abs() < 1e-12 && (found.ready[0] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let good = recording(&[4, 2], &[0.2, 0.1]);
        assert!(good.check().is_ok());
        let wrong = [
            Recording { tensors: vec![], ready: vec![], ..good.clone() },
            Recording { gradients: vec![], ..good.clone() },
            Recording { gradients: vec![vec![Floats::F32(&ZEROS[..4])]], ..good.clone() },
            Recording { ready: vec![0.1], ..good.clone() },
            Recording { step_seconds: f64::NAN, ..good },
        ];
        assert!(wrong.iter().all(|recording| recording.check().is_err()));
    }
}
